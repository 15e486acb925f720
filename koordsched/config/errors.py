"""What a bad configuration raises, and the texts of validation errors.

The texts are those of upstream's field errors (apimachinery `validation/field/errors.go`):
`path: Invalid value: v: detail`, values rendered as JSON.
"""

import json
from collections.abc import Iterable, Sequence

from koordsched.config.duration import Duration


class ConfigError(Exception):
    """A configuration that cannot be used. `errors` holds each complaint, `str()` the aggregate upstream prints."""

    def __init__(self, message: str, errors: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.errors: tuple[str, ...] = tuple(errors) or (message,)


def aggregate(errors: Iterable[str]) -> ConfigError:
    """One error out of several: duplicates dropped, a single one bare, more of them bracketed and comma separated.

    Source: apimachinery `util/errors/errors.go` (Aggregate.Error).
    """
    unique = tuple(dict.fromkeys(errors))
    if len(unique) == 1:
        return ConfigError(unique[0])
    return ConfigError("[" + ", ".join(unique) + "]", unique)


def required(path: str, detail: str = "") -> str:
    return _field(path, "Required value", detail)


def forbidden(path: str, detail: str) -> str:
    return _field(path, "Forbidden", detail)


def duplicate(path: str, value: object) -> str:
    return _field(path, f"Duplicate value: {render(value)}", "")


def invalid(path: str, value: object, detail: str) -> str:
    return _field(path, f"Invalid value: {render(value)}", detail)


def not_found(path: str, value: object) -> str:
    return _field(path, f"Not found: {render(value)}", "")


def unsupported(path: str, value: object, supported: Iterable[str]) -> str:
    return _field(path, f"Unsupported value: {render(value)}", "supported values: " + quoted(supported))


def quoted(names: Iterable[str]) -> str:
    """`"A", "B"`."""
    return ", ".join(json.dumps(name, ensure_ascii=False) for name in names)


def render(value: object) -> str:
    """A value as a field error shows it: compact JSON, durations in Go's syntax."""
    plain = str(value) if isinstance(value, Duration) else value
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _field(path: str, body: str, detail: str) -> str:
    return f"{path}: {body}: {detail}" if detail else f"{path}: {body}"

"""Refusals, in the shape of metav1.Status.

Texts and details follow apimachinery `pkg/api/errors/errors.go` and `pkg/util/validation/field/errors.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from koordsched.fakecluster.resources import Resource


class ApiStatusError(Exception):
    """A request is refused: becomes a `Status` body with HTTP status `code`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        """Seconds for the Retry-After header, when the client should come again."""

    def status(self) -> dict[str, Any]:
        """The `Status` object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        details = dict(self.details) if self.details else {}
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details:
            body["details"] = details
        body["code"] = self.code
        return body


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field: `text` is the whole sentence without the field's path."""

    field: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def _value(value: Any) -> str:
    return orjson.dumps(value).decode()


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    """`Invalid value: "x": detail`."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_value(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    """`Required value`."""
    return FieldError(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def forbidden_field(field: str, detail: str) -> FieldError:
    """`Forbidden: detail`."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> FieldError:
    """`Duplicate value: "x"`."""
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_value(value)}")


def not_supported(field: str, value: Any, supported: Sequence[str]) -> FieldError:
    """`Unsupported value: "x": supported values: "a", "b"`."""
    values = ", ".join(_value(v) for v in sorted(supported))
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {_value(value)}: supported values: {values}"
    )


def too_many(field: str, actual: int, most: int) -> FieldError:
    """`Too many: 33: must have at most 32 items`."""
    items = "item" if most == 1 else "items"
    return FieldError(field, "FieldValueTooMany", f"Too many: {actual}: must have at most {most} {items}")


def too_long(field: str, most: int) -> FieldError:
    """`Too long: may not be more than 63 bytes`."""
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def not_found_value(field: str, value: Any, detail: str = "") -> FieldError:
    """`Not found: "x": detail`."""
    text = f"Not found: {_value(value)}" + (f": {detail}" if detail else "")
    return FieldError(field, "FieldValueNotFound", text)


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> ApiStatusError:
    """422 with one cause per wrong field."""
    unique = list(dict.fromkeys(errors))
    texts = [str(e) for e in unique]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    qualified = f"{kind}.{group}" if group else kind
    causes = [{"reason": e.reason, "message": e.text, "field": e.field} for e in unique]
    details = _details(group, kind, name) | {"causes": causes}
    return ApiStatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {joined}', details)


def _details(group: str, kind: str, name: str = "", uid: str = "") -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind, "uid": uid}
    return {k: v for k, v in details.items() if v}


def not_found(resource: Resource, name: str) -> ApiStatusError:
    """404 for an object."""
    return ApiStatusError(
        404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource.group, resource.plural, name)
    )


def not_authorized(
    user: str, verb: str, resource: Resource, namespace: str | None, subresource: str = "", name: str = ""
) -> ApiStatusError:
    """403: no role lets the user do this."""
    path = f"{resource.plural}/{subresource}" if subresource else resource.plural
    scope = f'in the namespace "{namespace}"' if namespace is not None else "at the cluster scope"
    what = f'{resource.qualified} "{name}"' if name else resource.qualified
    text = f'{what} is forbidden: User "{user}" cannot {verb} resource "{path}" in API group "{resource.group}" {scope}'
    return ApiStatusError(403, "Forbidden", text, _details(resource.group, resource.plural))


def no_such_path() -> ApiStatusError:
    """404 for a path or a kind that is not served."""
    return ApiStatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> ApiStatusError:
    """409 on create."""
    details = _details(resource.group, resource.plural, name)
    return ApiStatusError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', details)


def conflict(resource: Resource, name: str, message: str) -> ApiStatusError:
    """409 on a failed precondition."""
    text = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {message}'
    return ApiStatusError(409, "Conflict", text, _details(resource.group, resource.plural, name))


def modified(resource: Resource, name: str) -> ApiStatusError:
    """409 on a stale resourceVersion."""
    text = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, text)


def forbidden(resource: Resource, name: str, message: str, causes: Sequence[dict[str, str]] = ()) -> ApiStatusError:
    """403 from admission."""
    details = _details(resource.group, resource.plural, name)
    if causes:
        details["causes"] = list(causes)
    text = (
        f'{resource.qualified} "{name}" is forbidden: {message}'
        if name
        else f"{resource.qualified} is forbidden: {message}"
    )
    return ApiStatusError(403, "Forbidden", text, details)


def bad_request(message: str) -> ApiStatusError:
    """400."""
    return ApiStatusError(400, "BadRequest", message)


def method_not_allowed() -> ApiStatusError:
    """405."""
    return ApiStatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
    )


def unauthorized() -> ApiStatusError:
    """401."""
    return ApiStatusError(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> ApiStatusError:
    """410: the resourceVersion or the continue token is gone."""
    return ApiStatusError(410, "Expired", message)


def too_old(requested: int, oldest: int) -> ApiStatusError:
    """410 for a watch or an exact list below the compacted history."""
    return expired(f"too old resource version: {requested} ({oldest})")


def too_large(requested: int, current: int) -> ApiStatusError:
    """504: the client has seen a newer state than this server."""
    return ApiStatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        retry_after=1,
    )


def unsupported_media_type(got: str, accepted: Sequence[str]) -> ApiStatusError:
    """415."""
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiStatusError(415, "UnsupportedMediaType", text + (f" (got {got})" if got else ""), {})


def too_many_requests(message: str, retry_after: int, causes: Sequence[dict[str, str]] = ()) -> ApiStatusError:
    """429."""
    details = {"causes": list(causes)} if causes else None
    return ApiStatusError(429, "TooManyRequests", message, details, retry_after=retry_after)

"""Patches: JSON patch (RFC 6902), merge patch (RFC 7396), strategic merge and apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordsched.fakecluster.errors import ApiStatusError, bad_request, invalid_value
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.schemas import PREFIX
from koordsched.fakecluster.strategic import strategic_merge

Object = dict[str, Any]
Patcher = Callable[[Object], Object]


def patcher(resource: Resource, kind: str, patch: Any) -> Patcher:
    """The function that applies a patch of `kind` (`json`, `merge`, `strategic`) to an object.

    400 when the patch does not have the form its kind asks for, 415 for a strategic patch of a custom resource.
    """
    if kind == "json":
        if not isinstance(patch, list):
            raise bad_request("a JSON patch must be a list of operations")
        return lambda obj: _as_object(json_patch(obj, patch))
    if not isinstance(patch, dict):
        raise bad_request(f"a {kind} patch must be an object")
    if kind == "merge":
        return lambda obj: _as_object(merge_patch(obj, patch))
    if kind != "strategic":
        raise bad_request(f"unknown kind of patch {kind!r}")
    if not resource.definition:
        accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise ApiStatusError(415, "UnsupportedMediaType", text)
    schema = {"$ref": PREFIX + resource.definition}
    return lambda obj: strategic_merge(obj, patch, schema)


def _as_object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise bad_request("the patch does not leave an object")
    return value


def merge_patch(current: Any, patch: Any) -> Any:
    """RFC 7396. Neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    out = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902, on a document that the caller owns. 422 when an operation does not apply."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list")
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise bad_request("each operation of a JSON patch needs op and path")
        document = _operate(document, operation)
    return document


def _pointer(text: Any) -> list[str]:
    if text == "":
        return []
    if not isinstance(text, str) or not text.startswith("/"):
        raise _refused(f"invalid JSON pointer {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _refused(message: str) -> ApiStatusError:
    """The real server answers 422 without causes when an operation cannot be carried out."""
    return ApiStatusError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {message}", {}
    )


def _index(container: list[Any], part: str, past_end: bool) -> int:
    if part == "-" and past_end:
        return len(container)
    if not part.isdigit() or int(part) > len(container) - (0 if past_end else 1):
        raise _refused(f"list index {part!r} is out of range")
    return int(part)


def _walk(document: Any, parts: list[str]) -> Any:
    for part in parts:
        if isinstance(document, list):
            document = document[_index(document, part, False)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            raise _refused(f"path element {part!r} does not exist")
    return document


def _add(document: Any, parts: list[str], value: Any, replace: bool = False) -> Any:
    if not parts:
        return value
    container, last = _walk(document, parts[:-1]), parts[-1]
    if isinstance(container, list):
        if replace:
            container[_index(container, last, False)] = value
        else:
            container.insert(_index(container, last, True), value)
    elif isinstance(container, dict):
        if replace and last not in container:
            raise _refused(f"replace operation does not apply: path element {last!r} does not exist")
        container[last] = value
    else:
        raise _refused(f"cannot add below {'/'.join(parts[:-1])!r}")
    return document


def _remove(document: Any, parts: list[str]) -> Any:
    if not parts:
        raise _refused("cannot remove the whole document")
    container, last = _walk(document, parts[:-1]), parts[-1]
    _walk(container, [last])
    if isinstance(container, list):
        del container[int(last)]
    else:
        del container[last]
    return document


def _operate(document: Any, operation: Object) -> Any:
    name, parts = operation["op"], _pointer(operation["path"])
    if name == "add":
        return _add(document, parts, operation.get("value"))
    if name == "replace":
        return _add(document, parts, operation.get("value"), replace=True)
    if name == "remove":
        return _remove(document, parts)
    if name == "test":
        if _walk(document, parts) != operation.get("value"):
            raise _refused(f"testing path {operation['path']} failed")
        return document
    if name in ("move", "copy"):
        source = _pointer(operation.get("from"))
        value = _walk(document, source)
        if name == "move":
            document = _remove(document, source)
        return _add(document, parts, value)
    raise bad_request(invalid_value("op", name, "unknown operation").text)

"""Reading request bodies: media types, kinds, field validation."""

from __future__ import annotations

from typing import Any

import orjson
import yaml

from koordsched.api.nesting import check_depth
from koordsched.api.protobuf.fields import MEDIA_TYPE
from koordsched.fakecluster import errors, protobuf
from koordsched.fakecluster.messages import Request
from koordsched.fakecluster.resources import Object, Resource
from koordsched.fakecluster.typed import OBJECT_META, WrongBody, decode, decode_new

JSON_TYPES = ("application/json", "application/yaml")
ACCEPTED = (*JSON_TYPES, MEDIA_TYPE)
PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}

try:
    _Loader: Any = yaml.CSafeLoader
except AttributeError:
    _Loader = yaml.SafeLoader


def media_type(request: Request) -> str:
    """The content type without parameters; JSON when none is given."""
    stated = request.headers.get("content-type", "")
    if stated == "application/json":
        return stated
    return stated.partition(";")[0].strip().lower() or "application/json"


def parse(body: bytes, what: str, yaml_allowed: bool = False) -> Any:
    """Decode JSON, or YAML where it is allowed. 400 when it is neither."""
    try:
        return orjson.loads(body)
    except ValueError as problem:
        if not yaml_allowed:
            raise errors.bad_request(f"couldn't parse {what}: {problem}") from None
    try:
        text = body.decode("utf-8")
        check_depth(text)
        # Through JSON, so that dates and other YAML types end as what JSON has.
        return orjson.loads(orjson.dumps(yaml.load(text, _Loader)))
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as problem:
        raise errors.bad_request(f"couldn't parse {what}: {problem}") from None


def _from_protobuf(body: bytes) -> bytes:
    try:
        return protobuf.to_json(body)
    except protobuf.BadProtobuf as problem:
        raise errors.bad_request(f"couldn't parse the body: {problem}") from None


def read_json(request: Request, what: str) -> Object:
    """The body as an object, of no particular schema. 400 or 415."""
    kind = media_type(request)
    if kind == MEDIA_TYPE:
        value = orjson.loads(_from_protobuf(request.body))
    elif kind in JSON_TYPES:
        value = parse(request.body, what, kind == "application/yaml")
    else:
        raise errors.unsupported_media_type(kind, ACCEPTED)
    if not isinstance(value, dict):
        raise errors.bad_request(f"{what} must be an object")
    return value


def part(obj: Object, field: str) -> Object:
    """An object in a body that has no schema; empty when absent. 400 when it is something else."""
    value = obj.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.bad_request(f"{field} must be an object")
    return value


def texts(obj: Object, field: str) -> dict[str, str]:
    """Labels or annotations in a body that has no schema. 400 when a value is no text."""
    found = part(obj, field)
    if not all(isinstance(value, str) for value in found.values()):
        raise errors.bad_request(f"{field} must be texts")
    return found


def read_object(request: Request, resource: Resource, warnings: list[str], opaque: bool = False) -> Object:
    """The body as an object of the resource's kind, checked against its schema; adds warnings for the client.

    `opaque` leaves managedFields encoded (see `typed.decode`) and seals the spec where the kind's strategy can take
    that: for new objects only.

    400 for a wrong kind, wrong types or (fieldValidation=Strict) unknown fields; 415 for a media type not understood.
    """
    kind = media_type(request)
    if kind == "application/json":
        body = request.body
    elif kind == "application/yaml":
        body = orjson.dumps(parse(request.body, "the body", True))
    elif kind == MEDIA_TYPE and resource.definition:
        body = _from_protobuf(request.body)
    else:
        raise errors.unsupported_media_type(kind, ACCEPTED)
    obj = check(body, resource, request.query.get("fieldValidation", "Warn"), warnings, opaque)
    check_kind(obj, resource)
    return obj


def check(body: bytes, resource: Resource, validation: str, warnings: list[str], opaque: bool = False) -> Object:
    """The object in `body` by the schema of a built-in kind; custom kinds are checked when stored."""
    if not resource.definition:
        value = parse(body, "the body")
        if not isinstance(value, dict):
            raise errors.bad_request("the body of the request must be an object")
        if isinstance(value.get("metadata"), dict):
            _check_metadata(value, resource, validation, warnings)
        return value
    if opaque and resource.seals_spec and (known := decode_new(body, resource.definition)) is not None:
        return known
    try:
        obj, unknown = decode(body, resource.definition, opaque)
    except WrongBody as problem:
        raise _not_handled(resource, str(problem)) from None
    except ValueError as problem:
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): couldn't parse: {problem}"
        ) from None
    if unknown:
        report_unknown(resource, unknown, validation, warnings)
    return obj


def _check_metadata(obj: Object, resource: Resource, validation: str, warnings: list[str]) -> None:
    """The one part of a custom object that has a published schema; without its unknown fields, in place."""
    try:
        obj["metadata"], unknown = decode(orjson.dumps(obj["metadata"]), OBJECT_META)
    except WrongBody as problem:
        raise _not_handled(resource, f"metadata: {problem}") from None
    if unknown:
        report_unknown(resource, [f"metadata.{path}" for path in unknown], validation, warnings)


def report_unknown(resource: Resource, unknown: list[str], validation: str, warnings: list[str]) -> None:
    """Reports unknown fields as the request wants it: not at all, as warnings, or (Strict) as a 400."""
    texts = [f'unknown field "{path}"' for path in unknown]
    if validation == "Strict":
        raise _not_handled(resource, "strict decoding error: " + ", ".join(texts))
    if validation != "Ignore":
        warnings.extend(texts)


def _not_handled(resource: Resource, text: str) -> errors.ApiStatusError:
    return errors.bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {text}'
    )


def check_kind(obj: Object, resource: Resource) -> None:
    """400 unless the body agrees with the path, or does not say."""
    kind, version = obj.get("kind", resource.kind), obj.get("apiVersion", resource.api_version)
    if kind != resource.kind or version != resource.api_version:
        group = f"{resource.group}/" if resource.group else ""
        raise errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {resource.kind}: '
            f"the API version in the data ({version}) does not match the expected API version "
            f"({group}{resource.version})"
            if kind == resource.kind
            else f'the object provided is unrecognized (must be of type {resource.kind}): got kind "{kind}"'
        )

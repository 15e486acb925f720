"""Syntax of names, label keys and label values (apimachinery `pkg/util/validation/validation.go`)."""

from __future__ import annotations

import re
from functools import lru_cache

from koordsched.fakecluster.errors import FieldError, invalid_value, too_long

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def subdomain_error(name: str) -> str | None:
    """Why `name` is not a DNS-1123 subdomain, or None."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    return None if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_TEXT


def label_error(name: str) -> str | None:
    """Why `name` is not a DNS-1123 label, or None."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return None if _LABEL.fullmatch(name) else _LABEL_TEXT


def label_1035_error(name: str) -> str | None:
    """Why `name` is not a DNS-1035 label (names of services), or None."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return None if _LABEL_1035.fullmatch(name) else _LABEL_1035_TEXT


def path_segment_error(name: str) -> str | None:
    """Why `name` cannot stand in a path (names of RBAC objects), or None."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    for char in "/%":
        if char in name:
            return f"may not contain '{char}'"
    return None


@lru_cache(maxsize=4096)
def qualified_name_error(key: str) -> str | None:
    """Why `key` is not a qualified name (label keys, annotation keys, resource names, finalizers), or None."""
    prefix, slash, name = key.rpartition("/")
    if slash:
        if "/" in prefix:
            return "a valid label key must have at most one '/': " + _QUALIFIED_TEXT
        if not prefix:
            return "prefix part must be non-empty"
        if (error := subdomain_error(prefix)) is not None:
            return "prefix part " + error
    if not name:
        return "name part must be non-empty; " + _QUALIFIED_TEXT
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return None if _QUALIFIED.fullmatch(name) else _QUALIFIED_TEXT


@lru_cache(maxsize=16384)
def label_value_error(value: str) -> str | None:
    """Why `value` is not a label value, or None."""
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return None if _VALUE.fullmatch(value) else _VALUE_TEXT


def label_errors(labels: object, field: str) -> list[FieldError]:
    """What is wrong with a label map."""
    if not labels:
        return []
    if not isinstance(labels, dict):
        return [invalid_value(field, labels, "must be an object")]
    errors = []
    for key, value in labels.items():
        if (text := qualified_name_error(key)) is not None:
            errors.append(invalid_value(field, key, text))
        if not isinstance(value, str):
            errors.append(invalid_value(field, value, "must be a string"))
        elif (text := label_value_error(value)) is not None:
            errors.append(invalid_value(field, value, text))
    return errors


_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_C_IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)


def c_identifier_error(name: str) -> str | None:
    """Why `name` is not a C identifier (attributes of devices), or None."""
    return None if _C_IDENTIFIER.fullmatch(name) else _C_IDENTIFIER_TEXT


_ANNOTATIONS_LIMIT = 256 * 1024


def annotation_errors(annotations: object, field: str) -> list[FieldError]:
    """What is wrong with an annotation map."""
    if not annotations:
        return []
    if not isinstance(annotations, dict):
        return [invalid_value(field, annotations, "must be an object")]
    errors, size = [], 0
    for key, value in annotations.items():
        if (text := qualified_name_error(key.lower())) is not None:
            errors.append(invalid_value(field, key, text))
        if not isinstance(value, str):
            errors.append(invalid_value(field, value, "must be a string"))
        else:
            size += len(key) + len(value)
    if size > _ANNOTATIONS_LIMIT:
        errors.append(too_long(field, _ANNOTATIONS_LIMIT))
    return errors

"""Rules for fields that several kinds of resource.k8s.io have: names, lists, taints, tolerations, parameters.

Source: `pkg/apis/resource/validation`, whose texts these are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import orjson

from koordsched.fakecluster.errors import (
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from koordsched.fakecluster.names import (
    c_identifier_error,
    label_error,
    label_value_error,
    qualified_name_error,
    subdomain_error,
)

Object = dict[str, Any]
Errors = list[FieldError]

LONGEST_PARAMETERS = 10 * 1024
"""Bytes of the parameters for a driver."""
EFFECTS = ("None", "NoExecute", "NoSchedule")
_OPERATORS = ("Equal", "Exists")
_LONGEST_DOMAIN = 63
_LONGEST_ID = 32
_LONGEST_POOL_NAME = 253
_MOST_CONDITIONS = 4
_UID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


def items_errors(items: Sequence[Any], most: int | None, check: Callable[[Any, str], Errors], field: str) -> Errors:
    """What is wrong with the items of a list; of one that is too long only that it is, as nothing else is looked at."""
    if most is not None and len(items) > most:
        return [too_many(field, len(items), most)]
    return [error for i, item in enumerate(items) for error in check(item, f"{field}[{i}]")]


def set_errors(
    items: Sequence[Any],
    most: int | None,
    check: Callable[[Any, str], Errors],
    key: Callable[[Any], Hashable],
    field: str,
) -> Errors:
    """As `items_errors`, for items with distinct keys."""
    if most is not None and len(items) > most:
        return [too_many(field, len(items), most)]
    wrong = items_errors(items, None, check, field)
    seen = set()
    for i, item in enumerate(items):
        found = key(item)
        if found in seen:
            wrong.append(duplicate(f"{field}[{i}]", found))
        seen.add(found)
    return wrong


def name_of(item: Object) -> str:
    """The key of named items."""
    return str(item.get("name") or "")


def map_errors(
    items: dict[str, Any], most: int | None, check_key: Callable[[str, str], Errors],
    check: Callable[[Any, str], Errors], field: str,
) -> Errors:  # fmt: skip
    """What is wrong with the keys and values of a map."""
    if most is not None and len(items) > most:
        return [too_many(field, len(items), most)]
    wrong: Errors = []
    for name, item in items.items():
        wrong += check_key(name, field)
        wrong += check(item, f"{field}[{_shortened(name)}]")
    return wrong


def _shortened(name: str) -> str:
    """A key as paths show it: the middle of a very long one is left out."""
    longest = _LONGEST_DOMAIN + 1 + _LONGEST_ID
    if len(name) <= longest:
        return name
    rest = longest - 3
    return f"{name[: (rest + 1) // 2]}...{name[len(name) - rest // 2 :]}"


def _errors(problem: str | None, value: Any, field: str) -> Errors:
    return [] if problem is None else [invalid_value(field, value, problem)]


def label_name_errors(name: str, field: str) -> Errors:
    """A DNS label: devices, requests, counters."""
    return _errors(label_error(name or ""), name or "", field)


def label_key_errors(key: str, field: str) -> Errors:
    """The syntax of a label's key: taints, conditions."""
    return _errors(qualified_name_error(key or ""), key or "", field)


def subdomain_errors(name: str | None, field: str) -> Errors:
    """A DNS subdomain that must be there."""
    return _errors(subdomain_error(name), name, field) if name else [required(field)]


def driver_errors(name: str | None, field: str) -> Errors:
    """A driver's name: a DNS subdomain, in any case, of up to 63 bytes."""
    if not name:
        return [required(field)]
    wrong = [too_long(field, _LONGEST_DOMAIN)] if len(name) > _LONGEST_DOMAIN else []
    return wrong + _errors(subdomain_error(name.lower()), name, field)


def pool_name_errors(name: str | None, field: str) -> Errors:
    """A pool's name: DNS subdomains, separated by slashes."""
    if not name:
        return [required(field)]
    wrong = [too_long(field, _LONGEST_POOL_NAME)] if len(name) > _LONGEST_POOL_NAME else []
    for part in name.split("/"):
        wrong += _errors(subdomain_error(part), part, field)
    return wrong


def share_errors(share: str, field: str) -> Errors:
    """The id of a share: a UUID in lower case."""
    if not _UID.fullmatch(share):
        length = f"invalid UUID length: {len(share)}" if len(share) != 36 else "invalid UUID format"
        return [invalid_value(field, share, f"error validating uid: {length}")]
    if share != share.lower():
        text = (
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase "
            "hexadecimal characters"
        )
        return [invalid_value(field, share, text)]
    return []


def attribute_name_errors(name: str, field: str) -> Errors:
    """The name of an attribute or a capacity: an identifier, with the domain that defines it before a slash or not."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        return _identifier_errors(name, field)
    if "/" in identifier:
        return [invalid_value(field, name, "must not contain more than one slash")]
    wrong = driver_errors(domain, field) if domain else [invalid_value(field, "", "the domain must not be empty")]
    if not identifier:
        return [*wrong, invalid_value(field, "", "the name must not be empty")]
    return wrong + _identifier_errors(identifier, field)


def qualified_attribute_errors(name: str, field: str) -> Errors:
    """The name of an attribute with its domain."""
    wrong = attribute_name_errors(name, field)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        wrong.append(invalid_value(field, name, text))
    return wrong


def _identifier_errors(name: str, field: str) -> Errors:
    wrong = [too_long(field, _LONGEST_ID)] if len(name) > _LONGEST_ID else []
    return wrong + _errors(c_identifier_error(name), name, field)


def taint_errors(taint: Object, field: str) -> Errors:
    """A device's taint."""
    wrong = label_key_errors(taint.get("key") or "", f"{field}.key")
    if value := taint.get("value"):
        wrong += _errors(label_value_error(value), value, f"{field}.value")
    effect = taint.get("effect")
    if not effect:
        wrong.append(required(f"{field}.effect"))
    elif effect not in EFFECTS:
        wrong.append(not_supported(f"{field}.effect", effect, EFFECTS))
    return wrong


def toleration_errors(toleration: Object, field: str) -> Errors:
    """A toleration of devices' taints."""
    wrong: Errors = []
    if key := toleration.get("key"):
        wrong += label_key_errors(key, f"{field}.key")
    operator, value, effect = toleration.get("operator"), toleration.get("value"), toleration.get("effect")
    if operator == "Exists":
        if value:
            wrong.append(invalid_value(f"{field}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        wrong += _errors(label_value_error(value or ""), value, f"{field}.value")
    elif not operator:
        wrong.append(required(f"{field}.operator"))
    else:
        wrong.append(not_supported(f"{field}.operator", operator, _OPERATORS))
    if effect and effect not in EFFECTS:
        wrong.append(not_supported(f"{field}.effect", effect, EFFECTS))
    return wrong


def binding_condition_errors(holder: Object, field: str) -> Errors:
    """The conditions that a binding waits for, and those that end the wait: both or neither, none twice."""
    wanted, failures = holder.get("bindingConditions") or [], holder.get("bindingFailureConditions") or []
    if not wanted and not failures:
        return []
    first, second = f"{field}.bindingConditions", f"{field}.bindingFailureConditions"
    wrong = items_errors(wanted, _MOST_CONDITIONS, label_key_errors, first)
    wrong += items_errors(failures, _MOST_CONDITIONS, label_key_errors, second)
    wrong += [duplicate(f"{first}[{i}]", name) for i, name in _repeated(wanted)]
    repeated = dict(_repeated(failures))
    for i, name in enumerate(failures):
        if i in repeated:
            wrong.append(duplicate(f"{second}[{i}]", name))
        if name in wanted:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            wrong.append(invalid_value(f"{second}[{i}]", name, text))
    if not wanted:
        text = "bindingConditions are required to use bindingFailureConditions"
        wrong.append(invalid_value(first, wanted, text))
    if not failures:
        text = "bindingFailureConditions are required to use bindingConditions"
        wrong.append(invalid_value(second, failures, text))
    return wrong


def _repeated(names: Iterable[str]) -> list[tuple[int, str]]:
    seen: set[str] = set()
    found = []
    for i, name in enumerate(names):
        if name in seen:
            found.append((i, name))
        seen.add(name)
    return found


def configuration_errors(configuration: Object, field: str) -> Errors:
    """Configuration for a driver."""
    opaque = configuration.get("opaque")
    if opaque is None:
        return [required(f"{field}.opaque")]
    wrong = driver_errors(opaque.get("driver"), f"{field}.opaque.driver")
    return wrong + raw_errors(opaque.get("parameters"), LONGEST_PARAMETERS, f"{field}.opaque.parameters")


def raw_errors(value: Any, longest: int, field: str) -> Errors:
    """A JSON object of any content of up to `longest` bytes."""
    if value is None:
        return [required(field)]
    if len(orjson.dumps(value)) > longest:
        return [too_long(field, longest)]
    if not isinstance(value, dict):
        return [invalid_value(field, "<value omitted>", "must be a valid JSON object")]
    return []

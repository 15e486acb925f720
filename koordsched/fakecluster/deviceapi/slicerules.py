"""What a ResourceSlice may say: the pool, who reaches its devices, the devices, and the counters that these share."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from koordsched.fakecluster.deviceapi.capacityrules import capacity_errors
from koordsched.fakecluster.deviceapi.fieldrules import (
    Errors,
    Object,
    attribute_name_errors,
    binding_condition_errors,
    driver_errors,
    items_errors,
    label_name_errors,
    map_errors,
    name_of,
    pool_name_errors,
    set_errors,
    taint_errors,
)
from koordsched.fakecluster.errors import invalid_value, required, too_long
from koordsched.fakecluster.names import subdomain_error
from koordsched.fakecluster.podvalidation import node_selector_errors
from koordsched.fakecluster.quantities import canonicalize_member

MOST_DEVICES = 128
MOST_COMPLEX_DEVICES = 64
"""Where any device has taints, counters or lists of values."""
MOST_COUNTER_SETS = 8
_MOST_COUNTERS = 32
_MOST_CONSUMPTIONS = 2
_MOST_TAINTS = 16
_MOST_ATTRIBUTES = 32
_MOST_VALUES = 48
_NODE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_LONGEST_VALUE = 64
_SCALARS = ("int", "bool", "string", "version")
_LISTS = ("ints", "bools", "strings", "versions")
_IMMUTABLE = "field is immutable"
_IDENTIFIER = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_NUMBER = r"(0|[1-9]\d*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_IDENTIFIER}(\.{_IDENTIFIER})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?", re.ASCII
)


def default_slice(spec: Object, stamp: str) -> None:
    """Fills the spec of a slice, in place; `stamp` is the time."""
    for device in spec.get("devices") or ():
        for taint in device.get("taints") or ():
            if not taint.get("timeAdded"):
                taint["timeAdded"] = stamp


def slice_errors(spec: Object, field: str) -> Errors:
    """What is wrong with the spec of a slice; brings its quantities into canonical form on the way."""
    pool = spec.get("pool") or {}
    wrong = driver_errors(spec.get("driver"), f"{field}.driver")
    wrong += pool_name_errors(pool.get("name"), f"{field}.pool.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        wrong.append(invalid_value(f"{field}.pool.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        text = "must be greater than or equal to zero"
        wrong.append(invalid_value(f"{field}.pool.generation", generation, text))
    wrong += _reach_errors(spec, field)
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counters is not None:
        wrong.append(invalid_value(field, "", "only one of `sharedCounters` or `devices` is allowed"))
    per_device = bool(spec.get("perDeviceNodeSelection"))
    most = MOST_COMPLEX_DEVICES if any(map(is_complex, devices or ())) else MOST_DEVICES
    wrong += set_errors(
        devices or [], most, lambda device, at: _device_errors(device, per_device, at), name_of, f"{field}.devices"
    )
    return wrong + set_errors(
        counters or [], MOST_COUNTER_SETS, _counter_set_errors, name_of, f"{field}.sharedCounters"
    )  # fmt: skip


def slice_update_errors(spec: Object, old: Object, field: str) -> Errors:
    """What an update may not change."""
    wrong: Errors = []
    name, before = (spec.get("pool") or {}).get("name"), (old.get("pool") or {}).get("name")
    if name != before:
        wrong.append(invalid_value(f"{field}.pool.name", name, _IMMUTABLE))
    for key in ("driver", "nodeName"):
        if spec.get(key) != old.get(key):
            wrong.append(invalid_value(f"{field}.{key}", spec.get(key), _IMMUTABLE))
    return wrong


def is_complex(device: Object) -> bool:
    """Whether a slice with this device may have half as many as others."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(key in value for value in (device.get("attributes") or {}).values() for key in _LISTS)


def _chosen(holder: Object, keys: tuple[str, ...]) -> list[str]:
    """Those of the ways to say which nodes reach a device that are used."""
    return [f"`{key}`" for key in keys if holder.get(key)]


def _flag_errors(holder: Object, key: str, field: str) -> Errors:
    if holder.get(key) is False:
        return [invalid_value(f"{field}.{key}", False, "must be either unset or set to true")]
    return []


def _reach_errors(spec: Object, field: str) -> Errors:
    wrong: Errors = []
    node, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if node == "":
        text = "must be either unset or set to a non-empty string"
        wrong.append(invalid_value(f"{field}.nodeName", node, text))
    elif node is not None and (problem := subdomain_error(node)) is not None:
        wrong.append(invalid_value(f"{field}.nodeName", node, problem))
    if selector is not None:
        node_selector_errors(selector, f"{field}.nodeSelector", wrong)
        terms = selector.get("nodeSelectorTerms") or []
        if len(terms) != 1:
            text = "must have exactly one node selector term"
            wrong.append(invalid_value(f"{field}.nodeSelector.nodeSelectorTerms", terms, text))
    wrong += _flag_errors(spec, "allNodes", field) + _flag_errors(spec, "perDeviceNodeSelection", field)
    chosen = _chosen(spec, ("nodeName", "allNodes", "perDeviceNodeSelection"))
    if selector is not None:
        chosen.insert(1 if node else 0, "`nodeSelector`")
    rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not chosen:
        wrong.append(required(field, rule))
    elif len(chosen) > 1:
        wrong.append(invalid_value(field, f"{{{', '.join(chosen)}}}", f"{rule}, but multiple fields are set"))
    return wrong


def _device_errors(device: Object, per_device: bool, field: str) -> Errors:
    wrong = label_name_errors(device.get("name") or "", f"{field}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    entries = len(attributes) + len(capacity)
    if entries > _MOST_ATTRIBUTES:
        text = f"the total number of attributes and capacities must not exceed {_MOST_ATTRIBUTES}"
        wrong.append(invalid_value(field, entries, text))
    values = sum(sum(len(value.get(key) or ()) for key in _LISTS) or 1 for value in attributes.values())
    if values > _MOST_VALUES:
        text = f"the total number of attribute values must not exceed {_MOST_VALUES}"
        wrong.append(invalid_value(field, values, text))
    wrong += map_errors(attributes, None, attribute_name_errors, _attribute_errors, f"{field}.attributes")
    shared = bool(device.get("allowMultipleAllocations"))
    wrong += map_errors(
        capacity, None, attribute_name_errors, lambda each, at: capacity_errors(each, shared, at), f"{field}.capacity"
    )
    wrong += items_errors(device.get("taints") or [], _MOST_TAINTS, taint_errors, f"{field}.taints")
    wrong += set_errors(
        device.get("consumesCounters") or [],
        _MOST_CONSUMPTIONS,
        lambda each, at: _counters_errors(each, "counterSet", at),
        lambda each: each.get("counterSet") or "",
        f"{field}.consumesCounters",
    )
    wrong += _mapping_errors(device, f"{field}.nodeAllocatableResourceMappings")
    wrong += _device_reach_errors(device, per_device, field)
    return wrong + binding_condition_errors(device, field)


def _mapping_errors(device: Object, field: str) -> Errors:
    """What the device takes of its node: of no extended resource, and of a capacity that it has."""
    wrong: Errors = []
    for resource, mapping in (device.get("nodeAllocatableResourceMappings") or {}).items():
        where = f"{field}[{resource}]"
        if resource not in _NODE_RESOURCES and not resource.startswith("hugepages-"):
            wrong.append(invalid_value(where, resource, "must be a node-allocatable resource, not an extended one"))
        wrong += canonicalize_member(mapping, "allocationMultiplier", f"{where}.allocationMultiplier")
        key = mapping.get("capacityKey")
        if key is not None and key not in (device.get("capacity") or {}):
            wrong.append(invalid_value(f"{where}.capacityKey", key, "must be a capacity of the device"))
    return wrong


def _device_reach_errors(device: Object, per_device: bool, field: str) -> Errors:
    node, selector = device.get("nodeName"), device.get("nodeSelector")
    if not per_device:
        if node is None and selector is None and device.get("allNodes") is None:
            return []
        text = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in "
            "the ResourceSlice spec"
        )
        return [invalid_value(field, None, text)]
    wrong: Errors = []
    if node == "":
        wrong.append(invalid_value(f"{field}.nodeName", node, "must not be empty"))
    elif node is not None and (problem := subdomain_error(node)) is not None:
        wrong.append(invalid_value(f"{field}.nodeName", node, problem))
    if selector is not None:
        node_selector_errors(selector, f"{field}.nodeSelector", wrong)
    wrong += _flag_errors(device, "allNodes", field)
    chosen = _chosen(device, ("nodeName", "allNodes"))
    if selector is not None:
        chosen.insert(1 if node else 0, "`nodeSelector`")
    rule = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to "
        "true in the ResourceSlice spec"
    )
    if not chosen:
        wrong.append(required(field, rule))
    elif len(chosen) > 1:
        wrong.append(invalid_value(field, f"{{{', '.join(chosen)}}}", rule))
    return wrong


def _attribute_errors(value: Object, field: str) -> Errors:
    wrong: Errors = []
    for key in ("string", "version"):
        if value.get(key) is not None:
            wrong += _text_errors(key, value[key], f"{field}.{key}")
    chosen = [key for key in (*_SCALARS, *_LISTS) if value.get(key) is not None]
    for key in _LISTS:
        found = value.get(key)
        if found is not None and not found:
            wrong.append(invalid_value(f"{field}.{key}", found, "must not be empty if specified"))
        if found and key in ("strings", "versions"):
            wrong += items_errors(found, None, partial(_text_errors, key), f"{field}.{key}")
    if len(chosen) != 1:
        wrong.append(invalid_value(field, value if chosen else "", "exactly one value must be specified"))
    return wrong


def _text_errors(kind: str, text: str, field: str) -> Errors:
    wrong: Errors = []
    if kind.startswith("version") and not _SEMVER.fullmatch(text):
        wrong.append(invalid_value(field, text, "must be a string compatible with semver.org spec 2.0.0"))
    return [*wrong, too_long(field, _LONGEST_VALUE)] if len(text.encode()) > _LONGEST_VALUE else wrong


def _counter_set_errors(counter_set: Object, field: str) -> Errors:
    return _counters_errors(counter_set, "name", field)


def _counters_errors(counters: Object, key: str, field: str) -> Errors:
    """Amounts of the counters of a set, which is named in the field `key`."""
    name = counters.get(key)
    wrong = label_name_errors(name, f"{field}.{key}") if name else [required(f"{field}.{key}")]
    amounts = counters.get("counters")
    if not amounts:
        return [*wrong, required(f"{field}.counters")]
    return wrong + map_errors(amounts, _MOST_COUNTERS, label_name_errors, _counter_errors, f"{field}.counters")


def _counter_errors(counter: Any, field: str) -> Errors:
    return canonicalize_member(counter, "value", f"{field}.value")

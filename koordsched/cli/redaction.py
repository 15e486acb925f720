"""What a dump contains of a cluster's objects: everything except what may be secret or is only bulk.

Left out are the values in Secrets and ConfigMaps, the values of environment variables, commands and arguments of
containers, headers of probes, and the copy of the whole object that `kubectl apply` leaves in an annotation. Names and
keys stay. The same applies to custom resources; other content of theirs is kept.
"""

from __future__ import annotations

from typing import Any

from koordsched.scheduling.snapshot import LAST_APPLIED

Object = dict[str, Any]

REDACTED = "REDACTED"
_ENCODED = "UkVEQUNURUQ="
"""The same where base64 is expected."""

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_WITHOUT_CONTAINERS = frozenset(("Event", "Node", "Lease", "EndpointSlice", "Endpoints", "NodeMetric"))
"""Kinds of which there are many, and which have no containers."""


def redact(thing: Object) -> None:
    """Removes from an object, which has its kind, what does not belong in a dump. Changes it."""
    meta = thing.get("metadata")
    if isinstance(meta, dict):
        meta.pop("managedFields", None)
        annotations = meta.get("annotations")
        if isinstance(annotations, dict) and annotations.pop(LAST_APPLIED, None) is not None and not annotations:
            del meta["annotations"]
    kind = thing.get("kind")
    if kind == "Secret":
        _blank(thing, "data", _ENCODED)
        _blank(thing, "stringData", REDACTED)
    elif kind == "ConfigMap":
        _blank(thing, "data", REDACTED)
        _blank(thing, "binaryData", _ENCODED)
    elif kind == "Pod":
        spec = thing.get("spec")
        if isinstance(spec, dict):
            _redact_containers(spec)
    elif kind not in _WITHOUT_CONTAINERS:
        _walk(thing)


def _blank(thing: Object, field: str, value: str) -> None:
    values = thing.get(field)
    if isinstance(values, dict):
        thing[field] = dict.fromkeys(values, value)


def _walk(value: Any) -> None:
    """Finds the containers of pod templates, wherever they are."""
    if isinstance(value, dict):
        _redact_containers(value)
        for member in value.values():
            _walk(member)
    elif isinstance(value, list):
        for member in value:
            _walk(member)


def _redact_containers(spec: Object) -> None:
    for field in _CONTAINERS:
        containers = spec.get(field)
        for container in containers if isinstance(containers, list) else ():
            if isinstance(container, dict):
                _redact_container(container)


def _redact_container(container: Object) -> None:
    _redact_values(container.get("env"))
    for field in ("command", "args"):
        if container.get(field):
            container[field] = [REDACTED]
    for field in _HANDLERS:
        if container.get(field):
            _redact_handlers(container[field])


def _redact_handlers(value: Any) -> None:
    """Of probes and hooks: commands, and the values of headers."""
    if not isinstance(value, dict):
        return
    for key, member in value.items():
        if key == "command" and member:
            value[key] = [REDACTED]
        elif key == "httpHeaders":
            _redact_values(member)
        else:
            _redact_handlers(member)


def _redact_values(entries: Any) -> None:
    """Of a list of names and values."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("value"):
            entry["value"] = REDACTED

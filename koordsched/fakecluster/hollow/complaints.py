"""Events for annotations that cannot be read."""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster.hollow.agentevents import report_event
from koordsched.fakecluster.registry import Registry


def invalid_annotation(registry: Registry, obj: dict[str, Any], host: str, message: str) -> None:
    """Creates the kubelet's Event `InvalidAnnotation` about a pod or node."""
    report_event(registry, "kubelet", host, obj, "InvalidAnnotation", message, "Warning")

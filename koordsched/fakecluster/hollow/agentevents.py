"""Events of the agents that run on nodes."""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.registry import Registry

Object = dict[str, Any]


def report_event(
    registry: Registry, component: str, host: str, obj: Object, reason: str, message: str, type_: str
) -> None:
    """Creates the Event of an agent (`component`) of a node (`host`) about a pod or node. `type_`: Normal, Warning."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace") or "default"
    stamp = rfc3339(registry.clock.now())
    event = {
        "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": obj["kind"],
            "name": metadata["name"],
            **({"namespace": namespace} if "namespace" in metadata else {}),
            "uid": metadata["uid"],
        },
        "reason": reason,
        "message": message,
        "type": type_,
        "source": {"component": component, "host": host},
        "reportingComponent": component,
        "reportingInstance": host,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    registry.create(registry.resource("", "v1", "events"), namespace, event)

"""Events for annotations that cannot be read."""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.registry import Registry


def invalid_annotation(registry: Registry, obj: dict[str, Any], host: str, message: str) -> None:
    """Creates the kubelet's Event `InvalidAnnotation` about a pod or node."""
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
        "reason": "InvalidAnnotation",
        "message": message,
        "type": "Warning",
        "source": {"component": "kubelet", "host": host},
        "reportingComponent": "kubelet",
        "reportingInstance": host,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    registry.create(registry.resource("", "v1", "events"), namespace, event)

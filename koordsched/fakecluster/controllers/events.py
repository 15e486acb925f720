"""Events of the controllers, as `kubectl describe` and `kubectl events` show them."""

from __future__ import annotations

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.controllers.ownership import Object
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.registry import Registry


class EventRecorder:
    """Writes core/v1 Events about objects. Only low-volume happenings are recorded: none per pod."""

    def __init__(self, registry: Registry, component: str) -> None:
        self._registry = registry
        self._component = component
        self._resource = registry.resource("", "v1", "events")

    def record(self, about: Object, api_version: str, kind: str, reason: str, message: str, type_: str) -> None:
        """Records one event; `type_` is Normal or Warning."""
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or "default"
        now = rfc3339(self._registry.clock.now())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": api_version,
                "kind": kind,
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "uid": metadata.get("uid", ""),
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "reason": reason,
            "message": message[:1024],
            "type": type_,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._registry.create(self._resource, namespace, event)
        except ApiStatusError:
            # Events are best effort: the namespace may be terminating, and nothing depends on them.
            return

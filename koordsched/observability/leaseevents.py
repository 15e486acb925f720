"""Core/v1 events about the leader election Lease (core spec 2.5; client-go `tools/record`)."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from koordsched.observability.escaping import printable
from koordsched.observability.eventsink import LaneEventSink
from koordsched.observability.eventwire import TimeFormat, event_name, nanoseconds

REASON = "LeaderElection"


class LeaseEvents:
    """Writes Events about the leader on the Lease. Best effort: one try per event; `lost` counts those that failed.

    `component` is the scheduler name of the first profile, `wall` the time in seconds since the epoch.
    """

    def __init__(
        self, sink: LaneEventSink, wall: Callable[[], float], *, component: str, namespace: str, lease: str
    ) -> None:
        self._sink = sink
        self._wall = wall
        self._component = component
        self._namespace = namespace
        self._lease = lease
        self._times = TimeFormat()
        self.lost = 0

    def became_leader(self, identity: str, uid: str = "", resource_version: str = "") -> None:
        """This replica acquired the lease, whose uid and version are these."""
        self._record(f"{identity} became leader", uid, resource_version)

    def stopped_leading(self, identity: str, uid: str = "", resource_version: str = "") -> None:
        """This replica gave the lease back, or lost it."""
        self._record(f"{identity} stopped leading", uid, resource_version)

    def _record(self, message: str, uid: str, resource_version: str) -> None:
        now = nanoseconds(self._wall())
        stamp = self._times.seconds(now)
        lease = {
            "kind": "Lease",
            "namespace": self._namespace,
            "name": self._lease,
            "uid": uid,
            "apiVersion": "coordination.k8s.io/v1",
            "resourceVersion": resource_version,
        }
        body = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": event_name(self._lease, now), "namespace": self._namespace},
            "involvedObject": {field: value for field, value in lease.items() if value},
            "reason": REASON,
            "message": printable(message),
            "source": {"component": self._component},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
            "type": "Normal",
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        self._sink.create(self._namespace, orjson.dumps(body), self._answered)

    def _answered(self, status: int) -> None:
        if not 200 <= status < 300:
            self.lost += 1

"""apps/v1: the owners whose selectors default spreading uses."""

from __future__ import annotations

from koordsched.api.meta import LabelSelector, ObjectMeta, Wire


class WorkloadSpec(Wire, frozen=True):
    """The selector of a ReplicaSet or StatefulSet."""

    selector: LabelSelector | None = None


class ReplicaSet(Wire, frozen=True):
    """A replica set."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(Wire, frozen=True):
    """A stateful set."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()

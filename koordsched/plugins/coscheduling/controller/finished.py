"""Members that have succeeded or failed.

The scheduler watches unfinished pods only: finished ones hold nothing, and there may be many. So the controller has
those watched that name a PodGroup by the label, and keeps little of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from koordsched.api.meta import ObjectMeta, Wire
from koordsched.cluster.builtinkinds import PODS
from koordsched.cluster.pod import TERMINAL
from koordsched.framework.controller import ControllerHandle, ObjectWatch
from koordsched.plugins.coscheduling.kinds import POD_GROUP
from koordsched.plugins.coscheduling.options import membership

_SELECTORS = {
    "labelSelector": POD_GROUP,
    "fieldSelector": "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown",
}
"""Field selectors have no "or"."""


class FinishedPodSpec(Wire, frozen=True):
    """Where it was."""

    node_name: str = ""


class FinishedPodStatus(Wire, frozen=True):
    """How it ended."""

    phase: str = ""


class FinishedPod(Wire, frozen=True):
    """A pod that is over, as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FinishedPodSpec = FinishedPodSpec()
    status: FinishedPodStatus = FinishedPodStatus()


class FinishedMember(NamedTuple):
    """A member that is over. `placed`: it had a node."""

    uid: str
    phase: str
    placed: bool


class FinishedMembers:
    """By gang id. `changed(gang)` is called when one came, went, or changed."""

    def __init__(self, handle: ControllerHandle, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._gangs: dict[str, dict[str, FinishedMember]] = {}
        self._gang_of: dict[str, str] = {}
        self.watch: ObjectWatch = handle.watch(PODS.path, FinishedPod, _SELECTORS, self._seen, self._gone)

    def of(self, gang: str) -> Collection[FinishedMember]:
        """Those of a gang."""
        return self._gangs.get(gang, {}).values()

    def _seen(self, pod: FinishedPod) -> None:
        meta = pod.metadata
        self._gone(meta.uid)
        gang = membership(meta.namespace, meta.labels, meta.annotations)
        if gang is None or pod.status.phase not in TERMINAL:
            return
        self._gang_of[meta.uid] = gang.id
        members = self._gangs.setdefault(gang.id, {})
        members[meta.uid] = FinishedMember(meta.uid, pod.status.phase, bool(pod.spec.node_name))
        self._changed(gang.id)

    def _gone(self, uid: str) -> None:
        gang = self._gang_of.pop(uid, None)
        if gang is None:
            return
        members = self._gangs[gang]
        del members[uid]
        if not members:
            del self._gangs[gang]
        self._changed(gang)

"""When a pod that its quota refused is worth another attempt: when its quota has room for it or it may find victims,
and only then.

Upstream waits for deleted pods and changed quotas only (elasticquota spec 3.13), which misses siblings that stop
borrowing and nodes that appear. Here the books announce every change that may have made room (`books.ROOM`), and the
hint asks them whether there is enough.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from koordsched.cluster.events import POD, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.plugins.elasticquota.admission import Admission
from koordsched.plugins.elasticquota.mapping import claim_of
from koordsched.plugins.elasticquota.members import is_preemptible
from koordsched.plugins.elasticquota.prospects import Prospects
from koordsched.plugins.elasticquota.room import ROOM, Room
from koordsched.queue.hints import GroupBy, HintRegistration, QueueingHint, Scope


def hints(plugin: str, admission: Admission, prospects: Prospects) -> list[HintRegistration[Pod]]:
    """The registrations of the plugin."""

    def after_room(pod: Pod, old: Any, room: Room) -> QueueingHint:
        claimant = admission.claimant(pod)
        if claimant is None:
            return QueueingHint.QUEUE
        if prospects.had_room(pod):
            return QueueingHint.SKIP
        if not _concerns(room, claimant.quota.tree.id, claimant.quota.name):
            above = () if not admission.checks_parents else claimant.quota.ancestors()
            if not any(quota.name in room.quotas for quota in above):
                return QueueingHint.SKIP
        return _queue(
            admission.refusal(claimant) is None
            or prospects.lacks_less(pod, claimant)
            or (room.yielding is not None and prospects.can_take_from(pod, claimant, room.yielding))
        )

    def after_own_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
        claimant = admission.claimant(new if isinstance(new, Pod) else pod)
        return _queue(claimant is None or admission.refusal(claimant) is None)

    def after_deletion(pod: Pod, old: Pod, new: None) -> QueueingHint:
        # Room was announced before this, but a preemptor that waits for its victims listens to deletions alone.
        claimant = admission.claimant(pod)
        if claimant is None:
            return QueueingHint.QUEUE
        is_near = old.node == pod.nominated_node
        return _queue(
            ((is_near or not prospects.had_room(pod)) and admission.refusal(claimant) is None)
            or prospects.waited_in_vain(pod, claimant, old)
        )

    own = ActionType.UPDATE_POD_LABEL | ActionType.UPDATE_POD_SCALE_DOWN
    deletion = ClusterEvent(POD, ActionType.DELETE)
    return [
        HintRegistration(plugin, ROOM, after_room, GroupBy(_group)),
        HintRegistration(plugin, deletion, after_deletion, GroupBy(_waiting_group)),
        HintRegistration(plugin, ClusterEvent(POD, own), after_own_change, Scope.OWN_POD),
    ]


def _queue(worth: bool) -> QueueingHint:
    return QueueingHint.QUEUE if worth else QueueingHint.SKIP


def _concerns(room: Room, tree: str, quota: str) -> bool:
    return tree in room.trees or quota in room.quotas


def _group(pod: Pod) -> Hashable:
    """Pods of one shape that agree in this are always in the same quota and count the same there."""
    return claim_of(pod), is_preemptible(pod)


def _waiting_group(pod: Pod) -> Hashable:
    """Such pods that wait for victims on the same node."""
    return _group(pod), pod.nominated_node

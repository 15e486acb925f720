"""What pods wait for that Reservations concern: queueing hints (reservation spec 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from koordsched.cluster.events import ASSIGNED_POD, NODE, POD, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.plugins.reservation.cache import RESERVATION_CHANGED, RESERVATION_LEFT, ReservationCache
from koordsched.plugins.reservation.info import ReservationInfo
from koordsched.plugins.reservation.matching import Matching
from koordsched.plugins.reservation.operating import is_operating
from koordsched.queue.hints import GroupBy, HintRegistration, QueueingHint, Scope


class Waking:
    """The hints of the plugin."""

    def __init__(
        self,
        plugin: str,
        table: NodeTable,
        cache: ReservationCache,
        matching: Matching,
        may_take: Callable[[ReservationInfo, Pod], bool],
    ) -> None:
        """`may_take`: whether a Reservation may take over a running pod."""
        self._plugin = plugin
        self._table = table
        self._cache = cache
        self._matching = matching
        self._may_take = may_take

    def events(self) -> Sequence[HintRegistration[Pod]]:
        """Reservations that owners may use from now on or no more, owners that go, pods that may be taken over from now
        on, nodes whose labels select, pods that change.
        """
        scope = GroupBy(self._identity)
        left = ClusterEvent(ASSIGNED_POD, ActionType.DELETE)
        came = ClusterEvent(ASSIGNED_POD, ActionType.ADD | ActionType.UPDATE_POD_LABEL)
        labelled = ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)
        own = ClusterEvent(POD, ActionType.UPDATE)
        return [
            HintRegistration(self._plugin, RESERVATION_CHANGED, self._after_reservation_changed, scope),
            HintRegistration(self._plugin, RESERVATION_LEFT, self._after_reservation_left, scope, index=_VirtualPods()),
            HintRegistration(self._plugin, left, self._after_pod_left, scope),
            HintRegistration(self._plugin, came, self._after_pod_came, scope, index=_VirtualPods()),
            HintRegistration(self._plugin, labelled, self._after_node_labelled, scope),
            HintRegistration(self._plugin, own, self._after_own_change, Scope.OWN_POD),
        ]

    def _after_reservation_changed(self, pod: Pod, old: None, new: ReservationInfo) -> QueueingHint:
        return QueueingHint.QUEUE if self._may_use(pod, new) else QueueingHint.SKIP

    def _after_reservation_left(self, pod: Pod, old: ReservationInfo, new: None) -> QueueingHint:
        """It keeps none of the other kind from its node any more."""
        info = self._cache.get(pod.uid) if pod.virtual else None
        found = info is not None and (not old.matchable or old.bound_policy == info.bound_policy)
        return QueueingHint.QUEUE if found else QueueingHint.SKIP

    def _after_pod_left(self, pod: Pod, old: Pod, new: Any) -> QueueingHint:
        """There is more room, or another policy is possible, on the row of `old`; what a pod that acts as a Reservation
        had there mattered elsewhere, too."""
        if pod.virtual:
            info = self._cache.get(pod.uid)
            found = info is not None and (old.virtual or info.reservation.spec.pre_allocation)
        else:
            # One that ignores Reservations, and names this one, had no other node; for its owner it may have been too
            # small, and taken the room beside it.
            ended = old.virtual and (self._matching.terms(pod).ignored or self._owned(pod, old.uid))
            found = ended or is_operating(old.labels.labels) or self._may_use_any(pod, old.node)
        return QueueingHint.QUEUE if found else QueueingHint.SKIP

    def _after_pod_came(self, pod: Pod, old: Any, new: Pod) -> QueueingHint:
        info = self._cache.get(pod.uid) if pod.virtual else None
        return QueueingHint.QUEUE if info is not None and self._may_take(info, new) else QueueingHint.SKIP

    def _after_node_labelled(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        found = self._matching.terms(pod).affinity is not None and self._may_use_any(pod, new.metadata.name)
        return QueueingHint.QUEUE if found else QueueingHint.SKIP

    def _after_own_change(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        if isinstance(old, Pod) and (old.shape, *self._identity(old)) == (pod.shape, *self._identity(pod)):
            return QueueingHint.SKIP  # only its status changed
        infos = (self._cache.get(uid) for uid in self._cache.index.candidates(pod))
        found = self._matching.terms(pod).ignored or any(self._may_use(pod, info) for info in infos if info is not None)
        return QueueingHint.QUEUE if found else QueueingHint.SKIP

    def _owned(self, pod: Pod, uid: str) -> bool:
        """Whether the pod is an owner of a Reservation, as far as that is known when it ends."""
        info = self._cache.get(uid)
        owners = info.terms.owners if info is not None else None
        return info is None or (owners is not None and owners.matches(pod))

    def _may_use_any(self, pod: Pod, node: str) -> bool:
        """Whether a Reservation on the node may be used by the pod, by its owners."""
        row = self._table.row_of.get(node, -1)
        return any(self._may_use(pod, info) for info in self._cache.on(row))

    def _may_use(self, pod: Pod, info: ReservationInfo) -> bool:
        if pod.virtual or not info.matchable:
            return False
        owners = info.terms.owners
        return self._matching.terms(pod).ignored or (owners is not None and owners.matches(pod))

    def _identity(self, pod: Pod) -> tuple[object, ...]:
        """All that owners of Reservations are known by, of equal pods; those named by themselves are told apart."""
        references = pod.references
        alone = pod.virtual or self._cache.index.names(pod)
        return (pod.namespace, pod.labels, references, pod.uid if alone else "")


class _VirtualPods:
    """A GroupIndex: the pods that stand for Reservations, whatever the event. Every pod that gets a node is one."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, None] = {}

    def add(self, group: Hashable, pod: Pod) -> None:
        """See GroupIndex."""
        if pod.virtual:
            self._groups[group] = None

    def remove(self, group: Hashable) -> None:
        """See GroupIndex."""
        self._groups.pop(group, None)

    def concerned(self, old: Any, new: Any) -> Collection[Hashable]:
        """See GroupIndex."""
        return self._groups

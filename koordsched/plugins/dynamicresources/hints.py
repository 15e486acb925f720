"""Which changes may help a pod whose claims could not be allocated (dra spec 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from koordsched.api.resource import ResourceClaim
from koordsched.cluster.events import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.plugins.dynamicresources.claims import ClaimProblem, named_claims
from koordsched.queue.hints import ByKey, HintRegistration, QueueingHint, Scope

_CHANGE = ActionType.ADD | ActionType.UPDATE
_NODE = ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE


class Hints:
    """The hints of one plugin."""

    def __init__(self, plugin: str, claims_of: Callable[[Pod], Sequence[ResourceClaim]]) -> None:
        """`claims_of`: the claims of a pod; raises ClaimProblem."""
        self._plugin = plugin
        self._claims_of = claims_of

    def registrations(self) -> list[HintRegistration[Pod]]:
        """All of them. Devices that come free may help any pod; other changes of a claim those that use it."""
        own = ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM
        return [
            HintRegistration(self._plugin, ClusterEvent(NODE, _NODE), None, Scope.SHAPE),
            HintRegistration(self._plugin, ClusterEvent(RESOURCE_CLAIM, _CHANGE), _after_deallocation, Scope.SHAPE),
            HintRegistration(self._plugin, ClusterEvent(RESOURCE_CLAIM, _CHANGE), self._after_claim_change, BY_CLAIM),
            HintRegistration(self._plugin, ClusterEvent(POD, own), self._after_pod_change, Scope.OWN_POD),
            HintRegistration(self._plugin, ClusterEvent(DEVICE_CLASS, _CHANGE), None, Scope.SHAPE),
            HintRegistration(self._plugin, ClusterEvent(RESOURCE_SLICE, _CHANGE), None, Scope.SHAPE),
        ]

    def _after_claim_change(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None) -> QueueingHint:
        """The claim has a name that the pod uses; whether it is the pod's own claim, its uid says."""
        try:
            own = self._claims_of(pod)
        except ClaimProblem:
            return QueueingHint.SKIP
        if new is None or all(claim.metadata.uid != new.metadata.uid for claim in own):
            return QueueingHint.SKIP
        return _queue_if(old is None or old.status != new.status)

    def _after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> QueueingHint:
        try:
            self._claims_of(pod if new is None else new)
        except ClaimProblem:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE


def _after_deallocation(pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None) -> QueueingHint:
    """Claims of the pod that are missing are for PreEnqueue to find, which is asked before the pod is tried."""
    return _queue_if(
        old is not None and new is not None and old.status.allocation is not None and new.status.allocation is None
    )


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _claims_used(pod: Pod) -> Iterable[Hashable]:
    found: list[Hashable] = []
    with suppress(ClaimProblem):  # as long as one is missing, changes of those after it are no help
        found.extend((pod.namespace, claim.name) for claim in named_claims(pod))
    return found


def _claim_changed(old: Any, new: Any) -> Iterable[Hashable]:
    claim = new if new is not None else old
    return ((claim.metadata.namespace, claim.metadata.name),)


BY_CLAIM = ByKey[Pod](_claims_used, _claim_changed)

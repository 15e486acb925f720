"""What wakes a pod that waits for its old special claim to go (dra spec 6, defect B8)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from koordsched.api.resource import ResourceClaim
from koordsched.cluster.events import RESOURCE_CLAIM, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.plugins.dynamicresources.extended.claim import owner_of
from koordsched.queue.hints import ByKey, HintRegistration, QueueingHint


def _of_pod(pod: Pod) -> Iterable[Hashable]:
    return (pod.uid,)


def _of_claim(old: ResourceClaim | None, new: ResourceClaim | None) -> Iterable[Hashable]:
    owner = owner_of(old) if old is not None and new is None else None
    return (owner[0],) if owner is not None else ()


BY_OWNER: ByKey[Pod] = ByKey(_of_pod, _of_claim)


def after_claim_gone(pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None) -> QueueingHint:
    """Queues the pod whose special claim is gone: it can be claimed for anew."""
    own = old is not None and new is None and owner_of(old) == (pod.uid, pod.name)
    return QueueingHint.QUEUE if own else QueueingHint.SKIP


def registration(plugin: str) -> HintRegistration[Pod]:
    """For DynamicResources to register, with its other hints, while the feature gate is on."""
    return HintRegistration(plugin, ClusterEvent(RESOURCE_CLAIM, ActionType.DELETE), after_claim_gone, BY_OWNER)

"""What is known of claims and devices, kept up to date by events. One per cluster: all profiles see the same.

Simulators may replace what the API server would do: `claims.assume` after a placement, `claims.restore` to undo it.
"""

from __future__ import annotations

import logging
from functools import partial
from random import Random
from uuid import UUID

from msgspec.structs import replace

from koordsched.api.core import Node
from koordsched.api.quantity import QuantityError
from koordsched.api.resource import (
    AllocationResult,
    DeviceClass,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceSlice,
)
from koordsched.cluster.builtinkinds import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from koordsched.cluster.events import RESOURCE_CLAIM, RESOURCE_SLICE, ActionType, ClusterEvent
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Handle, left_undone
from koordsched.plugins.dynamicresources.allocatable import MappedDevices, NodeAllocatable
from koordsched.plugins.dynamicresources.assumed import AssumedClaims
from koordsched.plugins.dynamicresources.changes import ClaimChanges
from koordsched.plugins.dynamicresources.claims import claims_of, is_owned_by, reference_to
from koordsched.plugins.dynamicresources.classselectors import ClassSelectors
from koordsched.plugins.dynamicresources.extended import DeviceCounts, ServedResources, SpecialClaims
from koordsched.plugins.dynamicresources.extended.devicecounts import Later
from koordsched.plugins.dynamicresources.groups import GATES, ClaimGroups
from koordsched.plugins.dynamicresources.inflight import AllocationsInFlight
from koordsched.plugins.dynamicresources.structured import Allocator, CelExpressions, DevicesInUse, Features, SliceIndex
from koordsched.plugins.dynamicresources.taintrules import TaintedSlices
from koordsched.plugins.shared.extendedresources import ExtendedResources

CLAIM_ADDED = ClusterEvent(RESOURCE_CLAIM, ActionType.ADD)
CLAIM_GONE = ClusterEvent(RESOURCE_CLAIM, ActionType.DELETE)
CLAIM_CHANGED = ClusterEvent(RESOURCE_CLAIM, ActionType.UPDATE)
SLICE_CHANGED = ClusterEvent(RESOURCE_SLICE, ActionType.UPDATE)

_UUID_VERSION = 4

_log = logging.getLogger(__name__)


def books_of(handle: Handle) -> DeviceBooks:
    """The books of the handle's cluster."""

    def build(cluster: ClusterState) -> DeviceBooks:
        # Tools that evaluate a state have no loop that could be held up, and want the whole answer at once.
        later = None if handle.launch is left_undone else partial(handle.timers.at, 0.0)
        books = DeviceBooks(cluster, handle.features, handle.rng, ExtendedResources.shared(handle), later)
        handle.states.keep("DynamicResources", books.in_flight)
        return books

    return handle.cluster.shared(build, DeviceBooks)


class DeviceBooks:
    """`claims` there are, `in_flight` what is being allocated, `in_use` devices of both; `index` has all devices,
    `allocator` finds free ones.
    """

    def __init__(
        self,
        cluster: ClusterState,
        gates: frozenset[str],
        rng: Random,
        extended: ExtendedResources | None,
        later: Later | None = None,
    ) -> None:
        """`extended`: which classes stand for resources, None while the gate for that is off. `later`: see
        DeviceCounts.
        """
        self.features = Features.enabled(gates)
        self._cluster = cluster
        self._rng = rng
        self.in_use = DevicesInUse(self.features)
        self.index = SliceIndex(self.features, self.in_use)
        self.in_flight = AllocationsInFlight(self._flight_changed)
        self.classes = cluster.objects.of(DEVICE_CLASSES)
        expressions = CelExpressions(self.features)
        self.allocator = Allocator(self.index, expressions, self.features, self._share_id)
        self.special_claims = SpecialClaims()
        self.served: ServedResources | None = None
        self.counts: DeviceCounts | None = None
        self._mapped: MappedDevices | None = None
        self.allocatable: NodeAllocatable | None = None
        if self.features.node_allocatable:
            self._mapped = MappedDevices()
            self.allocatable = NodeAllocatable(cluster, self._mapped)
        self._held: dict[tuple[str, str], AllocationResult] = {}
        """What was counted for each holder."""
        slices = cluster.objects.of(RESOURCE_SLICES)
        if extended is not None:
            self.served = ServedResources(cluster.table, extended.classes)
            selectors = ClassSelectors(self.features)
            self.counts = DeviceCounts(
                cluster.table, extended.classes, selectors.select, lambda: slices, lambda: selectors.steps, later
            )
            extended.count_with(self.counts)
        cluster.table.on_node(self._node_changed)
        cluster.table.on_removal(self.index.remove_node)
        if "DRADeviceTaintRules" in gates and "DRADeviceTaints" in gates:
            rules = cluster.objects.of(DEVICE_TAINT_RULES)
            self._tainted = TaintedSlices(slices, rules, self._slice_changed, self._slice_retainted)
        else:
            slices.subscribe(self._slice_changed)
        self.claims = AssumedClaims(cluster.objects.of(RESOURCE_CLAIMS))
        self.claims.subscribe(self._claim_changed)
        self.claim_changes = ClaimChanges(self.claims)
        self.groups = ClaimGroups(cluster) if gates >= GATES else None
        """None while the gates for claims of groups are off."""

    @staticmethod
    def special_uid(pod_uid: str) -> str:
        """By which the claim for a pod's extended resources is known until it is created."""
        return f"{pod_uid}-extended-resources"

    def claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """The claims of the pod, each once, in the order of its spec. Raises ClaimProblem."""
        return claims_of(pod, self.claims, self._group_of(pod))

    def may_have(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether a claim that was made of a template was made for the pod, or for its group."""
        return is_owned_by(claim, pod, self._group_of(pod))

    def user_of(self, claim: ResourceClaim, pod: Pod) -> ResourceClaimConsumerReference:
        """What the claim is reserved for when the pod gets it: the pod, or its group."""
        group = self.groups.user_of(claim, pod) if self.groups is not None else None
        return group or reference_to(pod)

    def _group_of(self, pod: Pod) -> str:
        """The name of the group whose claims the pod may have, too; "" for none."""
        return self.groups.name_of(pod) if self.groups is not None else ""

    def device_class(self, name: str) -> DeviceClass | None:
        """The class of that name."""
        return self.classes.get("", name)

    def begin(self, claim: ResourceClaim, allocation: AllocationResult, finalizer: str, holder: str) -> None:
        """From now on the claim is being allocated, for the pod of this uid."""
        meta = claim.metadata
        if finalizer not in meta.finalizers:
            meta = replace(meta, finalizers=(*meta.finalizers, finalizer))
        allocated = replace(claim, metadata=meta, status=replace(claim.status, allocation=allocation))
        self.in_flight.begin(allocated, holder)

    def give_up(self, holder: str) -> None:
        """Takes back what is in flight for the pod of this uid: pods that wait for devices hear of it."""
        for entry in self.in_flight.give_up(holder):
            freed = replace(entry.claim, status=replace(entry.claim.status, allocation=None))
            self._cluster.announce(CLAIM_CHANGED, entry.claim, freed)

    # --- events ------------------------------------------------------------------------------------

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        self.special_claims.claim_changed(old, new)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._hold(("claim", old.metadata.uid), None)
            self.in_flight.end(old.metadata.uid)
        if new is None:
            self._cluster.announce(CLAIM_GONE, old, None, earlier=True)
            return
        uid, allocation = new.metadata.uid, new.status.allocation
        self._hold(("claim", uid), allocation)
        if allocation is not None:
            self.in_flight.end(uid)
            if (pod := self.special_claims.pod_of(new)) is not None:
                self.in_flight.end(self.special_uid(pod))
        event = CLAIM_CHANGED if old is not None else CLAIM_ADDED
        self._cluster.announce(event, old, new, earlier=True)

    def _flight_changed(self, uid: str, allocation: AllocationResult | None) -> None:
        self._hold(("in flight", uid), allocation)

    def _hold(self, holder: tuple[str, str], allocation: AllocationResult | None) -> None:
        """The holder has the devices of this allocation; None: no devices."""
        if allocation is not None:
            self.in_use.put(holder, allocation)
        else:
            self.in_use.drop(holder)
        if self.counts is None:
            return
        before = self._held.pop(holder, None)
        if allocation is not None:
            self._held[holder] = allocation
            self.counts.allocated(allocation)
        if before is not None:
            self.counts.released(before)

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        if self.counts is not None:
            self.counts.slice_changed(old, new)
        if self._mapped is not None:
            self._mapped.slice_changed(old, new)
        if new is None:
            assert old is not None, "a change has an object"
            self.index.remove_slice(old.metadata.name)
            return
        try:
            self.index.put_slice(new)
        except QuantityError as error:
            _log.warning("slice %s offers no devices, it cannot be understood: %s", new.metadata.name, error)
            self.index.remove_slice(new.metadata.name)

    def _slice_retainted(self, old: ResourceSlice, new: ResourceSlice) -> None:
        self._cluster.announce(SLICE_CHANGED, old, new)

    def _node_changed(self, row: int, node: Node) -> None:
        self.index.put_node(row, node)

    def _share_id(self) -> str:
        """A random UUID, of numbers that journals record."""
        high, low = self._rng.getrandbits(64), self._rng.getrandbits(64)
        return str(UUID(int=high << 64 | low, version=_UUID_VERSION))

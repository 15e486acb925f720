"""What is known of claims and devices, kept up to date by events. One per cluster: all profiles see the same.

Simulators may replace what the API server would do: `claims.assume` after a placement, `claims.restore` to undo it.
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from koordsched.api.core import Node
from koordsched.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from koordsched.cluster.builtinkinds import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from koordsched.cluster.events import RESOURCE_CLAIM, RESOURCE_SLICE, ActionType, ClusterEvent
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Handle
from koordsched.plugins.dynamicresources.assumed import AssumedClaims
from koordsched.plugins.dynamicresources.expressions import CELExpressions
from koordsched.plugins.dynamicresources.inflight import AllocationsInFlight
from koordsched.plugins.dynamicresources.structured import Allocator, DevicesInUse, Features, SliceIndex
from koordsched.plugins.dynamicresources.taintrules import TaintedSlices

CLAIM_ADDED = ClusterEvent(RESOURCE_CLAIM, ActionType.ADD)
CLAIM_CHANGED = ClusterEvent(RESOURCE_CLAIM, ActionType.UPDATE)
SLICE_CHANGED = ClusterEvent(RESOURCE_SLICE, ActionType.UPDATE)

_UUID_VERSION = 4


def books_of(handle: Handle) -> DeviceBooks:
    """The books of the handle's cluster."""

    def build(cluster: ClusterState) -> DeviceBooks:
        books = DeviceBooks(cluster, handle.features, handle.rng)
        handle.states.keep("DynamicResources", books.in_flight)
        return books

    return handle.cluster.shared(build, DeviceBooks)


class DeviceBooks:
    """`claims` there are, `in_flight` what is being allocated, `in_use` devices of both; `allocator` finds others."""

    def __init__(self, cluster: ClusterState, gates: frozenset[str], rng: Random) -> None:
        self.features = Features.enabled(gates)
        self._cluster = cluster
        self._rng = rng
        self.in_use = DevicesInUse(self.features)
        self._index = SliceIndex(self.features, self.in_use)
        self.in_flight = AllocationsInFlight(self._flight_changed)
        self.classes = cluster.objects.of(DEVICE_CLASSES)
        expressions = CELExpressions(self.features)
        self.allocator = Allocator(self._index, self.in_use, expressions, self.features, self._share_id)
        cluster.table.on_node(self._node_changed)
        cluster.table.on_removal(self._index.remove_node)
        slices = cluster.objects.of(RESOURCE_SLICES)
        if "DRADeviceTaintRules" in gates and "DRADeviceTaints" in gates:
            rules = cluster.objects.of(DEVICE_TAINT_RULES)
            self._tainted = TaintedSlices(slices, rules, self._slice_changed, self._slice_retainted)
        else:
            slices.subscribe(self._slice_changed)
        self.claims = AssumedClaims(cluster.objects.of(RESOURCE_CLAIMS))
        self.claims.subscribe(self._claim_changed)

    def device_class(self, name: str) -> DeviceClass | None:
        """The class of that name."""
        return self.classes.get("", name)

    def give_up(self, holder: str) -> None:
        """Takes back what is in flight for the pod of this uid: pods that wait for devices hear of it."""
        for entry in self.in_flight.give_up(holder):
            meta = entry.claim.metadata
            known = self.claims.get(meta.namespace, meta.name)
            if known is not None and known.metadata.uid == meta.uid and known.status.allocation is None:
                self._cluster.announce(CLAIM_CHANGED, entry.claim, known)

    # --- events ------------------------------------------------------------------------------------

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self.in_use.drop(("claim", old.metadata.uid))
            self.in_flight.end(old.metadata.uid)
        if new is None:
            return
        uid, allocation = new.metadata.uid, new.status.allocation
        if allocation is not None:
            self.in_use.put(("claim", uid), allocation)
            self.in_flight.end(uid)
        else:
            self.in_use.drop(("claim", uid))
        event = CLAIM_CHANGED if old is not None else CLAIM_ADDED
        self._cluster.announce(event, old, new, earlier=True)

    def _flight_changed(self, uid: str, allocation: AllocationResult | None) -> None:
        if allocation is not None:
            self.in_use.put(("in flight", uid), allocation)
        else:
            self.in_use.drop(("in flight", uid))

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        if new is not None:
            self._index.put_slice(new)
        elif old is not None:
            self._index.remove_slice(old.metadata.name)

    def _slice_retainted(self, old: ResourceSlice, new: ResourceSlice) -> None:
        self._cluster.announce(SLICE_CHANGED, old, new)

    def _node_changed(self, row: int, node: Node) -> None:
        self._index.put_node(row, node)

    def _share_id(self) -> str:
        """A random UUID, of numbers that journals record."""
        high, low = self._rng.getrandbits(64), self._rng.getrandbits(64)
        return str(UUID(int=high << 64 | low, version=_UUID_VERSION))

"""Defects of DynamicResources and of what is known of devices and claims."""

from msgspec.structs import replace

from koordsched.cluster.builtinkinds import RESOURCE_CLAIMS
from koordsched.cluster.events import RESOURCE_SLICE
from koordsched.plugins.dynamicresources import claims, claimwriter, hints, taintrules
from koordsched.plugins.dynamicresources.binding import ClaimBinding
from koordsched.plugins.dynamicresources.books import DeviceBooks
from koordsched.plugins.dynamicresources.claimwriter import ClaimWriter
from koordsched.plugins.dynamicresources.filtering import DeviceFilter
from koordsched.plugins.dynamicresources.hints import Hints
from koordsched.plugins.dynamicresources.inflight import AllocationsInFlight
from koordsched.plugins.dynamicresources.leftclaims import LeftClaims
from koordsched.plugins.dynamicresources.plugin import DynamicResources
from koordsched.plugins.dynamicresources.readiness import Readiness
from koordsched.plugins.dynamicresources.structured import plans, requests, results
from koordsched.plugins.dynamicresources.structured.inuse import DevicesInUse
from koordsched.plugins.dynamicresources.structured.pools import Condition, Pool
from koordsched.queue.hints import QueueingHint
from tests.simulation.mutations.registry import mutation

# --- devices in use --------------------------------------------------------------------------------


@mutation(AllocationsInFlight, "give_up", world="claims")
def devices_in_flight_not_given_back(original):
    return lambda self, holder: []


@mutation(DeviceBooks, "begin", world="claims")
def devices_not_in_use_while_in_flight(original):
    return lambda self, claim, allocation, finalizer, holder: None


@mutation(DeviceBooks, "_claim_changed", world="claims")
def devices_of_deleted_claims_kept(original):
    def changed(self, old, new):
        if new is not None:
            original(self, old, new)

    return changed


@mutation(DevicesInUse, "put", world="claims")
def allocations_of_other_clients_ignored(original):
    def put(self, holder, allocation):
        if holder[0] == "in flight" or allocation.allocation_timestamp is not None:
            original(self, holder, allocation)

    return put


@mutation(DevicesInUse, "_take", world="claims")
def what_shares_consume_not_counted(original):
    return lambda self, result: original(self, replace(result, consumed_capacity={}))


@mutation(Pool, "_read_counters", world="claims")
def counters_of_devices_in_use_forgotten(original):
    def read(self, parts):
        original(self, parts)
        self.models = {}

    return read


@mutation(DynamicResources, "unreserve", world="gangs+claims")
def devices_of_a_gang_that_is_rolled_back_kept(original):
    return lambda self, cycle, pod, row: None


# --- what nodes and claims have ----------------------------------------------------------------------


def _used_although(wrong, original):
    """Pools in this condition are used."""

    def condition(self, taken):
        found, problem = original(self, taken)
        return (Condition.USABLE if found is wrong else found), problem

    return condition


@mutation(Pool, "condition", world="claims")
def incomplete_pools_used(original):
    return _used_although(Condition.INCOMPLETE, original)


@mutation(Pool, "condition", world="claims")
def pools_with_two_devices_of_a_name_used(original):
    return _used_although(Condition.INVALID, original)


@mutation(Pool, "refresh", world="claims")
def older_generations_used_too(original):
    def refresh(self):
        newest = max((part.generation for part in self.parts.values()), default=0)
        for part in self.parts.values():
            part.generation = newest
        original(self)

    return refresh


@mutation(taintrules, "_tainted", world="claims")
def rules_that_taint_devices_ignored(original):
    return lambda device, rules: device


@mutation(requests, "Alternative", world="claims")
def one_device_taken_for_all(original):
    return lambda **fields: original(**{**fields, "wanted": fields["wanted"] or 1})


@mutation(claims, "is_owned_by", world="claims")
def claims_of_others_taken_for_the_pods_own(original):
    return lambda claim, pod, group="": True


@mutation(plans, "tolerated", world="claims")
def taints_of_devices_ignored(original):
    return lambda taints, tolerations: True


@mutation(results, "AllocationResult", world="claims")
def claims_usable_on_every_node(original):
    return lambda **fields: original(**{**fields, "node_selector": None})


@mutation(DeviceFilter, "_check_allocated", world="claims")
def nodes_of_allocated_claims_ignored(original):
    return lambda self, state, table, rows, codes: None


# --- what is written ---------------------------------------------------------------------------------


@mutation(ClaimWriter, "_reserve_once", world="claims")
def claims_not_protected(original):
    async def reserve(self, claim, allocation, pod):
        meta = replace(claim.metadata, finalizers=(claimwriter.FINALIZER,))
        return await original(self, replace(claim, metadata=meta), allocation, pod)

    return reserve


@mutation(ClaimWriter, "reserve", world="claims")
def namesakes_taken_for_the_claims_before_them(original):
    async def reserve(self, claim, allocation, user, **more):
        read = self._writes.read(RESOURCE_CLAIMS, claim.metadata.namespace, claim.metadata.name)
        found = await claimwriter._or_fail(read, "read the claim")
        return await original(self, found, allocation, user, **more)

    return reserve


@mutation(ClaimWriter, "reserve", world="claims")
def allocated_claims_not_reserved(original):
    async def reserve(self, claim, allocation, user, **more):
        return claim if allocation is None else await original(self, claim, allocation, user, **more)

    return reserve


@mutation(ClaimBinding, "release", world="claims")
def reservations_not_taken_back(original):
    return lambda self, state, pod: None


@mutation(ClaimBinding, "release", world="gangs+claims")
def reservations_of_a_gang_not_taken_back(original):
    return lambda self, state, pod: None


@mutation(LeftClaims, "look", world="gangs+claims")
def claims_left_with_pods_that_wait(original):
    async def look(self, before):
        return before

    return look


@mutation(Readiness, "wait", world="claims")
def devices_not_waited_for(original):
    async def wait(self, claims, waiting):
        return

    return wait


# --- what wakes pods ---------------------------------------------------------------------------------


@mutation(hints, "_after_deallocation", world="claims")
def no_pod_woken_by_devices_that_come_free(original):
    return lambda pod, old, new: QueueingHint.SKIP


@mutation(Hints, "_after_claim_change", world="claims")
def no_pod_woken_by_its_claims(original):
    return lambda self, pod, old, new: QueueingHint.SKIP


@mutation(Hints, "registrations", world="claims")
def no_pod_woken_by_slices(original):
    return lambda self: [each for each in original(self) if each.event.resource != RESOURCE_SLICE]

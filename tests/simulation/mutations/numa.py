"""CPUs of their own, and NUMA nodes."""

from koordsched.cluster.events import ASSIGNED_POD_DELETE
from koordsched.cluster.state import ClusterState
from koordsched.framework.status import SKIP, SUCCESS
from koordsched.plugins.nodenumaresource import allocator
from koordsched.plugins.nodenumaresource.columns import Layout, NUMAColumns
from koordsched.plugins.nodenumaresource.nodes import NUMANodes
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource
from koordsched.plugins.nodenumaresource.topology import CPUTopology
from koordsched.queue.hints import QueueingHint
from koordsched.scheduling.handlers import PodHandler
from tests.simulation.mutations.registry import mutation

# --- what pods hold --------------------------------------------------------------------------------


@mutation(NUMAColumns, "_count")
def allocations_seen_before_the_report_dropped(original):
    uncounted = set()

    def count(self, row, pod, sign):
        if sign > 0 and self.layout(row) is None:
            uncounted.add((self, pod.uid))
            return 0
        if sign < 0 and (self, pod.uid) in uncounted:
            uncounted.discard((self, pod.uid))
            return 0
        return original(self, row, pod, sign)

    return count


@mutation(NodeNUMAResource, "unreserve")
def cpus_not_given_back_by_unreserve(original):
    def unreserve(self, cycle, pod, row):
        if cycle.state.pop(self.name, None) is not None:
            pod.facts = ()

    return unreserve


@mutation(ClusterState, "_recount")
def confirmed_pod_with_other_cpus_not_recounted(original):
    return lambda self, before, pod: None


@mutation(NUMAColumns, "recount_sharing")
def who_shares_numa_nodes_not_worked_out_for_another_machine(original):
    return lambda self, row: None


# --- what pods are given -----------------------------------------------------------------------------


@mutation(Layout, "__init__")
def reserved_cpus_given_to_pods(original):
    return lambda self, topology, reserved: original(self, topology, 0)


@mutation(CPUTopology, "full_cores")
def required_full_cores_not_checked(original):
    return lambda self, available: available


@mutation(CPUTopology, "one_per_core")
def required_spread_not_checked(original):
    return lambda self, available: available


@mutation(NUMAColumns, "free")
def cpus_of_others_given_once_more(original):
    return lambda self, row, layout: layout.bits


@mutation(NUMANodes, "_reported")
def only_the_first_report_read(original):
    def reported(self, old, new):
        if old is None or new is None:
            original(self, old, new)

    return reported


@mutation(allocator.Allocator, "_amounts")
def amounts_of_numa_nodes_not_kept(original):
    def amounts(self, wanted, demand, row, mask):
        found = original(self, wanted, demand, row, mask)
        return tuple(each._replace(amounts=()) for each in found) if isinstance(found, tuple) else found

    return amounts


# --- what is written ---------------------------------------------------------------------------------


@mutation(NodeNUMAResource, "pre_bind")
def annotation_left_out(original):
    async def pre_bind(self, cycle, pod, node):
        return SUCCESS

    return pre_bind


@mutation(NodeNUMAResource, "pre_bind_pre_flight")
def annotation_of_an_earlier_attempt_left(original):
    return lambda self, cycle, pod, node: SUCCESS if self.name in cycle.state else SKIP


# --- what wakes pods ---------------------------------------------------------------------------------


@mutation(PodHandler, "forget")
def woken_before_cpus_are_released(original):
    def forget(self, uid):
        gone = self.cluster.assigned.get(uid)
        if gone is None or uid in self.pending.by_uid:
            return original(self, uid)
        move_all, self.queue.move_all = self.queue.move_all, lambda *args, **more: 0
        try:
            move_all(ASSIGNED_POD_DELETE, gone, None)
            original(self, uid)
        finally:
            self.queue.move_all = move_all

    return forget


@mutation(NodeNUMAResource, "_after_numa_change")
def no_pod_woken_by_reports(original):
    return lambda self, pod, old, new: QueueingHint.SKIP


@mutation(NodeNUMAResource, "_after_pod_left")
def no_pod_woken_by_released_cpus(original):
    return lambda self, pod, old, new: QueueingHint.SKIP

"""Defects of DeviceShare and of what is known of the devices of nodes."""

from koordsched.framework.status import SKIP, SUCCESS
from koordsched.plugins.deviceshare import adapters, allocator, gpus, supply
from koordsched.plugins.deviceshare.allocating import Allocating
from koordsched.plugins.deviceshare.feasibility import Feasibility
from koordsched.plugins.deviceshare.plugin import DeviceShare
from koordsched.plugins.deviceshare.templates import Templates
from koordsched.plugins.shared.devices import allocation, reading
from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.nodes import DeviceNodes
from koordsched.queue.hints import QueueingHint
from tests.simulation.mutations.registry import mutation

# --- what pods hold --------------------------------------------------------------------------------


@mutation(DeviceShare, "reserve")
def devices_not_allocated_by_reserve(original):
    def reserve(self, cycle, pod, row):
        allocate, self._cluster.allocate = self._cluster.allocate, lambda *args: None
        try:
            return original(self, cycle, pod, row)
        finally:
            self._cluster.allocate = allocate

    return reserve


@mutation(DeviceShare, "unreserve")
def devices_not_given_back_by_unreserve(original):
    def unreserve(self, cycle, pod, row):
        if cycle.state.pop(self.name, None) is not None:
            pod.facts = ()

    return unreserve


@mutation(DeviceColumns, "taken")
def virtual_functions_of_others_given_once_more(original):
    return lambda self, row, kind, minor: set()


@mutation(allocation, "parse")
def annotations_of_earlier_lives_ignored(original):
    return lambda text: None


@mutation(DeviceNodes, "_reported")
def what_pods_hold_forgotten_with_the_device(original):
    def reported(self, old, new):
        original(self, old, new)
        row = self._cluster.table.row_of.get((new or old).metadata.name)
        if new is None and row is not None:
            for column in self.columns.used.values():
                column.data[row] = 0

    return reported


# --- what nodes have ---------------------------------------------------------------------------------


@mutation(reading, "_place")
def health_ignored(original):
    def place(info, minor, path, problems):
        return original(type(info)(**{**_fields(info), "health": True}), minor, path, problems)

    return place


@mutation(DeviceNodes, "_reported")
def only_the_first_device_read(original):
    def reported(self, old, new):
        if old is None or new is None:
            original(self, old, new)

    return reported


@mutation(DeviceNodes, "_node_changed")
def devices_that_were_reported_before_the_node_not_read(original):
    def node_changed(self, row, wire):
        if row not in self._name_of:
            self._by_name.pop(wire.metadata.name, None)
        original(self, row, wire)

    return node_changed


# --- what pods are given -----------------------------------------------------------------------------


@mutation(gpus, "partitioned")
def gpus_in_use_within_a_partition_ignored(original):
    return lambda request, wanted, inventory, supply: original(request, wanted, inventory, supply._replace(used=0))


@mutation(allocator, "switches_of")
def pcie_switches_of_joint_devices_not_looked_at(original):
    return lambda supply, minors: frozenset()


@mutation(Allocating, "_complete")
def memory_and_share_not_completed(original):
    return lambda self, amounts, minor, row: None


@mutation(supply, "consistent", world="devices")
def memory_of_gpus_compared_apart_from_its_share(original):
    return lambda left, total: left


@mutation(Feasibility, "_ruled_out", world="devices")
def isolation_ignored(original):
    return lambda self, devices, inventory: None


@mutation(Templates, "of", world="devices")
def templates_not_named(original):
    return lambda self, vendor, model, amounts: [""] if original(self, vendor, model, amounts) else []


# --- what is written ---------------------------------------------------------------------------------


@mutation(DeviceShare, "pre_bind")
def annotation_of_devices_left_out(original):
    async def pre_bind(self, cycle, pod, node):
        return SUCCESS

    return pre_bind


@mutation(DeviceShare, "pre_bind_pre_flight")
def devices_of_an_earlier_attempt_left(original):
    return lambda self, cycle, pod, node: SUCCESS if self.name in cycle.state else SKIP


@mutation(adapters, "_minors", world="devices")
def device_plugins_given_other_minors(original):
    return lambda gpus, prefix="": original(gpus[:1], prefix)


# --- what wakes pods ---------------------------------------------------------------------------------


@mutation(DeviceShare, "_after_node_changed")
def no_pod_woken_by_devices(original):
    return lambda self, pod, old, new: QueueingHint.SKIP


@mutation(DeviceShare, "_after_pod_left")
def no_pod_woken_by_released_devices(original):
    return lambda self, pod, old, new: QueueingHint.SKIP


def _fields(info):
    return {name: getattr(info, name) for name in info.__struct_fields__}

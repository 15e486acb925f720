"""What a node's Device says (deviceshare spec 2.1; koordlet `states_device_linux.go`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import NAMESPACE_DNS, uuid5

import msgspec

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.hollow.devicefailures import FAIL_DEVICES
from koordsched.fakecluster.hollow.devicelayout import (
    DEVICES,
    DRIVER_VERSION,
    GPU,
    MODEL,
    PARTITION_POLICY,
    VENDOR,
    Device,
    Key,
    Machine,
    Partitions,
    read_devices,
)
from koordsched.fakecluster.quantities import canonical

Object = dict[str, Any]

API_VERSION = "scheduling.koordinator.sh/v1alpha1"
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
_OURS = (VENDOR, MODEL, DRIVER_VERSION, PARTITION_POLICY)
_HEALTHY = "Healthy"


class Described(NamedTuple):
    """The parts of a Device that koordlet writes."""

    labels: dict[str, str]
    partitions: str | None
    """The annotation."""
    devices: list[Object]

    def written_to(self, obj: Object) -> Object:
        """The object with these parts in it; others' labels and annotations stay as they are."""
        metadata = obj["metadata"]
        labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in _OURS}
        annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != PARTITIONS}
        if self.partitions is not None:
            annotations[PARTITIONS] = self.partitions
        written = {"labels": {**labels, **self.labels}, "annotations": annotations}
        return {
            **obj,
            "metadata": {
                **{key: value for key, value in metadata.items() if key not in written},
                **{key: value for key, value in written.items() if value},
            },
            "spec": {**(obj.get("spec") or {}), "devices": self.devices},
        }


def describe(machine: Machine, failures: Mapping[Key, str], node: str, before: Object, now: float) -> Described:
    """The report on the devices of a node, of which some have failed. `before`: the latest report, or an empty object.

    A device has a condition since it failed for the first time.
    """
    entries = (before.get("spec") or {}).get("devices") or ()
    known = {(entry.get("type"), entry.get("minor")): entry for entry in entries}
    stamp = rfc3339(now)
    devices = [
        _entry(device, node, _condition(failures.get(key), known.get(key) or {}, stamp))
        for key, device in machine.devices.items()
    ]
    return Described(machine.layout.all_labels, _partition_table(machine.layout.partitions, machine.gpus), devices)


def device_of(node: Object, now: float) -> Object | None:
    """The Device that a node of a template reports first; None for a node without devices. Raises ValueError."""
    annotations = node["metadata"]["annotations"]
    if DEVICES not in annotations:
        return None
    machine = read_devices(annotations[DEVICES])
    name = node["metadata"]["name"]
    new = {"apiVersion": API_VERSION, "kind": "Device", "metadata": {"name": name}}
    return describe(machine, {}, name, {}, now).written_to(new)


def _entry(device: Device, node: str, condition: Object | None) -> Object:
    group = device.group
    entry: Object = {
        "type": device.type,
        "id": f"GPU-{uuid5(NAMESPACE_DNS, f'{device.minor}.{node}')}" if device.type == GPU else device.bus_id,
        "minor": device.minor,
        "health": condition is None or condition["status"] == "True",
        "resources": {name: canonical(amount) for name, amount in group.amounts.items()},
    }
    if group.labels:
        entry["labels"] = group.labels
    if device.place is not None:
        numa_node, switch = device.place
        entry["topology"] = {"socketID": -1, "nodeID": numa_node, "pcieID": switch, "busID": device.bus_id}
    if device.virtual_functions:
        entry["vfGroups"] = [{"vfs": [{"minor": -1, "busID": bus_id} for bus_id in device.virtual_functions]}]
    if condition is not None:
        entry["conditions"] = [condition]
    return entry


def _condition(failure: str | None, before: Object, stamp: str) -> Object | None:
    old = next((entry for entry in before.get("conditions") or () if entry.get("type") == _HEALTHY), None)
    if failure is None and old is None:
        return None
    status, reason, message = "True", "DeviceHealthy", "device is healthy"
    if failure is not None:
        status, reason, message = "False", failure, f"failed on command: annotation {FAIL_DEVICES}"
    since = old["lastTransitionTime"] if old is not None and old.get("status") == status else stamp
    return {"type": _HEALTHY, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def _partition_table(partitions: list[Partitions], gpus: list[int]) -> str | None:
    if not partitions:
        return None
    table: dict[str, list[Object]] = {}
    for each in sorted(partitions, key=lambda each: each.size):
        bandwidth = {"ringBusBandwidth": each.ring_bus_bandwidth} if each.ring_bus_bandwidth else {}
        for minors in each.members(gpus):
            link = {"minors": minors, "gpuLinkType": each.gpu_link_type, **bandwidth}
            table.setdefault(str(each.size), []).append({**link, "allocationScore": each.allocation_score})
    return msgspec.json.encode(table).decode()

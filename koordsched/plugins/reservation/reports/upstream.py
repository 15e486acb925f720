"""The pages that upstream has of Reservations: those of a node, and an index by labels (reservation spec 3B)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from koordsched.api.quantity import NANO, format_bytes, format_nano
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import HostPort, shape_ports
from koordsched.cluster.resources import CPU, EPHEMERAL_STORAGE, FIRST_SCALAR, MEMORY
from koordsched.plugins.reservation.info import Amounts, ReservationInfo
from koordsched.plugins.reservation.plugin import Reservation
from koordsched.plugins.reservation.reservepod import requests_of
from koordsched.plugins.reservation.selectorindex import SelectorIndex

Names = list[str]
"""By index of a resource."""


def node_reservations(plugin: Reservation, parameters: Mapping[str, str]) -> dict[str, Any]:
    """All Reservations that hold room on a node."""
    row = plugin.table.row_of.get(parameters["nodeName"], -1)
    names = plugin.table.resource_names.names
    items = [_item(info, names) for info in plugin.cache.on(row)]
    return {"items": items} if items else {}


def selector_index(plugin: Reservation, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The labels of Reservations on nodes that the argument `reservationSelectorIndex` names, in numbers; with
    `detail=true` their values and uids, too."""
    index = SelectorIndex(plugin.selector_index, omit_node_labels=True)
    for info in plugin.cache:
        row = plugin.cache.row_of(info)
        if row >= 0:
            index.put(info.uid, plugin.table.names[row], info.reservation.metadata.labels)
    return index.snapshot(detail=parameters.get("detail") == "true")


def _item(info: ReservationInfo, names: Names) -> dict[str, Any]:
    reservation = info.reservation
    allocated = {index: amount for index, amount in info.allocated.items() if amount}
    offered = {index: info.available_to_owners(index) for index in info.allocatable}
    owners = sorted(info.owners.values(), key=lambda pod: pod.uid)
    item: dict[str, Any] = {
        "name": info.name,
        "namespace": reservation.metadata.namespace,
        "uid": info.uid,
        "kind": "Reservation" if reservation.spec.template is not None else "Pod",
        "available": info.available,
        "allocateOnce": info.once,
        "allocatable": dict(reservation.status.allocatable or requests_of(reservation)),
        "reserved": quantities(info.terms.inner, names),
        "allocated": quantities(allocated, names),
        "allocatablePorts": _ports(info.ports),
        "allocatedPorts": _ports(port for pod in owners for port in shape_ports(pod.shape)),
        "availableResource": _resource(offered, names),
        "allocatedResource": _resource(allocated, names),
        "owners": reservation.spec.owners,
        "allocatePolicy": reservation.spec.allocate_policy,
        "assignedPods": [_assigned(pod, names) for pod in owners],
    }
    always = ("availableResource", "allocatedResource")
    return {key: value for key, value in item.items() if value or key in always}


def quantity(index: int, amount: int) -> str:
    """The canonical text of an amount of a resource."""
    if index in (MEMORY, EPHEMERAL_STORAGE):
        return format_bytes(amount)
    return format_nano(amount * (NANO // 1000 if index == CPU else NANO))


def quantities(amounts: Mapping[int, int], names: Names) -> dict[str, str]:
    """The same by name."""
    return {names[index]: quantity(index, amount) for index, amount in sorted(amounts.items())}


def _resource(amounts: Amounts, names: Names) -> dict[str, Any]:
    scalars = {names[index]: amount for index, amount in amounts.items() if index >= FIRST_SCALAR}
    return {
        "MilliCPU": amounts.get(CPU, 0),
        "Memory": amounts.get(MEMORY, 0),
        "EphemeralStorage": amounts.get(EPHEMERAL_STORAGE, 0),
        "AllowedPodNumber": 0,
        "ScalarResources": scalars or None,
    }


def _assigned(pod: Pod, names: Names) -> dict[str, Any]:
    return {
        "Namespace": pod.namespace,
        "Name": pod.name,
        "UID": pod.uid,
        "Requests": quantities(dict(pod.requests.amounts), names),
        "Ports": _ports(shape_ports(pod.shape)) or None,
    }


def _ports(ports: Iterable[HostPort]) -> list[dict[str, Any]]:
    """A list, as on the page of a node: upstream's map cannot be written as JSON."""
    return [{"ip": ip, "protocol": protocol, "port": port} for ip, protocol, port in sorted(set(ports))]

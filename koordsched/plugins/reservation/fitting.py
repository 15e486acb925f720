"""Whether a pod fits into a Reservation and its node (reservation spec 3.5).

The table must read as in the pod's overlay: the reserve pods that it may use are away from their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import overlap, shape_ports
from koordsched.cluster.resources import FIRST_SCALAR, Requests
from koordsched.cluster.shape import PodShape
from koordsched.plugins.reservation.info import Amounts, ReservationInfo

NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
"""As NodePorts has it."""

PREFIX = "Reservation(s) "
"""Reasons that concern Reservations and not their node begin with it."""


class Fit(NamedTuple):
    """What is missing: resources that the node has too little of, texts about the Reservation."""

    node: tuple[str, ...]
    reservation: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the pod fits."""
        return not self.node and not self.reservation


class Fitting:
    """`ignores`: whether a resource of that name is none of this plugin's business (extended ones only).

    `skips_single`: gate SkipReservationFitsNode; where a single Reservation is matched, NodeResourcesFit is enough.
    """

    def __init__(self, table: NodeTable, ignores: Callable[[str], bool], *, skips_single: bool) -> None:
        self._table = table
        self._ignores = ignores
        self._skips_single = skips_single

    def into(
        self, pod: Pod, row: int, info: ReservationInfo, matched: Sequence[ReservationInfo], *, detailed: bool
    ) -> Fit:
        """Whether the pod fits into one of the Reservations that it may use on the row.

        `detailed`: texts have amounts.
        """
        node: tuple[str, ...] = ()
        if not (self._skips_single and len(matched) <= 1):
            node = self.on_node(pod, row, matched, info)
        if not info.restricted:
            return Fit(node, ())
        return Fit(node, tuple(self.exceeds(dict(pod.requests.amounts), info, detailed=detailed)))

    def fits(self, pod: Pod, row: int, info: ReservationInfo, matched: Sequence[ReservationInfo]) -> bool:
        """Whether `into` finds nothing that is missing."""
        if not (self._skips_single and len(matched) <= 1):
            for _ in self._missing(pod, row, matched, info):
                return False
        if info.restricted:
            for _ in self.exceeds(dict(pod.requests.amounts), info):
                return False
        return True

    def ignores(self, index: int, name: str) -> bool:
        """Whether a resource is left to other plugins."""
        return index >= FIRST_SCALAR and self._ignores(name)

    def on_node(
        self, pod: Pod, row: int, matched: Sequence[ReservationInfo], info: ReservationInfo | None = None
    ) -> tuple[str, ...]:
        """Resources that the node has too little of for the pod, beside all that is reserved; what the Reservation
        offers to owners is free for the pod. "pods" comes first.
        """
        return tuple(self._missing(pod, row, matched, info))

    def _missing(
        self, pod: Pod, row: int, matched: Sequence[ReservationInfo], info: ReservationInfo | None
    ) -> Iterator[str]:
        table = self._table
        # Upstream takes off those that are away already. Pods that stay are no virtual ones: each does have a slot.
        counted = len(staying(matched, info)) or -len(matched)
        if table.pods_count.data.item(row) + counted + 1 > table.pods_allocatable.data.item(row):
            yield "pods"
        away = [each for each in matched if not each.counted]
        requests = pod.requests
        of_shape = requests is pod.shape.requests
        for index, amount in pod.shape.compiled(compared, _compared_of) if of_shape else _compared(requests):
            if index >= FIRST_SCALAR:
                if self._ignores(table.resource_names.names[index]):
                    continue
                table.ensure_resource(index)
            room = table.allocatable[index].data.item(row) - table.requested[index].data.item(row)
            if info is not None:
                room += info.available_to_owners(index)
            for each in away:
                room -= each.left(index)
            if amount > room and not table.serves_otherwise(index, row):
                yield table.resource_names.names[index]

    def exceeds(self, requests: Amounts, info: ReservationInfo, *, detailed: bool = False) -> Iterable[str]:
        """Why a pod that requests so much, or several in its place, are too much for a Restricted Reservation."""
        names = self._table.resource_names.names
        slots, owners = info.terms.slots, len(info.owners)
        if slots is not None and owners + 1 > slots:
            amounts = f", requested: 1, used: {owners}, capacity: {slots}" if detailed else ""
            yield f"{PREFIX}Too many pods{amounts}"
        for index in sorted(info.terms.names, key=names.__getitem__):
            requested = requests.get(index, 0)
            if not requested or self.ignores(index, names[index]):
                continue
            capacity = info.allocatable.get(index, 0) - info.terms.inner.get(index, 0)
            used = info.allocated.get(index, 0)
            if requested > capacity - used:
                amounts = f", requested: {requested}, used: {used}, capacity: {capacity}" if detailed else ""
                yield f"{PREFIX}Insufficient {names[index]}{amounts}"


def _compared(requests: Requests) -> tuple[tuple[int, int], ...]:
    return tuple(compared(dict(requests.amounts)).items())


def _compared_of(shape: PodShape) -> tuple[tuple[int, int], ...]:
    return _compared(shape.requests)


_NATIVE: Amounts = dict.fromkeys(range(FIRST_SCALAR), 0)


def compared(requests: Amounts) -> Amounts:
    """The amounts that are compared with a node's, in order.

    What requests anything is kept from nodes that are overcommitted in CPU, memory or ephemeral storage, also if it
    requests none of that: so upstream has it.
    """
    return {**_NATIVE, **requests} if requests else {}


def staying(matched: Sequence[ReservationInfo], info: ReservationInfo | None) -> list[ReservationInfo]:
    """Pods that act as Reservations and stay as they are if the pod uses this one, or none: they keep their slots and
    host ports, though in its overlay they are away."""
    return [each for each in matched if each.acts and each is not info]


def port_conflict(pod: Pod, matched: Sequence[ReservationInfo], info: ReservationInfo | None) -> bool:
    """Whether one of those has a host port that the pod wants."""
    wanted = shape_ports(pod.shape)
    return bool(wanted) and any(overlap(wanted, each.ports) for each in staying(matched, info))


def shares_resources(pod: Pod, info: ReservationInfo) -> bool:
    """Whether the pod requests anything that the Reservation gives its owners."""
    return any(index in info.terms.names for index, _ in pod.requests.amounts)


def utilization(pod: Pod, info: ReservationInfo) -> int:
    """0..100: how much of the Reservation would be in use with the pod; what it cannot give counts as nothing."""
    requests: Amounts = dict(pod.requests.amounts)
    allocated = info.allocated
    kinds = len(info.allocatable) + (info.terms.slots not in (None, 0))
    total = 0
    for index, capacity in info.allocatable.items():
        used = requests.get(index, 0) + allocated.get(index, 0)
        if used <= capacity:
            total += 100 * used // capacity
    return total // kinds if kinds else 0

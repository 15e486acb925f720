"""What a pod was given: CPUs, and amounts of the resources of NUMA nodes; the annotation that says so.

Source: koordinator `apis/extension/numa_aware.go`; nodenumaresource spec 2.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import NamedTuple

import msgspec

from koordsched.api.quantity import format_bytes, format_nano, milli_value, value
from koordsched.plugins.shared import cpuset

MAX_NUMA_NODES = 8
"""NUMA nodes that a machine may have, as the kubelet has it; the subsets of more are too many to try."""

Amounts = tuple[tuple[str, int], ...]
"""(resource, amount) in the order of names; milli-CPU, bytes, units."""

_BYTES = ("memory", "ephemeral-storage")


class NUMAAmounts(NamedTuple):
    """What one NUMA node gives."""

    node: int
    amounts: Amounts


class Allocation(NamedTuple):
    """`cpus`: a bit set; `numa`: in the order of NUMA nodes."""

    cpus: int
    numa: tuple[NUMAAmounts, ...] = ()


NOTHING = Allocation(0)


class _NUMANodeResource(msgspec.Struct, omit_defaults=True):
    node: int
    resources: dict[str, str | int | float] | None = None


class _ResourceStatus(msgspec.Struct, omit_defaults=True, rename={"numa_node_resources": "numaNodeResources"}):
    cpuset: str = ""
    numa_node_resources: list[_NUMANodeResource] | None = None


_decoder = msgspec.json.Decoder(_ResourceStatus)
_encoder = msgspec.json.Encoder()


def parse(text: str) -> Allocation:
    """The allocation that the annotation says, perhaps of nothing. Raises ValueError if it cannot be read."""
    status = _decoder.decode(text)
    found: dict[int, dict[str, int]] = {}
    for numa in status.numa_node_resources or ():
        if not 0 <= numa.node < MAX_NUMA_NODES:
            raise ValueError(f"invalid NUMA node {numa.node}: at most {MAX_NUMA_NODES} are supported")
        amounts = found.setdefault(numa.node, {})
        for name, quantity in (numa.resources or {}).items():
            amount = amount_of(name, quantity)
            if amount < 0:
                raise ValueError(f"{name} of NUMA node {numa.node} is negative")
            amounts[name] = amounts.get(name, 0) + amount
    return Allocation(
        cpuset.parse(status.cpuset),
        tuple(NUMAAmounts(node, tuple(sorted(amounts.items()))) for node, amounts in sorted(found.items())),
    )


def text(allocation: Allocation) -> str:
    """The annotation of an allocation."""
    numa = [
        _NUMANodeResource(node, {name: quantity_of(name, amount) for name, amount in amounts})
        for node, amounts in allocation.numa
    ]
    return _encoder.encode(_ResourceStatus(cpuset.text(allocation.cpus), numa or None)).decode()


def less(allocation: Allocation, used: Iterable[Allocation]) -> Allocation | None:
    """What is left of an allocation without what others have of it, None if nothing is.

    What others have beyond it, of these NUMA nodes or elsewhere, does not matter.
    """
    others = tuple(used)
    taken: Counter[tuple[int, str]] = Counter()
    for numa in (numa for other in others for numa in other.numa):
        for name, amount in numa.amounts:
            taken[numa.node, name] += amount
    found = []
    for node, amounts in allocation.numa:
        left = tuple((name, rest) for name, amount in amounts if (rest := amount - taken[node, name]) > 0)
        if left:
            found.append(NUMAAmounts(node, left))
    cpus = allocation.cpus & ~reduce(or_, (other.cpus for other in others), 0)
    return Allocation(cpus, tuple(found)) if cpus or found else None


def amount_of(name: str, quantity: str | int | float) -> int:
    """Milli-CPU, bytes or units. Raises QuantityError."""
    return milli_value(quantity) if name == "cpu" else value(quantity)


def quantity_of(name: str, amount: int) -> str:
    """The canonical text of an amount."""
    if name == "cpu":
        return format_nano(amount * 10**6)
    return format_bytes(amount) if name in _BYTES or name.startswith("hugepages-") else format_nano(amount * 10**9)

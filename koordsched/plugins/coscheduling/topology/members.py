"""The members of a job: in which order they are counted, and which of them goes where (coscheduling spec 3.5, D6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from koordsched.api.selectors import parse_integer
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.plugins.coscheduling.kinds import NETWORK_TOPOLOGY_INDEX


@dataclass(frozen=True, slots=True)
class Member:
    """`index`: of the annotation `network-topology-index`; None without a valid one."""

    name: str
    namespace: str
    index: int | None = None


def index_of(annotations: Mapping[str, str]) -> int | None:
    """The index of a pod; None if there is none that is valid: pods are ordered before others from 0 on."""
    index = parse_integer(annotations.get(NETWORK_TOPOLOGY_INDEX, ""))
    return index if index is not None and index >= 0 else None


def member_of(pod: Pod) -> Member:
    """What matters of a pending pod."""
    annotations = pod.wire.metadata.annotations if pod.wire is not None else {}
    return Member(pod.name, pod.namespace, index_of(annotations))


def in_order(members: Sequence[Member]) -> list[int]:
    """The positions of the members by index, those without one last, then by name."""
    return sorted(range(len(members)), key=lambda at: _by_index(members[at]))


def assign(members: Sequence[Member], rows: RowArray, *, by_index: bool = False) -> list[tuple[int, int]]:
    """(position of a member, its row), in the order of the rows; there must be a row for each.

    By name, as upstream does it; with `by_index` by index, then name.
    """
    if len(rows) != len(members):
        raise ValueError(f"{len(rows)} rows for {len(members)} members")
    order = (
        in_order(members)
        if by_index
        else sorted(range(len(members)), key=lambda at: (members[at].name, members[at].namespace))
    )
    return list(zip(order, rows.tolist(), strict=True))


def _by_index(member: Member) -> tuple[bool, int, str, str]:
    return (member.index is None, member.index or 0, member.name, member.namespace)

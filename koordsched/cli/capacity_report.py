"""What `simulate --node-groups` says of the groups: nodes to add, and nodes that could go."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koordsched.cli.capacity import Capacity, Plan, Unhelped
from koordsched.cli.nodegroups import GroupNodes, NodeGroup
from koordsched.cli.removal import Removable, Removal
from koordsched.scheduling.offline import OfflineScheduler


class GroupSize(msgspec.Struct, rename="camel"):
    """A group: how many nodes there are of it now, and may be (`max` None: any number)."""

    name: str
    nodes: int
    min: int
    max: int | None


class CapacityReport(msgspec.Struct, rename="camel"):
    """`waiting`: pods that have no node on the cluster as it is; plans for these, best first; pods that no group helps;
    nodes that could go."""

    groups: list[GroupSize]
    waiting: int
    plans: list[Plan]
    unhelped: list[Unhelped]
    removable: list[Removable]


def capacity_report(scheduler: OfflineScheduler, groups: Sequence[NodeGroup], seed: int) -> CapacityReport:
    """For the pods that are still pending. Leaves the scheduler as it is. Raises InputError."""
    nodes = [GroupNodes(scheduler, group, seed) for group in groups]
    sizes = [GroupSize(each.name, len(each.members), each.group.min, each.group.max) for each in nodes]
    capacity = Capacity(scheduler, nodes, seed)
    plans, unhelped = capacity.plans(), capacity.unhelped()
    # An emptied node would take pods that wait, too.
    spare = [each for each in nodes if not capacity.helps(each)]
    return CapacityReport(sizes, len(capacity.pods), plans, unhelped, Removal(scheduler, seed).removable(spare))

"""Planning a whole group by network topology (upstream's FindOneNode, coscheduling spec 3.4, 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.gang import Gang
from koordsched.plugins.coscheduling.round import Round
from koordsched.plugins.coscheduling.topology import refusal
from koordsched.plugins.coscheduling.topology.complaints import GatheringComplaints
from koordsched.plugins.coscheduling.topology.explanation import explained
from koordsched.plugins.coscheduling.topology.gathering import Gathering, MalformedGathering, gathering_of
from koordsched.plugins.coscheduling.topology.members import assign, in_order, member_of
from koordsched.plugins.coscheduling.topology.offers import Counted, Offers
from koordsched.plugins.coscheduling.topology.picture import TopologyPicture
from koordsched.plugins.coscheduling.topology.selected import selector_of
from koordsched.plugins.coscheduling.topology.service import NO_TOPOLOGY, NetworkTopology
from koordsched.plugins.coscheduling.topology.solver import solve
from koordsched.plugins.coscheduling.topology.tree import Amounts, Tree

NO_PENDING = "no pending pods"


class TopologyPlans:
    """Plans for the gangs of one profile."""

    def __init__(self, name: str, handle: Handle, topology: NetworkTopology, args: CoschedulingArgs) -> None:
        """`name`: of the plugin."""
        self._handle = handle
        self._topology = topology
        self._aware = args.aware_network_topology
        self._by_index = args.place_by_index
        self._offers = Offers(handle, frozenset({name}))
        self._gatherings: dict[str, Gathering | None] = {}
        self._complaints = GatheringComplaints(topology, handle.events)

    def complain(self, gang: Gang, pod: Pod) -> None:
        """An Event if what the gang asks for cannot be read, or is not there; `pod`: one of its pods."""
        if self._aware and gang.options is not None and gang.options.topology_spec:
            self._complaints.look(gang.id, gang.options.topology_spec, pod)

    def gathering(self, gang: Gang) -> Gathering | None:
        """How the gang wants to be gathered; None if it does not say, or what it says cannot be read.

        Where jobs are not planned it counts as if it said nothing (D10).
        """
        text = gang.options.topology_spec if gang.options is not None and self._aware else ""
        if not text:
            return None
        if text not in self._gatherings:
            if len(self._gatherings) >= 1024:
                self._gatherings.clear()
            try:
                self._gatherings[text] = gathering_of(text)
            except MalformedGathering:
                self._gatherings[text] = None
        return self._gatherings[text]

    def explained(self, gang: Gang) -> TopologyPicture | None:
        """What the network has to offer the pending pods of the gang's group.

        None if it does not ask to be gathered, if there is no tree or no such pod, or while a job is being placed.
        """
        gathering = self.gathering(gang)
        if gathering is None or self._handle.cluster.in_transaction:
            return None
        return explained(self._handle, self._topology, self._offers, gathering, list(gang.group.pending()))

    @property
    def missing(self) -> bool:
        """Whether there is no tree."""
        return self._topology.tree() is None

    def plan(self, gathering: Gathering, pods: Sequence[Pod], rows: RowArray, around: Round) -> Status:
        """Plans all members that have no place, the first of the round among them; notes it there.

        A refusal if they have no place together. `rows`: the candidates.
        """
        if not pods:
            return Status(Code.ERROR, (NO_PENDING,))
        tree = self._topology.tree()
        if tree is None:
            return Status(Code.UNSCHEDULABLE, (NO_TOPOLOGY,))
        assigned, counted = self._assigned(tree, gathering, pods, rows, around.members[0])
        if assigned is None:
            reasons = self._handle.reasons
            around.refused_plan = counted
            text = refusal.message(tree, gathering, len(pods), counted.offers, counted.codes, rows, reasons)
            return Status(Code.UNSCHEDULABLE, (text,))
        names = self._handle.cluster.table.names
        around.planned = {pod.uid: names[row] for pod, row in assigned}
        return SUCCESS

    def refused_by(self, around: Round) -> frozenset[str]:
        """The plugins that kept members from nodes when there was no plan: the group waits for what they wait for."""
        if around.refused_plan is None:
            return frozenset()
        reasons = self._handle.reasons
        found = {reasons[code].plugin for code, _ in reasons.counted(around.refused_plan.codes)}
        return frozenset(found - {""})

    def spread(
        self, gathering: Gathering, pods: Sequence[Pod], rows: RowArray, scores: Amounts
    ) -> tuple[dict[int, list[Pod]] | None, Counted]:
        """Row -> the members that go there; None if they have no place together. `scores`: int64[rows of the table]."""
        assigned, counted = self._assigned(self._topology.tree(), gathering, pods, rows, pods[0], scores)
        if assigned is None:
            return None, counted
        spread: dict[int, list[Pod]] = {}
        for pod, row in assigned:
            spread.setdefault(row, []).append(pod)
        return spread, counted

    def _assigned(
        self,
        tree: Tree | None,
        gathering: Gathering,
        pods: Sequence[Pod],
        rows: RowArray,
        first: Pod,
        scores: Amounts | None = None,
    ) -> tuple[list[tuple[Pod, int]] | None, Counted]:
        """The members with their rows, None if they have no place together, and what there is room for.

        `first`: the member whose selector counts.
        """
        members = [member_of(pod) for pod in pods]
        existing = self._topology.existing(selector_of(first.shape))
        counted = self._offers.count([pods[at] for at in in_order(members)], rows)
        solution = solve(tree, gathering, len(pods), counted.offers, existing, scores) if tree is not None else None
        if solution is None:
            return None, counted
        places = assign(members, solution.rows, by_index=self._by_index)
        return [(pods[at], row) for at, row in places], counted

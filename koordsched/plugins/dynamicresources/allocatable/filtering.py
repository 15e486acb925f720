"""What devices take of their nodes: what Filter makes of it, and what counts from Reserve on (dra spec 3.11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from koordsched.api.core import PodStatus
from koordsched.api.resource import AllocationResult, ResourceClaim
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.claimedresources import total_of
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.dryruns import Tally
from koordsched.framework.status import PASS, Code, Codes, ReasonTable
from koordsched.plugins.dynamicresources.allocatable.consumers import Consumers
from koordsched.plugins.dynamicresources.allocatable.mapped import MappedDevices
from koordsched.plugins.dynamicresources.allocatable.room import shortages
from koordsched.plugins.dynamicresources.allocatable.takings import (
    claimed_resources,
    containers_by_claim,
    footprint_of,
    problem_of,
)
from koordsched.plugins.dynamicresources.cyclestate import Chosen, DeviceCycle
from koordsched.plugins.dynamicresources.structured.footprint import Footprint

Takings = Sequence[tuple[str, Footprint]]
"""Names of claims, and what they take."""


class Asked(NamedTuple):
    """The pod that verdicts are given for, and where their reasons go: those of the plugin of a profile."""

    plugin: str
    reasons: ReasonTable
    state: DeviceCycle
    pod: Pod
    table: NodeTable

    def number(self, code: Code, *texts: str) -> int:
        """The number of a reason, which the cycle keeps."""
        held = self.reasons.hold(self.plugin, code, *texts)
        self.state.held[held.number] = held
        return held.number


ANY_POD = Tally("node-allocatable", lambda pod: 1)
"""Any pod that comes or leaves matters, and in more than the resources that a pod itself requests."""


class NodeAllocatable:
    """One per cluster. To be made before the first pod is read: what claims take counts with the requests."""

    def __init__(self, cluster: ClusterState, devices: MappedDevices) -> None:
        self._cluster = cluster
        self._devices = devices
        self._fact = cluster.count_claimed()
        self._consumers = Consumers(self._fact)
        cluster.add_accountant(self._consumers, reads=[self._fact])

    # --- Filter ------------------------------------------------------------------------------------------

    def refuse_shared(self, asked: Asked, rows: RowArray, codes: Codes) -> None:
        """Refuses rows where another pod has an allocated claim of the pod that takes something of the node."""
        for _, claim, nodes in asked.state.allocated:
            name = claim.metadata.name
            for row, uids in self._consumers.rows_of((asked.pod.namespace, name)):
                if uids == [asked.pod.uid]:
                    continue
                text = f"node allocatable resource claim {name} is already used by another pod"
                if len(uids) > 1:
                    text = f"node allocatable resource claim {name} shared by multiple pods"
                at = (rows == row) & (codes == PASS)
                if nodes is not None and at.any():
                    at[at] = nodes.mask(asked.table, rows[at])
                if at.any():
                    codes[at] = asked.number(Code.UNRESOLVABLE, text)

    def takings_of_allocated(self, state: DeviceCycle) -> Takings:
        """What the claims that are allocated already take, wherever the pod goes. Raises TakingFailed."""
        return [
            (claim.metadata.name, footprint_of(claim, claim.status.allocation, self._devices))
            for _, claim, _ in state.allocated
            if claim.status.allocation is not None
        ]

    def judge(self, asked: Asked, rows: RowArray, takings: Takings) -> Codes | None:
        """The verdicts on rows where the claims would take this; None if the pod fits on all."""
        pod = asked.pod
        users = containers_by_claim(pod)
        claimed = claimed_resources(takings, users)
        if not claimed:
            return None
        asked.state.takes = True
        problem = problem_of(pod, claimed)
        if problem:
            number = asked.number(Code.UNRESOLVABLE, problem)
            return np.full(len(rows), number, dtype=np.int32)
        requests = self._cluster.shapes.resized(pod.shape, pod.shape.spec, PodStatus(), total_of(claimed))
        codes: Codes | None = None
        for where, final, lacking in shortages(asked.table, rows, requests):
            code = Code.UNRESOLVABLE if final else Code.UNSCHEDULABLE
            if codes is None:
                codes = np.zeros(len(rows), dtype=np.int32)
            texts = [f"Insufficient {resource}" for resource in lacking]
            codes[where] = asked.number(code, *texts)
        return codes

    def check(self, claims: Sequence[ResourceClaim], results: Sequence[AllocationResult]) -> None:
        """Raises TakingFailed if what one of the claims takes cannot be worked out."""
        for claim, allocation in zip(claims, results, strict=True):
            footprint_of(claim, allocation, self._devices)

    # --- in words ----------------------------------------------------------------------------------------

    @staticmethod
    def in_words(takings: Takings, pod: Pod) -> str:
        """What the claims take together: `cpu 3, memory 2Gi`; of several claims, claim by claim."""
        claimed = claimed_resources(takings, containers_by_claim(pod))
        each = [", ".join(f"{name} {amount}" for name, amount in one.amounts) for one in claimed]
        return (
            each[0]
            if len(each) == 1
            else "; ".join(f"{one.claim}: {text}" for one, text in zip(claimed, each, strict=True))
        )

    def used_by_others(self, state: DeviceCycle, pod: Pod, row: int) -> ResourceClaim | None:
        """An allocated claim of the pod that takes something of the row, and that another pod there has."""
        for _, claim, _ in state.allocated:
            for where, uids in self._consumers.rows_of((pod.namespace, claim.metadata.name)):
                if where == row and uids != [pod.uid]:
                    return claim
        return None

    # --- Reserve -----------------------------------------------------------------------------------------

    def begin(self, state: DeviceCycle, pod: Pod, chosen: Sequence[Chosen]) -> None:
        """From now on it counts against the node of the assumed pod what its claims take. Raises TakingFailed."""
        takings = [
            *self.takings_of_allocated(state),
            *((each.claim.metadata.name, footprint_of(each.claim, each.allocation, self._devices)) for each in chosen),
        ]
        state.claimed = claimed_resources(takings, containers_by_claim(pod))
        self._cluster.allocate(pod, self._fact, state.claimed or None)

    def end(self, state: DeviceCycle, pod: Pod) -> None:
        """Takes it back."""
        if state.claimed:
            state.claimed = ()
            self._cluster.allocate(pod, self._fact, None)

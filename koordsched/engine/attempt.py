"""One attempt to find a node for a pod: what its profile says about every node, and which node it chooses.

It changes nothing; a `Transaction` carries out the result, which is valid until the cluster changes.
"""

from __future__ import annotations

from contextlib import nullcontext
from random import Random

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.diagnosis import NO_NODES, first_error, fit_error
from koordsched.framework.interface import CycleState, PostFilterResult
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import Choice, Scored, decide, score
from koordsched.framework.status import SUCCESS, Status
from koordsched.framework.verdicts import Verdicts


def gated_by(profile: Profile, pod: Pod) -> Status:
    """The first PreEnqueue plugin that refuses the pod, with what it says; SUCCESS if none does."""
    for gate in profile.pre_enqueue:
        status = gate.pre_enqueue(pod)
        if not status.ok:
            return Status(status.code, status.reasons, gate.name)
    return SUCCESS


def internal_error(error: Exception) -> str:
    """What users read of an attempt that a bug of a plugin ended."""
    return f"internal error: {type(error).__name__}: {error}"


class Attempt:
    """The attempt. `filter` comes first; `verdicts` is what it found."""

    __slots__ = ("cluster", "cycle", "pod", "profile", "verdicts")

    verdicts: Verdicts

    def __init__(self, profile: Profile, cluster: ClusterState, pod: Pod) -> None:
        self.profile = profile
        self.cluster = cluster
        self.pod = pod
        self.cycle = CycleState(pod)

    @property
    def has_nodes(self) -> bool:
        """Whether there is any node; without one nothing is asked (`NO_NODES` is the message)."""
        return self.cluster.table.count > 0

    def filter(self, *, all_nodes: bool = False) -> Verdicts:
        """PreFilter and Filter; unless `all_nodes`, on preferred nodes and the nominated one alone first."""
        self.verdicts = self.profile.filtering.filter(self.cycle, all_nodes=all_nodes)
        return self.verdicts

    def error(self) -> Status | None:
        """The first ERROR that a plugin gave: it ends the attempt."""
        return first_error(self.verdicts, self.profile.handle.reasons)

    def choose(self, rng: Random) -> Choice:
        """A feasible node with the highest total; ties are broken by chance. At least one must be feasible.

        Raises ScoringFailed.
        """
        if self.cycle.overlay is None:
            return decide(self.cycle, self.cluster.table, self.verdicts, rng)
        filtering = self.profile.filtering
        asked = filtering.asked_outside(self.cycle, self.verdicts)
        with filtering.overlaid(self.cycle) if asked is None else nullcontext():
            return decide(self.cycle, self.cluster.table, self.verdicts, rng, asked)

    def score(self) -> Scored:
        """What every plugin gives each feasible row. Raises ScoringFailed."""
        with self.profile.filtering.scoring(self.cycle, self.verdicts):
            return score(self.cycle, self.cluster.table, self.verdicts)

    def best_rows(self) -> RowArray:
        """All feasible rows of the highest total, any of which may be chosen. Raises ScoringFailed."""
        rows = self.verdicts.rows
        if self.verdicts.feasible > 1:
            totals = self.score().totals()
            rows = rows[np.flatnonzero(totals == totals.max())]
        return rows

    def post_filter(self) -> PostFilterResult:
        """What the PostFilter plugins would do about it. Nothing is done yet: `actuate` of the result does it."""
        return self.profile.run_post_filter(self.cycle, self.verdicts.codes)

    def message(self, outcome: PostFilterResult | None = None) -> str:
        """Why there is no node for the pod, as its condition says it; `outcome` of PostFilter, if that ran."""
        if not self.has_nodes:
            return NO_NODES
        text = outcome.status.message if outcome is not None and not outcome.status.ok else ""
        return fit_error(self.cluster.table.count, self.verdicts, self.profile.handle.reasons, text)

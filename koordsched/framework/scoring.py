"""PreScore, Score and Normalize: from feasible rows to one node.

Where only shape plugins score and the feasible rows are those of the cache, the totals are there already, and so is
the best of them.
Otherwise scores are normalised over the feasible rows of this cycle (core spec 3.6, step 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.framework.bestrows import Totals
from koordsched.framework.evaluation import add_weighted, highest_of, normalize
from koordsched.framework.filtering import Verdicts
from koordsched.framework.interface import MAX_SCORE, CycleState, Scores
from koordsched.framework.status import Code, Status


class InvalidScore(Exception):
    """A plugin returned a score outside of 0..100 after normalising."""


class PreScoreFailed(Exception):
    """A PreScore plugin answered with something other than Success or Skip."""

    def __init__(self, status: Status) -> None:
        super().__init__(f'running PreScore plugin "{status.plugin}": {status.message}')
        self.status = status


@dataclass(frozen=True, slots=True)
class PluginScores:
    """One plugin's scores on the feasible rows, for explanations: raw, normalised (0..100), weight."""

    plugin: str
    weight: int
    raw: npt.NDArray[np.int64]
    normalized: npt.NDArray[np.int64]


def choose(cycle: CycleState, table: NodeTable, verdicts: Verdicts, rng: Random) -> int:
    """The row of a feasible node with the highest total; ties are broken by chance.

    At least one row must be feasible; a single one is taken without scoring.
    Raises InvalidScore or PreScoreFailed.
    """
    return decide(cycle, table, verdicts, rng)[0]


def decide(cycle: CycleState, table: NodeTable, verdicts: Verdicts, rng: Random) -> tuple[int, int | None]:
    """`choose`, and the total of that row: None if it was the only one."""
    if verdicts.feasible == 1:
        return int(verdicts.rows[0]), None
    evaluation = verdicts.evaluation
    if evaluation is not None and all(plugin.abstains(cycle, cycle.pod) for plugin, _ in verdicts.plan.pod_scores):
        row = evaluation.pick(rng)
        return row, evaluation.totals.item(row)
    rows = verdicts.rows
    totals = totals_of(cycle, table, verdicts)
    at = pick(totals, rng)
    return int(rows[at]), totals.item(at)


def pick(totals: Totals, rng: Random) -> int:
    """The index of a maximum, any of them with equal chance."""
    best = np.flatnonzero(totals == totals.max())
    return int(best[rng.randrange(len(best))]) if len(best) > 1 else int(best[0])


def totals_of(cycle: CycleState, table: NodeTable, verdicts: Verdicts) -> Totals:
    """The weighted total of every feasible row, in the order of `verdicts.rows`."""
    rows = verdicts.rows
    plan = verdicts.plan
    if verdicts.evaluation is not None:
        totals = verdicts.evaluation.totals.take(rows).astype(np.int64)
    elif verdicts.wider is not None:
        totals = verdicts.wider.totals_among(rows)
    else:
        totals = np.zeros(len(rows), dtype=np.int64)
        everything = np.ones(len(rows), dtype=np.bool_)
        for scorer, weight in plan.node_scores:
            raw = scorer.score_rows(plan.shape, table, rows)
            add_weighted(totals, weight, normalize(raw, highest_of(raw, everything), scorer.normalization))
    for name, weight, _, normalized in _pod_scores(cycle, table, verdicts, rows):
        _check(name, normalized)
        add_weighted(totals, weight, normalized)
    return totals


def explain_scores(cycle: CycleState, table: NodeTable, verdicts: Verdicts, order: list[str]) -> list[PluginScores]:
    """Every plugin's scores on the feasible rows, uncached, in the order of the profile's score chain."""
    rows = verdicts.rows
    everything = np.ones(len(rows), dtype=np.bool_)
    found: dict[str, PluginScores] = {}
    for scorer, weight in verdicts.plan.node_scores:
        raw = scorer.score_rows(verdicts.plan.shape, table, rows)
        normalized = normalize(raw, highest_of(raw, everything), scorer.normalization)
        found[scorer.name] = PluginScores(scorer.name, weight, _full(raw, len(rows)), _full(normalized, len(rows)))
    for name, weight, raw, normalized in _pod_scores(cycle, table, verdicts, rows):
        found[name] = PluginScores(name, weight, _full(raw, len(rows)), _full(normalized, len(rows)))
    return [found[name] for name in order if name in found]


def _pod_scores(
    cycle: CycleState, table: NodeTable, verdicts: Verdicts, rows: RowArray
) -> list[tuple[str, int, Scores, Scores]]:
    """(plugin, weight, raw, normalised) of the plugins that are asked in every cycle. PreScore comes first for all."""
    taking_part = []
    for plugin, weight in verdicts.plan.pod_scores:
        status = plugin.pre_score(cycle, cycle.pod, rows)
        if status.ok:
            taking_part.append((plugin, weight))
        elif status.code is not Code.SKIP:
            raise PreScoreFailed(Status(status.code, status.reasons, plugin.name))
    scored = []
    for plugin, weight in taking_part:
        raw = plugin.score(cycle, cycle.pod, table, rows)
        scored.append((plugin.name, weight, raw, plugin.normalize(cycle, cycle.pod, raw)))
    return scored


def _check(plugin: str, scores: Scores) -> None:
    low, high = (scores, scores) if isinstance(scores, int) else (int(scores.min()), int(scores.max()))
    if low < 0 or high > MAX_SCORE:
        raise InvalidScore(
            f'applying score defaultWeights on Score plugins: plugin "{plugin}" returns an invalid score '
            f"{low if low < 0 else high}, "
            f"it should in the range of [0, {MAX_SCORE}] after normalizing"
        )


def _full(scores: Scores, count: int) -> npt.NDArray[np.int64]:
    return np.full(count, scores, dtype=np.int64) if isinstance(scores, int) else scores.astype(np.int64)

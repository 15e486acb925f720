"""PreScore, Score and Normalize: from feasible rows to one node.

Where only shape plugins score and the feasible rows are those of the cache, the totals are there already, and so is
the best of them.
Otherwise scores are normalised over the feasible rows of this cycle (core spec 3.6, step 9).
What was computed stays with the choice, so that records and explanations read it and no plugin is asked twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from random import Random

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.framework.bestrows import Totals
from koordsched.framework.evaluation import Evaluation, add_weighted, highest_of, normalize
from koordsched.framework.interface import MAX_SCORE, CycleState, FewScores, PodScore, Scores
from koordsched.framework.plan import Chains
from koordsched.framework.reservations import ScoresReserved
from koordsched.framework.status import Code, Status
from koordsched.framework.verdicts import Verdicts


class ScoringFailed(Exception):
    """A plugin could not score the pod, which ends the attempt; the message is for the user."""


class InvalidScore(ScoringFailed):
    """A plugin returned a score outside of 0..100 after normalising."""


class PreScoreFailed(ScoringFailed):
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


_NO_ROWS: RowArray = np.zeros(0, dtype=np.intp)

_Asked = tuple[str, int, Scores, Scores]
"""(plugin, weight, raw, normalised)."""


class Scored:
    """What every plugin gave each feasible row, in the order of `verdicts.rows`. Asks no plugin any more.

    `added`: what extenders gave each row on top of it, None if none was asked. Scores that are kept are read from the
    evaluation: valid until that is refreshed.
    """

    __slots__ = ("_pod_scores", "_raw", "_totals", "added", "verdicts")

    def __init__(self, verdicts: Verdicts, raw: list[Scores] | None = None, pod_scores: Sequence[_Asked] = ()) -> None:
        """`raw`: of the shape plugins, if not those of the evaluation count; `pod_scores`: of those asked now."""
        self.verdicts = verdicts
        self._raw = raw
        self._pod_scores = pod_scores
        self._totals: Totals | None = None
        self.added: Totals | None = None

    @property
    def asked(self) -> frozenset[str]:
        """The plugins whose scores are not kept and that scored the rows of this cycle."""
        return frozenset(name for name, _, _, _ in self._pod_scores)

    def add(self, added: Totals) -> None:
        """Takes in what extenders gave each row. Raises InvalidScore."""
        self._totals = self.totals() + added
        self.added = added

    def totals(self) -> Totals:
        """The weighted total of each row, added up once. Not to be changed. Raises InvalidScore."""
        if self._totals is None:
            verdicts = self.verdicts
            if self._raw is None and verdicts.evaluation is not None:
                totals = verdicts.evaluation.totals.take(verdicts.rows).astype(np.int64)
            elif self._raw is None and verdicts.wider is not None:
                totals = verdicts.wider.totals_among(verdicts.rows)
            else:
                totals = np.zeros(len(verdicts.rows), dtype=np.int64)
                for _, weight, _, normalized in self._shape_scores():
                    add_weighted(totals, weight, normalized)
            for name, weight, _, normalized in self._pod_scores:
                _check(name, normalized)
                add_weighted(totals, weight, normalized)
            self._totals = totals
        return self._totals

    def by_plugin(self, chains: Chains) -> list[PluginScores]:
        """Every plugin's scores, in the order of the profile's score chain."""
        count = len(self.verdicts.rows)
        found = {
            name: PluginScores(name, weight, _full(raw, count), _full(normalized, count))
            for name, weight, raw, normalized in chain(self._shape_scores(), self._pod_scores)
        }
        return [found[plugin.name] for plugin, _ in chains.scores if plugin.name in found]

    def _shape_scores(self) -> Iterator[_Asked]:
        verdicts = self.verdicts
        cached = verdicts.evaluation or verdicts.wider
        raws: Sequence[Scores] = self._raw or ()
        if self._raw is None and cached is not None:
            raws = cached.raw_among(verdicts.rows)
        for (scorer, weight), raw in zip(verdicts.plan.node_scores, raws, strict=True):
            yield scorer.name, weight, raw, normalize(raw, highest_of(raw), scorer.normalization)


class Choice:
    """The row that was chosen. `total`: its total, None if it was the only feasible one, which is not scored."""

    __slots__ = ("_scored", "few", "row", "total", "verdicts")

    def __init__(self, verdicts: Verdicts, row: int, total: int | None = None, scored: Scored | None = None) -> None:
        self.verdicts = verdicts
        self.row = row
        self.total = total
        self._scored = scored
        self.few: tuple[str, int, FewScores] | None = None
        """What the only plugin that was asked gave some rows, with its name and weight."""

    @property
    def scored(self) -> Scored:
        """What each feasible row got, if there was a choice."""
        if self._scored is None:
            pod_scores: list[_Asked] = []
            if self.few is not None:
                name, weight, few = self.few
                at = self.verdicts.rows.searchsorted(few.rows)
                raw, normalized = np.zeros((2, len(self.verdicts.rows)), dtype=np.int64)
                raw[at], normalized[at] = few.raw, few.normalized
                pod_scores.append((name, weight, raw, normalized))
            self._scored = Scored(self.verdicts, None, pod_scores)
        return self._scored

    @property
    def asked(self) -> frozenset[str]:
        """As `Scored.asked`; none where all of them abstained."""
        if self.few is not None:
            return frozenset((self.few[0],))
        return self._scored.asked if self._scored is not None else frozenset()


def decide(
    cycle: CycleState,
    table: NodeTable,
    verdicts: Verdicts,
    rng: Random,
    asked: Sequence[tuple[PodScore, int]] | None = None,
) -> Choice:
    """A feasible node with the highest total; ties are broken by chance.

    At least one row must be feasible; a single one is taken without scoring. `asked`: the plugins that do not abstain,
    with their weights, where that is known. Raises ScoringFailed.
    """
    if verdicts.feasible == 1:
        return Choice(verdicts, int(verdicts.rows[0]))
    evaluation = verdicts.evaluation
    if evaluation is not None:
        if asked is None:
            asked = [step for step in verdicts.plan.pod_scores if not step[0].abstains(cycle, cycle.pod)]
        if not asked:
            _check_prepared(table, verdicts)
            row = evaluation.pick(rng)
            return Choice(verdicts, row, evaluation.totals.item(row))
        if (
            len(asked) == 1
            and cycle.timed is None
            and (few := asked[0][0].few(cycle, cycle.pod, verdicts.codes)) is not None
        ):
            _check_prepared(table, verdicts)
            return _best_with(asked[0][0].name, asked[0][1], few, verdicts, evaluation, rng)
    return best_of(score(cycle, table, verdicts), rng)


def _best_with(
    name: str, weight: int, few: FewScores, verdicts: Verdicts, evaluation: Evaluation, rng: Random
) -> Choice:
    """As `best_of`, where one plugin adds scores to few of the totals that are kept. Raises InvalidScore."""
    highest = int(np.maximum.reduce(evaluation.totals))
    if len(few.rows) == 1:
        row, score = int(few.rows[0]), int(few.normalized[0])
        _check(name, score)
        if (total := evaluation.totals.item(row) + weight * score) > highest:
            choice = Choice(verdicts, row, total)
            choice.few = (name, weight, few)
            return choice
    best = _NO_ROWS
    if len(few.rows):
        rows, normalized = np.asarray(few.rows, dtype=np.intp), np.asarray(few.normalized, dtype=np.int64)
        _check(name, normalized)
        totals = evaluation.totals[rows] + weight * normalized
        if (highest_of_few := int(totals.max())) >= highest:
            best = rows[totals == highest_of_few]
            if highest_of_few == highest:
                best = np.union1d(best, np.flatnonzero(evaluation.totals == highest))
            highest = highest_of_few
    if not len(best):
        best = (evaluation.totals == highest).nonzero()[0]
    choice = Choice(verdicts, best.item(rng.randrange(len(best)) if len(best) > 1 else 0), highest)
    choice.few = (name, weight, few)
    return choice


def best_of(scored: Scored, rng: Random) -> Choice:
    """A row with the highest total, any of them with equal chance. Raises InvalidScore."""
    totals = scored.totals()
    best = np.flatnonzero(totals == totals.max())
    at = int(best[rng.randrange(len(best))]) if len(best) > 1 else int(best[0])
    return Choice(scored.verdicts, int(scored.verdicts.rows[at]), totals.item(at), scored)


def score(cycle: CycleState, table: NodeTable, verdicts: Verdicts) -> Scored:
    """Asks the plugins whose scores are not kept about the feasible rows. PreScore comes first for all.

    Raises ScoringFailed.
    """
    plan, rows = verdicts.plan, verdicts.rows
    raw: list[Scores] | None = None
    if verdicts.evaluation is None and verdicts.wider is None:
        raw = [scorer.score_rows(plan.shape, table, rows) for scorer, _ in plan.node_scores]
    taking_part = []
    for plugin, weight in plan.pod_scores:
        status = plugin.pre_score(cycle, cycle.pod, rows)
        if status.ok:
            taking_part.append((plugin, weight))
        elif status.code is not Code.SKIP:
            raise PreScoreFailed(Status(status.code, status.reasons, plugin.name))
    _check_prepared(table, verdicts)
    pod_scores = []
    for plugin, weight in taking_part:
        if cycle.timed is None:
            scores = plugin.score(cycle, cycle.pod, table, rows)
        else:
            scores = cycle.timed(plugin.name, "Score", partial(plugin.score, cycle, cycle.pod, table, rows))
        pod_scores.append((plugin.name, weight, scores, plugin.normalize(cycle, cycle.pod, scores)))
    return Scored(verdicts, _with_reserved(cycle, verdicts, raw), pod_scores)


def _with_reserved(cycle: CycleState, verdicts: Verdicts, raw: list[Scores] | None) -> list[Scores] | None:
    """The raw scores of the shape plugins where the pod would use reservations on some rows; `raw` if that changes
    nothing."""
    usable, plan = cycle.reservations, verdicts.plan
    if usable is None or usable.ignored or cycle.pod.virtual or not cycle.overlay:
        return raw
    pod, rows = cycle.pod, verdicts.rows
    at = np.flatnonzero(np.isin(rows, cycle.overlay.rows)).tolist()
    changed: list[Scores] | None = None
    for k, (scorer, _) in enumerate(plan.node_scores):
        if not at or not isinstance(scorer, ScoresReserved):
            continue
        for position in at:
            row = rows.item(position)
            if (chosen := usable.chosen(row)) is None:
                continue
            with usable.alone(row, chosen):
                score = scorer.score_using(cycle, pod, row, chosen)
            if score is None:
                continue
            if changed is None:
                cached = verdicts.evaluation or verdicts.wider
                before = cached.raw_among(rows) if cached is not None else raw or []
                changed = [_full(scores, len(rows)) for scores in before]
            of_scorer = changed[k]
            assert not isinstance(of_scorer, int), "made an array above"
            of_scorer[position] = score
    return changed or raw


def _check_prepared(table: NodeTable, verdicts: Verdicts) -> None:
    if plugin := verdicts.plan.unprepared:
        raise ScoringFailed(
            f'running Score plugins: plugin "{plugin}" failed with: get state node "{table.names[verdicts.rows[0]]}" '
            f'from PreScore: error reading "PreScore{plugin}" from cycleState: not found'
        )


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

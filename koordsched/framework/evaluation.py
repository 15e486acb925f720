"""The cached verdicts and scores of the shape plugins, per shape, refreshed row by row.

The thousandth replica of a Deployment finds here what the first one computed; only rows that changed since in a facet
that some plugin reads are asked again. What is kept per shape: the code of the first rejecting plugin per row, the raw
scores of each score plugin, and the weighted, normalised total (-1 where the node is not feasible), so that choosing a
node is a search for the maximum.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.shape import PodShape
from koordsched.framework.bestrows import BestRows, Totals
from koordsched.framework.interface import MAX_SCORE, Normalization, Scores, ShapeScore, Timed
from koordsched.framework.keptrows import KeptRows
from koordsched.framework.overlay import Overlay
from koordsched.framework.plan import Chains, ShapePlan
from koordsched.framework.shapecache import ShapeCache
from koordsched.framework.status import NO_NODE, PASS, ReasonTable

INFEASIBLE = -1
"""Total of a row that is not a candidate."""

_ONE_BY_ONE = 6
"""Up to this many changed rows are refreshed one at a time, which is cheaper than as an array."""

_MAX_INT16, _MAX_INT32 = np.iinfo(np.int16).max, np.iinfo(np.int32).max

DEFAULT_BUDGET = 128 << 20
"""Bytes that one profile's evaluations may take."""


def normalize(raw: Scores, highest: int, how: Normalization) -> Scores:
    """Raw scores to 0..100, given the highest raw score of a feasible node (at least 0).

    Source: upstream `plugins/helper/normalize_score.go`; raw scores are not negative, so that flooring and
    truncating divide alike.
    """
    if how is Normalization.NONE:
        return raw
    if highest == 0:
        return MAX_SCORE if how is Normalization.MAX_REVERSED else raw
    scaled = (raw if isinstance(raw, int) else raw.astype(np.int64, copy=False)) * MAX_SCORE // highest
    return MAX_SCORE - scaled if how is Normalization.MAX_REVERSED else scaled


def highest_of(raw: Scores, feasible: npt.NDArray[np.bool_] | bool = True) -> int:
    """The highest raw score among feasible rows (True: all are), at least 0."""
    if isinstance(raw, int):
        return max(0, raw)
    return max(0, int(np.where(feasible, raw, 0).max(initial=0)))


class Evaluation:
    """The verdicts and scores of the shape plugins of one profile about one shape on every row.

    `codes`: int32[rows]; `totals`: int16[rows] (wider where weights are extreme), INFEASIBLE where refused;
    `feasible`: how many rows pass. Valid after `refresh`, until the table changes. Read only.

    Arrays are as small as their values allow: with thousands of shapes in use, fresh memory costs more than arithmetic.
    """

    def __init__(self, plan: ShapePlan, table: NodeTable, code_positions: _CodePositions) -> None:
        self.plan = plan
        self.shape = plan.shape
        self._table = table
        self._timed: Timed | None = None
        self._code_positions = code_positions
        self._filter_facets = 0
        for _, plugin in plan.node_filters:
            self._filter_facets |= plugin.facets
        self._score_facets = 0
        for scorer, _ in plan.node_scores:
            self._score_facets |= scorer.facets
        self._serial = -1
        self._raw: list[Scores] = []
        self._highest: list[int] = []
        self._at_highest: list[int] = []
        """By score plugin, how many feasible rows have the highest raw score, where that matters to the others."""
        self._epochs: list[Hashable] = []
        self._best_rows = BestRows()
        self._before: _Before | None = None
        """What is read again from the next use on, after the attempt whose overlay is written here."""
        self.codes = np.zeros(0, dtype=np.int32)
        heaviest = MAX_SCORE * sum(weight for _, weight in plan.node_scores)
        self._total_type: type[np.int16 | np.int32 | np.int64] = (
            np.int16 if heaviest <= _MAX_INT16 else np.int32 if heaviest <= _MAX_INT32 else np.int64
        )
        self.totals: Totals = np.zeros(0, dtype=self._total_type)
        self.feasible = 0
        self.nbytes = 0
        """What it takes with its shape, room for all rows to be among the leaders included."""

    def refresh(self, timed: Timed | None = None) -> None:
        """Brings everything up to date with the table. `timed` measures the calls of plugins."""
        table = self._table
        self._timed = timed
        serial = table.log.serial
        if self._before is not None:
            self._put_back()
        if self._serial == serial and not (self._epochs and self._epochs_changed()):
            return
        if self._serial < 0 or len(self.codes) < table.size:
            self._evaluate_all()
        else:
            # LABELS always counts: nodes coming and going touch every facet.
            changed = table.log.since(self._serial, self._filter_facets | self._score_facets | Facet.LABELS, table.size)
            if isinstance(changed, list):
                self._refresh_some(changed)
            elif len(changed) * 4 > table.size:
                self._evaluate_all()
            else:
                self._refresh_rows(changed)
            if self._epochs and self._epochs_changed():
                self._rescore()
        self._serial = serial

    def pick(self, rng: Random) -> int:
        """A row with the highest total, any of them with equal chance. At least one row must be feasible."""
        return self._best_rows.pick(self.totals, rng)

    def totals_among(self, rows: RowArray) -> Totals:
        """The totals of some feasible rows when the others are not candidates, and do not count in normalising."""
        if all(
            isinstance(raw, int) or scorer.normalization is Normalization.NONE
            for (scorer, _), raw in zip(self.plan.node_scores, self._raw, strict=True)
        ):
            return self.totals.take(rows).astype(np.int64)
        totals = np.zeros(len(rows), dtype=np.int64)
        for (scorer, weight), raw in zip(self.plan.node_scores, self.raw_among(rows), strict=True):
            add_weighted(totals, weight, normalize(raw, highest_of(raw), scorer.normalization))
        return totals

    def stale(self, overlay: Overlay) -> RowArray:
        """The rows of an overlay that have to be asked about inside of it: of others, the answers are kept with it."""
        rows, kept = overlay.rows, overlay.kept
        if not overlay.lasting or kept is None or kept.epochs != self._epochs:
            return rows
        return kept.stale(rows, self._table.log)

    def overlay(self, overlay: Overlay, stale: RowArray) -> None:
        """From now on the rows of the overlay are as it has them; the stale ones as the table reads now, inside of it.

        For the attempt under way; `refresh` undoes it.
        """
        self._before = _Before(self)
        nbytes = self.nbytes
        if overlay.lasting:
            self._overlay_lasting(overlay, stale)
        else:
            self._refresh_some([(row, overlay.facets[row]) for row in stale.tolist()])
        self.nbytes = nbytes

    def _overlay_lasting(self, overlay: Overlay, stale: RowArray) -> None:
        kept, log = overlay.kept, self._table.log
        if kept is None:
            kept = overlay.kept = KeptRows(overlay, len(self._raw))
        rows = overlay.rows
        self._write(self.codes, rows, kept.codes.data)
        for k, column in enumerate(kept.raw):
            self._store_raw(k, rows, column.data)
        if len(stale):
            self._refresh_rows(stale)
        else:
            self._total_all()
        kept.keep(rows, stale, log, self.codes, self._raw)
        kept.epochs = self._epochs

    def overlaid(self, overlay: Overlay, stale: RowArray) -> Evaluation:
        """A copy that is as the overlay has it, and stays so; it is not kept.

        For attempts that are suspended, while which others may be made.
        """
        copy = Evaluation(self.plan, self._table, self._code_positions)
        copy.codes, copy._epochs = self.codes.copy(), self._epochs
        copy._raw = [raw if isinstance(raw, int) else raw.copy() for raw in self._raw]
        copy._total_all()
        copy.overlay(overlay, stale)
        return copy

    def _put_back(self) -> None:
        before, self._before = self._before, None
        assert before is not None, "there is an overlay"
        for array, rows, values in reversed(before.written):
            array[rows] = values
        self._raw, self.totals, self._highest, self._at_highest, self.feasible = before.rest
        self._best_rows.forget()

    def _write(self, array: npt.NDArray[Any], rows: RowArray | slice, values: npt.ArrayLike) -> None:
        if self._before is not None:
            self._before.written.append((array, rows, array[rows].copy()))
        array[rows] = values

    def raw_among(self, rows: RowArray) -> list[Scores]:
        """The raw scores of some rows, by score plugin of the plan."""
        return [raw if isinstance(raw, int) else raw.take(rows) for raw in self._raw]

    # --- all rows --------------------------------------------------------------------------------

    def _evaluate_all(self) -> None:
        table = self._table
        self.codes = self.plan.filter_nodes(table, table.all_rows, timed=self._timed)
        self._rescore()

    def _rescore(self) -> None:
        self._epochs = [scorer.epoch(self.shape) for scorer in self.plan.epoch_scores]
        rows = self._table.all_rows
        self._raw = [_kept(self._score(scorer, rows), scorer.normalization) for scorer, _ in self.plan.node_scores]
        self._total_all()

    def _score(self, scorer: ShapeScore, rows: Rows) -> Scores:
        if self._timed is None:
            return scorer.score_rows(self.shape, self._table, rows)
        return self._timed(scorer.name, "Score", partial(scorer.score_rows, self.shape, self._table, rows))

    def _epochs_changed(self) -> bool:
        shape = self.shape
        return any(
            epoch != scorer.epoch(shape) for scorer, epoch in zip(self.plan.epoch_scores, self._epochs, strict=True)
        )

    def _total_all(self) -> None:
        passing = self.codes == PASS
        self.feasible = int(np.count_nonzero(passing))
        totals = np.zeros(len(self.codes), dtype=self._total_type)
        self._highest = []
        self._at_highest = []
        alike = raw_bytes = 0
        for (scorer, weight), raw in zip(self.plan.node_scores, self._raw, strict=True):
            highest = 0 if scorer.normalization is Normalization.NONE else highest_of(raw, passing)
            self._highest.append(highest)
            normalized = scorer.normalization is not Normalization.NONE and not isinstance(raw, int)
            self._at_highest.append(int(np.count_nonzero((raw == highest) & passing)) if normalized else 0)
            scores = normalize(raw, highest, scorer.normalization)
            if isinstance(scores, int):
                alike += weight * scores
            else:
                add_weighted(totals, weight, scores)
            if not isinstance(raw, int):
                raw_bytes += raw.nbytes
        if alike:
            totals += alike
        if self.feasible < len(totals):
            totals[~passing] = INFEASIBLE
        self.totals = totals
        self._best_rows.forget()
        best_bytes = 4 * len(totals)
        self.nbytes = self.shape.nbytes + self.codes.nbytes + totals.nbytes + best_bytes + raw_bytes

    # --- some rows -------------------------------------------------------------------------------

    def _refresh_some(self, changed: Sequence[tuple[int, int]]) -> None:
        """Rows with the facets in which they changed."""
        if len(changed) <= _ONE_BY_ONE:
            for row, facets in changed:
                self._refresh_row(row, facets)
        else:
            self._refresh_rows(np.fromiter((row for row, _ in changed), np.intp, len(changed)))

    def _refresh_rows(self, rows: RowArray) -> None:
        if not len(rows):
            return
        self._write(self.codes, rows, self.plan.filter_nodes(self._table, rows, timed=self._timed))
        for k, (scorer, _) in enumerate(self.plan.node_scores):
            self._store_raw(k, rows, self._score(scorer, rows))
        self._total_all()

    def _store_raw(self, k: int, rows: RowArray | slice, scores: Scores) -> None:
        raw = self._raw[k]
        if isinstance(raw, int):
            if isinstance(scores, int):
                if scores == raw:
                    return
            elif bool((scores == raw).all()):
                return
            how = self.plan.node_scores[k][0].normalization
            raw = self._raw[k] = np.full(len(self.codes), raw, dtype=_type_of(how))
        self._write(raw, rows, scores)

    # --- one row: the path of nearly every cycle ----------------------------------------------------

    def _refresh_row(self, row: int, facets: int) -> None:
        table, plan = self._table, self.plan
        one = slice(row, row + 1)
        if self._before is not None:
            self._before.written += [(array, one, array[one].copy()) for array in (self.codes, self.totals)]
        before = self.codes.item(row)
        code = before
        if facets & Facet.LABELS and not table.alive.data.item(row):
            code = NO_NODE
        elif before == NO_NODE or facets & self._filter_facets:
            code = self._filter_row(one, before, facets)
        self.codes[row] = code

        changed = code != before
        renormalize = False
        for k, (scorer, _) in enumerate(plan.node_scores):
            raw = self._raw[k]
            old = new = raw if isinstance(raw, int) else raw.item(row)
            if scorer.facets & facets or before == NO_NODE:
                scores = scorer.score_rows(self.shape, table, one) if self._timed is None else self._score(scorer, one)
                new = scores if isinstance(scores, int) else scores.item(0)
                if new != old:
                    self._store_raw(k, one, new)
            elif not changed:
                continue
            if scorer.normalization is not Normalization.NONE and not isinstance(self._raw[k], int):
                if isinstance(raw, int):
                    renormalize = True  # how many rows have the highest score was not counted
                elif self._highest_changes(k, old if before == PASS else -1, new if code == PASS else -1):
                    renormalize = True
        if renormalize:
            self._total_all()
            return
        if changed:
            self.feasible += (code == PASS) - (before == PASS)
        if code != PASS:
            self.totals[row] = INFEASIBLE
            return
        total = 0
        for (scorer, weight), raw, highest in zip(plan.node_scores, self._raw, self._highest, strict=True):
            score = raw if isinstance(raw, int) else raw.item(row)
            how = scorer.normalization
            if how is not Normalization.NONE:
                score = normalize(score, highest, how)  # type: ignore[assignment]  # an int stays an int
            total += weight * score
        if total > self.totals.item(row):
            self._best_rows.rises_to(total)
        self.totals[row] = total

    def _highest_changes(self, k: int, old: int, new: int) -> bool:
        """Whether the highest raw score of feasible rows changes with that of one row; -1: the row is not feasible."""
        highest = self._highest[k]
        if old == new:
            return False
        if new == highest:
            self._at_highest[k] += 1
        elif old == highest:
            self._at_highest[k] -= 1
            return new > highest or not self._at_highest[k]
        return new > highest

    def _filter_row(self, one: slice, before: int, facets: int) -> int:
        """The row's new code, asking no plugin whose answer cannot have changed."""
        asked_from, timed = 0, self._timed
        if before not in (PASS, NO_NODE):
            # All plugins before the one that rejected pass, unless they read what changed.
            rejected_at = self._code_positions(before)
            for position, plugin in self.plan.node_filters:
                if position >= rejected_at or plugin.facets & facets:
                    asked_from = position
                    break
            if asked_from == rejected_at and not any(
                plugin.facets & facets for position, plugin in self.plan.node_filters if position == rejected_at
            ):
                return before
        for position, plugin in self.plan.node_filters:
            if position < asked_from or (before == PASS and not plugin.facets & facets):
                continue
            if timed is None:
                verdict = plugin.filter_rows(self.shape, self._table, one)
            else:
                verdict = timed(plugin.name, "Filter", partial(plugin.filter_rows, self.shape, self._table, one))
            if verdict is not None and (code := verdict.item(0)) != PASS:
                return code
        return PASS


class _Before:
    """What an overlay is written over. `written`: (array, rows, values) in the order of writing."""

    __slots__ = ("rest", "written")

    def __init__(self, found: Evaluation) -> None:
        self.written: list[tuple[npt.NDArray[Any], RowArray | slice, npt.NDArray[Any]]] = []
        self.rest = (list(found._raw), found.totals, found._highest, list(found._at_highest), found.feasible)


def _type_of(how: Normalization) -> npt.DTypeLike:
    """What raw scores are kept as: those that are not normalised are 0..100."""
    return np.int8 if how is Normalization.NONE else np.int64


def _kept(scores: Scores, how: Normalization) -> Scores:
    """A small copy of our own of what a plugin answered."""
    return scores if isinstance(scores, int) else scores.astype(_type_of(how))


def add_weighted(totals: Totals, weight: int, scores: Scores) -> None:
    """Adds weighted scores, which may be of a narrower type than their product with the weight."""
    if isinstance(scores, int):
        totals += weight * scores
    elif weight == 1:
        totals += scores
    else:
        totals += np.multiply(scores, weight, dtype=totals.dtype, casting="same_kind")


class _CodePositions:
    """Position in the filter chain of the plugin that gave a code."""

    __slots__ = ("_positions", "_reasons")

    def __init__(self, chains: Chains, reasons: ReasonTable) -> None:
        self._positions = {plugin.name: position for position, plugin in enumerate(chains.filters)}
        self._reasons = reasons

    def __call__(self, code: int) -> int:
        return self._positions[self._reasons[code].plugin]


class Evaluations:
    """All evaluations of one profile: least recently used first out, under a budget of bytes."""

    def __init__(self, chains: Chains, table: NodeTable, reasons: ReasonTable, budget: int = DEFAULT_BUDGET) -> None:
        self._chains = chains
        self._table = table
        self._code_positions = _CodePositions(chains, reasons)
        self._kept = ShapeCache(self._new, budget)

    def position_of(self, code: int) -> int:
        """Position in the filter chain of the plugin that gave a code."""
        return self._code_positions(code)

    def of(self, shape: PodShape, timed: Timed | None = None) -> Evaluation:
        """The evaluation of a shape, up to date. Raises RuntimeError inside a what-if, which nothing may be kept of."""
        if self._table.hypothetical:
            raise RuntimeError("cached verdicts do not know of what-ifs: ask about single rows")
        found = self._kept[shape]
        self._kept.move_to_end(shape)
        before = found.nbytes
        found.refresh(timed)
        if found.nbytes != before:
            self._kept.resized(found.nbytes - before)
        return found

    def _new(self, shape: PodShape) -> Evaluation:
        return Evaluation(self.plan_of(shape), self._table, self._code_positions)

    def plan_of(self, shape: PodShape) -> ShapePlan:
        """The plan of a shape, decided once."""
        return shape.compiled(self, self._plan)

    def _plan(self, shape: PodShape) -> ShapePlan:
        return ShapePlan(shape, self._chains)

    def __len__(self) -> int:
        return len(self._kept)

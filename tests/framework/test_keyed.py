"""Filters and scores that are asked once per state of a node."""

from random import Random

import numpy as np
import pytest

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.shape import SHAPE_BYTES
from koordsched.framework import keyed
from koordsched.framework.keyed import BUDGET, KeyedFilter, KeyedScore, grouped
from tests.cluster.objects import wire_node

ROWS = 40


class Shape:
    """Stands for a shape, of which only the identity matters."""

    nbytes = SHAPE_BYTES


class Parity(KeyedFilter, KeyedScore):
    """Refuses rows with an odd sum, and prefers large sums."""

    name = "Parity"
    facets = 0

    def __init__(self, columns):
        super().__init__()
        self.columns = columns
        self.asked = []

    def key(self, shape, table, rows):
        return self.columns[rows]

    def evaluate_one(self, shape, table, row):
        self.asked.append((shape, row))
        return 7 * int(self.columns[row].sum() % 2)

    def score_one(self, shape, table, row):
        return int(self.columns[row].sum())


def rows_of(rng):
    some = rng.sample(range(ROWS), rng.randint(2, ROWS))
    start = rng.randrange(ROWS - 1)
    return rng.choice([slice(0, ROWS), np.array(some), np.array(some[:1]), slice(start, start + 1), slice(3, 9)])


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_])
@pytest.mark.parametrize("width", [None, 1, 5])
def test_answers_are_those_of_every_row_by_itself(width, dtype):
    rng = Random(3)
    drawn = np.random.default_rng(3)
    shapes = [Shape(), Shape()]
    plugin = Parity(None)
    table = NodeTable()
    for _ in range(60):
        plugin.columns = drawn.integers(0, 2, (ROWS, width) if width else ROWS).astype(dtype)
        plugin.asked.clear()
        rows, shape = rows_of(rng), rng.choice(shapes)
        sums = plugin.columns[rows].reshape(-1, width or 1).sum(axis=1)
        codes = plugin.filter_rows(shape, table, rows)
        expected = 7 * (sums % 2)
        assert (codes is None) == (not expected.any())
        assert codes is None or (codes.dtype == np.int32 and codes.tolist() == expected.tolist())
        assert np.broadcast_to(plugin.score_rows(shape, table, rows), len(sums)).tolist() == sums.tolist()
        assert len(plugin.asked) <= 2 ** (width or 1)
        plugin.asked.clear()
        plugin.filter_rows(shape, table, rows)
        assert not plugin.asked


def test_each_shape_is_asked_about_by_itself_once_per_key():
    plugin = Parity(np.repeat(np.arange(4), 10))
    shapes = [Shape(), Shape()]
    for shape in (*shapes, *shapes):
        plugin.filter_rows(shape, None, slice(0, ROWS))
        plugin.filter_rows(shape, None, slice(11, 12))
    assert [shape for shape, _ in plugin.asked] == [shapes[0]] * 4 + [shapes[1]] * 4


def test_no_rows():
    plugin = Parity(np.zeros((ROWS, 3), dtype=np.int64))
    nothing = np.zeros(0, dtype=np.intp)
    assert plugin.filter_rows(Shape(), None, nothing) is None
    assert len(plugin.score_rows(Shape(), None, nothing)) == 0


def random_keys(seed):
    """Few values or many, small ones or multiples of large powers of two, and extremes."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 300)), int(rng.integers(1, 12)))
    keys = rng.integers(0, rng.choice([2, 3, 1000]), shape) << rng.choice([0, 0, 20, 40, 60])
    return np.where(rng.random(shape) < 0.1, rng.choice([-1, 2**63 - 1, -(2**63)]), keys)


@pytest.mark.parametrize("mixers", ["good", "all alike", "naught"])
@pytest.mark.parametrize("seed", range(30))
def test_rows_are_grouped_exactly_whatever_their_hashes(seed, mixers, monkeypatch):
    if mixers != "good":
        monkeypatch.setattr(keyed, "_mixers", lambda width: np.full(width, mixers == "all alike", dtype=np.uint64))
    keys = random_keys(seed)
    examples, groups = grouped(keys)
    assert np.array_equal(keys[examples][groups], keys)
    assert len(examples) == len({tuple(key) for key in keys.tolist()})


def test_hashes_seldom_agree(monkeypatch):
    """Amounts as they are in clusters: the exact way, which is slow, is not needed."""
    monkeypatch.setattr(np, "unique", None)
    rng = np.random.default_rng(1)
    for shift in (0, 10, 20, 30, 40, 50):
        grouped(rng.integers(0, 1 << 8, (5000, 8)) << shift)


@pytest.mark.parametrize("one_shape", [True, False])
def test_what_is_remembered_has_a_bound(one_shape):
    plugin = Parity(np.zeros(1, dtype=np.int64))
    kept = plugin._verdicts._kept
    shape = Shape()
    for i in range(60):
        plugin.columns = np.arange(i * 2000, (i + 1) * 2000)
        plugin.filter_rows(shape if one_shape else Shape(), None, slice(0, 2000))
        assert kept._bytes == sum(each.nbytes for each in kept.values())
        assert kept._bytes <= BUDGET + 2000 * 200
        assert all(each.nbytes == SHAPE_BYTES + 158 * len(each.answers) for each in kept.values())
    assert sum(len(each.answers) for each in kept.values()) < 110_000
    plugin.asked.clear()
    plugin.filter_rows(next(reversed(kept)), None, slice(0, 2000))
    assert not plugin.asked, "the latest is remembered"


def test_an_answer_that_fails_leaves_nothing_behind():
    plugin = Parity(np.arange(ROWS))
    plugin.evaluate = plugin._verdicts._ask

    def fail(shape, table, row):
        raise RuntimeError("bad row")

    plugin._verdicts._ask = fail
    shape, table = Shape(), NodeTable()
    table.add(wire_node("alder"))
    with pytest.raises(RuntimeError):
        plugin.filter_rows(shape, table, slice(0, ROWS))
    plugin._verdicts._ask = plugin.evaluate
    assert plugin.filter_rows(shape, table, slice(0, ROWS)).tolist() == [7 * (i % 2) for i in range(ROWS)]


def test_two_rows_have_an_answer_each():
    plugin = Parity(np.array([1, 2]))
    codes = plugin.filter_rows(Shape(), NodeTable(), slice(0, 2))
    assert codes.tolist() == [7, 0]
    assert plugin.score_rows(Shape(), NodeTable(), slice(0, 2)).tolist() == [1, 2]

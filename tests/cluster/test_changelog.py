"""The log of changes, beside a reader that compares everything."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from koordsched.cluster.changelog import ChangeLog

FACETS = (1, 2, 4, 256)
ROWS = 40


class Played:
    """A log, and the serial number of the latest change of each row and facet."""

    def __init__(self) -> None:
        self.log = ChangeLog(ROWS // 2)
        self.changed: dict[tuple[int, int], int] = {}

    def touch(self, rows: list[int], facets: int, together: bool) -> None:
        """Changes rows, at once or one after the other."""
        if together:
            self.log.touch_rows(np.array(rows, dtype=np.intp), facets)
        for row in rows:
            if not together:
                self.log.touch(row, facets)
            for facet in FACETS:
                if facets & facet:
                    self.changed[row, facet] = self.log.stamp(row, facet)

    def since(self, serial: int, facets: int) -> dict[int, int]:
        """By row, what of it changed."""
        found: dict[int, int] = {}
        for (row, facet), at in self.changed.items():
            if at > serial and facet & facets:
                found[row] = found.get(row, 0) | facet
        return found


@pytest.mark.parametrize("most", [1, 8, 9, 30])
def test_a_reader_sees_every_change_since_it_looked(most: int) -> None:
    rng = Random(most)
    played = Played()
    for step in range(400):
        if step == 20:
            played.log.grow(ROWS)
        rows = rng.sample(range(ROWS if step >= 20 else ROWS // 2), rng.randint(1, min(most, ROWS // 2)))
        before = played.log.serial
        played.touch(rows, sum(rng.sample(FACETS, rng.randint(1, 4))), rng.random() < 0.7)
        assert before < played.log.serial <= before + len(rows)
        facets = sum(rng.sample(FACETS, rng.randint(1, 4)))
        seen = rng.randint(max(0, played.log.serial - 60), played.log.serial)
        expected = played.since(seen, facets)
        found = played.log.since(seen, facets, ROWS if step >= 20 else ROWS // 2)
        if isinstance(found, list):
            assert dict(found) == expected
            assert len(found) == len(expected)
        else:
            assert set(expected) <= set(found.tolist())
            assert set(expected) == set(found.tolist()) or len(expected) > ROWS / 8


def test_stamps_are_kept_by_row_and_facet() -> None:
    played = Played()
    played.touch([3, 5], 1 | 4, together=False)
    many = list(range(4, 15))
    played.touch(many, 4, together=True)
    assert played.log.serial == 3
    assert [played.log.stamp(row, 4) for row in (3, 4, 5)] == [1, 3, 3]
    assert [played.log.stamp(row, 1) for row in (3, 4, 5)] == [1, 0, 2]
    assert played.log.latest[:16].tolist() == [0, 0, 0, 1] + 11 * [3] + [0]
    played.log.grow(ROWS)
    assert played.log.stamps(4).tolist() == [0, 0, 0, 1] + 11 * [3] + 25 * [0]
    assert played.log.latest.tolist() == played.log.stamps(4).tolist()


def test_what_one_looks_at_often_costs_as_much_as_has_changed() -> None:
    """Few changes come as a list, also where a long history has been forgotten, and few rows at once are in it."""
    log = ChangeLog(ROWS)
    for _ in range(3 * 8192):
        log.touch(7, 1)
    assert log.since(log.serial, 1, ROWS) == []
    assert log.since(log.serial - 32, 1, ROWS) == [(7, 1)]
    assert not isinstance(log.since(log.serial - 33, 1, ROWS), list)
    log.touch_rows(np.arange(8), 2)
    assert log.since(log.serial - 8, 3, ROWS) == [(row, 2) for row in range(8)]
    assert log.since(log.serial - 9, 3, ROWS) == [(7, 3), *((row, 2) for row in range(7))]
    log.touch_rows(np.arange(9), 2)
    assert log.since(log.serial, 3, ROWS) == []
    dirty = log.since(log.serial - 1, 3, ROWS)
    assert not isinstance(dirty, list)
    assert dirty.tolist() == list(range(9))


def test_where_most_rows_changed_all_are_read() -> None:
    log = ChangeLog(ROWS)
    for changed, read in [(10, 10), (11, ROWS)]:
        log.touch_rows(np.arange(changed), 2)
        dirty = log.since(log.serial - 1, 2, ROWS)
        assert not isinstance(dirty, list)
        assert dirty.tolist() == list(range(read))
        assert not dirty.flags.writeable or read < ROWS

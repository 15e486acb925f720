"""What plugins have done at a later time. The scheduler looks once a second, as a step that replays repeat."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from koordsched.cluster.nodetable import NodeTable

K = TypeVar("K", bound=Hashable)

_log = logging.getLogger(__name__)

_FEW = 64


class _Agenda(Generic[K]):
    """Keys, each with one time in seconds. A key that was set again or cleared leaves an entry that is passed over."""

    __slots__ = ("_heap", "_sequence", "_valid")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._valid: dict[K, int] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._valid)

    def set(self, key: K, when: float) -> None:
        self._sequence += 1
        self._valid[key] = self._sequence
        heappush(self._heap, (when, self._sequence, key))
        if len(self._heap) > 2 * len(self._valid) + _FEW:
            self._heap = [entry for entry in self._heap if self._valid.get(entry[2]) == entry[1]]
            heapify(self._heap)

    def clear(self, key: K) -> None:
        self._valid.pop(key, None)

    def take_due(self, now: float) -> list[K]:
        """The keys whose time has come, in its order."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            _, sequence, key = heappop(self._heap)
            if self._valid.get(key) == sequence:
                del self._valid[key]
                due.append(key)
        return due


class Timer:
    """One call that is to come."""

    __slots__ = ("_agenda", "_callback")

    def __init__(self, agenda: _Agenda[Timer], callback: Callable[[], None]) -> None:
        self._agenda = agenda
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """It does not come any more."""
        self._callback = None
        self._agenda.clear(self)

    def run(self) -> None:
        """Makes the call, unless it was cancelled."""
        if self._callback is not None:
            self._callback()


class RowDeadlines:
    """Rows of the node table whose verdicts age: each is touched in a facet when its time has come, once.

    A row loses its deadline when its node is removed.
    """

    def __init__(self, table: NodeTable, facet: int, due: Callable[[Sequence[int]], None] | None) -> None:
        self._table = table
        self._facet = facet
        self._due = due
        self._agenda: _Agenda[int] = _Agenda()
        table.on_removal(self.clear)

    def __len__(self) -> int:
        return len(self._agenda)

    def set(self, row: int, when: float) -> None:
        """The row's deadline, in monotonic seconds, replacing an earlier one."""
        self._agenda.set(row, when)

    def clear(self, row: int) -> None:
        """The row has no deadline."""
        self._agenda.clear(row)

    def run(self, now: float) -> None:
        """Touches the rows that are due, then tells which."""
        rows = self._agenda.take_due(now)
        for row in rows:
            self._table.touch(row, self._facet)
        if rows and self._due is not None:
            self._due(rows)


class Timers:
    """All timers and deadlines of one scheduler. `now`: seconds of the clock that decisions read."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._agenda: _Agenda[Timer] = _Agenda()
        self._deadlines: list[RowDeadlines] = []

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Calls back in the first look at or after `when`, in monotonic seconds."""
        timer = Timer(self._agenda, callback)
        self._agenda.set(timer, when)
        return timer

    def deadlines(
        self, table: NodeTable, facet: int, due: Callable[[Sequence[int]], None] | None = None
    ) -> RowDeadlines:
        """Deadlines of rows; `due` is called with those that were touched, and may announce an event."""
        made = RowDeadlines(table, facet, due)
        self._deadlines.append(made)
        return made

    def run(self) -> None:
        """One look. A callback that fails does not keep the others from theirs."""
        waiting = [deadlines for deadlines in self._deadlines if deadlines]
        if not waiting and not self._agenda:
            return
        now = self._now()
        calls: list[Callable[[], None]] = [timer.run for timer in self._agenda.take_due(now)]
        calls += [partial(deadlines.run, now) for deadlines in waiting]
        for call in calls:
            try:
                call()
            except Exception:
                _log.exception("a timer of a plugin failed")

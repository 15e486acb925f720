"""What plugins have done at a later time. The scheduler looks once a second, as a step that replays repeat."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from koordsched.cluster.nodetable import NodeTable
from koordsched.framework.agenda import Agenda, Due

_log = logging.getLogger(__name__)


class Timer:
    """One call that is to come, or that was."""

    __slots__ = ("_agenda", "_callback", "due")

    def __init__(self, agenda: Agenda[Timer], callback: Callable[[], None], when: float, turn: int | None) -> None:
        self._agenda = agenda
        self._callback: Callable[[], None] | None = callback
        self.due = agenda.set(self, when, turn)

    @property
    def waits(self) -> bool:
        """Whether it is still to come."""
        return self in self._agenda

    def cancel(self) -> None:
        """It does not come any more."""
        self._callback = None
        self._agenda.clear(self)

    def run(self) -> None:
        """Makes the call, unless it was cancelled."""
        if self._callback is not None:
            self._callback()


def due_of(timer: Timer | None) -> Due | None:
    """When a timer goes off, if there is one that waits."""
    return timer.due if timer is not None and timer.waits else None


class RowDeadlines:
    """Rows of the node table whose verdicts age: each is touched in a facet when its time has come, once.

    A row loses its deadline when its node is removed.
    """

    def __init__(self, table: NodeTable, facet: int, due: Callable[[Sequence[int]], None] | None) -> None:
        self._table = table
        self._facet = facet
        self._due = due
        self._agenda: Agenda[int] = Agenda()
        table.on_removal(self.clear)

    def __len__(self) -> int:
        return len(self._agenda)

    def set(self, row: int, when: float) -> None:
        """The row's deadline, in monotonic seconds, replacing an earlier one."""
        self._agenda.set(row, when)

    def clear(self, row: int) -> None:
        """The row has no deadline."""
        self._agenda.clear(row)

    def state(self) -> list[tuple[int, float]]:
        """The deadlines, for `restore`."""
        return self._agenda.entries()

    def restore(self, state: Sequence[tuple[int, float]]) -> None:
        """These deadlines and no others."""
        self._agenda = Agenda()
        for row, when in state:
            self._agenda.set(row, when)

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
        self._agenda: Agenda[Timer] = Agenda()
        self._deadlines: list[RowDeadlines] = []

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Calls back in the first look at or after `when`, in monotonic seconds."""
        return Timer(self._agenda, callback, when, None)

    def restore(self, due: Due, callback: Callable[[], None]) -> Timer:
        """A timer as it was. Among those of its time it has its turn."""
        self._agenda.skip(due.turn)
        return Timer(self._agenda, callback, *due)

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

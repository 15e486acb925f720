"""Answers a scheduler's questions from a journal, and compares what it decides with what was decided.

This is the recorder of a scheduler that repeats: the hooks that make the journal are those that check it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TypeVar, cast

from msgspec.structs import replace

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.evaluation import Totals
from koordsched.framework.filtering import Verdicts
from koordsched.framework.handle import Clock
from koordsched.framework.interface import Cycle
from koordsched.framework.scoring import totals_of
from koordsched.journal.reading import Stream
from koordsched.journal.recorder import evicting_record, refused_record
from koordsched.journal.records import AnyRecord, Chosen, Evicting, Header, Outcome, Refused
from koordsched.queue.item import QueuedPod
from koordsched.queue.nominator import NominatingInfo
from koordsched.scheduling.recording import NotRecording

A = TypeVar("A", bool, int, float)


@dataclass(frozen=True, slots=True)
class Difference:
    """What came out otherwise: as it was recorded, and as it is now."""

    recorded: str
    repeated: str


class Repeater(NotRecording):
    """`koordsched.scheduling.recording.Recorder` on a stream of records: steps come from there, nothing is to be noted.

    `difference` is the first thing that came out otherwise, None so far; after it nothing is compared any more.
    `ties`: decisions in which another node of the same total would have been taken, had chance not been recorded.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._aside = False
        self._latest = 0.0
        self.wall_offset = 0.0
        """Wall clock minus monotonic clock of the recorded process, seconds."""
        self.difference: Difference | None = None
        self.lenient = False
        """Whether the queue's past is unknown. Then its questions are others, and whether a pod was evaluated or shares
        the refusal of a twin, with the numbers of nodes of a moment before, may be otherwise."""
        self.ties = 0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Inside, questions are not those of the recording: they get the time of the latest step, and no chance."""
        self._aside = True
        try:
            yield
        finally:
            self._aside = False

    def at(self, monotonic: float) -> None:
        """A step of this time begins."""
        self._latest = monotonic

    def differ(self, recorded: str, repeated: str) -> None:
        """Notes the first difference."""
        if self.difference is None:
            self.difference = Difference(recorded, repeated)

    # --- questions -----------------------------------------------------------------------------------

    def ask(self, question: Callable[[], A]) -> A:
        """What was answered then. Without an answer there, that is a difference, and the question is asked anew."""
        if not self._aside:
            answer = self._stream.answer()
            if answer is not None:
                return cast(A, answer.value)
            if not self._at_end() and not self.lenient:
                self.differ(text_of(self._stream.peek()), "asked for the time or for chance")
        return question()

    def clock(self, clock: Clock) -> Clock:
        """A clock that shows the recorded readings."""
        return _RecordedClock(self)

    def chance(self, rng: Random) -> Random:
        """A generator from which comes what was drawn then."""
        return _RecordedChance(self)

    @property
    def latest(self) -> float:
        """The monotonic time of the step."""
        return self._latest

    # --- decisions -----------------------------------------------------------------------------------

    def chosen(
        self,
        cycle: Cycle,
        table: NodeTable,
        verdicts: Verdicts,
        row: int,
        total: int | None,
        added: Totals | None = None,
    ) -> int:
        """Takes the recorded node if it is among the best: which of them it was had been left to chance."""
        recorded = self._stream.skip_answers()
        if isinstance(recorded, Chosen) and recorded.node != table.names[row] and total is not None:
            wanted = table.row_of.get(recorded.node, -1)
            at = (verdicts.rows == wanted).nonzero()[0]
            with self.aside():
                if len(at) and totals_of(cycle, table, verdicts).item(at[0]) == total:
                    row = wanted
                    self.ties += 1
        self._compare(Chosen(table.names[row], verdicts.feasible, total))
        return row

    def evicting(self, preemptor: Pod, node: str, victims: Sequence[Pod]) -> None:
        """Compares the victims."""
        self._compare(evicting_record(node, victims))

    def refused(
        self,
        queued: QueuedPod[Pod],
        message: str,
        reason: str,
        plugins: AbstractSet[str],
        pending_plugins: AbstractSet[str],
        nominating: NominatingInfo,
    ) -> None:
        """Compares the refusal."""
        self._compare(refused_record(queued.pod.uid, message, reason, plugins, pending_plugins, nominating))

    def leave_out_refusal(self, uid: str) -> None:
        """The step has no outcome here: the pod was gone before the checkpoint. A refusal that was noted is passed."""
        recorded = self._stream.skip_answers()
        if self.lenient and isinstance(recorded, Refused) and recorded.uid == uid:
            self._stream.take()

    def step_over(self) -> None:
        """The step came to its end; an outcome that was recorded for it and did not come is a difference."""
        left = self._stream.skip_answers()
        if isinstance(left, Chosen | Evicting | Refused):
            self.differ(text_of(left), "nothing more came of it")

    def _at_end(self) -> bool:
        """Whether the process was cut off here, within a step: what came of it was not written any more."""
        return self._stream.peek() is None or isinstance(self._stream.peek(), Header)

    def _compare(self, outcome: Outcome) -> None:
        recorded = self._stream.skip_answers()
        if recorded == outcome or (self.lenient and _same_refusal(recorded, outcome)):
            self._stream.take()
        elif not self._at_end():
            self.differ(text_of(recorded), text_of(outcome))


def _same_refusal(one: AnyRecord | None, other: AnyRecord) -> bool:
    """Whether both refuse a pod in the same way. One that takes over the refusal of a twin has the twin's words."""
    if not isinstance(one, Refused) or not isinstance(other, Refused):
        return False
    return replace(one, message="", nominated=one.nominated or "") == replace(
        other, message="", nominated=other.nominated or ""
    )


def text_of(record: AnyRecord | None) -> str:
    """An outcome in words."""
    if isinstance(record, Chosen):
        score = "" if record.total is None else f", score {record.total}"
        return f"placed on {record.node} ({record.feasible} feasible{score})"
    if isinstance(record, Evicting):
        return f"preempts {', '.join(key for _, key in record.victims)} on {record.node}"
    if isinstance(record, Refused):
        promised = f"; nominated to {record.nominated}" if record.nominated else ""
        by = f" [{', '.join(record.plugins)}]" if record.plugins else ""
        return f"{record.reason}: {record.message}{by}{promised}"
    return "nothing"


class _RecordedClock:
    def __init__(self, repeater: Repeater) -> None:
        self._repeater = repeater

    def monotonic(self) -> float:
        return self._repeater.ask(lambda: self._repeater.latest)

    def wall(self) -> float:
        return self._repeater.ask(lambda: self._repeater.latest + self._repeater.wall_offset)


class _RecordedChance(Random):
    def __init__(self, repeater: Repeater) -> None:
        super().__init__()
        self._repeater = repeater

    def random(self) -> float:
        return self._repeater.ask(lambda: 0.0)

    def getrandbits(self, k: int, /) -> int:
        return self._repeater.ask(lambda: 0)

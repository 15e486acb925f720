"""Answers a scheduler's questions from a journal, and compares what it decides with what was decided.

This is the recorder of a scheduler that repeats: the hooks that make the journal are those that check it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TypeVar, cast

from msgspec.structs import replace

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Clock
from koordsched.framework.scoring import Choice
from koordsched.journal.extendercalls import answer_to, asked, difference, question_text
from koordsched.journal.reading import Stream
from koordsched.journal.recorder import evicting_record, refused_record
from koordsched.journal.records import (
    Answer,
    AnyRecord,
    Attempt,
    BadRecord,
    Chosen,
    Consulted,
    Drawn,
    Evicting,
    Header,
    LetIn,
    Member,
    Outcome,
    Promised,
    Refused,
)
from koordsched.scheduling.failure import FailedAttempt
from koordsched.scheduling.recording import QUEUE, STATE, TIME, WALL, Question, Recorder

A = TypeVar("A", bool, int, float)
C = TypeVar("C")
D = TypeVar("D", int, float)

_OF_ATTEMPTS = (Attempt, Chosen, Consulted, Evicting, LetIn, Member, Refused)
"""What is not told in the midst of an attempt, if it is not part of it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What came out otherwise: as it was recorded, and as it is now."""

    recorded: str
    repeated: str


class Repeater(Recorder):
    """`koordsched.scheduling.recording.Recorder` on a stream of records: steps come from there, nothing is to be noted.

    `difference` is the first thing that came out otherwise, None so far; after it nothing is compared any more.
    `ties`: decisions in which another node of the same total would have been taken, had chance not been recorded.
    """

    def __init__(self, stream: Stream, go_on: Callable[[], bool]) -> None:
        """`go_on` takes the next record, of what happened while an attempt waited; False if the process ended there."""
        self._stream = stream
        self._go_on = go_on
        self._waiting = False
        self._unrecorded = False
        self._latest = 0.0
        self.wall_offset = 0.0
        """Wall clock minus monotonic clock of the recorded process, seconds."""
        self.difference: Difference | None = None
        self.lenient = False
        """Whether the queue's past is unknown, or when it wakes pods. Then its questions are others, and whether a pod
        was evaluated or shares the refusal of an equivalent pod, with the numbers of nodes of before, may be
        otherwise."""
        self.ties = 0

    @contextmanager
    def unrecorded_questions(self) -> Iterator[None]:
        """Inside, questions are not those of the recording: they get the time of the latest step, and no chance."""
        self._unrecorded = True
        try:
            yield
        finally:
            self._unrecorded = False

    def at(self, monotonic: float) -> None:
        """A step of this time begins."""
        self._latest = monotonic

    def differ(self, recorded: str, repeated: str) -> None:
        """Notes the first difference."""
        if self.difference is None:
            self.difference = Difference(recorded, repeated)

    # --- questions -----------------------------------------------------------------------------------

    def ask(self, question: Callable[[], A], about: int = STATE) -> A:
        """What was answered then. Without an answer there, that is a difference, and the question is asked anew."""
        if self._unrecorded:
            return question()
        if self.lenient and about != QUEUE:
            self._pass_over_queue()
        answer = self._stream.answer(about)
        if answer is not None:
            return cast(A, answer.value)
        self._ask_in_vain("the time")
        return question()

    def draw(self, chance: Callable[[], D]) -> D:
        """What was drawn then; the same."""
        if self._unrecorded:
            return chance()
        if self.lenient:
            self._pass_over_queue()
        drawn = self._stream.drawn()
        if drawn is not None:
            return cast(D, drawn.value)
        self._ask_in_vain("chance")
        return chance()

    def _pass_over_queue(self) -> None:
        """What the queue had asked and does not ask now must not answer others."""
        while self._stream.answer(QUEUE) is not None:
            pass

    def _ask_in_vain(self, what: str) -> None:
        if not self._at_end() and not self.lenient:
            self.differ(text_of(self._stream.peek()), f"asks for {what}")

    def clock(self, clock: Clock, *, of_queue: bool = False) -> Clock:
        """A clock that shows the recorded readings."""
        return _RecordedClock(self, QUEUE if of_queue else TIME)

    def chance(self, rng: Random) -> Random:
        """A generator from which comes what was drawn then."""
        return _RecordedChance(self)

    @property
    def latest(self) -> float:
        """The monotonic time of the step."""
        return self._latest

    # --- what extenders say --------------------------------------------------------------------------

    async def consult(self, question: Question, ask: Callable[[], Awaitable[C]]) -> C:
        """What was answered then, if the same was asked. Lets happen what happened meanwhile, so nothing is awaited."""
        repeated = asked(question)
        recorded = self._meanwhile()
        if not isinstance(recorded, Consulted) or recorded.asked != repeated:
            words = difference(question, recorded) if isinstance(recorded, Consulted) else None
            self.differ(*(words or (text_of(recorded), question_text(repeated))))
            raise asyncio.CancelledError
        self._stream.take()
        try:
            return cast(C, answer_to(question, recorded))
        except BadRecord as error:
            raise asyncio.CancelledError from error

    async def let_in(self, changes: Callable[[], Awaitable[None]]) -> None:
        """Lets in what was let in then. If more was asked first, what comes of the attempt now differs from that."""
        if isinstance(self._meanwhile(), LetIn):
            self._stream.take()

    def _meanwhile(self) -> AnyRecord | None:
        """Goes on to the next record of the attempt that waits, or to what comes after it, and returns that.

        Raises CancelledError, as a task gets it when a process ends, if the process ended there, or if a record
        cannot be understood, which is the cause then.
        """
        self._waiting = True
        try:
            while not isinstance(record := self._stream.peek(), _OF_ATTEMPTS):
                if self.difference is not None or not self._go_on():
                    raise asyncio.CancelledError
            return record
        except BadRecord as error:
            raise asyncio.CancelledError from error
        finally:
            self._waiting = False

    # --- decisions -----------------------------------------------------------------------------------

    def chosen(self, table: NodeTable, choice: Choice) -> int:
        """Takes the recorded node if it is among the best: which of them it was had been left to chance."""
        recorded = self._stream.skip_answers()
        row, total, verdicts = choice.row, choice.total, choice.verdicts
        if isinstance(recorded, Chosen) and recorded.node != table.names[row] and total is not None:
            wanted = table.row_of.get(recorded.node, -1)
            if total in choice.scored.totals()[verdicts.rows == wanted]:
                row = wanted
                self.ties += 1
        self._compare(Chosen(table.names[row], verdicts.feasible, total))
        return row

    def member(self, pod: Pod) -> None:
        """Compares which member comes next."""
        self._compare(Member(pod.uid, pod.key))

    def evicting(self, preemptor: Pod, node: str, victims: Sequence[Pod]) -> None:
        """Compares the victims."""
        self._compare(evicting_record(node, victims))

    def promised(self, uid: str, node: str) -> None:
        """Compares the node."""
        self._compare(Promised(uid, node))

    def refused(self, uid: str, failed: FailedAttempt) -> None:
        """Compares the refusal."""
        self._compare(refused_record(uid, failed))

    def leave_out_refusal(self, uid: str) -> None:
        """The step has no outcome here: the pod was gone before the checkpoint. A refusal that was noted is passed."""
        recorded = self._stream.skip_answers()
        if self.lenient and isinstance(recorded, Refused) and recorded.uid == uid:
            self._stream.take()

    def step_over(self) -> None:
        """The step came to its end; an outcome that was recorded for it and did not come is a difference."""
        left = self._stream.skip_answers()
        if isinstance(left, Outcome) or (isinstance(left, Consulted) and not self._waiting):
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
    """Whether both refuse a pod in the same way.

    One that takes over the refusal of an equivalent pod has the equivalent pod's words, and the plugins that it
    named: the nodes that these had refused may be gone since.
    """
    if not isinstance(one, Refused) or not isinstance(other, Refused):
        return False
    return replace(one, message="", plugins=(), nominated=one.nominated or "") == replace(
        other, message="", plugins=(), nominated=other.nominated or ""
    )


def text_of(record: AnyRecord | None) -> str:
    """What came of an attempt, or what it came to, in words."""
    if isinstance(record, Chosen):
        score = "" if record.total is None else f", score {record.total}"
        return f"placed on {record.node} ({record.feasible} feasible{score})"
    if isinstance(record, Member):
        return f"goes on with {record.pod}"
    if isinstance(record, Evicting):
        return f"preempts {', '.join(key for _, key in record.victims)} on {record.node}"
    if isinstance(record, Refused):
        nominated = f"; nominated to {record.nominated}" if record.nominated else ""
        by = f" [{', '.join(record.plugins)}]" if record.plugins else ""
        return f"{record.reason}: {record.message}{by}{nominated}"
    if isinstance(record, Promised):
        return f"promises pod {record.uid} {record.node or 'nothing'}"
    if isinstance(record, Consulted):
        return question_text(record.asked)
    if isinstance(record, LetIn):
        return "asks no extender, and has come to a decision"
    if isinstance(record, Attempt):
        return f"nothing; the next pod is {record.pod}"
    if isinstance(record, Answer | Drawn):
        return "asks for the time" if isinstance(record, Answer) else "asks for chance"
    return "nothing"


class _RecordedClock:
    def __init__(self, repeater: Repeater, about: int) -> None:
        self._repeater = repeater
        self._about = about

    def monotonic(self) -> float:
        return self._repeater.ask(lambda: self._repeater.latest, self._about)

    def wall(self) -> float:
        return self._repeater.ask(lambda: self._repeater.latest + self._repeater.wall_offset, WALL)


class _RecordedChance(Random):
    def __init__(self, repeater: Repeater) -> None:
        super().__init__()
        self._repeater = repeater

    def random(self) -> float:
        return self._repeater.draw(lambda: 0.0)

    def getrandbits(self, k: int, /) -> int:
        return self._repeater.draw(lambda: 0)

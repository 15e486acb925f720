"""Makes records of the inputs and decisions of a running scheduler.

Everything is encoded at once, in about a microsecond, and passed on as bytes: no state of the scheduler is kept, and
the writer needs no access to it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from random import Random
from typing import Generic, Protocol, TypeVar

import msgspec

from koordsched.api.meta import HasMetadata
from koordsched.client.sink import ObjectKey, Sink
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.extender.client import ExtenderError
from koordsched.framework.handle import Clock
from koordsched.framework.scoring import Choice
from koordsched.framework.status import Status
from koordsched.journal.extendercalls import consulted
from koordsched.journal.objects import NODES, Change, identity_of
from koordsched.journal.records import (
    Activated,
    Answer,
    Attempt,
    Binding,
    Bound,
    Chosen,
    Deleted,
    Drawn,
    Evicted,
    Evicting,
    Leading,
    LetIn,
    Member,
    OfPod,
    Promised,
    Read,
    Record,
    Refused,
    Released,
    Timers,
    Undone,
    Unreadable,
    Upsert,
    encode,
)
from koordsched.journal.redaction import redacted
from koordsched.queue.item import QueuedPod
from koordsched.scheduling.failure import FailedAttempt
from koordsched.scheduling.recording import QUEUE, STATE, TIME, WALL, Question, Recorder

A = TypeVar("A", bool, int, float)
C = TypeVar("C")
D = TypeVar("D", int, float)
T = TypeVar("T", bound=HasMetadata)

_log = logging.getLogger(__name__)

_UNENCODABLE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError)


class Put(Protocol):
    """Takes an encoded record, in order, and what it means for the objects that there are; must not block."""

    def __call__(self, record: bytes, change: Change | None = None, /) -> None: ...


def _noting(kind: Callable[[str], OfPod]) -> Callable[[JournalRecorder, str], None]:
    """A method that notes such a step of a pod, given by uid."""

    def note(recorder: JournalRecorder, uid: str, /) -> None:
        recorder.note(kind(uid))

    return note


class JournalRecorder(Recorder):
    """Makes records of what is reported to it. `monotonic`: seconds, of the scheduler's own clock. `give_up` is called
    with the reason if something cannot be recorded: the scheduler must continue, and later records are useless.
    `between` is called between steps, as often as something changes.
    """

    def __init__(self, put: Put, give_up: Callable[[str], None], monotonic: Callable[[], float]) -> None:
        self._put = put
        self._give_up = give_up
        self._monotonic = monotonic
        self.between: Callable[[], None] | None = None
        self._waiting = False
        """Whether an attempt waits for extenders, or for changes that waited for it: what is recorded now is within
        it."""
        self._put_off = False

    def pause(self) -> None:
        """A step is over, and the next has not begun."""
        if self._waiting:
            self._put_off = True
        elif self.between is not None:
            self._put_off = False
            try:
                self.between()
            except Exception as error:
                _log.exception("cannot begin a new segment of the journal")
                self._give_up(f"cannot begin a new segment: {error}")

    def note(self, record: Record, change: Change | None = None) -> None:
        """Hands on a record."""
        try:
            data = encode(record)
        except _UNENCODABLE as error:
            self._give_up(f"{type(record).__name__} cannot be encoded: {error}")
            return
        self._put(data, change)

    def note_object(self, path: str, obj: HasMetadata, read: Container[str], anew: bool) -> None:
        """Hands on the state of an object, with the annotations of these keys."""
        meta = obj.metadata
        try:
            data = encode(redacted(obj, marked=path == NODES, read=read))
        except _UNENCODABLE as error:
            self._give_up(f"an object of {path} cannot be encoded: {error}")
            return
        change = Change(path, identity_of(path, meta.namespace, meta.name, meta.uid))
        self.note(Upsert(path, msgspec.Raw(data), anew), change)

    # --- what decisions ask of the outside --------------------------------------------------------

    def ask(self, question: Callable[[], A], about: int = STATE) -> A:
        """Asks, and notes the answer."""
        answer = question()
        self.note(Answer(answer, about))
        return answer

    def draw(self, chance: Callable[[], D]) -> D:
        """Draws, and notes what."""
        drawn = chance()
        self.note(Drawn(drawn))
        return drawn

    def clock(self, clock: Clock, *, of_queue: bool = False) -> Clock:
        """The same clock; its readings are noted."""
        return _NotedClock(self, clock, QUEUE if of_queue else TIME)

    def chance(self, rng: Random) -> Random:
        """The same generator; what is drawn from it is noted."""
        return _NotedChance(self, rng)

    async def consult(self, question: Question, ask: Callable[[], Awaitable[C]]) -> C:
        """Asks, and notes the answer. Raises ExtenderError."""
        self._waiting = True
        try:
            answer = await ask()
        except ExtenderError as error:
            self._note_answer(question, error)
            raise
        self._note_answer(question, answer)
        return answer

    def _note_answer(self, question: Question, answer: object) -> None:
        try:
            record = consulted(question, answer)
        except _UNENCODABLE as error:
            self._give_up(f"what an extender said cannot be recorded: {error}")
            return
        self.note(record)

    async def let_in(self, changes: Callable[[], Awaitable[None]]) -> None:
        """Notes when all of them have taken effect."""
        self._waiting = True
        await changes()
        self._waiting = False
        self.note(LetIn())

    # --- steps -------------------------------------------------------------------------------------

    def sink(self, path: str, sink: Sink[T], read: Container[str]) -> Sink[T]:
        """A sink that notes what it passes on."""
        return _NotedSink(self, path, sink, read)

    def hidden(self, path: str, reason: str) -> None:
        """We must not read this collection, or may again."""
        self.note(Unreadable(path, reason))

    def leading(self, leads: bool) -> None:
        """Scheduling begins or ends."""
        self.note(Leading(leads, self._monotonic()))

    def timers(self) -> None:
        """The queue looks for pods whose time has come."""
        self.pause()
        self.note(Timers(self._monotonic()))

    def attempt(self, queued: QueuedPod[Pod]) -> None:
        """The pod is scheduled now."""
        if self._put_off:
            self.pause()
        self.note(Attempt(queued.pod.uid, queued.pod.title, self._monotonic()))

    def member(self, pod: Pod) -> None:
        """The attempt goes on with this pod."""
        self.note(Member(pod.uid, pod.key))

    def undone(self, uid: str, status: Status) -> None:
        """The binding failed."""
        self.note(Undone(uid, status.code.name, tuple(status.reasons), status.plugin))

    def read(self, plugin: str, /) -> None:
        """State of a plugin is read from outside."""
        self.note(Read(plugin))

    binding, bound, released = _noting(Binding), _noting(Bound), _noting(Released)
    evicted, activated = _noting(Evicted), _noting(Activated)

    # --- decisions -----------------------------------------------------------------------------------

    def chosen(self, table: NodeTable, choice: Choice) -> int:
        """A row was chosen, and stays so."""
        self.note(Chosen(table.names[choice.row], choice.verdicts.feasible, choice.total))
        return choice.row

    def evicting(self, preemptor: Pod, node: str, victims: Sequence[Pod]) -> None:
        """Victims have to make room."""
        self.note(evicting_record(node, victims))

    def promised(self, uid: str, node: str) -> None:
        """The pod, which stays in the queue, is nominated to another node."""
        self.note(Promised(uid, node))

    def refused(self, uid: str, failed: FailedAttempt) -> None:
        """The pod got no node, or lost it."""
        self.note(refused_record(uid, failed))


def evicting_record(node: str, victims: Sequence[Pod]) -> Evicting:
    """What is noted of a preemption."""
    return Evicting(node, tuple((victim.uid, victim.title) for victim in victims))


def refused_record(uid: str, failed: FailedAttempt) -> Refused:
    """What is noted of a refusal."""
    plugins, pending = tuple(sorted(failed.plugins)), tuple(sorted(failed.pending))
    return Refused(uid, failed.reason, failed.message, plugins, pending, failed.nominated)


class _NotedClock:
    def __init__(self, recorder: JournalRecorder, clock: Clock, about: int) -> None:
        self._recorder = recorder
        self._clock = clock
        self._about = about

    def monotonic(self) -> float:
        return self._recorder.ask(self._clock.monotonic, self._about)

    def wall(self) -> float:
        return self._recorder.ask(self._clock.wall, WALL)


class _NotedChance(Random):
    """`randrange`, `choice` and the like draw through these two. At most 64 bits at once can be recorded."""

    def __init__(self, recorder: JournalRecorder, rng: Random) -> None:
        super().__init__()
        self._recorder = recorder
        self._rng = rng

    def random(self) -> float:
        return self._recorder.draw(self._rng.random)

    def getrandbits(self, k: int, /) -> int:
        return self._recorder.draw(lambda: self._rng.getrandbits(k))


class _NotedSink(Generic[T]):
    """Notes first: the change is a step, and what it asks for comes after it."""

    def __init__(self, recorder: JournalRecorder, path: str, sink: Sink[T], read: Container[str]) -> None:
        self._recorder = recorder
        self._path = path
        self._sink = sink
        self._read = read

    def upsert(self, obj: T, anew: bool = False) -> None:
        self._recorder.pause()
        self._recorder.note_object(self._path, obj, self._read, anew)
        self._sink.upsert(obj, anew)

    def delete(self, obj: T) -> None:
        meta = obj.metadata
        self._note_gone(meta.namespace, meta.name, meta.uid)
        self._sink.delete(obj)

    def delete_key(self, key: ObjectKey) -> None:
        self._note_gone(*key)
        self._sink.delete_key(key)

    def _note_gone(self, namespace: str, name: str, uid: str) -> None:
        self._recorder.pause()
        change = Change(self._path, identity_of(self._path, namespace, name, uid), gone=True)
        self._recorder.note(Deleted(self._path, namespace, name, uid), change)

    def known(self) -> Iterator[ObjectKey]:
        return self._sink.known()

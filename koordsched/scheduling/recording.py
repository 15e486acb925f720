"""What a journal records: everything that changes the state on which decisions depend, and every decision.

Between two scheduling cycles the state changes only by what is recorded here, in the order in which it takes effect:
changes of objects, the timers of the queue, and the outcomes of bindings and evictions. Within a step nothing is read
from outside but the time and random numbers, through `Recorder.clock` and `Recorder.chance`, and what HTTP extenders
say, through `Recorder.consult`. An attempt that consults them is the one step within which others happen: while it
waits for an answer, and while changes that had to wait for it are let in. So all of it together allows every decision
to be repeated; `koordsched.journal` records it and does that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal, TypeVar

from koordsched.api.meta import HasMetadata
from koordsched.client.sink import Sink
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Clock
from koordsched.framework.preemption import Victims
from koordsched.framework.scoring import Choice
from koordsched.framework.status import Status
from koordsched.queue.item import QueuedPod

if TYPE_CHECKING:
    from koordsched.scheduling.failure import FailedAttempt

A = TypeVar("A", bool, int, float)
C = TypeVar("C")
T = TypeVar("T", bound=HasMetadata)


STATE, QUEUE, TIME, WALL = range(4)
"""What an answer is about: something that is no part of the recorded state; the monotonic clock, read by the queue, or
by all else; the wall clock. What the queue asks depends on how often pods were tried, so it is told from the others."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request to extenders: about the nodes on these rows of the table.

    `extenders`: their URLs. `victims`: for "preempt", who would have to leave each of the nodes, in their order.
    """

    verb: Literal["filter", "prioritize", "preempt"]
    extenders: tuple[str, ...]
    table: NodeTable
    rows: Sequence[int]
    victims: Mapping[str, Victims] | None = None


class Recorder:
    """Called before each step with what it is, and within it with the outcome. This one records nothing."""

    # --- what decisions ask of the outside --------------------------------------------------------

    def ask(self, question: Callable[[], A], about: int = STATE) -> A:
        """The answer to a question that the state does not answer by itself; `about`: one of the numbers above."""
        return question()

    def clock(self, clock: Clock, *, of_queue: bool = False) -> Clock:
        """The clock that decisions are to read, or the queue is."""
        return clock

    def chance(self, rng: Random) -> Random:
        """The generator that plugins are to draw from."""
        return rng

    async def consult(self, question: Question, ask: Callable[[], Awaitable[C]]) -> C:
        """What extenders answer; `ask` asks them. Raises ExtenderError if that does.

        To "filter" a `FilterReply`, to "prioritize" for each its list of (node, score), to "preempt" the candidates it
        agrees to: node -> `MetaVictims`.
        """
        return await ask()

    async def let_in(self, changes: Callable[[], Awaitable[None]]) -> None:
        """Awaits `changes`, those that had to wait for an attempt that consulted extenders."""
        await changes()

    # --- steps -------------------------------------------------------------------------------------

    def sink(self, path: str, sink: Sink[T], read: Container[str]) -> Sink[T]:
        """The sink that objects of this collection are to go through, on their way into the given one.

        `read`: keys of annotations that plugins read.
        """
        return sink

    def hidden(self, path: str, reason: str, /) -> None:
        """We must not read this collection, for this reason; with an empty one we may again."""

    def leading(self, leads: bool, /) -> None:
        """Scheduling begins or ends."""

    def timers(self) -> None:
        """The queue looks for pods whose time has come."""

    def attempt(self, queued: QueuedPod[Pod], /) -> None:
        """The pod was taken from the queue and is scheduled now."""

    def member(self, pod: Pod, /) -> None:
        """The attempt goes on with this pod, which is placed together with the one that was taken from the queue."""

    def binding(self, uid: str, /) -> None:
        """The pod is on its way to be bound: it needs no replay of events any more."""

    def bound(self, uid: str, /) -> None:
        """The API server has the binding."""

    def undone(self, uid: str, status: Status, /) -> None:
        """The binding failed, and the placement is taken back."""

    def released(self, uid: str, /) -> None:
        """The placement is taken back, and we do not try again."""

    def evicted(self, uid: str, /) -> None:
        """All victims of this preemptor were evicted, or cannot be."""

    def activated(self, uid: str, /) -> None:
        """The pod is to be tried at once."""

    def read(self, plugin: str, /) -> None:
        """State of a plugin that is brought up to date when it is read is read by what is no step."""

    # --- decisions -----------------------------------------------------------------------------------

    def chosen(self, table: NodeTable, choice: Choice) -> int:
        """A row was chosen. Returns the row to take."""
        return choice.row

    def evicting(self, preemptor: Pod, node: str, victims: Sequence[Pod], /) -> None:
        """Victims have to make room on the node."""

    def promised(self, uid: str, node: str, /) -> None:
        """A pod that stays in the queue is nominated to another node, "" for none."""

    def refused(self, uid: str, failed: FailedAttempt, /) -> None:
        """The pod got no node, or lost it."""


NOT_RECORDING = Recorder()

"""What a journal hears of: everything that enters the state decisions rest on, and every decision.

Between two scheduling cycles the state changes only by what is told here, in the order in which it takes effect:
changes of objects, the timers of the queue, and the outcomes of bindings and evictions. Within a step the outside is
asked for nothing but the time and chance, through `Recorder.clock` and `Recorder.chance`, and what HTTP extenders say,
through `Recorder.consult`. An attempt that consults them is the one step within which others happen: while it waits for
an answer, and while changes that had to wait for it are let in. So a reader of all of it can repeat every decision;
`koordsched.journal` writes it down and does.
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


@dataclass(frozen=True, slots=True)
class Question:
    """What extenders are asked, in one go: about the nodes on these rows of the table.

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

    def ask(self, question: Callable[[], A]) -> A:
        """The answer to a question that the state does not answer by itself."""
        return question()

    def clock(self, clock: Clock) -> Clock:
        """The clock that decisions are to read."""
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

    def binding(self, uid: str, /) -> None:
        """The pod is on its way to be bound: it needs no replay of events any more."""

    def bound(self, uid: str, /) -> None:
        """The API server has the binding."""

    def undone(self, uid: str, status: Status, /) -> None:
        """The binding failed, and the placement is taken back."""

    def released(self, uid: str, /) -> None:
        """The placement is taken back, and we do not try again."""

    def evicted(self, uid: str, /) -> None:
        """All victims of this preemptor were told to go, or cannot be."""

    def activated(self, uid: str, /) -> None:
        """The pod is to be tried at once."""

    # --- decisions -----------------------------------------------------------------------------------

    def chosen(self, table: NodeTable, choice: Choice) -> int:
        """A row was chosen. Returns the row to take."""
        return choice.row

    def evicting(self, preemptor: Pod, node: str, victims: Sequence[Pod], /) -> None:
        """Victims have to make room on the node."""

    def refused(self, uid: str, failed: FailedAttempt, /) -> None:
        """The pod got no node, or lost it."""


NOT_RECORDING = Recorder()

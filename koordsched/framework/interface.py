"""The extension points: what a plugin may implement, and what it is given.

Filtering and scoring work on rows of the node table, many at once. Two families differ in what a verdict
may depend on:

* `ShapeFilter`, `ShapeScore`: on the pod's shape and that node's row alone. The runtime keeps their results
  per shape and asks again only for rows that changed in a facet that the plugin reads.
* `PodFilter`, `PodScore`: on anything (other nodes, other pods, the pod's own identity); asked every time, about
  the rows that survived so far.

A plugin implements any number of extension points by inheriting from several of these classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.overlay import Overlay
from koordsched.framework.podpatch import PodPatch
from koordsched.framework.reservations import UsableReservations
from koordsched.framework.status import SUCCESS, Codes, Status
from koordsched.framework.turns import Turns

if TYPE_CHECKING:
    from koordsched.queue.hints import HintRegistration
    from koordsched.queue.item import QueuedPod

A = TypeVar("A")

Scores = npt.NDArray[np.signedinteger[Any]] | int
"""[rows] in whatever width holds them, or one number that holds for every row."""

MAX_SCORE = 100


class Normalization(Enum):
    """How raw scores become 0..100 (default-plugins spec 3.1, DefaultNormalize)."""

    NONE = "none"
    """They are 0..100 already."""
    MAX = "max"
    """100 * raw // highest raw of a feasible node; unchanged if that is 0."""
    MAX_REVERSED = "max-reversed"
    """100 minus that; 100 everywhere if the highest raw is 0."""


class Timed(Protocol):
    """Measures the calls of plugins in a sampled cycle."""

    def __call__(self, plugin: str, point: str, call: Callable[[], A], /) -> A:
        """What the call of this plugin at this extension point answers."""


@dataclass(slots=True, eq=False, repr=False)
class CycleState:
    """One scheduling attempt of one pod: the place where plugins keep what they computed for it.

    `not_pre_filtered`: names of the PreFilter plugins that were not reached because one before them ended
    the chain. `skipped`: names of those that said Skip in this cycle. `beyond_nodes`: a PreFilter plugin rejected the
    pod for something that no room on a node can make up for (a quota), so evicting others for the node's sake would
    be in vain; to be set by that plugin. `waiting_for_others`: what a PreBind plugin waits for inside this context is
    no answer of the API server to a write of its own, so others may be placed meanwhile whatever their number.
    `timed`: in a sampled cycle, what measures the calls of plugins. `overlay`: rows that read differently for this pod;
    PreFilter plugins fill it (`overlaid()`), None if none did. `preferred_nodes`: names of the nodes that a PreFilter
    plugin wants tried first, in this order; the first that passes all filters is the only candidate. `hints`: what the
    pod itself tells plugins, by the name of the plugin (JSON values). `numa_affinity`: in Reserve, the bit set of the
    NUMA nodes that the pod is to use, NO_AFFINITY for any; None if no policy asks for a choice. `reservations`: those
    that the pod may use, None if there are none. `may_be_suspended`: extenders take part, and while they are asked
    other pods may be looked at. `candidates`: the only rows that may be chosen, in ascending order, None for all.
    `makes_no_room`: why no others are evicted for this pod by itself, "" if they may be.
    `job_members`: uids of the pods that were tried so far in the same attempt at a job, this one included; empty for a
    pod that is tried by itself. `binding_annotations`: in Bind, what the binding has to set of the pod's annotations.
    """

    pod: Pod
    not_pre_filtered: frozenset[str] = frozenset()
    skipped: Set[str] = frozenset()
    beyond_nodes: bool = False
    preferred_nodes: Sequence[str] = ()
    hints: Mapping[str, Any] = field(default_factory=dict)
    overlay: Overlay | None = None
    timed: Timed | None = None
    numa_affinity: int | None = None
    reservations: UsableReservations | None = None
    may_be_suspended: bool = False
    candidates: RowArray | None = None
    makes_no_room: str = ""
    job_members: Set[str] = frozenset()
    binding_annotations: Mapping[str, str] = field(default_factory=dict)
    state: dict[Hashable, Any] = field(default_factory=dict)
    waiting_for_others: Callable[[], AbstractContextManager[None]] = nullcontext
    _patch: PodPatch | None = None

    @property
    def patch(self) -> PodPatch:
        """What PreBind plugins change of the pod's metadata; written when the last of them has succeeded, with the
        binding where this is possible."""
        if self._patch is None:
            self._patch = PodPatch()
        return self._patch

    def overlaid(self) -> Overlay:
        """The overlay of this cycle, to be filled in PreFilter."""
        if self.overlay is None:
            self.overlay = Overlay()
        elif self.overlay.decided_by:
            self.overlay = self.overlay.added_to(Overlay())  # that of a plugin is not for others to change
        return self.overlay


class Plugin(ABC):
    """Base of all plugins. `name` is the name in the configuration file."""

    name: ClassVar[str]

    def events_to_register(self) -> Sequence[HintRegistration[Pod]] | None:
        """The events that may make a pod rejected by this plugin schedulable, with their hints.

        None (the default) means every event; an empty sequence only the pod's own updates and the periodic
        flush (core spec 3.4).
        """
        return None


class PreEnqueue(Plugin):
    """Decides whether a pod may enter the active queue at all."""

    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status:
        """SUCCESS, or a rejection: then the pod is gated. WAIT gates it, too, but is not reported to its owner.

        Changes nothing: explanations ask as well.
        """

    def reworded(self) -> Iterator[Pod]:
        """Pods that are kept out for another reason than before, though nothing had them asked about: their owners are
        shown that a moment later. Those that nothing is taken of come the next time. Default: none.
        """
        return iter(())

    def admitted(self, pod: Pod) -> None:
        """All PreEnqueue plugins let the pod in: it is going to be tried. Default: nothing to note."""

    def gated(self, pod: Pod) -> None:
        """Another PreEnqueue plugin keeps the pod out: others may be activated in its stead. Default: nothing to do."""


class QueueSort(Plugin):
    """Orders the active queue."""

    @abstractmethod
    def sort_key(self, queued: QueuedPod[Pod]) -> Any:
        """Pods with smaller keys are scheduled first."""


class PreFilterResult:
    """Restricts the candidates to the nodes of these names; None means no restriction."""

    __slots__ = ("node_names",)

    def __init__(self, node_names: frozenset[str] | None) -> None:
        self.node_names = node_names


class ShapePreFilter(Plugin):
    """What a ShapeFilter can say from the shape alone, before looking at any node."""

    @abstractmethod
    def pre_filter_shape(self, shape: PodShape) -> PreFilterResult | Status:
        """SUCCESS, SKIP (the filter does not apply), a rejection, or a set of nodes."""


class ShapeFilter(Plugin):
    """Refuses nodes by (shape, row)."""

    facets: int
    """What of a row the verdict depends on."""

    @abstractmethod
    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """A reason number per row, 0 where it passes; None if all pass. Rows may include dead ones."""


class MeasuringFilter(ShapeFilter):
    """Refuses nodes by what is measured there, which says nothing of the same node without its pods.

    Nothing else is in its `facets`.
    """

    @abstractmethod
    def refuses_idle(self, shape: PodShape, row: int) -> bool:
        """Whether it would refuse the node even if nothing was in use there. Changes nothing."""


class BeforePreFilter(Plugin):
    """Runs before PreFilter, for every plugin of the profile that has it: it has no entry in the configuration."""

    @abstractmethod
    def before_pre_filter(self, cycle: CycleState, pod: Pod) -> Status:
        """SUCCESS; SKIP, as if PreFilter of the plugin had said so, which is not asked then.

        Anything else ends the attempt as a rejection or error of a PreFilter plugin would.
        """


class PreFilter(Plugin):
    """Computes per-pod state, and may reject the pod before any node is looked at."""

    def skips_shape(self, shape: PodShape) -> bool:
        """Whether it says SKIP to every pod of this shape, whatever else there is. Asked once. Default: False."""
        return False

    @abstractmethod
    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """SUCCESS, SKIP, a rejection, ERROR, or a set of nodes. A filter that says SKIP would with fewer pods, too."""


class FindOneNode(Plugin):
    """Runs between PreFilter and Filter, for every plugin of the profile that has it; it has no entry in the
    configuration.
    """

    @abstractmethod
    def find_one_node(self, cycle: CycleState, pod: Pod, names: frozenset[str] | None) -> PreFilterResult | Status:
        """SKIP, the one node to try, or a rejection, which holds for every node. `names`: the candidates, None for all
        nodes. Not called where rows read differently for the pod.
        """


class PodFilter(Plugin):
    """Refuses nodes by anything; only asked about nodes that passed the plugins before it."""

    def skips(self, pod: Pod) -> bool:
        """Whether this filter does not apply to the pod, known without a PreFilter. Default: False."""
        return False

    @abstractmethod
    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """A reason number per row, 0 where it passes; None if all pass. `rows` are in ascending order."""

    def refused_among_all(
        self, cycle: CycleState, pod: Pod, reaches: Callable[[int], bool]
    ) -> list[tuple[int, int]] | None:
        """What `filter` says if all rows are put to it for which `reaches(row)` holds: (row, reason number) where it
        refuses. For plugins that know the few rows in question; None (the default): ask `filter`."""
        return None

    def add_pod(self, cycle: CycleState, pod: Pod, other: Pod, row: int) -> None:
        """In a what-if, `other` appears on `row`: adjust the state of this cycle. Default: nothing to adjust."""

    def remove_pod(self, cycle: CycleState, pod: Pod, other: Pod, row: int) -> None:
        """In a what-if, `other` disappears from `row`; undoes `add_pod` and the other way round."""


class PostFilter(Plugin):
    """Called when no node fits: may make room, or say why that is impossible.

    `on_plain_table`: whether it is called outside of the pod's overlay, because it places and evicts pods on trial
    (`Handle.hypothesis`), each in an overlay of its own. `allows_for_groups`: that it is enabled allows others to be
    evicted for a group of pods as a whole.
    """

    on_plain_table: ClassVar[bool] = False
    allows_for_groups: ClassVar[bool] = False

    def treats_alike(self, shape: PodShape) -> bool:
        """Whether the answer is the same for all pods of this shape, whatever its hints tell apart. Default: False."""
        return False

    @abstractmethod
    def post_filter(self, cycle: CycleState, pod: Pod, codes: Codes) -> PostFilterResult:
        """`codes`: int32[rows], the reason per row. The first SUCCESS, UNRESOLVABLE or ERROR ends the chain."""

    def post_filter_in_turns(self, cycle: CycleState, pod: Pod, codes: Codes) -> Turns[PostFilterResult]:
        """The same in steps (`framework.turns`), for jobs. Default: in one. Only plugins `on_plain_table` have more."""
        return self.post_filter(cycle, pod, codes)
        yield


@dataclass(slots=True, eq=False)
class PostFilterResult:
    """The result. `nominated_node`: the node to nominate, "" to clear the nomination, None to leave it as it is.
    `victims` are the pods that would have to go; `actuate` starts making them go. The search must change nothing:
    explanations ask the same question and do not actuate. `refused_by`: the plugins that refuse the pod even where
    others would go for it; without success it waits for them as for those that rejected it in the first place.
    `nominations`: the same as `nominated_node` for other pods of the same job, by uid.
    """

    status: Status
    nominated_node: str | None = None
    victims: tuple[Pod, ...] = ()
    actuate: Callable[[], None] | None = None
    refused_by: frozenset[str] = frozenset()
    nominations: Mapping[str, str] = field(default_factory=dict)

    def also(self, act: Callable[[], None]) -> None:
        """Adds an action to be done when the decision is carried out."""
        before = self.actuate

        def both() -> None:
            if before is not None:
                before()
            act()

        self.actuate = both


class AfterPostFilter(Plugin):
    """Runs after PostFilter, whatever its result, for every plugin of the profile that has it, like BeforePreFilter."""

    @abstractmethod
    def after_post_filter(self, cycle: CycleState, pod: Pod, codes: Codes, result: PostFilterResult) -> None:
        """`codes`: as for PostFilter. Explanations call it, too: what acts goes to `result.also`."""


class TellsPodsApart(Plugin):
    """Knows of two pods whether it treats them alike, whatever its hints look at one by one."""

    @abstractmethod
    def identity(self, pod: Pod) -> Hashable | None:
        """Equal for pods of one shape that it refuses alike, with the same texts, until a hint asks one of them; None
        for a pod that is a case of its own.
        """


class SettlesOffline(Plugin):
    """Writes in PreBind what other pods depend on, so that an evaluation without an API server has to do it, too."""

    @abstractmethod
    def settle(self, cycle: CycleState, pod: Pod) -> list[str]:
        """The pod is placed: applies at once what PreBind would write. Returns in lines of text what the pod has."""


class ShapeScore(Plugin):
    """Prefers nodes by (shape, row)."""

    facets: int
    normalization: ClassVar[Normalization] = Normalization.NONE
    needs_pre_score: ClassVar[bool] = False
    """Whether scoring ends in an error where a profile lists the plugin at score, but not at preScore."""

    def skips(self, shape: PodShape) -> bool:
        """Whether this plugin does not score pods of this shape (PreScore's Skip)."""
        return False

    def epoch(self, shape: PodShape) -> Hashable:
        """When this value changes, every row's score may have changed without the row having changed."""
        return None

    @abstractmethod
    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """A raw score per row; it must be computable for rows that are not feasible, too."""


class FewScores(NamedTuple):
    """Scores of some rows, in ascending order; all others have 0. `normalized`: 0..100."""

    rows: RowArray | Sequence[int]
    raw: npt.NDArray[np.int64] | Sequence[int]
    normalized: npt.NDArray[np.int64] | Sequence[int]


class PodScore(Plugin):
    """Prefers nodes by anything; asked about the feasible rows."""

    def abstains(self, cycle: CycleState, pod: Pod) -> bool:
        """Whether `pre_score` would say SKIP whatever rows are feasible.

        When all abstain, the cached totals decide without a look at the rows. Default: False.
        """
        return False

    def abstains_from(self, shape: PodShape) -> bool:
        """Whether it abstains for every pod of a shape. Default: False."""
        return False

    def pre_score(self, cycle: CycleState, pod: Pod, rows: RowArray) -> Status:
        """SUCCESS or SKIP (no score from this plugin). Default: SUCCESS."""
        return SUCCESS

    def few(self, cycle: CycleState, pod: Pod, codes: Codes) -> FewScores | None:
        """The feasible rows that it gives more than 0, where these are few; None if it has to be asked about all rows,
        as by default. Asked in place of `pre_score`, `score` and `normalize`; `codes`: int32[rows]."""
        return None

    @abstractmethod
    def score(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Scores:
        """A raw score per row."""

    def normalize(self, cycle: CycleState, pod: Pod, scores: Scores) -> Scores:
        """Raw scores of all feasible rows to 0..100. Default: they are that already."""
        return scores


class Reserve(Plugin):
    """Lets a plugin account for where a pod was placed."""

    @abstractmethod
    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """SUCCESS, or the placement is undone."""

    @abstractmethod
    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """Undoes `reserve`; must not fail, and may be called without it."""


class Permit(Plugin):
    """Delays or refuses the binding of a placed pod."""

    @abstractmethod
    def permit(self, cycle: CycleState, pod: Pod, row: int) -> tuple[Status, float]:
        """SUCCESS, a rejection, or WAIT with a time-out in seconds."""


class PreBind(Plugin):
    """Work that must be done before the binding is written.

    `only_patches`: it changes nothing but `cycle.patch`, so it takes no longer than a write. A pod for which
    others work is nominated to its node meanwhile.
    """

    only_patches: ClassVar[bool] = False

    @abstractmethod
    def pre_bind_pre_flight(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SKIP if there is nothing to do, otherwise SUCCESS or ERROR."""

    @abstractmethod
    async def pre_bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Does the work."""


class Bind(Plugin):
    """Writes the decision.

    `carries_annotations`: `cycle.binding_annotations` are set by the very write that binds the pod, unless the plugin
    leaves the pod to the next one. Where a plugin of the profile does not, the pod is patched before.
    """

    carries_annotations: ClassVar[bool] = False

    @abstractmethod
    async def bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SUCCESS, ERROR, or SKIP to leave it to the next bind plugin."""


class PostBind(Plugin):
    """Called after a pod was bound."""

    @abstractmethod
    def post_bind(self, cycle: CycleState, pod: Pod, node: str) -> None:
        """Informational."""

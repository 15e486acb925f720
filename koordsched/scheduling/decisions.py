"""The last decisions: which node a pod was placed on, out of how many, and what the best of them scored; or why not.

Placements are kept in a ring, to answer later why a pod was placed where it is; of refusals the last of each pod is
kept. Either costs about a microsecond to remember. What each plugin gave the best nodes is read from the scores behind
the choice, no plugin is asked again. Going through all feasible nodes costs as much as a cycle, so that is done as long
as it takes no more than a small share of the time: for every pod in a quiet cluster, for a sample of them when
thousands arrive.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator

import msgspec
import numpy as np

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.bestrows import Totals
from koordsched.framework.plan import Chains
from koordsched.framework.scoring import Choice

CAPACITY = 10_000
"""Placements that are remembered."""

MOST_REFUSED = 20_000
"""Pods whose last refusal is remembered."""

TOP = 5

EXTENDER = "Extender"
"""What the scores of HTTP extenders, and nodes they refuse, are filed under (upstream `framework.ExtenderName`)."""

DETAIL_SHARE = 0.003
"""Share of the time that looking up scores may take."""


class Ranked(msgspec.Struct, rename="camel"):
    """One of the best nodes: its total, and what each plugin gave of it (weighted)."""

    node: str
    total: int
    scores: dict[str, int]


class Decision(msgspec.Struct, rename="camel"):
    """One placement.

    `time`: seconds since the epoch; `feasible`: the nodes the pod could have had; `total`: the score of the one it got
    (None if it was the only one, which is not scored). `top`: the best nodes, best first; empty if there was no time
    to look them up, or nothing to choose.
    """

    pod: str
    uid: str
    time: float
    node: str
    feasible: int
    total: int | None
    top: list[Ranked]


class Rejection(msgspec.Struct, rename="camel"):
    """The last attempt to place a pod that failed, and how many there were so far.

    `time`, `first_time`: of the last and the first such attempt, seconds since the epoch. `attempts`: all attempts
    until then. `reason` and `message`: as in the pod's PodScheduled condition. `plugins` rejected it. `nominated_node`:
    where room is made for it.
    """

    pod: str
    uid: str
    first_time: float
    time: float
    attempts: int
    reason: str
    message: str
    plugins: list[str]
    nominated_node: str


_Top = tuple[tuple[str, ...], list[tuple[str, int, list[int]]]]
"""Names of the plugins, and (node, total, weighted scores in the same order)."""


_Refused = tuple[str, str, float, float, int, str, str, Collection[str], str]
"""Namespace, name, and the fields of a Rejection from `first_time` on."""


class Decisions:
    """The record. `monotonic` and `wall` are clocks in seconds."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        *,
        capacity: int = CAPACITY,
        most_refused: int = MOST_REFUSED,
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._ring: deque[tuple[str, str, str, float, str, int, int | None, _Top | None]] = deque(maxlen=capacity)
        self._next_detail = 0.0
        self._refused: OrderedDict[str, _Refused] = OrderedDict()
        """By uid, the latest refusal last."""
        self._most_refused = most_refused

    def __len__(self) -> int:
        return len(self._ring)

    def record(
        self,
        pod: Pod,
        table: NodeTable,
        choice: Choice,
        now: float,
        chains: Chains,
    ) -> None:
        """A node was chosen, and the pod is not on it yet. `now`: monotonic seconds."""
        top: _Top | None = None
        total = choice.total
        if total is not None and now >= self._next_detail:
            top = _best(table, choice, chains)
            after = self._monotonic()
            self._next_detail = after + (after - now) / DETAIL_SHARE
        # Names only: the debug pages must not keep a pod's wire object in memory.
        self._ring.append(
            (
                *_names(pod),
                pod.uid,
                self._wall(),
                table.names[choice.row],
                choice.verdicts.feasible,
                total,
                top,
            )
        )

    def refused(
        self, pod: Pod, reason: str, message: str, plugins: Collection[str], attempts: int, nominated: str
    ) -> None:
        """An attempt ended without a node."""
        now = self._wall()
        before = self._refused.get(pod.uid)
        first = before[2] if before is not None else now
        self._refused[pod.uid] = (*_names(pod), first, now, attempts, reason, message, plugins, nominated)
        self._refused.move_to_end(pod.uid)
        if len(self._refused) > self._most_refused:
            self._refused.popitem(last=False)

    def refusal(self, uid: str) -> Rejection | None:
        """The last refusal of a pod, if it is remembered."""
        entry = self._refused.get(uid)
        return _rejection(uid, entry) if entry is not None else None

    def refusals(self, key: str = "") -> Iterator[Rejection]:
        """The last refusals of pods named `namespace/name`, or of all pods, newest first."""
        namespace, _, name = key.partition("/")
        for uid, entry in reversed(self._refused.items()):
            if not key or (entry[1] == name and entry[0] == namespace):
                yield _rejection(uid, entry)

    def of(self, key: str = "") -> Iterator[Decision]:
        """The placements of `namespace/name`, or of all pods, newest first."""
        namespace, _, name = key.partition("/")
        for entry in reversed(self._ring):
            if not key or (entry[1] == name and entry[0] == namespace):
                yield _decision(*entry)


def _names(pod: Pod) -> tuple[str, str]:
    """Namespace and name; the two halves of the title of a virtual pod."""
    if not pod.virtual:
        return pod.namespace, pod.name
    kind, _, name = pod.title.partition("/")
    return kind, name


def _best(table: NodeTable, choice: Choice, chains: Chains) -> _Top:
    scored = choice.scored
    columns: list[tuple[str, Totals]] = [(of.plugin, of.weight * of.normalized) for of in scored.by_plugin(chains)]
    if scored.added is not None:
        columns.append((EXTENDER, scored.added))
    rows, totals = choice.verdicts.rows, scored.totals()
    count = min(TOP, len(rows))
    best = np.argpartition(totals, len(rows) - count)[len(rows) - count :]
    best = best[np.argsort(-totals[best], kind="stable")]
    return tuple(plugin for plugin, _ in columns), [
        (table.names[int(rows[at])], int(totals[at]), [int(weighted[at]) for _, weighted in columns])
        for at in best.tolist()
    ]


def _rejection(uid: str, entry: _Refused) -> Rejection:
    namespace, name, first, last, attempts, reason, message, plugins, nominated = entry
    return Rejection(f"{namespace}/{name}", uid, first, last, attempts, reason, message, sorted(plugins), nominated)


def _decision(
    namespace: str, name: str, uid: str, time: float, node: str, feasible: int, total: int | None, top: _Top | None
) -> Decision:
    plugins, best = top or ((), [])
    ranked = [Ranked(of, value, dict(zip(plugins, scores, strict=True))) for of, value, scores in best]
    return Decision(f"{namespace}/{name}", uid, time, node, feasible, total, ranked)

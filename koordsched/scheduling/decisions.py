"""The last decisions: which node a pod was placed on, out of how many, and what the best of them scored.

Kept in a ring, to answer later why a pod was placed where it is. A decision costs about a microsecond to remember.
What each plugin gave the best nodes is read from the scores behind the choice, no plugin is asked again. Going through
all feasible nodes costs as much as a cycle, so that is done as long as it takes no more than a small share of the time:
for every pod in a cluster at peace, for a sample of them when thousands arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.framework.bestrows import Totals
from koordsched.framework.plan import Chains
from koordsched.framework.scoring import Choice

CAPACITY = 10_000
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


_Top = tuple[tuple[str, ...], list[tuple[str, int, list[int]]]]
"""Names of the plugins, and (node, total, weighted scores in the same order)."""


class Decisions:
    """The ring. `monotonic` and `wall` are clocks in seconds."""

    def __init__(self, monotonic: Callable[[], float], wall: Callable[[], float], *, capacity: int = CAPACITY) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._ring: deque[tuple[str, str, str, float, str, int, int | None, _Top | None]] = deque(maxlen=capacity)
        self._next_detail = 0.0

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
        # Names only: a pod's wire object must not live on for the sake of the debug pages.
        self._ring.append(
            (
                pod.namespace,
                pod.name,
                pod.uid,
                self._wall(),
                table.names[choice.row],
                choice.verdicts.feasible,
                total,
                top,
            )
        )

    def of(self, key: str = "") -> Iterator[Decision]:
        """The decisions about `namespace/name`, or about all pods, newest first."""
        namespace, _, name = key.partition("/")
        for entry in reversed(self._ring):
            if not key or (entry[1] == name and entry[0] == namespace):
                yield _decision(*entry)


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


def _decision(
    namespace: str, name: str, uid: str, time: float, node: str, feasible: int, total: int | None, top: _Top | None
) -> Decision:
    plugins, best = top or ((), [])
    ranked = [Ranked(of, value, dict(zip(plugins, scores, strict=True))) for of, value, scores in best]
    return Decision(f"{namespace}/{name}", uid, time, node, feasible, total, ranked)

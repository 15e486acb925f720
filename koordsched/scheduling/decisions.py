"""The last decisions: which node a pod was placed on, out of how many, and what the best of them scored.

Kept in a ring, for whoever asks afterwards why a pod was placed where it is. A decision costs about a microsecond to
remember; the scores behind it cost a second look at the feasible nodes, so they are kept as long as that takes no more
than a small share of the time: for every pod in a cluster at peace, for a sample of them when thousands arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from koordsched.cluster.nodetable import NodeTable
from koordsched.framework.bestrows import Totals
from koordsched.framework.filtering import Verdicts
from koordsched.framework.interface import CycleState
from koordsched.framework.plan import Chains
from koordsched.framework.scoring import explain_scores

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
        cycle: CycleState,
        table: NodeTable,
        verdicts: Verdicts,
        row: int,
        total: int | None,
        now: float,
        chains: Chains,
        extra: Totals | None = None,
    ) -> None:
        """A node was chosen, and the pod is not on it yet.

        `now`: monotonic seconds; `extra`: what extenders added to the total of each feasible row.
        """
        pod = cycle.pod
        top: _Top | None = None
        if total is not None and now >= self._next_detail:
            top = _best(cycle, table, verdicts, chains, extra)
            after = self._monotonic()
            self._next_detail = after + (after - now) / DETAIL_SHARE
        # Names only: a pod's wire object must not live on because somebody might ask about it.
        self._ring.append(
            (pod.namespace, pod.name, pod.uid, self._wall(), table.names[row], verdicts.feasible, total, top)
        )

    def of(self, key: str = "") -> Iterator[Decision]:
        """The decisions about `namespace/name`, or about all pods, newest first."""
        namespace, _, name = key.partition("/")
        for entry in reversed(self._ring):
            if not key or (entry[1] == name and entry[0] == namespace):
                yield _decision(*entry)


def _best(cycle: CycleState, table: NodeTable, verdicts: Verdicts, chains: Chains, extra: Totals | None) -> _Top:
    scored = explain_scores(cycle, table, verdicts, [plugin.name for plugin, _ in chains.scores])
    columns: list[tuple[str, Totals]] = [(column.plugin, column.weight * column.normalized) for column in scored]
    if extra is not None:
        columns.append((EXTENDER, extra))
    rows = verdicts.rows
    totals = np.zeros(len(rows), dtype=np.int64)
    for _, weighted in columns:
        totals += weighted
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

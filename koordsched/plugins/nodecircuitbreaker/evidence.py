"""Failures within the window, by node and by workload."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import NamedTuple

from koordsched.plugins.shared.workloads import Workload

MOST = 100_000
"""Failures that are kept; beyond, the oldest are forgotten."""


class Case(NamedTuple):
    """What speaks against a node: failures of workloads that tell of nodes."""

    failures: int
    workloads: tuple[Workload, ...]
    reasons: tuple[str, ...]


class Evidence:
    """Who failed where, for `window` seconds each.

    A workload that failed on more than `most_nodes` nodes tells nothing about any of them: it fails everywhere.
    """

    def __init__(self, window: float, most_nodes: int) -> None:
        self._window = window
        self._most_nodes = most_nodes
        self._order: list[tuple[float, int, Hashable]] = []
        self._sequence = 0
        self._known: dict[Hashable, tuple[str, Workload]] = {}
        self._on: dict[str, dict[Workload, dict[Hashable, str]]] = {}
        """Node -> workload -> key of the failure -> its reason."""
        self._nodes: dict[Workload, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, node: object) -> bool:
        return node in self._on

    @property
    def nodes(self) -> list[str]:
        """The nodes with failures."""
        return list(self._on)

    @property
    def next_end(self) -> float | None:
        """When the next failure leaves the window, if there is one."""
        return self._order[0][0] + self._window if self._order else None

    def add(self, key: Hashable, node: str, workload: Workload, reason: str, at: float) -> bool:
        """Notes a failure, given by a key, once. `at`: monotonic seconds. False if it was known."""
        if key in self._known:
            return False
        if len(self._known) >= MOST:
            self._drop()
        self._known[key] = node, workload
        self._sequence += 1
        heappush(self._order, (at, self._sequence, key))
        self._on.setdefault(node, {}).setdefault(workload, {})[key] = reason
        self._nodes.setdefault(workload, {})[node] = None
        return True

    def prune(self, now: float) -> list[str]:
        """Forgets what is older than the window; returns the nodes concerned."""
        concerned: dict[str, None] = {}
        while self._order and self._order[0][0] + self._window <= now:
            concerned[self._drop()] = None
        return list(concerned)

    def acquit(self, node: str) -> None:
        """What was known of this node does not count any more; the same failures do not come again."""
        for workload in self._on.pop(node, {}):
            self._leave(workload, node)

    def case(self, node: str) -> Case:
        """What speaks against a node now."""
        telling = {
            workload: failures
            for workload, failures in self._on.get(node, {}).items()
            if len(self._nodes[workload]) <= self._most_nodes
        }
        reasons = dict.fromkeys(reason for failures in telling.values() for reason in failures.values())
        return Case(sum(map(len, telling.values())), tuple(telling), tuple(reasons))

    def failed_on(self, workload: Workload) -> tuple[str, ...]:
        """The nodes on which a workload failed, in the order in which it did."""
        return tuple(self._nodes.get(workload, ()))

    def _drop(self) -> str:
        _, _, key = heappop(self._order)
        node, workload = self._known.pop(key)
        failures = self._on.get(node, {}).get(workload)
        if failures is not None and failures.pop(key, None) is not None and not failures:
            del self._on[node][workload]
            if not self._on[node]:
                del self._on[node]
            self._leave(workload, node)
        return node

    def _leave(self, workload: Workload, node: str) -> None:
        nodes = self._nodes[workload]
        nodes.pop(node, None)
        if not nodes:
            del self._nodes[workload]

"""Failures within the window, by node and by workload."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import msgspec

from koordsched.plugins.shared.workloads import Workload

MOST = 100_000
"""Failures that are kept; beyond, the oldest are forgotten."""


Key = tuple[str | int | float, ...]
"""What a failure is known by."""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """One failure, as journals record it; `order` is that in which they came."""

    at: float
    order: int
    key: Key
    node: str
    workload: Workload


class EvidenceState(msgspec.Struct, frozen=True):
    """All failures, and the positions of those that count: by node and workload, with the reason.

    `nodes`: by workload, in the order in which it failed on them.
    """

    failures: tuple[Failure, ...]
    counted: tuple[tuple[str, tuple[tuple[Workload, tuple[tuple[int, str], ...]], ...]], ...]
    nodes: tuple[tuple[Workload, tuple[str, ...]], ...]


class Case(NamedTuple):
    """The evidence against a node: failures of workloads that count."""

    failures: int
    workloads: tuple[Workload, ...]
    reasons: tuple[str, ...]

    def summary(self, window: object) -> str:
        """What users read."""
        named = ", ".join(map(str, self.workloads[:3]))
        more = f" and {len(self.workloads) - 3} more" if len(self.workloads) > 3 else ""
        reasons = ", ".join(self.reasons[:3])
        return f"{self.failures} failures of {len(self.workloads)} workloads within {window} ({reasons}): {named}{more}"


class Evidence:
    """Which workloads failed on which nodes, for `window` seconds each. A workload that failed on more than
    `most_nodes` nodes does not count for any of them: it fails everywhere.
    """

    def __init__(self, window: float, most_nodes: int) -> None:
        self._window = window
        self._most_nodes = most_nodes
        self._order: list[tuple[float, int, Key]] = []
        self._sequence = 0
        self._known: dict[Key, tuple[str, Workload]] = {}
        self._on: dict[str, dict[Workload, dict[Key, str]]] = {}
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

    def add(self, key: Key, node: str, workload: Workload, reason: str, at: float) -> bool:
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

    def acquit(self, node: str, until: float = inf) -> None:
        """The failures on this node, up to that moment (monotonic seconds), no longer count; the same ones are not
        counted again.
        """
        later = {key for at, _, key in self._order if at > until}
        on_node = self._on.pop(node, {})
        for workload, failures in on_node.items():
            kept = {key: reason for key, reason in failures.items() if key in later}
            if kept:
                self._on.setdefault(node, {})[workload] = kept
            else:
                self._leave(workload, node)

    def case(self, node: str) -> Case:
        """The evidence against a node now."""
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

    def recorded_state(self) -> EvidenceState:
        """All of it, for `restore_state`."""
        order = sorted(self._order)
        position = {key: at for at, (_, _, key) in enumerate(order)}
        return EvidenceState(
            tuple(Failure(at, number, key, *self._known[key]) for at, number, key in order),
            tuple(
                (
                    node,
                    tuple(
                        (workload, tuple((position[key], reason) for key, reason in failures.items()))
                        for workload, failures in workloads.items()
                    ),
                )
                for node, workloads in self._on.items()
            ),
            tuple((workload, tuple(nodes)) for workload, nodes in self._nodes.items()),
        )

    def restore_state(self, state: EvidenceState) -> None:
        """This and nothing else."""
        failures = state.failures
        self._order = [(each.at, each.order, each.key) for each in failures]
        self._sequence = max((each.order for each in failures), default=0)
        self._known = {each.key: (each.node, each.workload) for each in failures}
        self._on = {
            node: {workload: {failures[at].key: reason for at, reason in counted} for workload, counted in workloads}
            for node, workloads in state.counted
        }
        self._nodes = {workload: dict.fromkeys(nodes) for workload, nodes in state.nodes}

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

"""Which nodes have a report that counts: kept when that changes, so that it is cheap to read."""

from __future__ import annotations

from collections import Counter

FRESH, EXPIRED, NONE = "fresh", "expired", "none"


class ReportStates:
    """How many nodes have a fresh report, an expired one, none; `taken`: how many reports there were so far."""

    def __init__(self) -> None:
        self.taken = 0
        self._counts = Counter({FRESH: 0, EXPIRED: 0, NONE: 0})
        self._of: dict[str, str] = {}

    def of(self, node: str) -> str:
        """The state of a node's report."""
        return self._of.get(node, NONE)

    def counts(self) -> dict[str, int]:
        """Nodes by state."""
        return dict(self._counts)

    def note(self, node: str, fresh: bool | None) -> None:
        """Whether a node's report is fresh now; None if there is no report."""
        state = NONE if fresh is None else FRESH if fresh else EXPIRED
        if state != self._of.get(node):
            self.forget(node)
            self._of[node] = state
            self._counts[state] += 1

    def recorded_state(self) -> dict[str, str]:
        """The states by node, for `restore_state`."""
        return dict(self._of)

    def restore_state(self, states: dict[str, str]) -> None:
        """These and no others."""
        self._of = dict(states)
        self._counts = Counter({FRESH: 0, EXPIRED: 0, NONE: 0, **Counter(states.values())})

    def forget(self, node: str) -> None:
        """There is no such node any more."""
        before = self._of.pop(node, None)
        if before is not None:
            self._counts[before] -= 1

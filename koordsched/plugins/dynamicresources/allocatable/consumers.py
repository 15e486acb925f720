"""Which pods on which nodes have claims that take something of the node: such a claim is not to be shared there."""

from __future__ import annotations

from collections.abc import Iterator

from koordsched.cluster.claimedresources import ClaimedResources
from koordsched.cluster.facts import PodFact
from koordsched.cluster.pod import Pod

ClaimKey = tuple[str, str]
"""(namespace, name)."""


class Consumers:
    """A pod accountant: by claim, the pods that say so in their status, and their rows."""

    facets = 0

    def __init__(self, fact: PodFact[ClaimedResources]) -> None:
        self._fact = fact
        self._of: dict[ClaimKey, dict[str, int]] = {}

    def rows_of(self, key: ClaimKey) -> Iterator[tuple[int, list[str]]]:
        """(row, uids of the pods there that have the claim)."""
        by_row: dict[int, list[str]] = {}
        for uid, row in self._of.get(key, {}).items():
            by_row.setdefault(row, []).append(uid)
        yield from by_row.items()

    def pod_added(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        for each in self._fact.of(pod) or ():
            self._of.setdefault((pod.namespace, each.claim), {})[pod.uid] = row
        return 0

    def pod_removed(self, row: int, pod: Pod) -> int:
        """See PodAccountant."""
        for each in self._fact.of(pod) or ():
            key = (pod.namespace, each.claim)
            pods = self._of.get(key, {})
            pods.pop(pod.uid, None)
            if not pods:
                self._of.pop(key, None)
        return 0

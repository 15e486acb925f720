"""A successful preemption that extenders may still change, before any pod is evicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from koordsched.cluster.pod import Pod
from koordsched.framework.interface import PostFilterResult


class Victims(NamedTuple):
    """The pods that would have to leave a node, and how many of them break a disruption budget."""

    pods: tuple[Pod, ...]
    violations: int


class PreemptionOffer(PostFilterResult):
    """The result, unless an extender objects.

    `candidates()`: every node where preemption is possible, with its victims; `choose(candidates)`: the result if only
    these are left, with these victims. Both read the table, hence only before it changes.
    """

    __slots__ = ("candidates", "choose")

    def __init__(
        self,
        chosen: PostFilterResult,
        candidates: Callable[[], Mapping[str, Victims]],
        choose: Callable[[Mapping[str, Victims]], PostFilterResult],
    ) -> None:
        super().__init__(chosen.status, chosen.nominated_node, chosen.victims, chosen.actuate)
        self.candidates = candidates
        self.choose = choose

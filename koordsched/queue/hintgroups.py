"""Groups of unschedulable pods for which every shared hint has the same answer: one question for all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic

from koordsched.queue.equivalence import EquivalentPods
from koordsched.queue.hints import HintTable, Matched, Strategy
from koordsched.queue.inflight import RecordedEvent
from koordsched.queue.item import P, QueuedPod


class HintGroup(Generic[P]):
    """Pods of one shape that wait for the same plugins: single pods, and sets of equivalent pods.

    `number`: grows from group to group.
    """

    __slots__ = ("equivalents", "gating_plugin", "identity", "number", "pending_plugins", "plugins", "pods", "profile")

    def __init__(
        self,
        number: int,
        identity: Hashable,
        profile: str,
        plugins: frozenset[str],
        pending: frozenset[str],
        gating_plugin: str,
    ) -> None:
        self.number = number
        self.identity = identity
        self.profile = profile
        self.plugins = plugins
        self.pending_plugins = pending
        self.gating_plugin = gating_plugin
        # Ordered: any member can represent the group, and the first is found in constant time.
        self.pods: OrderedDict[str, QueuedPod[P]] = OrderedDict()
        self.equivalents: dict[EquivalentPods[P], None] = {}

    @property
    def representative(self) -> P:
        """Any pod of the group."""
        if self.pods:
            return next(iter(self.pods.values())).pod
        return next(iter(self.equivalents)).first.pod

    def considers(self, matched: Matched[P]) -> bool:
        """Whether an event that matches these plugins is considered: gated pods wait for their gating plugin's."""
        return not self.gating_plugin or self.gating_plugin in matched

    def worth(self, plugin: str) -> Strategy:
        """What a QUEUE from this plugin is worth."""
        return Strategy.IMMEDIATELY if plugin in self.pending_plugins else Strategy.AFTER_BACKOFF

    def ask(
        self,
        table: HintTable[P],
        matched: Matched[P],
        recorded: RecordedEvent,
        found: dict[QueuedPod[P], Strategy],
        woken: dict[EquivalentPods[P], Strategy],
    ) -> None:
        """What an event is worth to each: the shared hints once for all, then each pod for what they leave open.

        What helps one helps its equivalent pods: one of them is asked.
        """
        event, old, new = recorded
        rejecting = [(self.worth(plugin), hints) for plugin, hints in matched.items() if plugin in self.plugins]
        verdict = Strategy.SKIP
        representative = self.representative
        for worth, hints in rejecting:
            for registration in hints.shared:
                if worth > verdict and table.answer(registration, event, representative, old, new):
                    verdict = worth
        if verdict:
            found.update(dict.fromkeys(self.pods.values(), verdict))
            woken.update(dict.fromkeys(self.equivalents, verdict))
        for worth, hints in rejecting:
            for registration in hints.individual:
                if worth <= verdict:
                    continue
                for queued in self.pods.values():
                    if found.get(queued, verdict) < worth and table.answer(registration, event, queued.pod, old, new):
                        found[queued] = worth
                for equivalents in self.equivalents:
                    if woken.get(equivalents, verdict) < worth and table.answer(
                        registration, event, equivalents.first.pod, old, new
                    ):
                        woken[equivalents] = worth

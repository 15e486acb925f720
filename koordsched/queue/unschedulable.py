"""The unschedulable pods, gated ones included, arranged so that an event costs what it concerns.

Twins that were rejected by the same plugins form a group: one hint call answers for all of them, however many
replicas wait. Groups are found by the plugins that rejected them, pods that wait for a particular object by its key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic

from koordsched.cluster.events import ClusterEvent
from koordsched.queue.hints import HintTable, Matched, Strategy
from koordsched.queue.inflight import RecordedEvent
from koordsched.queue.item import P, Place, QueuedPod


class PodGroup(Generic[P]):
    """Pods for which every shared hint has the same answer."""

    __slots__ = ("gating_plugin", "identity", "pending_plugins", "plugins", "pods", "profile")

    def __init__(self, identity: Hashable, first: QueuedPod[P]) -> None:
        self.identity = identity
        self.profile = first.profile
        self.plugins = first.unschedulable_plugins
        self.pending_plugins = first.pending_plugins
        self.gating_plugin = first.gating_plugin
        # Ordered: any member can represent the group, and the first is found in constant time.
        self.pods: OrderedDict[str, QueuedPod[P]] = OrderedDict()

    @property
    def representative(self) -> P:
        """Any pod of the group."""
        return next(iter(self.pods.values())).pod

    def considers(self, matched: Matched[P]) -> bool:
        """Whether an event that matches these plugins is considered: gated pods wait for their gating plugin's."""
        return not self.gating_plugin or self.gating_plugin in matched

    def worth(self, plugin: str) -> Strategy:
        """What a QUEUE from this plugin is worth."""
        return Strategy.IMMEDIATELY if plugin in self.pending_plugins else Strategy.AFTER_BACKOFF


class UnschedulablePods(Generic[P]):
    """Pods that wait for an event, or for a PreEnqueue plugin to let them in."""

    __slots__ = ("_by_key", "_by_plugin", "_gated", "_groups", "_tables", "_waiting")

    def __init__(self, tables: Mapping[str, HintTable[P]]) -> None:
        self._tables = tables
        self._groups: dict[Hashable, PodGroup[P]] = {}
        self._by_plugin: dict[tuple[str, str], dict[PodGroup[P], None]] = {}
        self._by_key: dict[Hashable, dict[QueuedPod[P], PodGroup[P]]] = {}
        # Pods come here right after their timestamp was set, so both are in the order of age.
        self._waiting: OrderedDict[str, QueuedPod[P]] = OrderedDict()
        self._gated: OrderedDict[str, QueuedPod[P]] = OrderedDict()

    def add(self, queued: QueuedPod[P]) -> None:
        """Store a pod; its plugins say whether as gated."""
        if queued.gating_plugin:
            queued.place = Place.GATED
            self._gated[queued.key] = queued
        else:
            queued.place = Place.UNSCHEDULABLE
            self._waiting[queued.key] = queued
        self._join(queued)

    def remove(self, queued: QueuedPod[P]) -> None:
        """Take a pod out."""
        del (self._gated if queued.place is Place.GATED else self._waiting)[queued.key]
        self._leave(queued)

    def replace_pod(self, queued: QueuedPod[P], pod: P) -> None:
        """The pod has a new version, perhaps of another shape; its age stays."""
        self._leave(queued)
        queued.pod = pod
        self._join(queued)

    def _join(self, queued: QueuedPod[P]) -> None:
        table = self._tables[queued.profile]
        plugins = queued.unschedulable_plugins
        # In the order of names: a set's own order differs from process to process.
        ordered = sorted(plugins)
        identity = (
            queued.pod.shape,
            plugins,
            queued.pending_plugins,
            queued.gating_plugin,
            table.group_key(queued.pod, ordered),
        )
        group = self._groups.get(identity)
        if group is None:
            group = self._groups[identity] = PodGroup(identity, queued)
            for plugin in ordered:
                self._by_plugin.setdefault((group.profile, plugin), {})[group] = None
        group.pods[queued.key] = queued
        queued.group = group
        queued.index_keys = table.index_keys(queued.pod, ordered)
        for key in queued.index_keys:
            self._by_key.setdefault(key, {})[queued] = group

    def _leave(self, queued: QueuedPod[P]) -> None:
        group = queued.group
        assert group is not None
        del group.pods[queued.key]
        if not group.pods:
            del self._groups[group.identity]
            for plugin in group.plugins:
                groups = self._by_plugin[group.profile, plugin]
                del groups[group]
                if not groups:
                    del self._by_plugin[group.profile, plugin]
        for key in queued.index_keys:
            found = self._by_key[key]
            del found[queued]
            if not found:
                del self._by_key[key]
        queued.group = None
        queued.index_keys = ()

    def concerned(self, event: ClusterEvent, old: Any, new: Any) -> dict[QueuedPod[P], Strategy]:
        """The pods that an event is worth an attempt to, and how urgently.

        Gated pods are considered only if their gating plugin registered the event.
        """
        if event.is_wildcard:
            return dict.fromkeys(self._waiting.values(), Strategy.AFTER_BACKOFF)
        found: dict[QueuedPod[P], Strategy] = {}
        for profile, table in self._tables.items():
            matched = table.matching(event)
            asked: dict[PodGroup[P], None] = {}
            for plugin, hints in matched.items():
                if hints.shared or hints.individual:
                    asked.update(self._by_plugin.get((profile, plugin), {}))
            for group in asked:
                if group.considers(matched):
                    _ask_group(group, table, matched, RecordedEvent(event, old, new), found)
            for plugin, hints in matched.items():
                for registration, index in hints.keyed:
                    for key in dict.fromkeys(index.event_keys(old, new)):
                        for queued, owner in self._by_key.get((index, key), {}).items():
                            worth = owner.worth(plugin)
                            if (
                                plugin in owner.plugins  # else another plugin filed it under this key
                                and owner.considers(matched)
                                and found.get(queued, Strategy.SKIP) < worth
                                and table.answer(registration, event, queued.pod, old, new)
                            ):
                                found[queued] = worth
        return found

    def overdue(self, now: float, limit: float) -> list[QueuedPod[P]]:
        """The pods, gated ones excepted, whose last attempt is more than `limit` seconds ago. O(answer)."""
        pods = []
        for queued in self._waiting.values():
            if now - queued.timestamp <= limit:
                break
            pods.append(queued)
        return pods

    @property
    def oldest_timestamp(self) -> float | None:
        """When the pod that waits longest came here; None if none waits."""
        return next(iter(self._waiting.values())).timestamp if self._waiting else None

    @property
    def gated(self) -> int:
        """Number of gated pods."""
        return len(self._gated)

    @property
    def waiting(self) -> int:
        """Number of pods that wait for an event."""
        return len(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._gated)

    def __iter__(self) -> Iterator[QueuedPod[P]]:
        yield from self._waiting.values()
        yield from self._gated.values()


def _ask_group(
    group: PodGroup[P],
    table: HintTable[P],
    matched: Matched[P],
    recorded: RecordedEvent,
    found: dict[QueuedPod[P], Strategy],
) -> None:
    """Ask the shared hints once for all pods of a group, then each pod for what they leave open."""
    event, old, new = recorded
    rejecting = [(group.worth(plugin), hints) for plugin, hints in matched.items() if plugin in group.plugins]
    verdict = Strategy.SKIP
    representative = group.representative
    for worth, hints in rejecting:
        for registration in hints.shared:
            if worth > verdict and table.answer(registration, event, representative, old, new):
                verdict = worth
    if verdict:
        found.update(dict.fromkeys(group.pods.values(), verdict))
    for worth, hints in rejecting:
        for registration in hints.individual:
            if worth <= verdict:
                continue
            for queued in group.pods.values():
                if found.get(queued, verdict) < worth and table.answer(registration, event, queued.pod, old, new):
                    found[queued] = worth

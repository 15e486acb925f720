"""The unschedulable pods, gated ones included, arranged so that an event costs what it concerns.

Pods of one shape that were rejected by the same plugins form a group: one hint call answers for all of them, however
many replicas wait. Groups are found by the plugins that rejected them, pods that wait for a particular object by its
key. Of equivalent pods (`queue.equivalence`) an event moves one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Generic, TypeAlias, cast

from koordsched.cluster.events import ClusterEvent
from koordsched.queue.backoff import BackoffPolicy
from koordsched.queue.counters import QueueCounters
from koordsched.queue.equivalence import EquivalentPods, Refusal
from koordsched.queue.hintgroups import HintGroup
from koordsched.queue.hints import ByKey, HintTable, PluginHints, Strategy
from koordsched.queue.inflight import RecordedEvent
from koordsched.queue.item import P, Place, PodShape, QueuedPod

#: What pods of one shape must have in common to be equivalent; None: this pod is equivalent to no other.
EquivalenceKey: TypeAlias = Callable[[P], Hashable | None]


class UnschedulablePods(Generic[P]):
    """Pods that wait for an event, or for a PreEnqueue plugin to let them in.

    `tables` and `equivalence_keys` by profile. `counters` follow equivalent pods whose plugins change while they rest.
    """

    def __init__(
        self,
        tables: Mapping[str, HintTable[P]],
        equivalence_keys: Mapping[str, EquivalenceKey[P]],
        policy: BackoffPolicy,
        counters: QueueCounters,
    ) -> None:
        self._tables = tables
        self._equivalence_keys = equivalence_keys
        self._policy = policy
        self._counters = counters
        self._groups: dict[Hashable, HintGroup[P]] = {}
        self._next_number = 0
        self._by_plugin: dict[tuple[str, str], dict[HintGroup[P], None]] = {}
        self._by_key: dict[Hashable, dict[QueuedPod[P], None]] = {}
        # Pods come here right after their timestamp was set, so all three are in the order of age.
        self._waiting: OrderedDict[str, QueuedPod[P]] = OrderedDict()
        self._gated: OrderedDict[str, QueuedPod[P]] = OrderedDict()
        self._proven: OrderedDict[EquivalentPods[P], None] = OrderedDict()
        #: By shape, and by what else they have in common. Only to be read by others.
        self.equivalents: dict[PodShape, dict[Hashable, EquivalentPods[P]]] = {}
        self._in_equivalents = 0

    # Coming and going

    def add(self, queued: QueuedPod[P], refusal: Refusal | None = None) -> None:
        """Store a pod; its plugins say whether as gated. `refusal`: what rejected it, if that holds for its
        equivalent pods."""
        if queued.gating_plugin:
            queued.place = Place.GATED
            self._gated[queued.key] = queued
            self._join(queued)
            return
        queued.place = Place.UNSCHEDULABLE
        if refusal is None or not self._join_equivalent_pods(queued, refusal):
            self._waiting[queued.key] = queued
            self._join(queued)

    def remove(self, queued: QueuedPod[P]) -> None:
        """Take a pod out."""
        if queued.equivalents is not None:
            self._leave_equivalents(queued, queued.equivalents)
            return
        del (self._gated if queued.place is Place.GATED else self._waiting)[queued.key]
        self._leave(queued)

    def replace_pod(self, queued: QueuedPod[P], pod: P) -> EquivalentPods[P] | None:
        """The pod has a new version, perhaps of another shape; its age stays.

        Returns the equivalent pods it was one of, if it is no longer. It counts as having waited since now, then:
        the order of age must hold.
        """
        equivalents = queued.equivalents
        if equivalents is not None:
            if pod.shape == equivalents.shape and self._equivalence_key(pod) == equivalents.identity:
                queued.pod = pod
                self._unindex(queued)
                self._index(queued, sorted(equivalents.refusal.plugins))
                return None
            self._leave_equivalents(queued, equivalents)
            queued.pod = pod
            self._waiting[queued.key] = queued
            self._join(queued)
            return equivalents
        self._leave(queued)
        queued.pod = pod
        self._join(queued)
        return None

    def _join(self, queued: QueuedPod[P]) -> None:
        # In the order of names: a set's own order differs from process to process.
        ordered = sorted(queued.rejected_by)
        group = self._group(queued.pod, queued.rejected_by, queued.waits_for, queued.gating_plugin, ordered)
        group.pods[queued.key] = queued
        queued.group = group
        self._index(queued, ordered)

    def _leave(self, queued: QueuedPod[P]) -> None:
        group = queued.group
        assert group is not None
        del group.pods[queued.key]
        self._drop_if_empty(group)
        self._unindex(queued)
        queued.group = None

    def _index(self, queued: QueuedPod[P], ordered: list[str]) -> None:
        """File a pod under the keys by which these plugins find it."""
        queued.index_keys = self._tables[queued.profile].index_keys(queued.pod, ordered)
        for key in queued.index_keys:
            self._by_key.setdefault(key, {})[queued] = None

    def _unindex(self, queued: QueuedPod[P]) -> None:
        for key in queued.index_keys:
            found = self._by_key[key]
            del found[queued]
            if not found:
                del self._by_key[key]

    def _group(
        self, pod: P, plugins: frozenset[str], pending: frozenset[str], gating_plugin: str, ordered: list[str]
    ) -> HintGroup[P]:
        profile = pod.shape.scheduler_name
        key = self._tables[profile].group_key(pod, ordered)
        identity = (pod.shape, plugins, pending, gating_plugin, key)
        group = self._groups.get(identity)
        if group is None:
            number = self._next_number
            self._next_number += 1
            group = self._groups[identity] = HintGroup(number, identity, profile, plugins, pending, gating_plugin)
            for plugin in ordered:
                self._by_plugin.setdefault((profile, plugin), {})[group] = None
            for index in self._tables[profile].group_indexes(ordered):
                index.add(group, pod)
        return group

    def _drop_if_empty(self, group: HintGroup[P]) -> None:
        if group.pods or group.equivalents:
            return
        del self._groups[group.identity]
        for index in self._tables[group.profile].group_indexes(group.plugins):
            index.remove(group)
        for plugin in group.plugins:
            groups = self._by_plugin[group.profile, plugin]
            del groups[group]
            if not groups:
                del self._by_plugin[group.profile, plugin]

    # Equivalent pods

    def _equivalence_key(self, pod: P) -> Hashable | None:
        """None also for a pod that is nominated to a node."""
        return None if pod.nominated_node else self._equivalence_keys[pod.shape.scheduler_name](pod)

    def _join_equivalent_pods(self, queued: QueuedPod[P], refusal: Refusal) -> bool:
        """Let a pod rest among its equivalent pods; False if it has none."""
        pod = queued.pod
        ordered = sorted(refusal.plugins)
        identity = self._equivalence_key(pod)
        if identity is None:
            return False
        by_identity = self.equivalents.setdefault(pod.shape, {})
        equivalents = by_identity.get(identity)
        if equivalents is None:
            equivalents = by_identity[identity] = EquivalentPods(pod.shape, identity, refusal)
            self._file(equivalents, pod, ordered)
            self._prove(equivalents, refusal, queued.timestamp)
        elif refusal is not equivalents.refusal:
            if (refusal.plugins, refusal.pending) != (equivalents.refusal.plugins, equivalents.refusal.pending):
                self._unfile(equivalents)
                self._counters.released(queued.profile, equivalents.refusal.plugins, len(equivalents))
                self._counters.rejected(queued.profile, refusal.plugins, len(equivalents))
                equivalents.refusal = refusal
                self._file(equivalents, pod, ordered)
                for other in equivalents:
                    self._unindex(other)
                    self._index(other, ordered)
            self._prove(equivalents, refusal, queued.timestamp)
        equivalents.add(queued, self._policy)
        self._index(queued, ordered)
        self._in_equivalents += 1
        return True

    def _prove(self, equivalents: EquivalentPods[P], refusal: Refusal, now: float) -> None:
        equivalents.renew(refusal, now)
        self._proven[equivalents] = None
        self._proven.move_to_end(equivalents)

    def _leave_equivalents(self, queued: QueuedPod[P], equivalents: EquivalentPods[P]) -> None:
        equivalents.remove(queued, self._policy)
        self._unindex(queued)
        self._in_equivalents -= 1
        if not equivalents:
            self._unfile(equivalents)
            del self._proven[equivalents]
            by_identity = self.equivalents[equivalents.shape]
            del by_identity[equivalents.identity]
            if not by_identity:
                del self.equivalents[equivalents.shape]

    def _file(self, equivalents: EquivalentPods[P], pod: P, ordered: list[str]) -> None:
        refusal = equivalents.refusal
        equivalents.group = self._group(pod, refusal.plugins, refusal.pending, "", ordered)
        equivalents.group.equivalents[equivalents] = None

    def _unfile(self, equivalents: EquivalentPods[P]) -> None:
        group = equivalents.group
        assert group is not None
        del group.equivalents[equivalents]
        self._drop_if_empty(group)

    def refusal_of(self, pod: P, by_identity: Mapping[Hashable, EquivalentPods[P]], since: float) -> Refusal | None:
        """How an equivalent pod of this pod was refused, at `since` or later, if nothing happened that might help it.

        `by_identity`: the equivalent pods of its shape.
        """
        equivalents = by_identity.get(self._equivalence_key(pod))
        return (
            equivalents.refusal
            if equivalents is not None and equivalents.probe is None and equivalents.proven_at >= since
            else None
        )

    def next_of(self, equivalents: EquivalentPods[P], now: float) -> QueuedPod[P] | None:
        """The equivalent pod whose turn it is."""
        return equivalents.next(now, self._policy)

    # Events

    def concerned(
        self, event: ClusterEvent, old: Any, new: Any, now: float, exclude_uid: str | None = None
    ) -> dict[QueuedPod[P], Strategy]:
        """The pods that an event is worth an attempt to, and how urgently; of equivalent pods the one whose turn it is.

        Not included are pods that have an equivalent pod in flight. Gated pods are considered only if their gating
        plugin registered the event. `exclude_uid`: a pod to leave out.
        """
        found: dict[QueuedPod[P], Strategy] = {}
        woken: dict[EquivalentPods[P], Strategy] = {}
        if event.is_wildcard:
            found.update(dict.fromkeys(self._waiting.values(), Strategy.AFTER_BACKOFF))
            woken.update(dict.fromkeys(self._proven, Strategy.AFTER_BACKOFF))
        else:
            self._ask(RecordedEvent(event, old, new), found, woken)
        for equivalents, strategy in woken.items():
            if equivalents.probe is None:
                probe = equivalents.next(now, self._policy, exclude_uid)
                if probe is not None:
                    found[probe] = strategy
        return found

    def _ask(
        self, recorded: RecordedEvent, found: dict[QueuedPod[P], Strategy], woken: dict[EquivalentPods[P], Strategy]
    ) -> None:
        event, old, new = recorded
        for profile, table in self._tables.items():
            matched = table.matching(event)
            asked: dict[HintGroup[P], None] = {}
            for plugin, hints in matched.items():
                groups = self._by_plugin.get((profile, plugin))
                if groups and (hints.shared or hints.individual):
                    asked.update(dict.fromkeys(self._concerned(groups, hints, old, new)))
            for group in asked:
                if group.considers(matched):
                    group.ask(table, matched, recorded, found, woken)
            for plugin, hints in matched.items():
                for registration, index in hints.keyed:
                    for queued in self._filed(profile, plugin, index, index.keys_offered(old, new)):
                        owner = queued.group if queued.equivalents is None else queued.equivalents.group
                        assert owner is not None
                        worth = owner.worth(plugin)
                        if (
                            plugin in owner.plugins  # else another plugin filed it under this key
                            and owner.considers(matched)
                            and found.get(queued, Strategy.SKIP) < worth
                            and table.answer(registration, event, queued.pod, old, new)
                        ):
                            found[queued] = worth

    def _filed(
        self, profile: str, plugin: str, index: ByKey[P], keys: Iterable[Hashable] | None
    ) -> Iterator[QueuedPod[P]]:
        """The pods under these keys of an index; None: all that a plugin has rejected."""
        if keys is not None:
            for key in keys:
                yield from self._by_key.get((index, key), ())
            return
        for group in self._by_plugin.get((profile, plugin), ()):
            yield from group.pods.values()
            for equivalents in group.equivalents:
                yield from equivalents

    @staticmethod
    def _concerned(
        groups: dict[HintGroup[P], None], hints: PluginHints[P], old: Any, new: Any
    ) -> Iterable[HintGroup[P]]:
        """Those of the groups that a plugin has rejected that are asked about an event, oldest first."""
        found = hints.concerned(old, new)
        if found is None:
            return groups
        return sorted(cast("Iterable[HintGroup[P]]", found), key=attrgetter("number"))

    # Time

    def overdue(self, now: float, limit: float) -> list[QueuedPod[P]]:
        """The pods, gated ones excepted, whose last attempt is more than `limit` seconds ago. O(answer).

        Of equivalent pods one, if that holds for the last attempt of any of them.
        """
        pods = []
        for queued in self._waiting.values():
            if now - queued.timestamp <= limit:
                break
            pods.append(queued)
        for equivalents in self._proven:
            if now - equivalents.proven_at <= limit:
                break
            if equivalents.probe is None:
                probe = equivalents.next(now, self._policy)
                assert probe is not None
                pods.append(probe)
        return pods

    @property
    def oldest_timestamp(self) -> float | None:
        """When the last attempt was made for the pod for which this is longest ago; None if none waits."""
        oldest = []
        if self._waiting:
            oldest.append(next(iter(self._waiting.values())).timestamp)
        if self._proven:
            oldest.append(next(iter(self._proven)).proven_at)
        return min(oldest, default=None)

    # Looking

    @property
    def gated(self) -> int:
        """Number of gated pods."""
        return len(self._gated)

    @property
    def waiting(self) -> int:
        """Number of pods that wait for an event."""
        return len(self._waiting) + self._in_equivalents

    def __len__(self) -> int:
        return self.waiting + len(self._gated)

    def __iter__(self) -> Iterator[QueuedPod[P]]:
        yield from self._waiting.values()
        for equivalents in self._proven:
            yield from equivalents
        yield from self._gated.values()

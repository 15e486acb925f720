"""Counters of existing pods by namespace and labels.

Pods with equal labels in one namespace form a group; a counter is made from the groups it selects and from
then on follows every pod that comes or goes, through the group, so that an event costs what it concerns.
Groups and counters find each other through equality requirements (`app=web`), which nearly all selectors have.
"""

from __future__ import annotations

from collections.abc import Iterable

from koordsched.cluster.interning import LabelSet
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.plugins.shared.podcounts.query import PodQuery, PodWeights, WeightedQueries
from koordsched.plugins.shared.podcounts.rowcounts import RowCounts
from koordsched.plugins.shared.podcounts.topology import Topology

_BUDGET = 128 << 20
"""Bytes that all counters together may take."""
_LARGE = 256 << 10
"""Bytes of queries from which on a counter is large: few pods have so many terms, and each has its own."""
_LARGE_BUDGET = 16 << 20
"""Bytes that the queries of large counters together may take."""
_ALWAYS_KEPT = 64
_EQUALITIES_COMPARED = 4
"""The most selective of this many equality requirements leads to the groups of a counter."""
_WITHOUT_EQUALITY = 1024
"""So many counters may lack an equality requirement: each is asked about every new group."""


class Counter(RowCounts):
    """Counts pods, each as often as `pods` says; those being deleted only with `count_deleting`.

    `dropped`: the index has given it up, ask for it again. `asked_bytes`: what its queries take.
    """

    __slots__ = ("asked_bytes", "count_deleting", "dropped", "last_used", "newest_group", "pods")

    def __init__(self, topology: Topology, pods: PodWeights, count_deleting: bool) -> None:
        super().__init__(topology)
        self.pods = pods
        self.asked_bytes = pods.nbytes
        self.count_deleting = count_deleting
        self.dropped = False
        self.last_used = 0
        self.newest_group = 0
        """The number of the newest group that was looked at, of a counter that looks for itself."""


class _Group:
    """The pods of one namespace with the same labels: how many on each row, by whether they are being deleted.

    `counters`: how often each counts one of these pods. `number`: later groups have higher ones.
    """

    __slots__ = ("counters", "deleting", "labels", "namespace", "number", "staying")

    def __init__(self, namespace: str, labels: LabelSet, number: int) -> None:
        self.namespace = namespace
        self.labels = labels
        self.number = number
        self.staying: dict[int, int] = {}
        self.deleting: dict[int, int] = {}
        self.counters: dict[Counter, int] = {}

    def joins(self, counter: Counter) -> None:
        """The counter counts these pods from now on, if they match."""
        weight = counter.pods.weigh(self.namespace, self.labels.labels)
        if not weight:
            return
        self.counters[counter] = weight
        for rows in (self.staying, self.deleting) if counter.count_deleting else (self.staying,):
            for row, count in rows.items():
                counter.add(row, weight * count)


class PodIndex:
    """All groups and counters; one per cluster (`ClusterState.shared(PodIndex)`)."""

    facets = 0  # those who read counts ask every time

    def __init__(self, cluster: ClusterState) -> None:
        self.topology = cluster.shared(Topology)
        self._groups: dict[str, dict[LabelSet, _Group]] = {}
        # Only for label keys that some counter asks by equality: key -> value -> groups.
        self._groups_by: dict[str, dict[str, dict[_Group, None]]] = {}
        self._in_order: dict[_Group, None] = {}
        self._newest_group = 0
        self._counters: dict[tuple[PodWeights, bool], Counter] = {}
        self._counters_by: dict[str, dict[str, dict[Counter, None]]] = {}
        self._other_counters: dict[Counter, None] = {}
        self._large: dict[Counter, None] = {}
        self._uses = 0
        self._weigh_at = _ALWAYS_KEPT
        """With this many counters, their size is checked again."""
        cluster.add_accountant(self, amendable=False)

    # --- pods ------------------------------------------------------------------------------------

    def pod_added(self, row: int, pod: Pod) -> int:
        """Counts the pod."""
        self._count(row, pod, 1)
        return 0

    def pod_removed(self, row: int, pod: Pod) -> int:
        """The opposite."""
        self._count(row, pod, -1)
        return 0

    def _count(self, row: int, pod: Pod, sign: int) -> None:
        groups = self._groups.get(pod.namespace)
        if groups is None:
            groups = self._groups[pod.namespace] = {}
        group = groups.get(pod.labels)
        if group is None:
            group = groups[pod.labels] = self._new_group(pod.namespace, pod.labels)
        rows = group.deleting if pod.deleting else group.staying
        count = rows.get(row, 0) + sign
        if count:
            rows[row] = count
        else:
            del rows[row]
        for counter, weight in group.counters.items():
            if not pod.deleting or counter.count_deleting:
                counter.add(row, sign * weight)
        if not count and not group.staying and not group.deleting:
            self._forget_group(group)

    def _new_group(self, namespace: str, labels: LabelSet) -> _Group:
        self._newest_group += 1
        group = _Group(namespace, labels, self._newest_group)
        self._in_order[group] = None
        candidates = [self._other_counters]
        for key, value in labels.labels.items():
            groups = self._groups_by.get(key)
            if groups is not None:
                groups.setdefault(value, {})[group] = None
            counters = self._counters_by.get(key)
            if counters is not None and value in counters:
                candidates.append(counters[value])
        for found in candidates:
            for counter in found:
                group.joins(counter)
        return group

    def _forget_group(self, group: _Group) -> None:
        del self._in_order[group]
        groups = self._groups[group.namespace]
        del groups[group.labels]
        if not groups:
            del self._groups[group.namespace]
        for key, value in group.labels.labels.items():
            by_value = self._groups_by.get(key)
            if by_value is not None:
                del by_value[value][group]
                if not by_value[value]:
                    del by_value[value]

    # --- counters --------------------------------------------------------------------------------

    def counter(self, pods: PodWeights, *, count_deleting: bool) -> Counter:
        """The counter of these pods."""
        found = self._counters.get((pods, count_deleting))
        if found is None:
            self._make_room()
            found = self._counters[(pods, count_deleting)] = self._new_counter(pods, count_deleting)
            if found.asked_bytes > _LARGE:
                self._make_room_for_large(found)
        return self.used(found)

    def used(self, counter: Counter) -> Counter:
        """The same counter, or its successor if it was dropped; it counts as used now."""
        if counter.dropped:
            return self.counter(counter.pods, count_deleting=counter.count_deleting)
        self._uses += 1
        counter.last_used = self._uses
        if counter.newest_group != self._newest_group and isinstance(counter.pods, WeightedQueries):
            self._look_at_new_groups(counter)
        return counter

    def _look_at_new_groups(self, counter: Counter) -> None:
        """Thousands of queries are put to new groups when they are asked for, not whenever a pod comes."""
        for group in reversed(self._in_order):
            if group.number <= counter.newest_group:
                break
            group.joins(counter)
        counter.newest_group = self._newest_group

    def _new_counter(self, pods: PodWeights, count_deleting: bool) -> Counter:
        counter = Counter(self.topology, pods, count_deleting)
        if isinstance(pods, WeightedQueries):
            return counter
        best: dict[_Group, None] | None = None
        where: tuple[str, str] | None = None
        for key, value in pods.equalities[:_EQUALITIES_COMPARED]:
            groups = self._indexed(key).get(value, {})
            if best is None or len(groups) < len(best):
                best, where = groups, (key, value)
        if where is None:
            self._other_counters[counter] = None
        else:
            self._counters_by.setdefault(where[0], {}).setdefault(where[1], {})[counter] = None
        for group in self._groups_in(pods) if best is None else best:
            group.joins(counter)
        return counter

    def _groups_in(self, query: PodQuery) -> Iterable[_Group]:
        namespaces = self._groups if query.namespaces is None else query.namespaces & self._groups.keys()
        return (group for namespace in namespaces for group in self._groups[namespace].values())

    def _indexed(self, key: str) -> dict[str, dict[_Group, None]]:
        by_value = self._groups_by.get(key)
        if by_value is None:
            by_value = self._groups_by[key] = {}
            for group in self._in_order:
                value = group.labels.labels.get(key)
                if value is not None:
                    by_value.setdefault(value, {})[group] = None
        return by_value

    def _make_room(self) -> None:
        """Drops the least recently used half when the counters take too much."""
        counters = self._counters
        crowded = len(self._other_counters) >= _WITHOUT_EQUALITY
        if len(counters) < self._weigh_at and not crowded:
            return
        if crowded or sum(c.nbytes for c in counters.values()) >= _BUDGET:
            self._drop(sorted(counters.values(), key=lambda counter: counter.last_used)[: len(counters) // 2])
        self._weigh_at = max(_ALWAYS_KEPT, len(counters) + len(counters) // 8)

    def _make_room_for_large(self, made: Counter) -> None:
        """Drops the large counters that were used least recently where all together take too much."""
        room = _LARGE_BUDGET - made.asked_bytes
        dropped = []
        for counter in sorted(self._large, key=lambda counter: counter.last_used, reverse=True):
            room -= counter.asked_bytes
            if room < 0:
                dropped.append(counter)
        if dropped:
            self._drop(dropped)
        self._large[made] = None

    def _drop(self, dropped: list[Counter]) -> None:
        gone = set(dropped)
        for counter in dropped:
            del self._counters[(counter.pods, counter.count_deleting)]
            self._other_counters.pop(counter, None)
            self._large.pop(counter, None)
            counter.dropped = True
            counter.clear()  # its users keep it, to ask again
        for group in self._in_order:
            for counter in group.counters.keys() & gone:
                del group.counters[counter]
        self._counters_by = _without(self._counters_by, gone)
        asked = {
            key for counter in self._counters.values() for key, _ in counter.pods.equalities[:_EQUALITIES_COMPARED]
        }
        for key in self._groups_by.keys() - asked:
            del self._groups_by[key]

    def __len__(self) -> int:
        return len(self._counters)


def _without(
    counters: dict[str, dict[str, dict[Counter, None]]], gone: set[Counter]
) -> dict[str, dict[str, dict[Counter, None]]]:
    """Counters by label key and value, without some, and without what is empty then."""
    kept: dict[str, dict[str, dict[Counter, None]]] = {}
    for key, by_value in counters.items():
        for value, members in by_value.items():
            for counter in members:
                if counter not in gone:
                    kept.setdefault(key, {}).setdefault(value, {})[counter] = None
    return kept

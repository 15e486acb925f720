"""Queueing hints: which events may make a rejected pod schedulable, and what they are worth to it.

A plugin registers, per event, a function that says whether this particular change can help a pod it rejected. The
answer mostly depends on the pod's shape alone, so the queue asks once per group of equivalent pods; a registration's
`scope` says when that is not enough:

* `Scope.SHAPE`: the answer is the same for all pods of one shape;
* `GroupBy(key)`: the same for all pods of one shape and one `key(pod)` (its namespace, its labels, …);
* `ByKey(pod_keys, event_keys)`: only pods that share a key with the event are concerned (the claims they use); they
  are found through an index and asked one by one;
* `NominatedTo(node)`: only pods are concerned that are nominated to the node of the event;
* `Scope.OWN_POD`: the change must be one of the pod itself; changes of other objects never ask it;
* `Scope.POD`: every pod is asked. Always right, and slow.

With an `index` (`queue.groupindex`), which answers for the first two scopes, only the groups are asked that it finds.

A key function that fails costs questions only: a pod without known keys is asked about every event, and about an event
without known keys every pod that the plugin rejected.

A change of the waiting pod itself is put to the hints of every scope that registered it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum, auto
from typing import Any, Generic, Protocol, TypeAlias

from koordsched.cluster.events import NODE, STANDARD_RESOURCES, WILDCARD, ActionType, ClusterEvent
from koordsched.queue.groupindex import GroupIndex, GuardedIndex
from koordsched.queue.item import P, QueuedPod

_log = logging.getLogger(__name__)

_UNKNOWN = object()
"""The key of pods whose keys are unknown, which every event offers."""


class QueueingHint(Enum):
    """A plugin's answer; the values are metric labels."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


class Strategy(IntEnum):
    """What an event is worth to a pod; the greatest of several wins."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


#: fn(pod, old, new): the objects of the event as the watch delivered them, None where there is none. An exception
#: counts as QUEUE: a useless attempt is better than a stuck pod.
HintFn: TypeAlias = Callable[[P, Any, Any], QueueingHint]


class Scope(Enum):
    """Which pods one answer holds for; see the module."""

    SHAPE = auto()
    OWN_POD = auto()
    POD = auto()


@dataclass(frozen=True, eq=False)
class GroupBy(Generic[P]):
    """The answer holds for the pods of one shape that agree in `key`.

    So must the verdict of a plugin that registers it: pods that agree in shape and in the keys of all plugins are
    equivalent pods (`queue.equivalence`).
    """

    key: Callable[[P], Hashable]

    def group_of(self, pod: P) -> Hashable:
        """The pod's `key`; if that fails, one that no other pod has."""
        try:
            key = self.key(pod)
            hash(key)
        except Exception:
            _log.exception("the group of pod %s is unknown: it is asked on its own", pod.title)
            return _UNKNOWN, pod.uid
        return key


@dataclass(frozen=True, eq=False)
class ByKey(Generic[P]):
    """Only pods are concerned that have a key in common with the event.

    `pod_keys` is taken when the pod becomes unschedulable or changes; `event_keys(old, new)` once per event. Share one
    instance between registrations to share the index.
    """

    pod_keys: Callable[[P], Iterable[Hashable]]
    event_keys: Callable[[Any, Any], Iterable[Hashable]]

    def keys_of(self, pod: P) -> Collection[Hashable]:
        """Those under which the pod is filed, each once."""
        try:
            return dict.fromkeys(self.pod_keys(pod))
        except Exception:
            _log.exception("the keys of pod %s are unknown: it is asked about every event", pod.title)
            return (_UNKNOWN,)

    def keys_offered(self, old: Any, new: Any) -> Collection[Hashable] | None:
        """Those under which the pods are filed that an event concerns, each once; None: it may concern every pod."""
        try:
            return dict.fromkeys((*self.event_keys(old, new), _UNKNOWN))
        except Exception:
            _log.exception("the keys of an event are unknown: all pods are asked about it")
            return None

    def concerns(self, pod: P, old: Any, new: Any) -> bool:
        """Whether the pod and the event have a key in common."""
        offered = self.keys_offered(old, new)
        return offered is None or any(key in offered for key in self.keys_of(pod))


@dataclass(frozen=True, eq=False)
class NominatedTo:
    """Only pods are concerned that are nominated to the node of the event.

    They are asked one by one, whatever keeps them out of the queue. `node(old, new)`: the node of the event.
    """

    node: Callable[[Any, Any], str]

    def place(self, old: Any, new: Any) -> str | None:
        """The node of the event; None if that is unknown."""
        try:
            return self.node(old, new)
        except Exception:
            _log.exception("the node of an event is unknown: all nominated pods are asked about it")
            return None


@dataclass(frozen=True, eq=False)
class OtherNodeHint(Generic[P]):
    """For pods that wait for the node they are nominated to: the hint for events on other nodes.

    `node(old, new)`: the node of the event, "" if it concerns no single node. `fn` is asked if that is not the
    nominated node; it may skip events that the registration's `fn` would not. Its answer holds for all pods of one
    shape.
    """

    node: Callable[[Any, Any], str]
    fn: HintFn[P]

    def place(self, old: Any, new: Any) -> str:
        """The node of the event; "" also if that is unknown."""
        try:
            return self.node(old, new)
        except Exception:
            _log.exception("the node of an event is unknown: it counts as one that concerns no single node")
            return ""


@dataclass(frozen=True, eq=False)
class HintRegistration(Generic[P]):
    """A plugin waits for an event; `fn` None means that every such event is worth an attempt."""

    plugin: str
    event: ClusterEvent
    fn: HintFn[P] | None = None
    scope: Scope | GroupBy[P] | ByKey[P] | NominatedTo = Scope.POD
    other_node: OtherNodeHint[P] | None = None
    index: GroupIndex[P] | None = None


class HintObserver(Protocol):
    """Receives every hint call (metric queueing_hint_execution_duration_seconds)."""

    def clock(self) -> float:
        """Seconds of a clock fit for durations."""

    def observe(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """`hint` is `Queue`, `QueueSkip` or `Error`."""


def every_event(plugin: str) -> list[HintRegistration[Any]]:
    """Registrations of a plugin that does not say what it waits for: all changes of all standard kinds."""
    return _unrolled(HintRegistration(plugin, ClusterEvent(WILDCARD, ActionType.ALL)))


def _unrolled(registration: HintRegistration[P]) -> list[HintRegistration[P]]:
    """A wildcard spelled out, so that a forced move is not mistaken for an event that the plugin waits for."""
    if registration.event.resource != WILDCARD:
        return [registration]
    action = registration.event.action
    return [replace(registration, event=ClusterEvent(resource, action)) for resource in STANDARD_RESOURCES]


@dataclass(slots=True)
class PluginHints(Generic[P]):
    """One plugin's registrations that an event matches, by how they are asked."""

    #: Asked once per group.
    shared: list[HintRegistration[P]] = field(default_factory=list)
    #: Those that find the groups to be asked, if all do; None: every group is asked.
    indexes: list[GroupIndex[P]] | None = field(default_factory=list)
    #: Asked pod by pod.
    individual: list[HintRegistration[P]] = field(default_factory=list)
    #: Asked for the pods found in an index; with each the index.
    keyed: list[tuple[HintRegistration[P], ByKey[P]]] = field(default_factory=list)
    #: All of them, also those asked for the pod's own changes only.
    registered: list[HintRegistration[P]] = field(default_factory=list)

    def add(self, registration: HintRegistration[P]) -> None:
        """File a registration under the way it is asked."""
        self.registered.append(registration)
        scope = registration.scope
        if isinstance(scope, ByKey):
            self.keyed.append((registration, scope))
        elif scope is Scope.OWN_POD:
            return
        elif isinstance(scope, GroupBy) or scope is Scope.SHAPE or registration.fn is None:
            self.shared.append(registration)
            if registration.index is None:
                self.indexes = None
            elif self.indexes is not None:
                self.indexes.append(registration.index)
        else:
            self.individual.append(registration)
            self.indexes = None

    def concerned(self, old: Any, new: Any) -> Iterable[Hashable] | None:
        """The groups to be asked about an event; None: all that the plugin has rejected."""
        if self.indexes is None:
            return None
        found: dict[Hashable, None] = {}
        for index in self.indexes:
            groups = index.concerned(old, new)
            if groups is None:
                return None
            found.update(dict.fromkeys(groups))
        return found


Matched: TypeAlias = Mapping[str, PluginHints[P]]


class HintTable(Generic[P]):
    """The registrations of one profile, and their evaluation."""

    def __init__(self, registrations: Iterable[HintRegistration[P]], observer: HintObserver | None = None) -> None:
        self._by_plugin: dict[str, list[HintRegistration[P]]] = {}
        self._of_nominated: list[tuple[HintRegistration[P], NominatedTo]] = []
        guarded: dict[GroupIndex[P], GuardedIndex[P]] = {}
        for registration in registrations:
            if isinstance(registration.scope, NominatedTo):
                self._of_nominated.append((registration, registration.scope))
                continue
            if (index := registration.index) is not None:
                registration = replace(registration, index=guarded.setdefault(index, GuardedIndex(index)))
            self._by_plugin.setdefault(registration.plugin, []).extend(_unrolled(registration))
        for plugin, own in self._by_plugin.items():
            own.extend(_taint_mitigation(plugin, own))
        self._observer = observer
        self._matched: dict[ClusterEvent, Matched[P]] = {}
        self._other_node_hints: dict[ClusterEvent, tuple[OtherNodeHint[P], ...]] = {}
        self._group_keys = {
            plugin: tuple(dict.fromkeys(r.scope for r in own if isinstance(r.scope, GroupBy)))
            for plugin, own in self._by_plugin.items()
        }
        self._group_indexes = {
            plugin: tuple(dict.fromkeys(r.index for r in own if r.index is not None))
            for plugin, own in self._by_plugin.items()
        }
        self._indexes = {
            plugin: tuple(dict.fromkeys(r.scope for r in own if isinstance(r.scope, ByKey)))
            for plugin, own in self._by_plugin.items()
        }

    def matching(self, event: ClusterEvent) -> Matched[P]:
        """The plugins that wait for such an event, with the registrations it matches; empty if none does."""
        matched = self._matched.get(event)
        if matched is None:
            found: dict[str, PluginHints[P]] = {}
            for plugin, own in self._by_plugin.items():
                for registration in own:
                    if registration.event.matches(event):
                        found.setdefault(plugin, PluginHints()).add(registration)
            matched = self._matched[event] = found
        return matched

    def for_nominated(
        self, event: ClusterEvent, old: Any, new: Any
    ) -> Iterator[tuple[HintRegistration[P], str | None]]:
        """The hints for pods nominated to the node of an event, with that node; None: nominated to any."""
        for registration, scope in self._of_nominated:
            if registration.event.matches(event):
                yield registration, scope.place(old, new)

    def awaits(self, event: ClusterEvent) -> bool:
        """Whether any plugin waits for such an event."""
        return bool(self.matching(event)) or any(each.event.matches(event) for each, _ in self._of_nominated)

    def group_key(self, pod: P, plugins: Iterable[str]) -> tuple[Hashable, ...]:
        """What, besides the shape, the answers of these plugins depend on."""
        return tuple(scope.group_of(pod) for plugin in plugins for scope in self._group_keys.get(plugin, ()))

    def group_indexes(self, plugins: Iterable[str]) -> Iterator[GroupIndex[P]]:
        """Where groups are filed that these plugins have rejected."""
        return (index for plugin in plugins for index in self._group_indexes.get(plugin, ()))

    def index_keys(self, pod: P, plugins: Iterable[str]) -> tuple[tuple[ByKey[P], Hashable], ...]:
        """Where the keyed hints of these plugins find the pod, each place once."""
        indexes = dict.fromkeys(index for plugin in plugins for index in self._indexes.get(plugin, ()))
        return tuple((index, key) for index in indexes for key in index.keys_of(pod))

    def distinctions(self, plugin: str) -> tuple[GroupBy[P], ...] | None:
        """What tells pods of one shape apart for a plugin; None if every pod is a case of its own."""
        own = self._by_plugin.get(plugin, ())
        if any(isinstance(r.scope, ByKey) or r.scope is Scope.POD for r in own):
            return None
        return self._group_keys.get(plugin, ())

    def node_of(self, event: ClusterEvent, old: Any, new: Any) -> str:
        """The node of an event, if the event may be worth less to pods nominated to other nodes; otherwise ""."""
        matters = self._other_node_hints.get(event)
        if matters is None:
            found = [r.other_node for hints in self.matching(event).values() for r in hints.registered if r.other_node]
            matters = self._other_node_hints[event] = tuple(found)
        return next((node for each in matters if (node := each.place(old, new))), "")

    def answers_for_all(self, event: ClusterEvent, plugins: Collection[str]) -> bool:
        """Whether what an event is worth to a pod rejected by these plugins holds for all of its group."""
        matched = self.matching(event)
        return not any(hints.individual or hints.keyed for plugin, hints in matched.items() if plugin in plugins)

    def answer(
        self, registration: HintRegistration[P], event: ClusterEvent, pod: P, old: Any, new: Any, nominated: str = ""
    ) -> bool:
        """Ask one hint. True: the event is worth an attempt. `nominated`: the node that the pod waits for, if any."""
        fn, other_node = registration.fn, registration.other_node
        if nominated and other_node is not None and other_node.place(old, new) not in ("", nominated):
            fn = other_node.fn
        if fn is None:
            return True
        observer = self._observer
        start = observer.clock() if observer else 0.0
        try:
            queue = fn(pod, old, new) is QueueingHint.QUEUE
            result = QueueingHint.QUEUE.value if queue else QueueingHint.SKIP.value
        except Exception:
            # A broken hint must not leave the pod stuck; the log and the metric show what is wrong.
            _log.exception(
                "queueing hint of %s failed for pod %s and event %s", registration.plugin, pod.title, event.label
            )
            queue, result = True, "Error"
        if observer:
            observer.observe(registration.plugin, event.label, result, observer.clock() - start)
        return queue

    def strategy(
        self, queued: QueuedPod[P], event: ClusterEvent, old: Any, new: Any, *, own: bool, nominated: str = ""
    ) -> Strategy:
        """What an event is worth to one pod; `own`: it is a change of this pod itself, `nominated`: see `answer`."""
        if not queued.unschedulable_plugins or event.is_wildcard:
            return Strategy.AFTER_BACKOFF
        best = Strategy.SKIP
        pod, pending = queued.pod, queued.pending_plugins
        for plugin, hints in self.matching(event).items():
            if plugin not in queued.unschedulable_plugins:
                continue
            worth = Strategy.IMMEDIATELY if plugin in pending else Strategy.AFTER_BACKOFF
            for registration in hints.registered:
                if worth <= best:
                    break
                scope = registration.scope
                if not own and (
                    scope is Scope.OWN_POD or (isinstance(scope, ByKey) and not scope.concerns(pod, old, new))
                ):
                    continue
                if self.answer(registration, event, pod, old, new, nominated):
                    best = worth
        if nominated and not best:
            for registration, node in self.for_nominated(event, old, new):
                if (
                    node in (None, nominated)
                    and registration.plugin in queued.unschedulable_plugins
                    and self.answer(registration, event, pod, old, new, nominated)
                ):
                    return Strategy.AFTER_BACKOFF
        return best


def _taint_mitigation(plugin: str, own: Iterable[HintRegistration[P]]) -> list[HintRegistration[P]]:
    """A plugin that registered for new nodes but not for taints is woken by every taint change (core spec 3.4).

    A node may have arrived while its taints kept the pod from being tried on it.
    """
    actions = ActionType(0)
    for registration in own:
        if registration.event.resource == NODE:
            actions |= registration.event.action
    if ActionType.ADD in actions and ActionType.UPDATE_NODE_TAINT not in actions:
        return [HintRegistration(plugin, ClusterEvent(NODE, ActionType.UPDATE_NODE_TAINT), None, Scope.SHAPE)]
    return []

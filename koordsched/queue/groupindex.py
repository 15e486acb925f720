"""Which of the waiting groups an event may help, found without asking each.

An event costs what the pods cost that it may help, however many others wait with requests, selectors or tolerations of
their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from koordsched.queue.item import P, SchedulablePod

_log = logging.getLogger(__name__)

P_contra = TypeVar("P_contra", bound=SchedulablePod, contravariant=True)

MOST_KEYS = 100
"""Keys under which a group is filed; one that would need more is asked about every event."""


class GroupIndex(Protocol[P_contra]):
    """Groups of pods that a plugin has rejected."""

    def add(self, group: Hashable, pod: P_contra) -> None:
        """A group waits from now on. `pod`: any of it."""

    def remove(self, group: Hashable) -> None:
        """It does not any more."""

    def concerned(self, old: Any, new: Any) -> Collection[Hashable] | None:
        """The groups that an event may help, perhaps more; None: all."""


class GuardedIndex(Generic[P]):
    """The index of a plugin, which may fail: then the groups in question are asked about every event."""

    def __init__(self, index: GroupIndex[P]) -> None:
        self._index = index
        self._unfiled: dict[Hashable, None] = {}

    def add(self, group: Hashable, pod: P) -> None:
        """See GroupIndex."""
        try:
            self._index.add(group, pod)
        except Exception:
            _log.exception("what pod %s needs is unknown: it is asked about every event", pod.title)
            self._unfiled[group] = None

    def remove(self, group: Hashable) -> None:
        """See GroupIndex."""
        if group in self._unfiled:
            del self._unfiled[group]
        else:
            self._index.remove(group)

    def concerned(self, old: Any, new: Any) -> Collection[Hashable] | None:
        """See GroupIndex."""
        try:
            found = self._index.concerned(old, new)
        except Exception:
            _log.exception("it is unknown which pods an event may help: all are asked")
            return None
        return found if found is None or not self._unfiled else [*found, *self._unfiled]


Needs: TypeAlias = Callable[[P], Iterable[Sequence[Collection[Hashable]]] | None]
"""needs(pod) -> alternatives, of which one must hold for an event to help; each is conditions, all of which must hold;
a condition is keys, one of which the event must offer. None: any event may help."""

Offers: TypeAlias = Callable[[Any, Any], Sequence[Collection[Hashable]] | None]
"""offers(old, new) -> collections of keys, at least one: what an event offers, once or in several ways; those that it
helps are under a key of each. None: it may help all."""


class KeyedGroups(Generic[P]):
    """Groups under keys that an event must offer: labels, taints."""

    def __init__(self, needs: Needs[P], offers: Offers) -> None:
        self._needs = needs
        self._offers = offers
        self._by_key: dict[Hashable, dict[Hashable, None]] = {}
        self._keys: dict[Hashable, tuple[Hashable, ...]] = {}
        """By group, those under which it is filed."""
        self._always: dict[Hashable, None] = {}

    def add(self, group: Hashable, pod: P) -> None:
        """See GroupIndex."""
        keys = self._chosen(self._needs(pod))
        if keys is None:
            self._always[group] = None
            return
        self._keys[group] = keys
        for key in keys:
            self._by_key.setdefault(key, {})[group] = None

    def _chosen(self, alternatives: Iterable[Sequence[Collection[Hashable]]] | None) -> tuple[Hashable, ...] | None:
        """Of each alternative the condition that fewest others have; None if there are too many keys."""
        if alternatives is None:
            return None
        chosen: dict[Hashable, None] = {}
        for conditions in alternatives:
            few = [keys for keys in conditions if len(keys) <= MOST_KEYS]
            if not few:
                return None
            chosen.update(dict.fromkeys(min(few, key=self._filed)))
            if len(chosen) > MOST_KEYS:
                return None
        return tuple(chosen)

    def _filed(self, keys: Iterable[Hashable]) -> int:
        return sum(len(self._by_key.get(key, ())) for key in keys)

    def remove(self, group: Hashable) -> None:
        """See GroupIndex."""
        self._always.pop(group, None)
        for key in self._keys.pop(group, ()):
            filed = self._by_key[key]
            del filed[group]
            if not filed:
                del self._by_key[key]

    def concerned(self, old: Any, new: Any) -> Collection[Hashable] | None:
        """See GroupIndex."""
        offered = self._offers(old, new)
        if offered is None:
            return None
        found = dict(self._always)
        for key in min(offered, key=self._filed):
            found.update(self._by_key.get(key, {}))
        return found

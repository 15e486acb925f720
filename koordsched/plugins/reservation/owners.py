"""Which pods may use a Reservation (reservation spec 2.1).

Users write the owners, and the API server checks little of them: one entry that cannot be read makes the whole
Reservation unusable, and harms nothing else.

Source: koordinator `pkg/util/reservation/reservation.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from koordsched.api.decoding import DecodeError, convert
from koordsched.api.meta import LabelSelector, OwnerReference, Wire
from koordsched.api.selectors import Selector, SelectorError, compile_unchecked
from koordsched.cluster.interning import LabelSet
from koordsched.cluster.kept import Kept
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.handle import Pending
from koordsched.plugins.reservation.malformed import MalformedReservation

_OF_PODS = ("", "v1")
"""API versions that select pods. Upstream takes only the empty one, which no pod in the API has."""


class _Object(Wire, frozen=True):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    api_version: str = ""


class _Controller(Wire, frozen=True):
    uid: str = ""
    name: str = ""
    kind: str = ""
    api_version: str = ""
    controller: bool | None = None
    namespace: str = ""

    def matches(self, reference: OwnerReference) -> bool:
        """Whether what is given here is the same in an owner reference."""
        return (
            (self.controller is None or self.controller == reference.controller)
            and (not self.uid or self.uid == reference.uid)
            and (not self.name or self.name == reference.name)
            and (not self.kind or self.kind == reference.kind)
            and (not self.api_version or self.api_version == reference.api_version)
        )


class _Owner(Wire, frozen=True):
    object: _Object | None = None
    controller: _Controller | None = None
    label_selector: LabelSelector | None = None


_Key = tuple[str, ...]
"""A fact of pods that they are found by: its kind, and values."""
_ANY: _Key = ("any",)
_LABEL = "label"

_NON_OWNERS_BUDGET = 64 << 20
"""Bytes of the labels and shapes that are remembered because no Reservation is found by them."""


class _Entry:
    """One entry: everything that is given has to match."""

    __slots__ = ("_controller", "_object", "_selector")

    def __init__(self, owner: _Owner) -> None:
        """Raises SelectorError."""
        self._object = owner.object
        self._controller = owner.controller
        self._selector: Selector | None = None
        if owner.label_selector is not None:
            self._selector = compile_unchecked(owner.label_selector)

    def matches(self, pod: Pod) -> bool:
        """The verdict on a pod."""
        return (
            (self._object is None or _is_object(pod, self._object))
            and (self._controller is None or _is_controlled(pod, self._controller))
            and (self._selector is None or self._selector.matches(pod.labels.labels))
        )

    def selects_labels(self, labels: Mapping[str, str]) -> bool:
        """Whether it has a label selector that matches."""
        return self._selector is not None and self._selector.matches(labels)

    @property
    def named(self) -> _Object | None:
        """The pod that it names."""
        found = self._object
        return found if found is not None and (found.uid or found.name) else None

    @property
    def object_keys(self) -> Iterable[_Key]:
        """Those of `keys` that name the pod itself."""
        if self._object is not None:
            if self._object.uid:
                yield "object", self._object.uid
            if self._object.name:
                yield "object", self._object.namespace, self._object.name

    @property
    def keys(self) -> Iterable[_Key]:
        """Facts that every pod has which matches, the most selective kinds first."""
        yield from self.object_keys
        if self._controller is not None:
            if self._controller.uid:
                yield "controller", self._controller.uid
            if self._controller.name:
                yield "controller", self._controller.namespace, self._controller.name
        if self._selector is not None:
            for key, value in self._selector.equalities:
                yield _LABEL, key, value


def _is_object(pod: Pod, wanted: _Object) -> bool:
    return (
        (not wanted.uid or pod.uid == wanted.uid)
        and (not wanted.name or pod.name == wanted.name)
        and (not wanted.namespace or pod.namespace == wanted.namespace)
        and wanted.api_version in _OF_PODS
    )


def _is_controlled(pod: Pod, wanted: _Controller) -> bool:
    if wanted.namespace and pod.namespace != wanted.namespace:
        return False
    return any(wanted.matches(reference) for reference in pod.references)


class Owners:
    """The compiled `spec.owners` of a Reservation: entries of which one has to match."""

    __slots__ = ("_entries",)

    def __init__(self, raw: Any) -> None:
        """`raw`: the JSON value; None and an empty list match nothing. Raises MalformedReservation."""
        try:
            owners = convert([] if raw is None else raw, tuple[_Owner, ...])
        except DecodeError as error:
            raise MalformedReservation(f"spec.owners: {error}") from None
        entries = []
        for at, owner in enumerate(owners):
            try:
                entries.append(_Entry(owner))
            except SelectorError as error:
                raise MalformedReservation(f"spec.owners[{at}].labelSelector: {error}") from None
        self._entries = tuple(entries)

    def matches(self, pod: Pod) -> bool:
        """Whether the pod may use the Reservation, as far as its owners say."""
        return any(entry.matches(pod) for entry in self._entries)

    def selects_labels(self, labels: Mapping[str, str]) -> bool:
        """Whether the label selector of any entry matches; whatever else the entry asks for."""
        return any(entry.selects_labels(labels) for entry in self._entries)

    @property
    def objects(self) -> Iterable[tuple[str, str, str]]:
        """(uid, namespace, name) of pods that entries name, "" for what is not said."""
        for entry in self._entries:
            if (named := entry.named) is not None:
                yield named.uid, named.namespace, named.name

    @property
    def entries(self) -> tuple[_Entry, ...]:
        """The entries, for the index."""
        return self._entries


def named_pods(owners: Owners, pending: Pending) -> list[Pod]:
    """The pods that wait which entries name, if they match."""
    found: dict[str, Pod] = {}
    for uid, namespace, name in owners.objects:
        if not uid and not namespace:
            found.update((pod.uid, pod) for pod in pending.of_name(name))
            continue
        pod = pending.of_uid(uid) if uid else pending.named(namespace, name)
        if pod is not None:
            found[pod.uid] = pod
    return [pod for pod in found.values() if not pod.virtual and owners.matches(pod)]


class OwnerIndex:
    """Finds the Reservations that a pod may use, however many others there are, by what their owners ask for.

    Of each entry one fact is kept that every matching pod has: who it is, who controls it, a label. A look-up costs as
    much as the pod has labels and owners, and what it finds.

    `non_owners`: by labels, the shape of pods that no Reservation concerns unless by another fact than these, as
    `add_non_owner` said; all are forgotten as soon as a Reservation is found by a label that was not known before.
    """

    __slots__ = ("_added", "_by_key", "_by_label", "_keys", "_naming", "_objects", "_places", "non_owners", "others")

    def __init__(self) -> None:
        self.non_owners: Kept[LabelSet, PodShape] = Kept(_NON_OWNERS_BUDGET)
        self._by_key: dict[_Key, dict[str, None]] = {}
        self._by_label: dict[tuple[str, ...], dict[str, None]] = {}
        """The same of keys that are labels, by (name, value)."""
        self.others: set[_Key] = set()
        """The other keys, to be read only: most clusters know owners by labels alone."""
        self._keys: dict[str, tuple[_Key, ...]] = {}
        self._objects: dict[str, tuple[_Key, ...]] = {}
        self._naming: Counter[_Key] = Counter()
        """Object key -> how many times it is in `_objects`."""
        self._places: dict[str, int] = {}
        self._added = 0

    def add(self, uid: str, owners: Owners) -> None:
        """The Reservation has these owners; one that is there already keeps its place in the order."""
        self._forget(uid)
        keys = tuple(dict.fromkeys(map(self._rarest, owners.entries)))
        for key in keys:
            of_key = self._by_key.setdefault(key, {})
            of_key[uid] = None
            if key[0] == _LABEL:
                if key[1:] not in self._by_label:
                    self.non_owners.clear()
                self._by_label[key[1:]] = of_key
            else:
                self.others.add(key)
        self._keys[uid] = keys
        if objects := tuple(key for entry in owners.entries for key in entry.object_keys):
            self._objects[uid] = objects
            self._naming.update(objects)
        if uid not in self._places:
            self._places[uid] = self._added
            self._added += 1

    def remove(self, uid: str) -> None:
        """The Reservation is gone. One that is unknown is ignored."""
        self._forget(uid)
        self._places.pop(uid, None)

    def candidates(self, pod: Pod) -> Iterable[str]:
        """The uids of all Reservations whose owners match the pod, and of some others, as they were added."""
        by_label = self._by_label
        sets = [by_label[label] for label in pod.labels.labels.items() if label in by_label] if by_label else []
        if self.others:
            sets += [self._by_key[key] for key in _other_keys_of(pod) if key in self.others]
        if len(sets) == 1 and len(sets[0]) == 1:
            return tuple(sets[0])  # the usual case
        found: dict[str, None] = {}
        for uids in sets:
            found.update(uids)
        return sorted(found, key=self._places.__getitem__) if found else ()

    def concerns(self, pod: Pod) -> bool:
        """Whether there are any such."""
        by_label = self._by_label
        for label in pod.labels.labels.items() if by_label else ():
            if label in by_label:
                return True
        return bool(self.others) and self.concerns_otherwise(pod)

    def concerns_otherwise(self, pod: Pod) -> bool:
        """Whether there are any that are not found by a label."""
        return not self.others.isdisjoint(_other_keys_of(pod))

    def add_non_owner(self, pod: Pod) -> None:
        """Remembers a pod that no Reservation concerns, neither by its labels nor by what its shape says."""
        self.non_owners.put(pod.labels, pod.shape, pod.labels.nbytes + pod.shape.nbytes)

    def names(self, pod: Pod) -> bool:
        """Whether a Reservation names the pod itself as an owner."""
        return bool(self._naming) and any(key in self._naming for key in _object_keys_of(pod))

    def _rarest(self, entry: _Entry) -> _Key:
        """The fact that the fewest Reservations are found by: many may share a label, and differ in another."""
        return min(entry.keys, key=lambda key: len(self._by_key.get(key, ())), default=_ANY)

    def _forget(self, uid: str) -> None:
        for key in self._keys.pop(uid, ()):
            of_key = self._by_key[key]
            del of_key[uid]
            if not of_key:
                del self._by_key[key]
                self.others.discard(key)
                if key[0] == _LABEL:
                    del self._by_label[key[1:]]
        for key in self._objects.pop(uid, ()):
            self._naming[key] -= 1
            if not self._naming[key]:
                del self._naming[key]


def _object_keys_of(pod: Pod) -> tuple[_Key, ...]:
    return ("object", pod.uid), ("object", "", pod.name), ("object", pod.namespace, pod.name)


def _other_keys_of(pod: Pod) -> Iterable[_Key]:
    """All facts of a pod that it may be found by, but for its labels."""
    yield _ANY
    yield from _object_keys_of(pod)
    for reference in pod.references:
        yield "controller", reference.uid
        yield "controller", "", reference.name
        yield "controller", pod.namespace, reference.name

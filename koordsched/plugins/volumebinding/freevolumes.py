"""The free volumes of one storage class, and which of them a pod's claims would get on each group of nodes.

Source: component-helpers `storage/volume/pv_helpers.go` FindMatchingVolume, upstream `volumebinding/binder.go`
findMatchingVolumes: claims by increasing size, each takes the smallest volume that will do and is not taken yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from koordsched.api.storage import PersistentVolume
from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.matching.nodeselector import NodeTerms
from koordsched.plugins.matching.rows import Mask
from koordsched.plugins.volumebinding.claims import Demand
from koordsched.plugins.volumebinding.rowgroups import Ids, RowGroups

_NONE = -1
_ANYWHERE = -1
"""Selector number of a volume without node affinity."""

_encode = msgspec.json.Encoder().encode

Offer = tuple[str, str, frozenset[str]]
"""Volume mode, volume attributes class, access modes."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A volume and what of it the order and the pairs depend on."""

    volume: PersistentVolume
    size: int


def _offer_of(volume: PersistentVolume) -> Offer:
    spec = volume.spec
    return (
        spec.volume_mode or "Filesystem",
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes),
    )


def _accepts(demand: Demand, offer: Offer) -> bool:
    mode, attributes, access = offer
    spec = demand.claim.spec
    return (
        mode == (spec.volume_mode or "Filesystem")
        and attributes == (spec.volume_attributes_class_name or "")
        and access.issuperset(spec.access_modes)
    )


class Assignment:
    """The volume that one claim gets on each row."""

    __slots__ = ("_entries", "_slots")

    def __init__(self, slots: Ids, entries: list[_Slot]) -> None:
        self._slots = slots
        self._entries = entries

    @property
    def found(self) -> Mask:
        """bool[rows]: where there is one."""
        return np.asarray(self._slots != _NONE)

    def on(self, row: int) -> PersistentVolume | None:
        """The volume on a row."""
        slot = self._slots[row]
        return self._entries[slot].volume if slot != _NONE else None


class FreeVolumes:
    """Volumes in slots, ordered by (capacity, name).

    A volume that is taken leaves its slot marked, and finds it again when it comes back unchanged; slots are laid
    out anew when another volume comes.
    """

    def __init__(self, table: NodeTable, affinity: Callable[[PersistentVolume], NodeTerms | None]) -> None:
        self._table = table
        self._affinity = affinity
        self._groups = RowGroups(table)
        self._free: dict[str, _Slot] = {}
        self._slots: list[_Slot] = []
        self._slot_of: dict[str, int] = {}
        self._is_free: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._size: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._offers: list[Offer] = []
        self._offer: Ids = np.zeros(0, dtype=np.intp)
        self._selector: Ids = np.zeros(0, dtype=np.intp)
        self._stale = False
        self._paired_version = -1
        self._pair_group: Ids = np.zeros(0, dtype=np.intp)
        self._pair_slot: Ids = np.zeros(0, dtype=np.intp)

    def __len__(self) -> int:
        return len(self._free)

    def put(self, volume: PersistentVolume, size: int) -> None:
        """A volume of `size` bytes is free, or was and has changed."""
        name = volume.metadata.name
        entry = self._free[name] = _Slot(volume, size)
        slot = self._slot_of.get(name)
        if slot is not None and _interchangeable(self._slots[slot], entry):
            self._slots[slot] = entry
            self._is_free[slot] = True
        else:
            self._stale = True

    def drop(self, name: str) -> None:
        """The volume is not free any more."""
        if self._free.pop(name, None) is not None and (slot := self._slot_of.get(name)) is not None:
            self._is_free[slot] = False

    def assign(self, demands: Sequence[Demand]) -> list[Assignment]:
        """Per demand, which must come by increasing size, the volume that it gets on each row."""
        self._refresh()
        taken = np.zeros(len(self._pair_slot), dtype=np.bool_)
        found = []
        for demand in demands:
            fits = self._fits(demand)
            pairs = np.flatnonzero(fits[self._pair_slot] & ~taken)[::-1]
            first = np.full(self._groups.count, _NONE, dtype=np.intp)
            first[self._pair_group[pairs]] = pairs  # the last one written is the smallest volume
            chosen = first[first != _NONE]
            taken[chosen] = True
            slots = np.full(self._groups.count, _NONE, dtype=np.intp)
            slots[self._pair_group[chosen]] = self._pair_slot[chosen]
            found.append(Assignment(slots[self._groups.of_row], self._slots))
        return found

    def _fits(self, demand: Demand) -> npt.NDArray[np.bool_]:
        """Which slots hold a free volume that would do for the claim, wherever it is."""
        accepted = np.array([_accepts(demand, offer) for offer in self._offers], dtype=np.bool_)
        fits = self._is_free & (self._size >= demand.size) & accepted[self._offer]
        if demand.selector is not None:
            for slot in np.flatnonzero(fits).tolist():
                fits[slot] = demand.selector.matches(self._slots[slot].volume.metadata.labels)
        return fits

    def _refresh(self) -> None:
        if self._stale:
            self._lay_out()
        self._groups.refresh()
        if self._paired_version != self._groups.version:
            self._pair()
            self._paired_version = self._groups.version

    def _lay_out(self) -> None:
        """Gives every free volume a slot."""
        self._slots = sorted(self._free.values(), key=lambda slot: (slot.size, slot.volume.metadata.name))
        self._slot_of = {slot.volume.metadata.name: number for number, slot in enumerate(self._slots)}
        self._is_free = np.ones(len(self._slots), dtype=np.bool_)
        self._size = np.array([slot.size for slot in self._slots], dtype=np.int64)
        offers: dict[Offer, int] = {}
        numbers = [offers.setdefault(_offer_of(slot.volume), len(offers)) for slot in self._slots]
        self._offers = list(offers)
        self._offer = np.array(numbers, dtype=np.intp)
        if len(self._groups) > 2 * len(self._slots) + 64:
            self._groups = RowGroups(self._table)  # most of its selectors are those of volumes long gone
        self._selector = np.array([self._selector_of(slot.volume) for slot in self._slots], dtype=np.intp)
        self._paired_version = -1
        self._stale = False

    def _selector_of(self, volume: PersistentVolume) -> int:
        terms = self._affinity(volume)
        return _ANYWHERE if terms is None else self._groups.add(_encode(volume.spec.node_affinity), terms)

    def _pair(self) -> None:
        """All (group, slot) such that nodes of the group can use the volume, by slot."""
        groups, selectors = self._groups.matches
        by_selector = np.argsort(self._selector, kind="stable")
        ordered = self._selector[by_selector]
        starts = np.searchsorted(ordered, selectors, side="left")
        counts = np.searchsorted(ordered, selectors, side="right") - starts
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = by_selector[np.repeat(starts, counts) + offsets]
        everywhere = np.flatnonzero(self._selector == _ANYWHERE)
        pair_group = np.concatenate(
            (np.repeat(groups, counts), np.repeat(np.arange(self._groups.count), len(everywhere)))
        )
        pair_slot = np.concatenate((slots, np.tile(everywhere, self._groups.count)))
        order = np.argsort(pair_slot, kind="stable")
        self._pair_group, self._pair_slot = pair_group[order], pair_slot[order]


def _interchangeable(a: _Slot, b: _Slot) -> bool:
    """Whether one may take the other's slot: all that was laid out is the same."""
    return (
        a.size == b.size
        and _offer_of(a.volume) == _offer_of(b.volume)
        and a.volume.spec.node_affinity == b.volume.spec.node_affinity
    )

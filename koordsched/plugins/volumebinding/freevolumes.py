"""The free volumes of one storage class, and which of them a pod's claims would get on each group of nodes.

Source: component-helpers `storage/volume/pv_helpers.go` FindMatchingVolume, upstream `volumebinding/binder.go`
findMatchingVolumes: claims by increasing size, each takes the smallest volume that will do and is not taken yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from koordsched.api.storage import PersistentVolume
from koordsched.cluster.columns import Column
from koordsched.cluster.nodetable import NodeTable
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors
from koordsched.plugins.shared.matching.rows import Mask
from koordsched.plugins.volumebinding.claims import Demand
from koordsched.plugins.volumebinding.offer import Offer, offer_of
from koordsched.plugins.volumebinding.rowgroups import Ids, RowGroups
from koordsched.plugins.volumebinding.volumelabels import VolumeLabels

_NONE = -1
_ANYWHERE = -1
"""Selector number of a volume without node affinity."""

_FIRST_CAPACITY = 16
_SPARE = 64
"""There may be as many slots of volumes that are not free any more as there are free volumes, and this many more."""


class Assignment:
    """The volume that one claim gets on each row."""

    __slots__ = ("_slots", "_volumes")

    def __init__(self, slots: Ids, volumes: list[PersistentVolume]) -> None:
        self._slots = slots
        self._volumes = volumes

    @property
    def found(self) -> Mask:
        """bool[rows]: where there is one."""
        return np.asarray(self._slots != _NONE)

    def on(self, row: int) -> PersistentVolume | None:
        """The volume on a row."""
        slot = self._slots[row]
        return self._volumes[slot] if slot != _NONE else None


class FreeVolumes:
    """Volumes in slots. One that is taken leaves its slot marked, and finds it again when it comes back."""

    def __init__(self, table: NodeTable, selectors: NodeSelectors) -> None:
        self._table = table
        self._selectors = selectors
        self._free: dict[str, PersistentVolume] = {}
        self._sizes: dict[str, int] = {}
        self._start_over()

    def _start_over(self) -> None:
        self._groups = RowGroups(self._table, self._selectors)
        self._volumes: list[PersistentVolume] = []
        self._slot_of: dict[str, int] = {}
        self._labels = VolumeLabels()
        self._capacity = _FIRST_CAPACITY
        self._is_free = Column(self._capacity, np.bool_, fill=False)
        self._size = Column(self._capacity, np.int64)
        self._offer = Column(self._capacity, np.intp)
        self._selector = Column(self._capacity, np.intp)
        self._offers: dict[Offer, int] = {}
        self._paired = (-1, -1)
        self._pair_group: Ids = np.zeros(0, dtype=np.intp)
        self._pair_slot: Ids = np.zeros(0, dtype=np.intp)

    def __len__(self) -> int:
        return len(self._free)

    def put(self, volume: PersistentVolume, size: int) -> None:
        """A volume of `size` bytes is free, or was and has changed."""
        name = volume.metadata.name
        self._free[name] = volume
        self._sizes[name] = size
        affinity = volume.spec.node_affinity
        required = affinity.required if affinity is not None else None
        selector = _ANYWHERE if required is None else self._groups.add(required)
        offer = self._offers.setdefault(offer_of(volume), len(self._offers))
        slot = self._slot_of.get(name)
        labels = volume.metadata.labels
        if slot is not None and (size, offer, selector, labels) != self._laid_out(slot):
            self._is_free.data[slot] = False
            slot = None
        if slot is None:
            slot = self._new_slot(volume)
            self._size.data[slot], self._offer.data[slot], self._selector.data[slot] = size, offer, selector
        self._volumes[slot] = volume
        self._is_free.data[slot] = True

    def drop(self, name: str) -> None:
        """The volume is not free any more."""
        if self._free.pop(name, None) is None:
            return
        del self._sizes[name]
        self._is_free.data[self._slot_of[name]] = False
        if len(self._volumes) > 2 * len(self._free) + _SPARE or len(self._groups) > 2 * len(self._free) + _SPARE:
            kept = [(volume, self._sizes[name]) for name, volume in self._free.items()]
            self._start_over()
            for volume, size in kept:
                self.put(volume, size)

    def _laid_out(self, slot: int) -> tuple[Any, Any, Any, dict[str, str]]:
        labels = self._volumes[slot].metadata.labels
        return self._size.data[slot], self._offer.data[slot], self._selector.data[slot], labels

    def _new_slot(self, volume: PersistentVolume) -> int:
        slot = self._slot_of[volume.metadata.name] = len(self._volumes)
        self._volumes.append(volume)
        self._labels.append(volume.metadata.labels)
        if slot == self._capacity:
            self._capacity *= 2
            for column in (self._is_free, self._size, self._offer, self._selector):
                column.grow(self._capacity)
        return slot

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
            found.append(Assignment(slots[self._groups.of_row], self._volumes))
        return found

    def _fits(self, demand: Demand) -> Mask:
        """Which slots hold a free volume that would do for the claim, wherever it is."""
        count = len(self._volumes)
        accepted = np.array([offer.suits(demand.claim) for offer in self._offers], dtype=np.bool_)
        fits = self._is_free.data[:count] & (self._size.data[:count] >= demand.size)
        fits &= accepted[self._offer.data[:count]]
        if demand.selector is not None:
            fits &= self._labels.matching(demand.selector)
        return fits

    def _refresh(self) -> None:
        self._groups.refresh()
        current = (self._groups.version, len(self._volumes))
        if self._paired != current:
            self._pair()
            self._paired = current

    def _pair(self) -> None:
        """All (group, slot) such that nodes of the group can use the volume, ordered by size and name of the volume."""
        count = len(self._volumes)
        names = [volume.metadata.name for volume in self._volumes]
        rank = np.zeros(count, dtype=np.intp)
        rank[sorted(range(count), key=names.__getitem__)] = np.arange(count)
        selector_of, groups, selectors = self._selector.data[:count], *self._groups.matches
        by_selector = np.argsort(selector_of, kind="stable")
        ordered = selector_of[by_selector]
        starts = np.searchsorted(ordered, selectors, side="left")
        counts = np.searchsorted(ordered, selectors, side="right") - starts
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = by_selector[np.repeat(starts, counts) + offsets]
        everywhere = np.flatnonzero(selector_of == _ANYWHERE)
        all_groups = np.arange(self._groups.count)
        pair_group = np.concatenate((np.repeat(groups, counts), np.repeat(all_groups, len(everywhere))))
        pair_slot = np.concatenate((slots, np.tile(everywhere, len(all_groups))))
        order = np.lexsort((rank[pair_slot], self._size.data[pair_slot]))
        self._pair_group, self._pair_slot = pair_group[order], pair_slot[order]

"""All volumes: where they can be used, which are free, and which are meant for a claim already."""

from __future__ import annotations

import numpy as np

from koordsched.api.core import NodeSelector
from koordsched.api.storage import PersistentVolume
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors, NodeTerms
from koordsched.plugins.shared.matching.rows import Mask, count_of
from koordsched.plugins.shared.volumes.claims import ClaimKey, class_of_volume
from koordsched.plugins.volumebinding.assumed import Assumed
from koordsched.plugins.volumebinding.claims import Demand
from koordsched.plugins.volumebinding.freevolumes import FreeVolumes
from koordsched.plugins.volumebinding.migration import MigratedPlugins, plugin_of, translated
from koordsched.plugins.volumebinding.offer import capacity_of, is_free, offer_of, refers_to


def required_affinity(volume: PersistentVolume) -> NodeSelector | None:
    """The nodes from which the volume can be used; None for all."""
    affinity = volume.spec.node_affinity
    return affinity.required if affinity is not None else None


class Volumes:
    """All persistent volumes as assumed, by class and by claim."""

    def __init__(self, table: NodeTable, volumes: Assumed[PersistentVolume], migrated: MigratedPlugins) -> None:
        self._table = table
        self._migrated = migrated
        self._volumes = volumes
        self._selectors = NodeSelectors()
        self._terms: dict[str, tuple[NodeSelector, NodeTerms]] = {}
        self._free: dict[str, FreeVolumes] = {}
        self._prebound: dict[ClaimKey, dict[str, None]] = {}
        volumes.subscribe(self._changed)

    def get(self, name: str) -> PersistentVolume | None:
        """The volume of that name."""
        return self._volumes.get("", name)

    def within_affinity(self, volume: PersistentVolume, rows: Rows) -> Mask:
        """The rows that the volume's node affinity selects, as it is written."""
        return self._selects(volume.metadata.name, required_affinity(volume), rows)

    def usable(self, volume: PersistentVolume, rows: Rows) -> Mask:
        """The rows whose nodes can use the volume: its affinity as the node's drivers understand it."""
        mask = self.within_affinity(volume, rows)
        plugin = plugin_of(volume)
        if plugin is not None:
            migrated = self._migrated.on(plugin).data[rows]
            if migrated.any():
                moved = self._selects(f"{volume.metadata.name} {plugin}", translated(volume, plugin), rows)
                mask = np.where(migrated, moved, mask)
        return mask

    def _selects(self, key: str, selector: NodeSelector | None, rows: Rows) -> Mask:
        """The rows that a node selector selects, all if it is None; what it compiles to is kept under the key."""
        if selector is None:
            return np.ones(count_of(rows), dtype=np.bool_)
        known = self._terms.get(key)
        if known is None or known[0] != selector:
            known = self._terms[key] = (selector, self._selectors.terms(selector))
        return known[1].mask(self._table, rows)

    def free(self, class_name: str) -> FreeVolumes | None:
        """The free volumes of a class; None if there are none."""
        return self._free.get(class_name)

    def prebound_to(self, demand: Demand) -> PersistentVolume | None:
        """A volume that is pre-bound to the claim (claimRef) and would do."""
        meta = demand.claim.metadata
        for name in sorted(self._prebound.get((meta.namespace, meta.name), ())):
            volume = self.get(name)
            if (
                volume is not None
                and refers_to(volume, demand.claim)
                and class_of_volume(volume) == demand.class_name
                and (capacity_of(volume) or 0) >= demand.size
                and offer_of(volume).is_of_kind(demand.claim)
                and volume.metadata.deletion_timestamp is None
            ):
                return volume
        return None

    def _changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if old is not None:
            self._index_claim(old, present=False)
            if is_free(old) and (new is None or not is_free(new) or class_of_volume(new) != class_of_volume(old)):
                self._remove_free(old)
        if new is not None:
            self._index_claim(new, present=True)
            if is_free(new):
                self._add_free(new)
        elif old is not None:
            self._terms.pop(old.metadata.name, None)
            self._terms.pop(f"{old.metadata.name} {plugin_of(old)}", None)

    def _index_claim(self, volume: PersistentVolume, *, present: bool) -> None:
        reference = volume.spec.claim_ref
        if reference is None:
            return
        key = (reference.namespace, reference.name)
        names = self._prebound.setdefault(key, {})
        if present:
            names[volume.metadata.name] = None
            return
        names.pop(volume.metadata.name, None)
        if not names:
            del self._prebound[key]

    def _add_free(self, volume: PersistentVolume) -> None:
        size = capacity_of(volume)
        if size is None:
            return  # its capacity is unknown: it is never chosen
        name = class_of_volume(volume)
        free = self._free.get(name)
        if free is None:
            free = self._free[name] = FreeVolumes(self._table, self._selectors)
        free.put(volume, size)

    def _remove_free(self, volume: PersistentVolume) -> None:
        free = self._free.get(class_of_volume(volume))
        if free is not None:
            free.drop(volume.metadata.name)
            if not len(free):
                del self._free[class_of_volume(volume)]

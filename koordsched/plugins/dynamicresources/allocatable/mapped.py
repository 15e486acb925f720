"""Which devices take something of their node's allocatable resources, by identity; kept up to date slice by slice."""

from __future__ import annotations

from koordsched.api.resource import ResourceSlice
from koordsched.plugins.dynamicresources.structured.footprint import Mappings

_NONE: Mappings = {}


class MappedDevices:
    """The devices of all slices; of a pool those of the newest generation count."""

    __slots__ = ("_pools",)

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], dict[str, tuple[int, dict[str, Mappings]]]] = {}

    def slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A slice was added, changed or deleted (`new` is None)."""
        if old is not None:
            key = (old.spec.driver, old.spec.pool.name)
            slices = self._pools.get(key, {})
            slices.pop(old.metadata.name, None)
            if not slices:
                self._pools.pop(key, None)
        if new is not None:
            mapped: dict[str, Mappings] = {
                device.name: device.node_allocatable_resource_mappings
                for device in new.spec.devices
                if device.node_allocatable_resource_mappings
            }
            slices = self._pools.setdefault((new.spec.driver, new.spec.pool.name), {})
            slices[new.metadata.name] = (new.spec.pool.generation, mapped)

    def of(self, driver: str, pool: str, device: str) -> Mappings:
        """What a device takes; empty if it takes nothing, or is unknown."""
        slices = self._pools.get((driver, pool))
        if slices is None:
            return _NONE
        newest = max(generation for generation, _ in slices.values())
        for generation, mapped in slices.values():
            if generation == newest and device in mapped:
                return mapped[device]
        return _NONE

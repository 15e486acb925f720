"""Metrics of the devices that drivers publish."""

from __future__ import annotations

from collections import Counter

from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins.dynamicresources.plugin import DynamicResources
from koordsched.plugins.dynamicresources.structured import SliceIndex
from koordsched.plugins.dynamicresources.structured.inspection import CONDITIONS, PoolState, Use
from koordsched.plugins.dynamicresources.structured.slices import PoolKey


class PoolTally:
    """Counts pools and devices; asked again, it looks at the pools that changed."""

    def __init__(self, index: SliceIndex) -> None:
        self._index = index
        self._of_pool: dict[PoolKey, PoolState] = {}
        self._pools: Counter[tuple[str, str]] = Counter()
        self._devices: Counter[tuple[str, str]] = Counter()

    def pools(self) -> dict[tuple[str, str], int]:
        """How many pools there are, by driver and condition."""
        self._refresh()
        return dict(self._pools)

    def devices(self) -> dict[tuple[str, str], int]:
        """How many devices there are, by driver and what is in use of them."""
        self._refresh()
        return dict(self._devices)

    def _refresh(self) -> None:
        for key in self._index.touched():
            before, after = self._of_pool.pop(key, None), self._index.pool_state(key)
            if before is not None:
                self._count(before, -1)
            if after is not None:
                # The devices themselves are not needed any more.
                self._of_pool[key] = after._replace(devices=[each._replace(found=None) for each in after.devices])
                self._count(after, 1)

    def _count(self, state: PoolState, number: int) -> None:
        driver = state.key[0]
        # All states of a driver are shown, also those that none of its pools or devices is in.
        self._pools.update({(driver, condition): 0 for condition in CONDITIONS.values()})
        self._devices.update({(driver, str(use)): 0 for use in Use})
        self._pools[driver, state.condition] += number
        for use, count in Counter(device.use for device in state.devices).items():
            self._devices[driver, str(use)] += number * count


def observe_pools(plugin: DynamicResources, metrics: MetricRegistry) -> None:
    """Shows pools by condition, devices by what is in use of them, and allocations in flight."""
    tally = PoolTally(plugin.books.index)
    metrics.read(
        "koordsched_resource_pools",
        "Pools of ResourceSlices, by driver: usable, incomplete, or invalid.",
        tally.pools,
        ("driver", "state"),
        of_leader=True,
    )
    metrics.read(
        "koordsched_resource_pool_devices",
        "Devices of ResourceSlices, by driver: free, allocated, shared, blocked by others that use the same counters, "
        "or gone: in use, and not published any more.",
        tally.devices,
        ("driver", "state"),
        of_leader=True,
    )
    metrics.read(
        "koordsched_claims_in_flight",
        "ResourceClaims whose allocation the API server does not have yet.",
        lambda: len(plugin.books.in_flight),
        of_leader=True,
    )

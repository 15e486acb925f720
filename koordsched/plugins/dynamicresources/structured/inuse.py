"""The devices in use: those of allocated claims and of allocations in flight (dra spec 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from koordsched.api.quantity import nano_value
from koordsched.api.resource import AllocationResult, DeviceRequestAllocationResult
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.slices import PoolKey

Changed = Callable[[PoolKey, str], None]
"""Called with the pool and the name of a device whose use changed."""


class _Share:
    """A share of a device: how many hold it (a claim may be held twice), and what it consumes in billionths."""

    __slots__ = ("consumed", "holders")

    def __init__(self, consumed: dict[str, int]) -> None:
        self.holders = 0
        self.consumed = consumed


class PoolInUse:
    """What is in use of a pool. `exclusive`: the number of holders by device name."""

    __slots__ = ("exclusive", "shares")

    def __init__(self) -> None:
        self.exclusive: dict[str, int] = {}
        self.shares: dict[str, dict[str, _Share]] = {}

    @property
    def devices(self) -> Iterable[str]:
        """The names of devices in use, as a whole or in part."""
        return self.exclusive.keys() | self.shares.keys()

    def share_ids(self, device: str) -> frozenset[str]:
        """The shares of a device."""
        return frozenset(self.shares.get(device, ()))

    def consumed(self, device: str) -> dict[str, int]:
        """What all shares of a device consume, in billionths by capacity."""
        total: dict[str, int] = {}
        for share in self.shares.get(device, {}).values():
            for name, amount in share.consumed.items():
                total[name] = total.get(name, 0) + amount
        return total


class DevicesInUse:
    """Devices by pool, updated holder by holder."""

    def __init__(self, features: Features) -> None:
        self._shares = features.consumable_capacity
        self._held: dict[Hashable, AllocationResult] = {}
        self._listeners: list[Changed] = []
        self.pools: dict[PoolKey, PoolInUse] = {}

    def on_change(self, listener: Changed) -> None:
        """Calls the listener for every device whose use changes from now on."""
        self._listeners.append(listener)

    def put(self, holder: Hashable, allocation: AllocationResult) -> None:
        """The holder has these devices, instead of those that it had."""
        if self._held.get(holder) == allocation:
            return
        self.drop(holder)
        self._held[holder] = allocation
        for result in allocation.devices.results:
            if not result.admin_access:
                self._take(result)

    def drop(self, holder: Hashable) -> None:
        """The holder has no devices any more."""
        allocation = self._held.pop(holder, None)
        if allocation is None:
            return
        for result in allocation.devices.results:
            if not result.admin_access:
                self._give_back(result)

    def _take(self, result: DeviceRequestAllocationResult) -> None:
        key = (result.driver, result.pool)
        pool = self.pools.get(key)
        if pool is None:
            pool = self.pools[key] = PoolInUse()
        if self._shares and result.share_id:
            shares = pool.shares.setdefault(result.device, {})
            share = shares.get(result.share_id)
            if share is None:
                consumed = {name: nano_value(value) for name, value in result.consumed_capacity.items()}
                share = shares[result.share_id] = _Share(consumed)
            share.holders += 1
        else:
            pool.exclusive[result.device] = pool.exclusive.get(result.device, 0) + 1
        self._tell(key, result.device)

    def _give_back(self, result: DeviceRequestAllocationResult) -> None:
        key = (result.driver, result.pool)
        pool = self.pools[key]
        if self._shares and result.share_id:
            shares = pool.shares[result.device]
            share = shares[result.share_id]
            share.holders -= 1
            if not share.holders:
                del shares[result.share_id]
                if not shares:
                    del pool.shares[result.device]
        else:
            pool.exclusive[result.device] -= 1
            if not pool.exclusive[result.device]:
                del pool.exclusive[result.device]
        if not pool.exclusive and not pool.shares:
            del self.pools[key]
        self._tell(key, result.device)

    def _tell(self, key: PoolKey, device: str) -> None:
        for listener in self._listeners:
            listener(key, device)

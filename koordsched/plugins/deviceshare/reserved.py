"""What reservations hold of devices, and what a pod that uses one may have of them (deviceshare spec 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from koordsched.framework.reservations import Reserved
from koordsched.plugins.deviceshare.supply import Required
from koordsched.plugins.shared.devices.allocation import Allocation
from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.resources import MOST_OF_A_POD, NAMES, TYPES

_Limits = Mapping[str, Mapping[int, Mapping[str, int]]]
"""By type and minor, of the resources that are reserved, what is left."""


class Share(NamedTuple):
    """The devices of a reservation, for a pod that uses it.

    `preferred`: by type, the minors, which come first. `required`: no other devices of these types may be given, and no
    more of them; None if they may. `entire`: by type, minors that must be given, all of them.
    """

    preferred: Mapping[str, frozenset[int]] = {}
    required: Required | None = None
    entire: Mapping[str, frozenset[int]] = {}


NO_SHARE = Share()


class ReservedDevices:
    """Reads reservations."""

    def __init__(self, columns: DeviceColumns) -> None:
        self._columns = columns

    def whole(self, reserved: Reserved) -> Allocation:
        """All devices of a reservation, in use or not."""
        return self._columns.allocation.among(reserved.facts) or ()

    def share(self, reserved: Reserved | None) -> Share:
        """What a pod that uses the reservation may have; None: it uses none."""
        if reserved is None:
            return NO_SHARE
        minors: dict[str, set[int]] = {}
        for each in self.whole(reserved):
            minors.setdefault(each.type, set()).add(each.minor)
        preferred = {kind: frozenset(of_type) for kind, of_type in minors.items()}
        required: Required | None = None
        if reserved.confines:
            required = {
                kind: {
                    minor: {name: limit.get(name, MOST_OF_A_POD) for name in NAMES[kind]}
                    for minor, limit in of_type.items()
                }
                for kind, of_type in self._limits(reserved).items()
            }
        return Share(preferred, required, preferred if reserved.entire else {})

    @contextmanager
    def confined(self, row: int, reserved: Reserved) -> Iterator[None]:
        """See ReservedAllocation."""
        with self._columns.limited(row, self._limits(reserved)):
            yield

    def _limits(self, reserved: Reserved) -> _Limits:
        found: dict[str, dict[int, dict[str, int]]] = {}
        for each in self.whole(reserved):
            if each.type in TYPES:
                limit = found.setdefault(each.type, {}).setdefault(each.minor, {})
                limit.update((name, 0) for name, _ in each.amounts)
        for each in self._columns.allocation.of(reserved.pod) or ():
            limit = found.get(each.type, {}).get(each.minor, {})
            for name, amount in each.amounts:
                limit[name] = limit.get(name, 0) + amount
        return found

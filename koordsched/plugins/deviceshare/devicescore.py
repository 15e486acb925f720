"""How good a device, or all devices of a node, are for a pod: by how much of them would be in use.

Source: koordinator `pkg/scheduler/plugins/deviceshare/scoring.go`; deviceshare spec 3.8.
"""

from __future__ import annotations

from koordsched.plugins.deviceshare.args import LEAST_ALLOCATED, ScoringStrategy
from koordsched.plugins.deviceshare.supply import Amounts
from koordsched.plugins.shared.allocation import least_allocated, most_allocated
from koordsched.plugins.shared.devices.resources import INDEX, NAMES, TYPES


class DeviceScore:
    """The configured strategy. `weights`: by type, (position among the type's resources, weight)."""

    def __init__(self, strategy: ScoringStrategy) -> None:
        self.least = strategy.type == LEAST_ALLOCATED
        configured = {resource.name: resource.weight for resource in strategy.resources}
        self.weights = {
            kind: tuple((INDEX[name], configured[name]) for name in NAMES[kind] if name in configured) for kind in TYPES
        }
        self._share = least_allocated if self.least else most_allocated

    def of(self, kind: str, request: Amounts, total: Amounts, free: Amounts) -> int:
        """0..100: the mean over the resources that there are, truncated. What is free counts at least 0."""
        score = weights = 0
        for at, weight in self.weights[kind]:
            there = total[at]
            if there <= 0:
                continue
            left = max(0, free[at])
            used = there - left + request[at] if there >= left else there
            score += self._share(used, there) * weight
            weights += weight
        return score // weights if weights else 0

"""What a pod adds to the measured usage of its node: its estimate, as far as the measurement cannot contain it.

Source: koordinator `plugins/loadaware/pod_assign_cache.go`; loadaware spec 3.1.
"""

from __future__ import annotations

from typing import NamedTuple

from koordsched.plugins.loadaware.estimation import Estimate, Vector
from koordsched.plugins.loadaware.measurements import Measurement

Times = tuple[int, int]
"""When a pod was placed and when it was initialized, in seconds since the epoch; 0 for a time that is not known."""


class Contribution(NamedTuple):
    """By resource; None where the pod adds nothing.

    `node_delta` comes on top of the usage of the node, `prod_delta` on top of `prod_usage`, the sum of what pods of
    production are measured to use. `estimated`: the estimate of a pod that counts.
    """

    node_delta: Vector | None = None
    prod_delta: Vector | None = None
    prod_usage: Vector | None = None
    estimated: Vector | None = None


NOTHING = Contribution()


def deadline(estimate: Estimate, placed: float, initialized: int) -> float:
    """Until when the estimate is in force whatever is measured; 0 for no such time."""
    if estimate.after_initialized > 0 and initialized:
        return initialized + estimate.after_initialized
    if estimate.after_scheduled > 0:
        return placed + estimate.after_scheduled
    return 0


def contribution(
    measurement: Measurement, key: str, estimate: Estimate, placed: float, initialized: int
) -> Contribution:
    """What the pod of this key (`namespace/name`), placed at this time, adds, given the newest report of its node."""
    reported = measurement.reports(key)
    prod_usage: Vector | None = None
    if estimate.prod and measurement.reports_as_prod(key):
        prod_usage = measurement.of_pod(key)
    amounts = estimate.amounts
    if amounts is None or not any(amounts):
        return Contribution(prod_usage=prod_usage) if prod_usage is not None else NOTHING
    fresh = not reported or measurement.since < placed or deadline(estimate, placed, initialized) > measurement.at
    node_delta = prod_delta = None
    if fresh:
        node_delta = _beyond(amounts, measurement.of_pod(key))
    if estimate.prod:
        if reported and prod_usage is None:
            prod_delta = amounts  # its usage is not that of production, whatever it is
        elif fresh:
            prod_delta = _beyond(amounts, prod_usage)
    return Contribution(node_delta, prod_delta, prod_usage, amounts)


def _beyond(amounts: Vector, used: Vector | None) -> Vector | None:
    if used is None:
        return amounts
    beyond = tuple(max(0, amount - part) for amount, part in zip(amounts, used, strict=True))
    return beyond if any(beyond) else None

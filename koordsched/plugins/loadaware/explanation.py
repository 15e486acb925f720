"""The numbers behind a verdict or a score: what is measured, what is expected of pods, what is allowed."""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor
from typing import NamedTuple

from koordsched.api.quantity import format_bytes
from koordsched.cluster.shape import PodShape
from koordsched.config.duration import Duration
from koordsched.plugins.loadaware import reportstates
from koordsched.plugins.loadaware.columns import CHECKED, EXPIRED, room_for
from koordsched.plugins.loadaware.estimation import Estimate, Vector
from koordsched.plugins.loadaware.loads import Loads
from koordsched.plugins.loadaware.measurements import Measurement, Statistic
from koordsched.plugins.loadaware.nodeload import NodeLoad
from koordsched.plugins.loadaware.reckoning import Sums


class _Basis(NamedTuple):
    """What is compared or scored, without the pod: `measured`, and `added` for other pods, by resource, with names."""

    measured: Vector | None
    measured_as: str
    added: Vector
    added_as: str


class Explainer:
    """Explains nodes for pods of one shape. `scores_prod`: pods of production are scored by what such use."""

    def __init__(self, loads: Loads, *, scores_prod: bool) -> None:
        self._loads = loads
        self._scores_prod = scores_prod

    def explain(self, shape: PodShape, node: str) -> list[str]:
        """The numbers that decide about a node: a line per resource that it has."""
        load, estimate = self._loads.of_node(node), self._loads.estimator.of(shape)
        if load is None or load.measurement is None:
            return ["there is no NodeMetric: the load of the node is unknown, and it scores 0"]
        texts = [f"its annotations: {load.problem}"] if load.problem else []
        measurement, gate = load.measurement, self._gate(load, estimate)
        expired = self._loads.states.of(node) == reportstates.EXPIRED
        if expired:
            texts.append(_expired(measurement) + ("" if gate == EXPIRED else ": the node scores 0"))
        if measurement.usage is None:
            texts.append("nothing is measured yet: the node scores 0")
        elif not expired or gate == CHECKED:
            sums = self._loads.counted(load)
            limits = self._limits(load, estimate) if gate == CHECKED and not estimate.exempt else ()
            compared = _basis(measurement, sums, estimate.prod and any(load.thresholds.prod), load.thresholds.statistic)
            scored = _basis(measurement, sums, estimate.prod and self._scores_prod, self._loads.scored)
            texts += self._numbers(load, estimate, compared, limits)
            if scored != compared and not expired:
                texts += [f"scored by {text}" for text in self._numbers(load, estimate, scored, ())]
        return texts

    def remedy(self, shape: PodShape, node: str) -> str:
        """What would have to change on a node that is refused."""
        load, estimate = self._loads.of_node(node), self._loads.estimator.of(shape)
        if load is None or self._gate(load, estimate) == EXPIRED:
            return "a new NodeMetric"
        if self.refuses_idle(shape, node):
            return "a node with less load, or a higher threshold"
        room = self._loads.columns.room(load.row, int(estimate.prod))
        numbers = zip(self._loads.resources, self._amounts(estimate), room, strict=True)
        missing = ((name, amount - free) for name, amount, free in numbers if amount > free)
        return " and ".join(f"{amount_text(name, amount)} {name} less in use" for name, amount in missing)

    def refuses_idle(self, shape: PodShape, node: str) -> bool:
        """Whether the pod alone is expected to use too much of the node."""
        load, estimate = self._loads.of_node(node), self._loads.estimator.of(shape)
        if load is None or estimate.exempt:
            return False
        room = room_for(self._limits(load, estimate), load.total)
        return any(amount > free for amount, free in zip(self._amounts(estimate), room, strict=True))

    def _gate(self, load: NodeLoad, estimate: Estimate) -> int:
        return int(self._loads.columns.gate.data.item(load.row, int(estimate.prod)))

    def _amounts(self, estimate: Estimate) -> Vector:
        return estimate.amounts or (0,) * len(self._loads.resources)

    @staticmethod
    def _limits(load: NodeLoad, estimate: Estimate) -> Vector:
        thresholds = load.thresholds
        return thresholds.prod if estimate.prod and any(thresholds.prod) else thresholds.plain

    def _numbers(self, load: NodeLoad, estimate: Estimate, basis: _Basis, limits: Vector) -> list[str]:
        """A line per resource that the node has. `limits`: in percent, none at all if nothing is limited."""
        texts = []
        for at, (name, total) in enumerate(zip(self._loads.resources, load.total, strict=True)):
            if total <= 0:
                continue
            own, added = self._amounts(estimate)[at], basis.added[at]
            measured = basis.measured[at] if basis.measured is not None else 0
            share = floor((measured + added + own) / total * 100 + 0.5)
            limit = f" (threshold {limits[at]}%)" if limits and limits[at] else ""
            parts = [f"{amount_text(name, measured)} {basis.measured_as}"] if basis.measured is not None else []
            parts += [f"{amount_text(name, added)} {basis.added_as}", f"{amount_text(name, own)} for this pod"]
            texts.append(f"{name} {share}% of {amount_text(name, total)}{limit}: {' + '.join(parts)}")
        return texts


def _basis(measurement: Measurement, sums: Sums, by_prod: bool, statistic: Statistic | None) -> _Basis:
    """As `Loads` works it out."""
    if by_prod:
        return _Basis(sums.prod_usage, "measured of production", sums.prod_delta, "for recent pods")
    if statistic is not None:
        kind = f"{statistic.kind} of {Duration(statistic.duration)}" if statistic.duration else statistic.kind
        measured = measurement.statistic(statistic)
        if measured is not None:
            return _Basis(measured, f"measured ({kind})", sums.node_delta, "for recent pods")
        if statistic.duration:
            return _Basis(None, "", sums.estimated, f"estimated for all pods ({kind} is not reported)")
    return _Basis(measurement.usage, "measured", sums.node_delta, "for recent pods")


def _expired(measurement: Measurement) -> str:
    if measurement.updated is None:
        return "the NodeMetric has no update time"
    return f"the NodeMetric of {datetime.fromtimestamp(measurement.updated, UTC):%Y-%m-%dT%H:%M:%SZ} has expired"


def amount_text(resource: str, amount: int) -> str:
    """CPUs, GiB of memory, or how many of something else."""
    if resource == "cpu":
        return f"{round(amount / 1000, 3):.12g}"
    if resource == "memory":
        return f"{round(amount / (1 << 30), 2):.12g}Gi"
    return format_bytes(amount)

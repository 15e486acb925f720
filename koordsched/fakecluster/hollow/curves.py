"""Resource usage as a function of time. CPU is in milli-cores, memory in bytes, times in seconds since the epoch."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Curve(Protocol):
    """The usage of one resource."""

    def at(self, times: Floats, start: float) -> Floats | float:
        """The amounts at these times of what started at `start`, before all of them; one number if they are equal."""
        ...


class Constant(NamedTuple):
    """Always the same."""

    amount: float

    def at(self, times: Floats, start: float) -> float:
        return self.amount


class Sine(NamedTuple):
    """Up and down with the wall clock: mean + amplitude * sin(2 pi (t + phase) / period), not below 0."""

    mean: float
    amplitude: float
    period: float
    phase: float

    def at(self, times: Floats, start: float) -> Floats:
        turns = (times + self.phase) % self.period / self.period
        return np.maximum(0.0, self.mean + self.amplitude * np.sin(2 * math.pi * turns))


class Step(NamedTuple):
    """One amount at first, another one from `after` seconds after the start."""

    first: float
    then: float
    after: float

    def at(self, times: Floats, start: float) -> Floats:
        return np.where(times - start < self.after, self.first, self.then)


class Steps(NamedTuple):
    """Amounts that each hold from their age (seconds since the start, ascending) to the next, the last one for ever.
    With `repeat` they start over after that many seconds.
    """

    ages: Floats
    amounts: Floats
    repeat: float

    def at(self, times: Floats, start: float) -> Floats:
        ages = times - start
        if self.repeat:
            ages = ages % self.repeat
        return self.amounts[np.maximum(0, np.searchsorted(self.ages, ages, side="right") - 1)]


class Capped(NamedTuple):
    """A curve that is cut off, as a limit does."""

    curve: Curve
    most: float

    def at(self, times: Floats, start: float) -> Floats | float:
        return np.minimum(self.curve.at(times, start), self.most)


class Usage(NamedTuple):
    """What a pod, or a node without its pods, uses."""

    cpu: Curve
    memory: Curve

    def capped(self, cpu: float, memory: float) -> Usage:
        """The same, but never more than these amounts."""
        return Usage(_capped(self.cpu, cpu), _capped(self.memory, memory))


NO_USAGE = Usage(Constant(0.0), Constant(0.0))


def _capped(curve: Curve, most: float) -> Curve:
    if most == math.inf:
        return curve
    return Constant(min(curve.amount, most)) if isinstance(curve, Constant) else Capped(curve, most)

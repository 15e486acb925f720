"""The policies that the traces' authors compare with, on arrays: best fit, and their own (FGD).

They serve where nothing is published: with departures. Without, FGD reaches what is published to some tenths of a per
cent.

Source: Q. Weng et al., Beware of Fragmentation, USENIX ATC 2023; the rounding of scores is that of their simulator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.openb.traces import GPU, Machine, TraceTask
from koordsched.plugins.gpufragmentation.fleet import Demand, Fleet, Task
from koordsched.plugins.gpufragmentation.fragmentation import fragmentation
from koordsched.plugins.gpufragmentation.policy import gains, order
from koordsched.plugins.gpufragmentation.values import Values
from koordsched.plugins.gpufragmentation.worth import WHOLE, Float, Int

_TYPICAL = 0.95
"""FGD goes by the most popular classes, up to this share of tasks."""


class Place(NamedTuple):
    """Where a task is: row and minors."""

    row: int
    minors: Int


class Rival(ABC):
    """Machines and the policy that fills them. Ties go to the first machine."""

    def __init__(self, every: Sequence[Machine]) -> None:
        self.models = sorted({machine.model for machine in every})
        minors = max(machine.gpus for machine in every)
        gpus = np.array([machine.gpus for machine in every])
        self.fleet = Fleet(
            np.array([machine.cpu for machine in every]),
            np.where(np.arange(minors) < gpus[:, None], WHOLE, 0),
            np.array([self.models.index(machine.model) for machine in every]),
        )
        self._memory = np.array([machine.memory for machine in every])

    def place(self, task: TraceTask) -> Place | None:
        """Where it went, None if it fits nowhere."""
        fleet, wanted = self.fleet, task_of(task)
        fits = (fleet.cpu >= task.cpu) & (self._memory >= task.memory) & self.allowed(task)[fleet.kind]
        if wanted.number:
            fits &= np.count_nonzero(fleet.gpus >= wanted.share, axis=1) >= wanted.number
        rows = np.flatnonzero(fits)
        if not len(rows):
            return None
        row = int(rows[self.scores(Fleet(*(column[rows] for column in fleet)), wanted).argmax()])
        minors = self.minors(Fleet(*(column[row : row + 1] for column in fleet)), wanted)[: wanted.number]
        place = Place(row, minors)
        self._take(task, place, 1)
        return place

    def remove(self, task: TraceTask, place: Place) -> None:
        """A task has ended."""
        self._take(task, place, -1)

    def allowed(self, task: TraceTask) -> npt.NDArray[np.bool_]:
        """bool[models]."""
        return np.array([not task.models or model in task.models for model in self.models])

    def _take(self, task: TraceTask, place: Place, sign: int) -> None:
        self.fleet.cpu[place.row] -= sign * task.cpu
        self._memory[place.row] -= sign * task.memory
        self.fleet.gpus[place.row, place.minors] -= sign * task_of(task).share

    @abstractmethod
    def scores(self, fleet: Fleet, task: Task) -> Float:
        """float64[rows] of machines on which the task fits."""

    @abstractmethod
    def minors(self, fleet: Fleet, task: Task) -> Int:
        """The GPUs of the only row in the order in which the task takes them."""


class BestFit(Rival):
    """Least is left of CPU and GPUs, each as a part of the most that any machine has."""

    def __init__(self, every: Sequence[Machine]) -> None:
        super().__init__(every)
        self._most_cpu, self._most_gpu = self.fleet.cpu.max(), self.fleet.gpus.sum(axis=1).max()

    def scores(self, fleet: Fleet, task: Task) -> Float:
        """See Rival."""
        left: Float = fleet.cpu / self._most_cpu + fleet.gpus.sum(axis=1) / self._most_gpu
        return -left

    def minors(self, fleet: Fleet, task: Task) -> Int:
        """The fullest one that fits."""
        return np.argsort(np.where(fleet.gpus[0] >= task.share, fleet.gpus[0], WHOLE + 1), kind="stable")


class _OfFragmentation(Values):
    """CPU counts for nothing by itself."""

    __slots__ = ()

    def balanced(self, cpu: Int, gpu: Int) -> Float:
        """See Values."""
        return np.zeros(len(cpu))


class FGD(Rival):
    """Fragmentation grows least, for tasks such as the whole trace has."""

    def __init__(self, every: Sequence[Machine], trace: Sequence[TraceTask]) -> None:
        super().__init__(every)
        counts = Counter((task_of(task), tuple(self.allowed(task).tolist())) for task in trace)
        popular, total = counts.most_common(), 0
        for last, (_, tasks) in enumerate(popular):
            total += tasks
            if total >= _TYPICAL * len(trace):
                popular = popular[: last + 1]
                break
        classes = [(*each, tasks) for each, tasks in popular if each[0].number]
        asked = np.array([task for task, _, _ in classes]).reshape(-1, 3)
        masks = np.array([allowed for _, allowed, _ in classes]).reshape(-1, len(self.models))
        seen = np.array([number for _, _, number in classes])
        demand = Demand(asked[:, 0], asked[:, 1], asked[:, 2], masks, seen)
        gpu, whole = fragmentation(demand, seen / total, self.fleet.gpus.shape[1])
        # Tasks without GPUs use none: all that is free counts.
        gpu += (1 - seen.sum() / total) * np.arange(WHOLE + 1) / WHOLE
        self._values = _OfFragmentation(np.unique(demand.cpu), -gpu, -whole, 0.0)

    def scores(self, fleet: Fleet, task: Task) -> Float:
        """See Rival."""
        return np.floor(100 / (1 + np.exp(-gains(self._values, fleet, task))))

    def minors(self, fleet: Fleet, task: Task) -> Int:
        """See Rival."""
        return order(self._values, fleet._replace(cpu=fleet.cpu - task.cpu), task._replace(cpu=0))


def task_of(task: TraceTask) -> Task:
    """As the policy sees it."""
    return Task(task.cpu, task.number, -(-task.share * WHOLE // GPU))

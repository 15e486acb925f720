"""What nodes have left, and what tasks ask for, as arrays: all that the policy reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from koordsched.plugins.gpufragmentation.worth import WHOLE, Float, Int


class Fleet(NamedTuple):
    """What nodes have left. `cpu`: int64[rows], thousandths of a core; `gpus`: int64[rows, minors], per cent of each
    GPU, 0 where there is none; `kind`: int64[rows], a number for the model of the node's GPUs."""

    cpu: Int
    gpus: Int
    kind: Int

    def whole(self) -> Int:
        """int64[rows]: GPUs that are free as a whole."""
        whole: Int = np.count_nonzero(self.gpus == WHOLE, axis=1)
        return whole


class Task(NamedTuple):
    """What a pod asks for: thousandths of a core, a number of GPUs, per cent of each."""

    cpu: int
    number: int
    share: int


class Demand(NamedTuple):
    """Tasks with GPUs that have been seen, by class. `cpu`, `number`, `share`: int64[classes], see Task; `allowed`:
    bool[classes, kinds], on which kinds of nodes they may run; `tasks`: int64[classes], how many."""

    cpu: Int
    number: Int
    share: Int
    allowed: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    tasks: Int

    @property
    def gpus(self) -> Float:
        """float64[classes]: GPUs that a task asks for."""
        gpus: Float = self.number * self.share / WHOLE
        return gpus


def slots(fleet: Fleet, demand: Demand) -> Int:
    """int64[classes]: how many tasks of a class alone still fit into the fleet."""
    whole = fleet.whole()
    found = np.zeros(len(demand.cpu), dtype=np.int64)
    by_size: dict[tuple[int, int], Int] = {}
    for at, (cpu, number, share) in enumerate(
        zip(demand.cpu.tolist(), demand.number.tolist(), demand.share.tolist(), strict=True)
    ):
        if (number, share) not in by_size:
            by_size[number, share] = (whole if share == WHOLE else (fleet.gpus // share).sum(axis=1)) // number
        by_gpu = by_size[number, share]
        by_both = by_gpu if not cpu else np.minimum(by_gpu, np.maximum(fleet.cpu, 0) // cpu)
        found[at] = by_both[demand.allowed[at, fleet.kind]].sum()
    return found

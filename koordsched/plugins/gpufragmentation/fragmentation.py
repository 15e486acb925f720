"""The free GPUs of a node that tasks of a class cannot use there, added up over classes by their weights.

A task that does not fit can use none of them: its CPU is not there, it may not run on such a node, or it wants more
whole GPUs. Otherwise it can use all but those of which less is free than it wants.

Source: Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent,
USENIX ATC 2023, section 4.
"""

from __future__ import annotations

import numpy as np

from koordsched.plugins.gpufragmentation.fleet import Demand
from koordsched.plugins.gpufragmentation.worth import WHOLE, Float


def fragmentation(demand: Demand, weights: Float, minors: int) -> tuple[Float, Float]:
    """(by the free part of a GPU, what comes to that by how many GPUs are free as a whole), in GPUs.

    float64[kinds, levels + 1, 101] and [kinds, levels + 1, minors + 1]; levels are those of the classes' CPU, the first
    for less than any class wants. `weights`: float64[classes].
    """
    levels, level = np.unique(demand.cpu, return_inverse=True)
    level = level + 1
    kinds = demand.allowed.shape[1]
    gpu = np.zeros((kinds, len(levels) + 1, WHOLE + 1))
    whole = np.zeros((kinds, len(levels) + 1, minors + 1))
    free = np.arange(WHOLE + 1)
    counts = np.arange(minors + 1)
    most = max(int(demand.number.max(initial=0)), minors + 1)
    for kind in range(kinds):
        runs = demand.allowed[:, kind]
        several = runs & (demand.number > 1) & (demand.share == WHOLE)
        fits = np.zeros(gpu.shape[1:])
        np.add.at(fits, (level[runs], demand.share[runs]), weights[runs])
        fits = fits.cumsum(axis=0).cumsum(axis=1)
        gpu[kind] = (weights.sum() - fits) * free / WHOLE
        wants = np.zeros((len(levels) + 1, most + 1))
        np.add.at(wants, (level[several], demand.number[several]), weights[several])
        more = wants.cumsum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1]
        whole[kind] = counts * more[:, counts + 1]
    return gpu, whole

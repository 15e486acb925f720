"""Where a task takes least of what the nodes' free parts are worth: a score per node, and the GPUs to take there."""

from __future__ import annotations

import numpy as np

from koordsched.plugins.gpufragmentation.fleet import Fleet, Task
from koordsched.plugins.gpufragmentation.values import Values
from koordsched.plugins.gpufragmentation.worth import WHOLE, Float, Int

_NOT_FREE = -1e6


def gains(values: Values, fleet: Fleet, task: Task) -> Float:
    """float64[rows]: by how much the worth of each node changes, in GPUs, if the task takes the best GPUs of it.

    For nodes where the task does not fit, a number that means nothing.
    """
    before, after = _levels(values, fleet.cpu), _levels(values, fleet.cpu - task.cpu)
    kind = fleet.kind
    table = values.gpu.reshape(-1)
    width = values.gpu.shape[1]
    free = fleet.gpus
    whole = _whole(values, fleet)
    total = free.sum(axis=1)
    offset = ((kind * width + after) * (WHOLE + 1))[:, None]
    then = table.take(offset + free)
    gained: Float = then.sum(axis=1)
    gained -= table.take(((kind * width + before) * (WHOLE + 1))[:, None] + free).sum(axis=1)
    gained -= values.whole[kind, before, whole] + values.balanced(fleet.cpu, total)
    if not task.number:
        gained += values.whole[kind, after, whole] + values.balanced(fleet.cpu - task.cpu, total)
        return gained
    gained += values.balanced(fleet.cpu - task.cpu, total - task.number * task.share)
    if task.share == WHOLE:
        left = np.maximum(whole - task.number, 0)
        part = values.gpu[kind, after, 0] - values.gpu[kind, after, WHOLE]
        gained += task.number * part + values.whole[kind, after, left]
        return gained
    each = _of_each(values, fleet, task, after, whole, then, offset)
    if task.number == 1:
        gained += each.max(axis=1) + values.whole[kind, after, whole]
        return gained
    taken = np.argsort(-each, axis=1, kind="stable")[:, : task.number]
    opened = np.take_along_axis(free, taken, axis=1)
    left = opened - task.share
    gained += (table.take(offset + np.maximum(left, 0)) - table.take(offset + opened)).sum(axis=1)
    gained += values.whole[kind, after, np.maximum(whole - np.count_nonzero(opened == WHOLE, axis=1), 0)]
    return gained


def order(values: Values, fleet: Fleet, task: Task) -> Int:
    """int64[minors]: the GPUs of the only row of the fleet in the order in which the task should take them."""
    if task.share == WHOLE:
        return np.argsort(fleet.gpus[0] != WHOLE, kind="stable")
    after = _levels(values, fleet.cpu - task.cpu)
    offset = ((fleet.kind * values.gpu.shape[1] + after) * (WHOLE + 1))[:, None]
    then = values.gpu.reshape(-1).take(offset + fleet.gpus)
    return np.argsort(-_of_each(values, fleet, task, after, _whole(values, fleet), then, offset)[0], kind="stable")


def _levels(values: Values, cpu: Int) -> Int:
    return values.levels.searchsorted(cpu, side="right")


def _whole(values: Values, fleet: Fleet) -> Int:
    """GPUs that are free as a whole, at most as many as nodes had when values were computed."""
    found: Int = np.minimum(fleet.whole(), values.whole.shape[2] - 1)
    return found


def _of_each(values: Values, fleet: Fleet, task: Task, after: Int, whole: Int, then: Float, offset: Int) -> Float:
    """float64[rows, minors]: what is gained by taking a part of each GPU.

    With several GPUs, each is judged as if it were the only one.
    """
    left = fleet.gpus - task.share
    each: Float = values.gpu.reshape(-1).take(offset + np.maximum(left, 0)) - then
    opened = values.whole[fleet.kind, after, np.maximum(whole - 1, 0)] - values.whole[fleet.kind, after, whole]
    each += np.where(fleet.gpus == WHOLE, opened[:, None], 0.0)
    each[left < 0] = _NOT_FREE
    return each

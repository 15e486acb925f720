"""What one pod uses: as its annotation says, or a share of its request; never more than its limit."""

from __future__ import annotations

import math
from typing import Any

from koordsched.fakecluster.hollow.amounts import amount
from koordsched.fakecluster.hollow.curves import Usage
from koordsched.fakecluster.hollow.traces import Traces
from koordsched.fakecluster.hollow.usage import USAGE, Share, read_usage

Object = dict[str, Any]

_RESOURCES = (
    ("cpu", "kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu"),
    ("memory", "kubernetes.io/batch-memory", "kubernetes.io/mid-memory"),
)
"""What containers request; those of Koordinator's lower classes in the stead of CPU (in milli-cores) and memory."""


def stated_usage(pod: Object, share: Share, traces: Traces) -> Usage:
    """The usage of the pod's containers while they run. Raises ValueError when its annotation cannot be read."""
    text = (pod["metadata"].get("annotations") or {}).get(USAGE)
    if text is None:
        return default_usage(pod, share)
    return read_usage(text).usage(_share_of_request(pod, share), traces).capped(*_limits(pod["spec"]))


def default_usage(pod: Object, share: Share) -> Usage:
    """The usage of a pod that says nothing about it."""
    return _share_of_request(pod, share).capped(*_limits(pod["spec"]))


def _share_of_request(pod: Object, share: Share) -> Usage:
    spec = pod["spec"]
    pod_level = _amounts(spec, "requests")
    sums = [sum(found or 0.0 for found in column) for column in zip(*_of_containers(spec, "requests"), strict=True)]
    cpu, memory = (whole if whole is not None else part for whole, part in zip(pod_level, sums, strict=True))
    return share.of(cpu, memory)


def _limits(spec: Object) -> tuple[float, float]:
    """CPU and memory; infinite where one container at least may use all there is."""
    pod_level = _amounts(spec, "limits")
    sums = [
        sum(math.inf if found is None else found for found in column)
        for column in zip(*_of_containers(spec, "limits"), strict=True)
    ]
    cpu, memory = (whole if whole is not None else part for whole, part in zip(pod_level, sums, strict=True))
    return cpu, memory


def _of_containers(spec: Object, kind: str) -> list[tuple[float | None, float | None]]:
    """CPU and memory of each container that runs as long as the pod does."""
    sidecars = (each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always")
    return [_amounts(container, kind) for container in (*(spec.get("containers") or ()), *sidecars)]


def _amounts(holder: Object, kind: str) -> tuple[float | None, float | None]:
    stated = (holder.get("resources") or {}).get(kind)
    if not stated:
        return None, None
    cpu, memory = (_amount(stated, names) for names in _RESOURCES)
    return cpu, memory


def _amount(stated: Object, names: tuple[str, ...]) -> float | None:
    for name in names:
        if name in stated:
            try:
                return amount(name, stated[name])
            except ValueError:
                # Only what came past validation, from a snapshot, is no quantity.
                return None
    return None

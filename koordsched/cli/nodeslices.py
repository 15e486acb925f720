"""ResourceSlices of nodes to add: the devices of a node come with it."""

from __future__ import annotations

from typing import Any

import msgspec

from koordsched.cluster.builtinkinds import RESOURCE_SLICES
from koordsched.scheduling.offline import OfflineScheduler

Object = dict[str, Any]


def slices_of(scheduler: OfflineScheduler, node: str) -> list[Object]:
    """The slices of which all devices are the node's."""
    slices = scheduler.cluster.objects.of(RESOURCE_SLICES)
    return [msgspec.to_builtins(each) for each in slices if each.spec.node_name == node]


def moved(found: Object, node: str, count: int) -> Object:
    """A slice of another node, one of `count` of its pool there, as one of this node."""
    spec, old = found["spec"], found["spec"]["nodeName"]
    pool = spec["pool"]
    return {
        **found,
        "metadata": {"name": _named(found["metadata"]["name"], old, node)},
        "spec": {
            **spec,
            "nodeName": node,
            "pool": {**pool, "name": _named(pool["name"], old, node), "resourceSliceCount": count},
        },
    }


def pool_of(found: Object) -> tuple[str, str]:
    """Driver and name of the pool of a slice."""
    return found["spec"]["driver"], found["spec"]["pool"]["name"]


def _named(name: str, old: str, node: str) -> str:
    return node + name.removeprefix(old) if name.startswith(old) else f"{node}.{name}"

"""Loadaware spec A."""

from math import floor

from tests.reference.podrequests import DEFAULTS, requests
from tests.reference.quantity import in_units_of, parse
from tests.reference.world import allocatable


class NodeResourcesFitPlus:
    def __init__(self, args):
        self.resources = args.get("resources") or {}

    def score(self, pod, node, world, nodes):
        named = [name for name in requests(pod) if name in self.resources]
        weights = sum(self.resources[name].get("weight", 0) for name in named)
        if weights == 0:
            return 100
        points = sum(self.resources[name].get("weight", 0) * self.one(name, pod, node, world) for name in named)
        return floor(points / weights)

    def one(self, name, pod, node, world):
        kind, capacity = self.resources[name].get("type"), allocatable(node, name)
        counted = world.requested_nonzero if name in DEFAULTS else world.requested
        used = counted(node, name) + counted_request(pod, name)
        if capacity == 0:
            return 0
        if kind == "MostAllocated":
            return floor(100 * min(used, capacity) / capacity)
        if kind == "LeastAllocated":
            return floor(100 * (capacity - used) / capacity) if used <= capacity else 0
        return 0


def counted_request(pod, name):
    """Containers, then init containers one by one: a sidecar on top, any other only if it is more than all so far."""
    spec = pod["spec"]
    total = 0
    for container in spec["containers"]:
        total += of_container(container, name)
    for container in spec.get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            total += of_container(container, name)
        else:
            total = max(total, of_container(container, name))
    return total + in_units_of(name, parse(spec.get("overhead", {}).get(name, 0)))


def of_container(container, name):
    requested = (container.get("resources") or {}).get("requests") or {}
    return in_units_of(name, parse(requested[name]) if name in requested else DEFAULTS.get(name, 0))

"""Default-plugins spec 3.7; floats in the order of the formula."""

from math import sqrt

from tests.reference.podrequests import requests
from tests.reference.status import SKIP
from tests.reference.world import allocatable

NATIVE = ("cpu", "memory", "ephemeral-storage")


def balance(fractions):
    if len(fractions) < 2:
        deviation = 0.0
    elif len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    else:
        mean = 0.0
        for fraction in fractions:
            mean += fraction
        mean /= len(fractions)
        squares = 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = sqrt(squares / len(fractions))
    return int((1 - deviation) * 100)


class NodeResourcesBalancedAllocation:
    def __init__(self, args):
        self.resources = [r["name"] for r in args.get("resources") or [{"name": "cpu"}, {"name": "memory"}]]

    def pre_score(self, pod, world, nodes):
        return None if any(resource in requests(pod) for resource in self.resources) else SKIP

    def score(self, pod, node, world, nodes):
        wanted = requests(pod)
        before, after = [], []
        for resource in self.resources:
            capacity = allocatable(node, resource)
            if capacity == 0 or (resource not in NATIVE and resource not in wanted):
                continue
            used = world.requested(node, resource)
            before.append(min(1.0, float(used) / float(capacity)))
            after.append(min(1.0, float(used + wanted.get(resource, 0)) / float(capacity)))
        return 50 + int((50 + balance(after) - balance(before)) / 2)

"""Default-plugins spec 3.6."""

from fractions import Fraction
from itertools import pairwise
from math import floor

from tests.reference.podrequests import requests, scored_requests
from tests.reference.status import UNRESOLVABLE, UNSCHEDULABLE, Status
from tests.reference.world import allocatable

NATIVE = ("cpu", "memory", "ephemeral-storage")


class NodeResourcesFit:
    def __init__(self, args):
        self.ignored = args.get("ignoredResources") or []
        self.ignored_groups = args.get("ignoredResourceGroups") or []
        strategy = args.get("scoringStrategy") or {"type": "LeastAllocated"}
        self.strategy = strategy
        self.resources = [
            (r["name"], r.get("weight") or 1)
            for r in strategy.get("resources") or [{"name": "cpu"}, {"name": "memory"}]
        ]

    def filter(self, pod, node, world):
        reasons, too_large = [], False
        if len(world.pods_on(node)) + 1 > allocatable(node, "pods"):
            reasons.append("Too many pods")
        wanted = requests(pod)
        for resource in [*NATIVE, *sorted(wanted.keys() - set(NATIVE))]:
            if self.ignores(resource):
                continue
            request, capacity = wanted.get(resource, 0), allocatable(node, resource)
            if request > 0 and request > capacity - world.requested(node, resource):
                reasons.append(f"Insufficient {resource}")
                too_large = too_large or request > capacity
        if not reasons:
            return None
        return Status(UNRESOLVABLE if too_large else UNSCHEDULABLE, tuple(reasons))

    def ignores(self, resource):
        extended = "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")
        return extended and (resource in self.ignored or resource.split("/")[0] in self.ignored_groups)

    def score(self, pod, node, world, nodes):
        wanted = scored_requests(pod)
        total = weights = 0
        for resource, weight in self.resources:
            capacity = allocatable(node, resource)
            if capacity == 0 or (resource not in NATIVE and resource not in wanted):
                continue
            used = world.requested_nonzero if resource in ("cpu", "memory") else world.requested
            score = self.resource_score(used(node, resource) + wanted.get(resource, 0), capacity)
            if self.strategy["type"] == "RequestedToCapacityRatio" and score == 0:
                continue
            total += weight * score
            weights += weight
        if weights == 0:
            return 0
        if self.strategy["type"] == "RequestedToCapacityRatio":
            return floor(Fraction(total, weights) + Fraction(1, 2))
        return total // weights

    def resource_score(self, request, capacity):
        if self.strategy["type"] == "LeastAllocated":
            return 0 if request > capacity else (capacity - request) * 100 // capacity
        if self.strategy["type"] == "MostAllocated":
            return min(request, capacity) * 100 // capacity
        utilization = 100 if request > capacity else 100 * request // capacity
        points = [
            (p.get("utilization", 0), p.get("score", 0) * 10)
            for p in self.strategy["requestedToCapacityRatio"]["shape"]
        ]
        if utilization <= points[0][0]:
            return points[0][1]
        for (x0, y0), (x1, y1) in pairwise(points):
            if utilization <= x1:
                return y0 + int(Fraction((y1 - y0) * (utilization - x0), x1 - x0))  # int() truncates toward zero
        return points[-1][1]

"""What the pods of each hollow node have been given, and whether one more fits: the kubelet's own check.

It detects a scheduler that over-commits a node. Source: kubernetes `pkg/kubelet/lifecycle/predicate.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from koordsched.api import quantity

Amounts = dict[str, int]
"""Milli-units by resource; `pods` counts in thousandths too."""


class NodeAllocation:
    """The allocatable amounts of one node and what its unfinished pods request."""

    def __init__(self, allocatable: Mapping[str, Any]) -> None:
        self.allocatable = amounts(allocatable)
        self.used: Amounts = {}
        self._pods: dict[str, Amounts] = {}

    def shortage(self, request: Amounts) -> tuple[str, int, int, int] | None:
        """(resource, requested, used, allocatable) for the first resource of which too little is left."""
        for resource, amount in request.items():
            used, most = self.used.get(resource, 0), self.allocatable.get(resource, 0)
            if amount and used + amount > most:
                return resource, amount, used, most
        return None

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def take(self, uid: str, request: Amounts) -> None:
        """Counts a pod, once."""
        if uid not in self._pods:
            self._pods[uid] = request
            for resource, amount in request.items():
                self.used[resource] = self.used.get(resource, 0) + amount

    def give_back(self, uid: str) -> None:
        """Counts a pod no longer."""
        for resource, amount in self._pods.pop(uid, {}).items():
            self.used[resource] -= amount

    def set_allocatable(self, allocatable: Mapping[str, Any]) -> None:
        """Follows a change of the node's status."""
        self.allocatable = amounts(allocatable)


def amounts(quantities: Mapping[str, Any]) -> Amounts:
    """Milli-units of each quantity; those that cannot be read count as none."""
    found: Amounts = {}
    for resource, text in quantities.items():
        try:
            found[resource] = quantity.milli_value(text)
        except quantity.QuantityError:
            found[resource] = 0
    return found


def pod_request(spec: Mapping[str, Any]) -> Amounts:
    """What a pod takes of its node: its containers and sidecars together, or an init container if that needs more.

    Source: component-helpers `resource.PodRequests`; pod-level requests replace the sum, the overhead comes on top.
    """
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _requests(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        request = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, request)
            _raise(peak, sidecars.items())
        else:
            _raise(peak, ((name, amount + sidecars.get(name, 0)) for name, amount in request.items()))
    _add(total, sidecars)
    _raise(total, peak.items())
    total.update(_requests(spec))
    _add(total, amounts(spec.get("overhead") or {}))
    total["pods"] = 1000
    return total


def node_request(pod: Mapping[str, Any]) -> Amounts:
    """What a pod takes of what its node offers; extended resources that it has by a ResourceClaim are not."""
    request = pod_request(pod["spec"])
    claimed = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    for mapping in (claimed.get("requestMappings") or ()) if claimed else ():
        request.pop(mapping.get("resourceName") or "", None)
    return request


def _requests(holder: Mapping[str, Any]) -> Amounts:
    resources = holder.get("resources")
    return amounts(resources.get("requests") or {}) if resources else {}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Amounts, least: Iterable[tuple[str, int]]) -> None:
    for name, amount in least:
        if amount > total.get(name, 0):
            total[name] = amount

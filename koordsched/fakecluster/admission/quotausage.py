"""What objects count in ResourceQuotas: claims and their devices, and extended resources of pods.

Source of the rules: Kubernetes 1.36 `pkg/quota/v1/evaluator/core`, resource claims and pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from koordsched.api.quantity import value
from koordsched.fakecluster.controllers.ownership import controller_reference_of

Object = dict[str, Any]
Usage = Counter[str]
"""By the name that a quota has for it; whole numbers."""

CLAIMS = "count/resourceclaims.resource.k8s.io"
DEVICES = ".deviceclass.resource.k8s.io/devices"
"""After the name of a class: devices of the class."""
REQUESTS = "requests."
"""Before the name of an extended resource."""
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Before the name of a class: the extended resource that each class has."""
SPECIAL_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that the scheduler makes for extended resources of a pod."""

_MOST_DEVICES = 32
"""Devices that one claim can have: what a request for all of them counts."""


def follows(name: str) -> bool:
    """Whether a quota of this name is about what is counted here."""
    if name == CLAIMS or name.endswith(DEVICES):
        return True
    return name.startswith(REQUESTS) and is_extended(name.removeprefix(REQUESTS))


def is_extended(resource: str) -> bool:
    """Whether a resource that pods request is an extended one, or that of a class."""
    return resource.startswith(IMPLICIT) or ("/" in resource and "kubernetes.io/" not in resource)


def usage_of_claim(claim: Object, resource_of_class: Mapping[str, str], pod: Usage) -> Usage:
    """What a claim counts. Of alternatives the one with most devices of a class counts; of admin access as of others.

    `resource_of_class`: by class, the extended resource that it names, or "". `pod`: what the pod counts that the claim
    is made for; no device is counted twice as an extended resource.
    """
    found: Usage = Counter({CLAIMS: 1})
    devices: Usage = Counter()
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        most: Usage = Counter()
        for alternative in request.get("firstAvailable") or [request.get("exactly") or {}]:
            if name := alternative.get("deviceClassName"):
                most[name] = max(most[name], _devices(alternative))
        devices += most
    extended: Usage = Counter()
    for name, count in devices.items():
        found[name + DEVICES] = count
        if name in resource_of_class:
            extended[REQUESTS + IMPLICIT + name] = count
        if resource := resource_of_class.get(name):
            extended[REQUESTS + resource] += count
    return found + (extended - pod)


def _devices(request: Object) -> int:
    mode = request.get("allocationMode", "ExactCount")
    if mode == "All":
        return _MOST_DEVICES
    return int(request.get("count", 1)) if mode == "ExactCount" else 0


def usage_of_pod(pod: Object) -> Usage:
    """What a pod counts of extended resources: nothing once it has ended."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return Counter()
    spec = pod.get("spec") or {}
    total: Usage = Counter()
    for container in spec.get("containers") or ():
        total += _requests(container)
    sidecars: Usage = Counter()
    most: Usage = Counter()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars += _requests(container)
            most |= sidecars
        else:
            most |= sidecars + _requests(container)
    return (total + sidecars) | most


def _requests(container: Object) -> Usage:
    requests = (container.get("resources") or {}).get("requests") or {}
    return Counter({REQUESTS + name: value(text) for name, text in requests.items() if is_extended(name)})


def owner_of_special(claim: Object) -> tuple[str, str] | None:
    """Name and uid of the pod for whose extended resources a claim is made."""
    if (claim["metadata"].get("annotations") or {}).get(SPECIAL_CLAIM) != "true":
        return None
    owner = controller_reference_of(claim)
    if owner is None or (owner.get("apiVersion"), owner.get("kind")) != ("v1", "Pod"):
        return None
    return str(owner["name"]), str(owner["uid"])


def is_of_pod(claim: Object, pod: Object, specials: Collection[Object]) -> bool:
    """Whether a special claim is the one of its pod: that which the pod names, or else the first of `specials`."""
    named = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if named is not None:
        return bool(named == claim["metadata"]["name"])
    return all(_age(claim) <= _age(other) for other in specials)


def _age(claim: Object) -> tuple[str, str]:
    return claim["metadata"]["creationTimestamp"], claim["metadata"]["name"]

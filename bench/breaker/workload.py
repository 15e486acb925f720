"""A Deployment that comes at once, and pods of others that come one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

Manifest = dict[str, Any]

LARGE = "large"
"""Name of the Deployment that comes at once."""
OTHERS = 30
"""Deployments whose pods come one by one."""
EVERY_SECONDS = 2.0
"""Between two of those, on average."""
_HASH = "5d8f7"


@dataclass(frozen=True)
class Wish:
    """A pod that a Deployment wants after `at` seconds, and wants again whenever it is gone."""

    at: float
    deployment: str


def wishes(pods: int, seconds: float, rng: Random) -> Iterator[Wish]:
    """In the order of time: `pods` of one Deployment, then those of others for so many seconds."""
    for _ in range(pods):
        yield Wish(0.0, LARGE)
    at = rng.expovariate(1 / EVERY_SECONDS)
    while at < seconds:
        yield Wish(at, f"small-{rng.randrange(OTHERS)}")
        at += rng.expovariate(1 / EVERY_SECONDS)


def node_manifest(number: int) -> Manifest:
    """A node."""
    resources = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number:04}", "labels": {"kubernetes.io/hostname": f"node-{number:04}"}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def pod_manifest(deployment: str, serial: int, scheduler: str) -> Manifest:
    """A pod of a Deployment; its container is called `main`."""
    name = f"{deployment}-{_HASH}-{serial}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{deployment}-{_HASH}", "uid": deployment}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": name,
            "labels": {"app": deployment, "pod-template-hash": _HASH},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [
                {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}
            ],
        },
    }

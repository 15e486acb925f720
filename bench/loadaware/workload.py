"""Bursts of pods whose real usage has little to do with their requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from koordsched.fakecluster.hollow.usage import USAGE

Manifest = dict[str, Any]

NODE_CPU, NODE_MEMORY = 32, 128
"""Cores and GiB of every node."""


@dataclass(frozen=True)
class PodKind:
    """Pods of one Deployment: what they request, and the annotation that says what they use."""

    name: str
    share: float
    """Of the bursts."""
    cpu: str
    memory: str
    usage: Manifest


KINDS = (
    PodKind("reserved", 0.3, "4", "8Gi", {"cpu": "400m", "memory": "3Gi"}),
    PodKind("honest", 0.3, "2", "4Gi", {"cpu": {"mean": "1400m", "amplitude": "400m", "period": "30m"}}),
    PodKind("hungry", 0.25, "500m", "2Gi", {"cpu": {"mean": "2500m", "amplitude": "1", "period": "20m"}}),
    PodKind("late", 0.15, "1", "2Gi", {"cpu": {"from": "200m", "to": "3", "after": "10m"}}),
)


@dataclass(frozen=True)
class Burst:
    """Pods that are created at once, after `at` seconds, and run for so many seconds each."""

    at: float
    pods: list[tuple[Manifest, float]]


def node_manifest(number: int) -> Manifest:
    """A node."""
    resources = {"cpu": str(NODE_CPU), "memory": f"{NODE_MEMORY}Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number:04}", "labels": {"kubernetes.io/hostname": f"node-{number:04}"}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def bursts(nodes: int, seconds: float, scheduler: str, rng: Random) -> Iterator[Burst]:
    """A burst about every two minutes. After an hour the pods use between 35 and 50 % of the nodes' CPU."""
    at, serial = 0.0, 0
    while at < seconds:
        (kind,) = rng.choices(KINDS, [kind.share for kind in KINDS])
        pods = []
        for _ in range(round(nodes * rng.uniform(0.15, 0.45))):
            serial += 1
            pods.append((_pod(kind, serial, scheduler), rng.uniform(1200, 4800)))
        yield Burst(at, pods)
        at += rng.uniform(60, 180)


def _pod(kind: PodKind, serial: int, scheduler: str) -> Manifest:
    requests = {"cpu": kind.cpu, "memory": kind.memory}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "default",
            "name": f"{kind.name}-{serial}",
            "uid": f"{kind.name}-{serial}",
            "labels": {"app": kind.name},
            "annotations": {USAGE: json.dumps(kind.usage)},
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "app:1", "resources": {"requests": requests}}],
        },
    }

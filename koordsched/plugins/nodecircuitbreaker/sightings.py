"""Pods as they were when their status said something."""

from __future__ import annotations

from typing import NamedTuple

from koordsched.cluster.pod import Pod
from koordsched.plugins.nodecircuitbreaker.signs import Report
from koordsched.plugins.shared.workloads import Workload, workload_of


class Sighting(NamedTuple):
    """A pod on a node. `key`: `namespace/name`; `report`: what is unusual about it, None for nothing."""

    uid: str
    key: str
    node: str
    workload: Workload
    start_time: str | None
    report: Report | None


def sighting(pod: Pod, report: Report | None) -> Sighting:
    """The pod as it is now."""
    return Sighting(pod.uid, pod.key, pod.node, workload_of(pod), pod.start_time, report)

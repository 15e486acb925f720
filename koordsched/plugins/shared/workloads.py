"""The workload of a pod: the topmost controller that can be derived from the pod itself.

The scheduler watches neither Deployments nor CronJobs, but what they create has their names: a Deployment's ReplicaSet
is named after the Deployment and the pods' label pod-template-hash, a CronJob's Job after the CronJob and the minute.
So all revisions of a Deployment are one workload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from koordsched.api.meta import OwnerReference
from koordsched.cluster.pod import Pod

TEMPLATE_HASH = "pod-template-hash"
_SCHEDULED_JOB = re.compile(r"(.+)-[0-9]{8}")
"""The minute is counted from the epoch: eight digits from 1989 to 2160."""


class Workload(NamedTuple):
    """A controller, or a pod that has none."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def workload_of(pod: Pod) -> Workload:
    """The workload of a pod."""
    return workload_by(pod.namespace, pod.name, pod.owner, pod.labels.labels)


def workload_title(pod: Pod) -> str:
    """The workload of a pod as users read it; that of a virtual pod is the object that it stands for."""
    return pod.title if pod.virtual else str(workload_of(pod))


def workload_by(namespace: str, name: str, owner: OwnerReference | None, labels: Mapping[str, str]) -> Workload:
    """The workload of the pod of this name, controller and labels."""
    if owner is None:
        return Workload(namespace, "Pod", name)
    if owner.kind == "ReplicaSet":
        suffix = f"-{labels.get(TEMPLATE_HASH, '')}"
        if len(suffix) > 1 and owner.name.endswith(suffix) and len(owner.name) > len(suffix):
            return Workload(namespace, "Deployment", owner.name.removesuffix(suffix))
    elif owner.kind == "Job" and (scheduled := _SCHEDULED_JOB.fullmatch(owner.name)) is not None:
        return Workload(namespace, "CronJob", scheduled[1])
    return Workload(namespace, owner.kind, owner.name)

"""Nodes that go down, and the workloads that were placed on them shortly before."""

from __future__ import annotations

from typing import NamedTuple

from koordsched.api.core import Node
from koordsched.cluster.pod import Pod
from koordsched.plugins.shared.moments import moment
from koordsched.plugins.shared.workloads import Workload, workload_of

SLACK = 60.0
"""Seconds by which clocks of nodes and control plane may differ."""

_EVERYWHERE = ("DaemonSet", "Node")
"""Controllers whose pods come with every start of a node."""


class Fall(NamedTuple):
    """A node went down. `at`: seconds since the epoch."""

    node: str
    at: float


class Fallen(NamedTuple):
    """When a node went down: `at` in monotonic seconds, `fell` in seconds since the epoch."""

    at: float
    fell: float


def is_up(node: Node) -> bool:
    """Whether the node is ready; one that never said is."""
    return all(condition.type != "Ready" or condition.status == "True" for condition in node.status.conditions)


def down_since(node: Node) -> float | None:
    """When it stopped being ready, in seconds since the epoch, as far as that is known."""
    for condition in node.status.conditions:
        if condition.type == "Ready":
            return moment(condition.last_transition_time)
    return None


def was_up(node: Node) -> bool:
    """Whether a node that is down was ever up; one that was just made never was."""
    made, since = moment(node.metadata.creation_timestamp), down_since(node)
    return made is None or since is None or since - made > SLACK


def boot_of(node: Node) -> str:
    """The boot ID of the machine; "" if it is not reported."""
    return node.status.node_info.boot_id if node.status.node_info is not None else ""


def newcomer(pod: Pod, fell: float, soon_after: float) -> Workload | None:
    """The workload of a pod that had started within `soon_after` seconds before its node went down at `fell`."""
    began = moment(pod.start_time)
    if began is None or not -SLACK <= fell - began <= soon_after:
        return None
    if pod.owner is not None and pod.owner.kind in _EVERYWHERE:
        return None
    return workload_of(pod)

"""What is remembered of each hollow node."""

from __future__ import annotations

from enum import Enum
from typing import Any

from koordsched.fakecluster.hollow.allocation import NodeAllocation
from koordsched.fakecluster.hollow.devicebooks import DeviceBooks
from koordsched.fakecluster.hollow.topology import TOPOLOGY, read_topology

FAIL = "koordsched.io/fail"
"""Annotation that makes a node fail: `"true"` = its kubelet falls silent, `"not-ready"` = it reports Ready=False."""

START_ERROR = "koordsched.io/start-error"
"""Annotation of a node on which no pod starts: the reason that its containers show while they wait."""


class Health(Enum):
    """The health of a node."""

    HEALTHY = ""
    SILENT = "true"
    NOT_READY = "not-ready"


class HollowNode:
    """One node that runs here."""

    __slots__ = (
        "address",
        "allocation",
        "devices",
        "health",
        "name",
        "pods",
        "ratio",
        "recoveries",
        "start_error",
        "uid",
        "whole_cores",
    )

    def __init__(self, name: str, uid: str, address: str, allocation: NodeAllocation, health: Health) -> None:
        self.name = name
        self.uid = uid
        self.address = address
        self.allocation = allocation
        self.devices = DeviceBooks()
        self.health = health
        self.start_error = ""
        """Why no pod starts; empty if they do."""
        self.whole_cores = 0
        """Of how many CPUs a container that gets its own must request a multiple; 0 if of none."""
        self.ratio = ""
        """The annotation by which what is allocatable was amplified."""
        self.recoveries = 0
        """How often the kubelet came back: earlier plans are invalid."""
        self.pods: dict[tuple[str, str], str] = {}
        """The uids of the pods bound to it, by (namespace, name)."""


def commanded_health(node: dict[str, Any]) -> Health:
    """What the node's annotation asks for; unknown values leave it healthy."""
    wanted = (node["metadata"].get("annotations") or {}).get(FAIL, "")
    return Health(wanted) if wanted in (health.value for health in Health) else Health.HEALTHY


def start_error(node: dict[str, Any]) -> str:
    """Why no pod starts on the node; empty if they do."""
    found: str = (node["metadata"].get("annotations") or {}).get(START_ERROR, "")
    return found


def whole_cores(node: dict[str, Any]) -> int:
    """Of how many CPUs a container that gets its own must request a multiple on the node; 0 if of none."""
    text = (node["metadata"].get("annotations") or {}).get(TOPOLOGY)
    if text is None:
        return 0
    try:
        return read_topology(text).whole_cores
    except ValueError:
        return 0

"""What can be chosen about hollow nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koordsched.fakecluster.hollow.usage import Share


@dataclass(frozen=True, slots=True)
class HollowOptions:
    """Times are in seconds."""

    count: int | None = None
    """How many nodes to register; None for the numbers that the templates state."""
    template: Path | str | Mapping[str, Any] | None = None
    """A template file, or its decoded content; None for a plain default."""
    start_delay: float | None = 0.5
    """From binding to Running; None = bound pods never start."""
    stop_delay: float = 1.0
    """From deletion to the end of the pod, if its grace period is not shorter."""
    lease_interval: float = 10.0
    """Between two renewals of a node's Lease (kubelet: a quarter of the Lease's 40 s)."""
    status_interval: float = 300.0
    """Between two reports of an unchanged node status (kubelet: nodeStatusReportFrequency)."""
    load_reports: bool = True
    """Report the nodes' usage as NodeMetrics while their CustomResourceDefinition is installed."""
    topology_reports: bool = True
    """Report the CPUs and NUMA nodes of nodes as NodeResourceTopologies, likewise."""
    device_reports: bool = True
    """Report the devices of nodes as Devices, and what nodes offer because of them, likewise."""
    gpu_shared: bool = False
    """Nodes offer `koordinator.sh/gpu.shared`, too, which the webhook for devices makes pods request."""
    usage_share: Share = field(default_factory=Share)
    """The usage of pods without an annotation."""
    usage_traces: Path | None = None
    """The directory of the traces that pods may name."""

"""NodeMetric: what the agent of a node measures. Labels and annotations that say something about loads.

Only what decisions read is decoded (loadaware spec 2.3).
"""

from __future__ import annotations

from koordsched.api.core import Quantities
from koordsched.api.meta import Int64, ObjectMeta, Wire
from koordsched.cluster.kinds import Kind, Need, every_pod

# Annotations of nodes.
USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"

# Annotations of pods.
SCALING_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
SECONDS_AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
SECONDS_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"

PROD = "koord-prod"
"""The priority of pods whose usage the agent reports as that of production."""


class ResourceMap(Wire, frozen=True):
    """Measured amounts."""

    resources: Quantities = {}


class AggregatedUsage(Wire, frozen=True):
    """Statistics over one period, by their name (`avg`, `p50`, ...)."""

    duration: str = ""
    usage: dict[str, ResourceMap] = {}


class NodeUsage(Wire, frozen=True):
    """What the whole node uses, and the part of it that belongs to no pod."""

    node_usage: ResourceMap = ResourceMap()
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    system_usage: ResourceMap = ResourceMap()


class PodMetric(Wire, frozen=True):
    """What one pod uses."""

    namespace: str = ""
    name: str = ""
    pod_usage: ResourceMap = ResourceMap()
    priority: str = ""


class MetricCollectPolicy(Wire, frozen=True):
    """How the agent measures."""

    report_interval_seconds: Int64 | None = None


class NodeMetricSpec(Wire, frozen=True):
    """Written by the manager."""

    metric_collect_policy: MetricCollectPolicy | None = None


class NodeMetricStatus(Wire, frozen=True):
    """Written by the agent. `node_metric` is None until it has measured."""

    update_time: str | None = None
    node_metric: NodeUsage | None = None
    pods_metric: tuple[PodMetric, ...] = ()


class NodeMetric(Wire, frozen=True):
    """The report about the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


NODE_METRICS = Kind(
    "slo.koordinator.sh/v1alpha1",
    "nodemetrics",
    NodeMetric,
    namespaced=False,
    need=Need(("LoadAwareScheduling",), every_pod, "pods of profiles with LoadAwareScheduling wait"),
    packed=True,
)

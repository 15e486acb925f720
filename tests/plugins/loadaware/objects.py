"""Short ways to write nodes, reports about them, and pods as JSON."""

import json

from koordsched.fakecluster.clock import rfc3339

API_VERSION = "slo.koordinator.sh/v1alpha1"
PREFIX = "scheduling.koordinator.sh/"
USAGE_THRESHOLDS = PREFIX + "usage-thresholds"
SCALING_FACTORS = PREFIX + "load-estimated-scaling-factors"
AFTER_SCHEDULED = PREFIX + "load-estimated-seconds-after-pod-scheduled"
AFTER_INITIALIZED = PREFIX + "load-estimated-seconds-after-initialized"
RESERVE_POD = PREFIX + "reserve-pod"
RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
PRIORITY_CLASS, QOS_CLASS = "koordinator.sh/priority-class", "koordinator.sh/qosClass"

GIBI = 1 << 30
P16 = {"cpu": "16", "memory": "32Gi"}
"""What the pod of the spec's cases requests and may use."""


def node(name="n", cpu="96", memory="512Gi", *, thresholds=None, raw=None, **more):
    """A node; `thresholds`, `raw`: its annotations, as values or texts; `more` are further allocatable resources."""
    annotations = {}
    for key, value in ((USAGE_THRESHOLDS, thresholds), (RAW_ALLOCATABLE, raw)):
        if value is not None:
            annotations[key] = value if isinstance(value, str) else json.dumps(value)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": annotations},
        "spec": {},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "1000", **more}},
    }


def usage(cpu=None, memory=None, **more):
    """Measured amounts."""
    amounts = {"cpu": cpu, "memory": memory, **more}
    return {"resources": {name: str(amount) for name, amount in amounts.items() if amount is not None}}


def metric(name="n", of_node=None, *, at, pods=(), aggregated=None, system=None, interval=60):
    """A report about a node, made `at` this time (None: it does not say).

    `of_node`: (cpu, memory), None if nothing was measured. `pods`: `measured` ones. `aggregated`: {duration: {type:
    (cpu, memory)}}; () is an empty entry.
    """
    status = {"podsMetric": list(pods)}
    if at is not None:
        status["updateTime"] = at if isinstance(at, str) else rfc3339(at)
    if of_node is not None:
        status["nodeMetric"] = {"nodeUsage": usage(*of_node)}
        if system is not None:
            status["nodeMetric"]["systemUsage"] = usage(*system)
        if aggregated is not None:
            status["nodeMetric"]["aggregatedNodeUsages"] = [
                {"duration": duration, "usage": {kind: usage(*amounts) for kind, amounts in kinds.items()}}
                for duration, kinds in aggregated.items()
            ]
    spec = {} if interval is None else {"metricCollectPolicy": {"reportIntervalSeconds": interval}}
    return {"apiVersion": API_VERSION, "kind": "NodeMetric", "metadata": {"name": name}, "spec": spec, "status": status}


def measured(name, cpu=None, memory=None, *, namespace="default", priority="koord-prod"):
    """What a report says of a pod."""
    return {"namespace": namespace, "name": name, "priority": priority, "podUsage": usage(cpu, memory)}


def condition(kind, at, status="True"):
    """A condition that holds since then."""
    return {"type": kind, "status": status, "lastTransitionTime": rfc3339(at)}


def pod(
    name,
    requests=None,
    limits=None,
    *,
    on=None,
    placed=None,
    initialized=None,
    namespace="default",
    priority=0,
    labels=None,
    annotations=None,
    owner=None,
    containers=None,
    uid=None,
    **spec,
):
    """A pod of one container, unless `containers` are given; `on` is its node, `placed` the time of that."""
    conditions = [condition("PodScheduled", placed)] if placed is not None else []
    if initialized is not None:
        conditions.append(condition("Initialized", initialized))
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{namespace}-{name}",
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if owner is not None:
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": priority,
            "containers": containers or [container(requests, limits)],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending", "conditions": conditions},
    }


def container(requests=None, limits=None, name="c", **more):
    """A container."""
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    return {"name": name, "image": "img:1", "resources": resources, **more}


def p16(name="p16", **more):
    """The pod of the spec's cases."""
    return pod(name, P16, P16, **more)

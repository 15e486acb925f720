"""Short ways to write quotas and pods of quotas as JSON."""

import json

PREFIX = "quota.scheduling.koordinator.sh/"
API_VERSION = "scheduling.sigs.k8s.io/v1alpha1"


def quota(name, most=None, least=None, *, parent=None, namespace="quotas", weight=None, created=None, **labels):
    """An ElasticQuota with max `most` and min `least`.

    Further labels by their names with `_` for `-`; `total_resource`, `namespaces` and other annotations as values.
    """
    annotations = {}
    for key in ("total_resource", "namespaces"):
        if key in labels:
            value = labels.pop(key)
            annotations[PREFIX + key.replace("_", "-")] = value if isinstance(value, str) else json.dumps(value)
    if weight is not None:
        annotations[PREFIX + "shared-weight"] = weight if isinstance(weight, str) else json.dumps(strings(weight))
    marks = {PREFIX + key.replace("_", "-"): value for key, value in labels.items()}
    if parent is not None:
        marks[PREFIX + "parent"] = parent
    metadata = {"name": name, "namespace": namespace, "labels": marks, "annotations": annotations}
    if created is not None:
        metadata["creationTimestamp"] = created
    spec = {}
    if most is not None:
        spec["max"] = strings(most)
    if least is not None:
        spec["min"] = strings(least)
    return {"apiVersion": API_VERSION, "kind": "ElasticQuota", "metadata": metadata, "spec": spec}


def strings(amounts):
    """Quantities as text."""
    return {name: str(amount) for name, amount in amounts.items()}


def pod(
    name,
    request,
    in_quota=None,
    *,
    on=None,
    namespace="default",
    priority=0,
    preemptible=True,
    labels=None,
    started=None,
    scheduler="default-scheduler",
    **spec,
):
    """A pod that requests `request`, labelled for a quota; `on` is its node."""
    marks = dict(labels or {})
    if in_quota is not None:
        marks[PREFIX + "name"] = in_quota
    if not preemptible:
        marks[PREFIX + "preemptible"] = "false"
    thing = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "labels": marks},
        "spec": {
            "schedulerName": scheduler,
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": strings(request)}}],
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending"},
    }
    if on:
        thing["spec"]["nodeName"] = on
        thing["status"]["startTime"] = started or "2026-01-01T00:00:00Z"
    return thing


def node(name, **allocatable):
    """A node; resources by name, `gpu` is nvidia.com/gpu."""
    amounts = {{"gpu": "nvidia.com/gpu"}.get(key, key): str(value) for key, value in allocatable.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"pods": "1000", **amounts}},
    }

"""Reservations that are available on a node, as API objects."""

import json

SCHEDULING = "scheduling.koordinator.sh/"
WEB = {"app": "web"}
"""The labels of owners."""


def available(name="r", node="n", policy="Aligned", *, devices=None, status=None, spec=None, **requests):
    """A Reservation for any number of pods with the labels WEB. `devices`, `status`, `spec`: the annotations
    device-allocated, resource-status and resource-spec as JSON values; `requests`: what it holds, "_" for "." and "/"
    left to `amounts`."""
    given = {"device-allocated": devices, "resource-status": status, "resource-spec": spec}
    annotations = {f"{SCHEDULING}{key}": json.dumps(value) for key, value in given.items() if value is not None}
    amounts = requests.pop("amounts", {}) | requests
    container = {"name": "main", "image": "app", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations,
        },
        "spec": {
            "template": {"spec": {"schedulerName": "koord-scheduler", "containers": [container]}},
            "owners": [{"labelSelector": {"matchLabels": WEB}}],
            "ttl": "24h",
            "allocateOnce": False,
            "allocatePolicy": policy,
        },
        "status": {"phase": "Available", "nodeName": node, "allocatable": amounts},
    }


def owner(pod, reservation=None, *, required=False):
    """The pod as an owner. `reservation`: the name of the one that it uses; `required`: it must use one."""
    metadata = pod["metadata"]
    annotations = dict(metadata.get("annotations", {}))
    if reservation is not None:
        used = {"name": reservation, "uid": f"uid-{reservation}"}
        annotations[f"{SCHEDULING}reservation-allocated"] = json.dumps(used)
    if required:
        annotations[f"{SCHEDULING}reservation-affinity"] = "{}"
    labels = {**metadata.get("labels", {}), **WEB}
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}

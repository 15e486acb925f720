"""Nodes that a cluster does not have yet: copies of one that it has, or made from a template."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from koordsched.cli.admission import Admission
from koordsched.cli.objectfiles import InputError, Sourced
from koordsched.cluster.builtinkinds import CSI_NODES
from koordsched.cluster.pod import Pod
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.snapshot import node_object, pod_object

HOSTNAME = "kubernetes.io/hostname"

_PASSING = re.compile(r"node\.kubernetes\.io/|node\.cloudprovider\.kubernetes\.io/|.*koordsched\.io/")
"""Taints that say in which state a node is, not what it is for."""


def add_template_nodes(scheduler: OfflineScheduler, nodes: list[Sourced], seed: int) -> None:
    """Adds nodes made from a template to those that there are, under another name if theirs is taken.

    Raises InputError.
    """
    taken = scheduler.cluster.table.row_of
    for sourced in Admission(seed).admit_all(nodes):
        name = _free_name(scheduler, sourced.name) if sourced.name in taken else sourced.name
        meta = {**sourced.meta, "name": name, "labels": {**(sourced.meta.get("labels") or {}), HOSTNAME: name}}
        scheduler.add({**sourced.obj, "metadata": meta})


def add_copies(scheduler: OfflineScheduler, model: str, count: int) -> list[str]:
    """Adds nodes like one that there is, as they would come: ready, without other pods than those of DaemonSets.

    What is in other objects that bear the node's name is not copied, but the limits of its volume drivers (CSINode).
    Returns their names. Raises InputError if there is no such node.
    """
    cluster = scheduler.cluster
    row = cluster.table.row_of.get(model)
    node = cluster.table.nodes[row] if row is not None else None
    if row is None or node is None:
        raise InputError(f"--like {model}: there is no such node")
    shown = node_object(node, cluster.table.images.on_row(row), cluster.read_annotations)
    daemons = [_pod(scheduler, pod) for pod in cluster.pods_on(row).values() if _is_daemon(pod)]
    drivers = cluster.objects.of(CSI_NODES).get("", model)
    names = []
    for _ in range(count):
        name = _free_name(scheduler, model)
        scheduler.add(_fresh(shown, name))
        if drivers is not None:
            scheduler.add_object(
                CSI_NODES, msgspec.convert(_renamed(msgspec.to_builtins(drivers), name), CSI_NODES.type)
            )
        for daemon in daemons:
            copy = _renamed(daemon, f"{daemon['metadata']['name']}-{name}")
            scheduler.add({**copy, "spec": {**copy["spec"], "nodeName": name}})
        names.append(name)
    return names


def _free_name(scheduler: OfflineScheduler, model: str) -> str:
    taken = scheduler.cluster.table.row_of
    number = 1
    while (name := f"{model}-copy-{number}") in taken:
        number += 1
    return name


def _renamed(thing: dict[str, Any], name: str) -> dict[str, Any]:
    meta = {key: value for key, value in thing["metadata"].items() if key != "uid"}
    return {**thing, "metadata": {**meta, "name": name, "uid": f"copy/{name}"}}


def _fresh(node: dict[str, Any], name: str) -> dict[str, Any]:
    """A node like this one as it registers: not cordoned, ready, with the taints that its group has."""
    made = _renamed(node, name)
    spec = node.get("spec") or {}
    taints = [taint for taint in spec.get("taints") or () if not _PASSING.match(taint.get("key", ""))]
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        **made,
        "metadata": {**made["metadata"], "labels": {**(made["metadata"].get("labels") or {}), HOSTNAME: name}},
        "spec": {**{key: value for key, value in spec.items() if key != "unschedulable"}, "taints": taints},
        "status": {**(node.get("status") or {}), "conditions": conditions},
    }


def _is_daemon(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.kind == "DaemonSet" and not pod.deleting


def _pod(scheduler: OfflineScheduler, pod: Pod) -> dict[str, Any]:
    names = scheduler.cluster.table.resource_names.names
    return pod_object(pod, names, pod.shape.meta.annotations)

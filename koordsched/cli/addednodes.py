"""Nodes to add to a cluster: copies of one of its nodes, or made from a template."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from koordsched.api.decoding import convert
from koordsched.cli.admission import Admission
from koordsched.cli.nodeslices import moved, pool_of, slices_of
from koordsched.cli.objectfiles import InputError, Sourced
from koordsched.cluster.builtinkinds import CSI_NODES, NODES, RESOURCE_SLICES
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.snapshot import node_object, pod_object

HOSTNAME = "kubernetes.io/hostname"

_PASSING = re.compile(r"node\.kubernetes\.io/|node\.cloudprovider\.kubernetes\.io/|.*koordsched\.io/")
"""Taints that describe the state of a node, not its purpose."""


def add_template_nodes(scheduler: OfflineScheduler, nodes: list[Sourced], seed: int) -> None:
    """Adds nodes made from a template, under another name if theirs is taken. Raises InputError."""
    taken = dict(scheduler.cluster.table.row_of)
    slices = scheduler.cluster.objects.of(RESOURCE_SLICES)
    for sourced in Admission(seed).admit_all(nodes):
        if sourced.kind == RESOURCE_SLICES.name:
            node = sourced.obj["spec"].get("nodeName")
            if node in taken:
                count = sourced.obj["spec"]["pool"]["resourceSliceCount"]
                made = moved(sourced.obj, _free_name(scheduler, node), count)
                scheduler.add({**made, "apiVersion": sourced.api_version, "kind": sourced.kind})
            elif slices.get("", sourced.name) is None:
                scheduler.add(sourced.obj)
            continue
        name = _free_name(scheduler, sourced.name) if sourced.name in taken else sourced.name
        meta = {**sourced.meta, "name": name, "labels": {**(sourced.meta.get("labels") or {}), HOSTNAME: name}}
        scheduler.add({**sourced.obj, "metadata": meta})


def add_copies(scheduler: OfflineScheduler, model: str, count: int) -> list[str]:
    """Adds copies of an existing node as they would register: ready, with no pods but those of DaemonSets. Other
    objects of the node's name are not copied, except the limits of its volume drivers (CSINode), nor others that name
    it, except its ResourceSlices. Returns their names.
    Raises InputError if there is no such node.
    """
    if model not in scheduler.cluster.table.row_of:
        raise InputError(f"--like {model}: there is no such node")
    made = NodeModel.like(scheduler, model)
    names = []
    for _ in range(count):
        names.append(_free_name(scheduler, model))
        made.add(scheduler, names[-1])
    return names


class NodeModel:
    """What added nodes look like: the Node and other objects of its name, by kind, its ResourceSlices, and the pods of
    DaemonSets.
    """

    def __init__(self, objects: Sequence[tuple[Kind[Any], dict[str, Any]]], daemons: Sequence[dict[str, Any]]) -> None:
        self._objects = [each for each in objects if each[0] is not RESOURCE_SLICES]
        self._slices = [thing for kind, thing in objects if kind is RESOURCE_SLICES]
        self._daemons = daemons

    @classmethod
    def like(cls, scheduler: OfflineScheduler, name: str) -> NodeModel:
        """As a node that there is would come new. Raises KeyError if there is none of that name."""
        cluster = scheduler.cluster
        row = cluster.table.row_of[name]
        node = cluster.table.nodes[row]
        assert node is not None, "a known name has a node"
        shown = node_object(node, cluster.table.images.on_row(row), cluster.read_annotations)
        objects: list[tuple[Kind[Any], dict[str, Any]]] = [(NODES, _fresh(shown))]
        drivers = cluster.objects.of(CSI_NODES).get("", name)
        if drivers is not None:
            objects.append((CSI_NODES, msgspec.to_builtins(drivers)))
        objects += [(RESOURCE_SLICES, each) for each in slices_of(scheduler, name)]
        return cls(objects, daemons_on(scheduler, name))

    def add(self, scheduler: OfflineScheduler, name: str) -> None:
        """Adds a node of this name, which must be free."""
        for kind, thing in self._objects:
            made = _renamed(thing, name)
            if kind is NODES:
                labels = made["metadata"].get("labels") or {}
                made["metadata"]["labels"] = {**labels, HOSTNAME: name}
            scheduler.add_object(kind, convert(made, kind.type))
        for each in self._slices_on(name):
            scheduler.add_object(RESOURCE_SLICES, convert(each, RESOURCE_SLICES.type))
        for daemon in self._daemons:
            copy = _renamed(daemon, f"{daemon['metadata']['name']}-{name}")
            scheduler.add({**copy, "spec": {**copy["spec"], "nodeName": name}})

    def remove(self, scheduler: OfflineScheduler, name: str) -> None:
        """Takes away a node that was added, on which there are no other pods any more."""
        cluster = scheduler.cluster
        for uid in list(cluster.pods_on(cluster.table.row_of[name])):
            cluster.remove_pod(uid)
            cluster.pod_gone(uid)
        for kind, _ in self._objects:
            if kind is NODES:
                cluster.remove_node(name)
            else:
                cluster.objects.of(kind).delete("", name)
        for each in self._slices_on(name):
            cluster.objects.of(RESOURCE_SLICES).delete("", each["metadata"]["name"])

    def _slices_on(self, name: str) -> Iterator[dict[str, Any]]:
        counts = Counter(map(pool_of, self._slices))
        return (moved(each, name, counts[pool_of(each)]) for each in self._slices)


def daemons_on(scheduler: OfflineScheduler, node: str) -> list[dict[str, Any]]:
    """The pods of DaemonSets on a node that there is."""
    cluster = scheduler.cluster
    pods = cluster.pods_on(cluster.table.row_of[node]).values()
    return [as_object(scheduler, pod) for pod in pods if is_daemon(pod) and not pod.deleting]


def _free_name(scheduler: OfflineScheduler, model: str) -> str:
    taken = scheduler.cluster.table.row_of
    number = 1
    while (name := f"{model}-copy-{number}") in taken:
        number += 1
    return name


def _renamed(thing: dict[str, Any], name: str) -> dict[str, Any]:
    meta = {key: value for key, value in thing["metadata"].items() if key != "uid"}
    uid = f"copy/{meta.get('namespace', '')}/{name}"
    return {**thing, "metadata": {**meta, "name": name, "uid": uid}}


def _fresh(node: dict[str, Any]) -> dict[str, Any]:
    """A node like this one as it registers: not cordoned, ready, with the taints that its group has."""
    spec = node.get("spec") or {}
    taints = [taint for taint in spec.get("taints") or () if not _PASSING.match(taint.get("key", ""))]
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        **node,
        "spec": {**{key: value for key, value in spec.items() if key != "unschedulable"}, "taints": taints},
        "status": {**(node.get("status") or {}), "conditions": conditions},
    }


def is_daemon(pod: Pod) -> bool:
    """Whether the pod is one of a DaemonSet."""
    return pod.owner is not None and pod.owner.kind == "DaemonSet"


def as_object(scheduler: OfflineScheduler, pod: Pod) -> dict[str, Any]:
    """The pod as its manifest would have it, as far as is known."""
    names = scheduler.cluster.table.resource_names.names
    return pod_object(pod, names, pod.shape.meta.annotations)

"""Workloads as data: what `workloads.yaml` says, checked, and the groups of objects it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

FILE = Path(__file__).with_name("workloads.yaml")
DEFINITIONS = Path(__file__).resolve().parents[1] / "manifests" / "crds"
"""Where the custom resources that workloads use are defined."""


class WorkloadError(ValueError):
    """The file of workloads cannot be used, or has no such workload; the message is ready for the user."""


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`first + index // every % modulo`, or without the last step if `modulo` is 0."""

    first: int = 0
    every: int = 1
    modulo: int = 0

    def at(self, index: int) -> int:
        """The value for the pod of this number."""
        step = index // self.every
        return self.first + (step % self.modulo if self.modulo else step)


class PodKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of pod; `${…}` in it is filled in."""

    spec: dict[str, Any]
    labels: dict[str, str] = {}
    finalizers: list[str] = []
    variables: dict[str, Variable] = {}


class NodeKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of node; without `name` it is called after its number."""

    capacity: dict[str, str]
    name: str = ""
    labels: dict[str, str] = {}


class Nodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of nodes."""

    count: int
    kind: str = "default"
    zones: list[str] = []


class Namespaces(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of namespaces: `prefix`-0, `prefix`-1, …, or just `prefix` without a count."""

    prefix: str
    count: int = 0
    labels: dict[str, str] = {}


class Pods(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of pods: `count` in `namespace`, or `count` in each of `namespace`-0, -1, … if `namespaces` says so."""

    kind: str
    count: int
    namespace: str = "default"
    namespaces: int = 0

    @property
    def total(self) -> int:
        """All pods of the group."""
        return self.count * max(1, self.namespaces)

    def namespace_of(self, number: int) -> str:
        """The namespace of one pod of the group."""
        return f"{self.namespace}-{number // self.count}" if self.namespaces else self.namespace


def _times(group: Pods, factor: float) -> Pods:
    return msgspec.structs.replace(group, count=max(1, round(group.count * factor)))


class Objects(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Other objects; `${index}` is filled in, counting from `first`."""

    manifest: dict[str, Any]
    count: int = 1
    first: int = 0


class Churn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes on while pods are scheduled: a step every `interval` seconds."""

    mode: Literal["create", "recreate"]
    interval: float
    pods: list[str] = []
    nodes: list[str] = []
    objects: list[dict[str, Any]] = []


class Deletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pods of a namespace that go, `rate` per second."""

    namespace: str
    rate: float


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One workload; see `workloads.yaml`.

    `definitions`: files in manifests/crds that it needs. `profile`: how the scheduler's profile differs from the
    default one. `kubelets`: pods on nodes end as their grace period says, once they are deleted.
    """

    nodes: list[Nodes]
    measure: Pods
    namespaces: list[Namespaces] = []
    objects: list[Objects] = []
    init: list[Pods] = []
    pending: list[Pods] = []
    churn: Churn | None = None
    delete: Deletion | None = None
    kubelets: bool = False
    definitions: list[str] = []
    profile: dict[str, Any] = {}
    warm_up: int = 1

    def scaled(self, nodes: int = 0, pods: int = 0) -> Workload:
        """The same with another number of nodes or measured pods; 0 leaves it as it is.

        Pods that are there already, placed or not, keep their number per node; measured ones are shared out among as
        many namespaces as before, and rounded up to that. A single node stays a single node.
        """
        changed = self
        if nodes and self.node_count > 1:
            largest = max(range(len(self.nodes)), key=lambda i: self.nodes[i].count)
            others = self.node_count - self.nodes[largest].count
            factor = nodes / self.node_count
            changed = msgspec.structs.replace(
                changed,
                nodes=[
                    msgspec.structs.replace(group, count=max(1, nodes - others)) if i == largest else group
                    for i, group in enumerate(self.nodes)
                ],
                init=[_times(group, factor) for group in self.init],
                pending=[_times(group, factor) for group in self.pending],
            )
        if pods:
            count = -(-pods // max(1, self.measure.namespaces))
            changed = msgspec.structs.replace(changed, measure=msgspec.structs.replace(self.measure, count=count))
        return changed

    def filled(self, pods: int) -> Workload:
        """The same with at least so many pods on the nodes already, by adding basic ones."""
        missing = pods - sum(group.total for group in self.init)
        if missing <= 0:
            return self
        return msgspec.structs.replace(self, init=[*self.init, Pods(kind="basic", count=missing)])

    @property
    def node_count(self) -> int:
        """All nodes."""
        return sum(group.count for group in self.nodes)


class Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    pods: dict[str, PodKind]
    nodes: dict[str, NodeKind]
    workloads: dict[str, Workload]

    def workload(self, name: str) -> Workload:
        """The workload of this name. Raises WorkloadError."""
        found = self.workloads.get(name)
        if found is None:
            raise WorkloadError(f"no workload {name!r}; there are {', '.join(self.workloads)}")
        return found


def load(path: Path = FILE) -> Catalog:
    """Reads and checks the file. Raises WorkloadError."""
    try:
        catalog = msgspec.convert(yaml.load(path.read_text(), Loader=yaml.CSafeLoader), Catalog)
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise WorkloadError(f"{path}: {error}") from error
    for name, workload in catalog.workloads.items():
        for kind, known in _kinds_of(workload, catalog):
            if kind not in known:
                raise WorkloadError(f"{path}: {name}: there is no kind {kind!r}")
        for file in workload.definitions:
            if not (DEFINITIONS / file).is_file():
                raise WorkloadError(f"{path}: {name}: there is no {DEFINITIONS / file}")
    return catalog


def _kinds_of(workload: Workload, catalog: Catalog) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for pods in (workload.measure, *workload.init, *workload.pending):
        yield pods.kind, catalog.pods
    for nodes in workload.nodes:
        yield nodes.kind, catalog.nodes
    if workload.churn is not None:
        yield from ((kind, catalog.pods) for kind in workload.churn.pods)
        yield from ((kind, catalog.nodes) for kind in workload.churn.nodes)

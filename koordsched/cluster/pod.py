"""A pod as the scheduler keeps it: identity, shape, where it is, and little else."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from koordsched.api import core
from koordsched.api.meta import ObjectMeta, OwnerReference, controller_of
from koordsched.cluster.claimedresources import of_status, total_of
from koordsched.cluster.interning import LabelSet, LabelSets
from koordsched.cluster.resources import Requests
from koordsched.cluster.shape import PodShape, PodShapes

if TYPE_CHECKING:
    from koordsched.cluster.facts import PodFacts

TERMINAL = ("Succeeded", "Failed")

_NAMESPACES_KEPT = 1 << 16
"""Names of namespaces that pods share; some clusters make a namespace for every build."""


class References(tuple[OwnerReference, ...]):
    """All owner references of a pod on a node, where they are more than that to its controller: a pod fact, kept if a
    plugin asks for it (`PodFacts.declare_references`)."""

    __slots__ = ()


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False)
class Pod:
    """A pod. A million of these must fit in memory: bound pods keep no wire object.

    `node` is the node it is bound or assumed to ("" while pending), `row` that node's row in the table or
    -1; both are written by `ClusterState` alone. `requests` differ from `shape.requests` only after an
    in-place resize, and if claims to devices take something of the node.
    `deletion_deadline`: when a terminating pod should be gone, seconds since the epoch.
    `preempted`: it is terminating because a scheduler preempted it. `wire` is the typed object while the pod
    is pending, for those who need more of it. `facts`: allocations and the like (`cluster.facts`), written by
    `ClusterState` alone; pods without any share one empty tuple that takes no room in them.
    """

    facts: ClassVar[tuple[object, ...]] = ()
    virtual: ClassVar[bool] = False
    """Whether it is no Pod object, but stands for another object (`framework.virtualpods`)."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    generation: int
    shape: PodShape
    labels: LabelSet
    requests: Requests
    node: str
    row: int = field(default=-1, init=False)
    nominated_node: str
    owner: OwnerReference | None
    created: str | None
    start_time: str | None
    deleting: bool
    deletion_deadline: float | None = None
    preempted: bool
    wire: core.Pod | None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def references(self) -> tuple[OwnerReference, ...]:
        """The owner references; of a pod on a node all of them only if a plugin asked for them."""
        if self.wire is not None:
            return self.wire.metadata.owner_references
        for fact in self.facts:
            if isinstance(fact, References):
                return fact
        return () if self.owner is None else (self.owner,)

    @property
    def title(self) -> str:
        """What users know it by: the key, unless it stands for another object."""
        return self.key

    @property
    def priority(self) -> int:
        """spec.priority, 0 if unset."""
        return self.shape.priority

    def __repr__(self) -> str:
        return f"Pod({self.key}, uid={self.uid}, node={self.node or None})"


class PodWithFacts(Pod):
    """A pod that has facts, or may get some when it is placed."""

    __slots__ = ("facts",)

    facts: tuple[object, ...]  # type: ignore[misc]  # a slot here, where the others share a class variable


def with_facts(pod: Pod) -> PodWithFacts:
    """The same pod with room for facts; it has none yet."""
    roomy = PodWithFacts.__new__(PodWithFacts)
    for each in fields(Pod):
        setattr(roomy, each.name, getattr(pod, each.name))
    roomy.facts = ()
    return roomy


class VirtualPod(PodWithFacts):
    """A pod that a plugin made of an object of its own. `title`: that of the object (`Kind.title`)."""

    __slots__ = ("title",)

    virtual: ClassVar[bool] = True
    title: str  # a slot here, where the others derive it


class PodFactory:
    """Builds pods from wire objects, interning what replicas share."""

    __slots__ = ("_namespaces", "counts_claimed", "facts", "label_sets", "shapes")

    def __init__(self, shapes: PodShapes, label_sets: LabelSets, facts: PodFacts) -> None:
        self.shapes = shapes
        self.label_sets = label_sets
        self.facts = facts
        self._namespaces: dict[str, str] = {}
        self.counts_claimed = False
        """Whether what the claims of a pod take of its node counts (`cluster.claimedresources`)."""

    def build(self, wire: core.Pod, *, virtual: str = "") -> Pod:
        """The pod. `virtual`: the title of the object that it stands for, if it is no Pod object.

        Raises QuantityError if a request cannot be parsed.
        """
        meta, spec, status = wire.metadata, wire.spec, wire.status
        shape = self.shapes.intern(spec, meta)
        requests = shape.requests
        claimed = of_status(status) if self.counts_claimed and spec.node_name else None
        if claimed is not None or _reports_resources(status):
            requests = self.shapes.resized(shape, spec, status, total_of(claimed or ()))
        facts: tuple[object, ...] = ()
        kind: type[Pod] = Pod
        if virtual:
            kind = VirtualPod
            facts = self.facts.of(wire) if self.facts and spec.node_name else ()
        elif self.facts and (not spec.node_name or (facts := self.facts.of(wire))):
            kind = PodWithFacts
        pod = kind(
            uid=meta.uid,
            namespace=self._shared_namespace(meta.namespace),
            name=meta.name,
            resource_version=meta.resource_version,
            generation=meta.generation,
            shape=shape,
            labels=self.label_sets.intern(meta.labels),
            requests=requests,
            node=spec.node_name,
            nominated_node=status.nominated_node_name,
            owner=controller_of(meta) if meta.owner_references else None,
            created=meta.creation_timestamp,
            start_time=status.start_time,
            deleting=meta.deletion_timestamp is not None,
            deletion_deadline=_deadline(meta) if meta.deletion_timestamp is not None else None,
            preempted=meta.deletion_timestamp is not None and _by_preemption(status),
            wire=None if spec.node_name else wire,
        )
        if isinstance(pod, PodWithFacts):
            # What an earlier attempt wrote on a pod that has no node yet allocates nothing.
            pod.facts = facts
        if isinstance(pod, VirtualPod):
            pod.title = virtual
        return pod

    def _shared_namespace(self, name: str) -> str:
        if len(self._namespaces) >= _NAMESPACES_KEPT:
            self._namespaces.clear()
        return self._namespaces.setdefault(name, name)


def _deadline(meta: ObjectMeta) -> float | None:
    try:
        asked = datetime.fromisoformat(meta.deletion_timestamp or "").timestamp()
    except ValueError:
        return None
    return asked + (meta.deletion_grace_period_seconds or 0)


def _reports_resources(status: core.PodStatus) -> bool:
    return (
        status.resources is not None
        or any(s.resources is not None for s in status.container_statuses)
        or any(s.resources is not None for s in status.init_container_statuses)
    )


def _by_preemption(status: core.PodStatus) -> bool:
    target = status.condition("DisruptionTarget")
    return target is not None and target.status == "True" and target.reason == "PreemptionByScheduler"

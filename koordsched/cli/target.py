"""What `explain` is asked about: a pod, or another object that is scheduled as one, as the user names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from koordsched.api.meta import HasMetadata
from koordsched.cluster.builtinkinds import PODS
from koordsched.cluster.kinds import Kind, scheduled_object
from koordsched.cluster.pod import TERMINAL, Pod


class Target(NamedTuple):
    """An object of a kind that is scheduled. `namespace`: "" for cluster-wide kinds."""

    kind: Kind[Any]
    namespace: str
    name: str

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod."""
        return self.kind is PODS

    @property
    def title(self) -> str:
        """`namespace/name` of a pod, `kind/name` of others."""
        return f"{self.namespace}/{self.name}" if self.is_pod else self.kind.title(self.name)

    @property
    def query(self) -> str:
        """What a scheduler is asked; no pod has such a name if it is none."""
        return self.title if self.is_pod else f"{self.kind.full_name}/{self.name}"

    @property
    def path(self) -> str:
        """The path of the object at the API server."""
        return self.kind.object_path(self.namespace, self.name)

    def is_key_of(self, pod: Pod) -> bool:
        """Whether the pod is it, or stands for it."""
        return pod.virtual != self.is_pod and pod.title == self.title

    def is_object(self, thing: HasMetadata) -> bool:
        """Whether it is this object."""
        meta = thing.metadata
        return isinstance(thing, self.kind.type) and (meta.namespace, meta.name) == (self.namespace, self.name)


def target_of(text: str, namespace: str | None, default: str) -> Target:
    """`[namespace/]name` of a pod, or `kind/name`. `namespace`: given apart; `default`: of pods without one."""
    if namespace is None and (found := scheduled_object(text)) is not None:
        return Target(found[0], "", found[1])
    if "/" in text:
        namespace, _, text = text.partition("/")
    return Target(PODS, namespace or default, text)


def scheduler_of(thing: Any) -> str:
    """The scheduler that an object names, "" if none: it may be malformed."""
    if hasattr(thing.spec, "scheduler_name"):
        name: str = thing.spec.scheduler_name
        return name
    spec = thing.spec.template
    for key in ("spec", "schedulerName"):
        spec = spec.get(key) if isinstance(spec, Mapping) else None
    return spec if isinstance(spec, str) else ""


def phase_over(thing: Any) -> str:
    """The phase of an object that is over, "" if it is not."""
    phase: str = thing.status.phase
    return phase if phase in TERMINAL else ""


def node_of(thing: Any) -> str:
    """The node of an object that has one."""
    node: str = getattr(thing.spec, "node_name", "") or getattr(thing.status, "node_name", "")
    return node


def without_node(thing: Any) -> Any:
    """The object as if it were pending."""
    if hasattr(thing.spec, "node_name"):
        return replace(thing, spec=replace(thing.spec, node_name=""), status=replace(thing.status, phase="Pending"))
    return replace(thing, status=type(thing.status)())

"""Controllers: loops that write objects while this scheduler leads, and only then.

A controller belongs to a plugin and is started when a profile enables it. It reads the cluster state and the plugin's
own state, and writes through protocols declared here; it does not know queues, cycles or the API client.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Clock, EventRecorder
from koordsched.framework.profile import Profile
from koordsched.observability.metric_registry import MetricRegistry


class ObjectWrites(Protocol):
    """Writes of objects. They give way to bindings and evictions. Each raises WriteFailed (`framework.handle`)."""

    async def create(self, kind: Kind[Any], namespace: str, thing: Mapping[str, Any]) -> bool:
        """Creates the object (JSON); False if there is one of that name already."""

    async def merge(
        self, kind: Kind[Any], meta: ObjectMeta, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> None:
        """Merges changes into the object of that name and uid, or a subresource of it, whatever its version."""

    async def delete(self, kind: Kind[Any], meta: ObjectMeta) -> None:
        """Deletes the object of that name and uid; one that is gone is fine."""

    async def evict(self, pod: Pod) -> None:
        """Evicts the pod, disruption budgets permitting; one that is gone is fine."""


@dataclass(frozen=True, slots=True)
class ControllerHandle:
    """Given to every controller at construction."""

    cluster: ClusterState
    writes: ObjectWrites
    reporter: EventRecorder
    clock: Clock
    metrics: MetricRegistry
    own_replicas: Container[Pod]
    profiles: Mapping[str, Profile]
    """By scheduler name."""
    features: frozenset[str] = frozenset()
    """The feature gates that are on."""


class Controller(Protocol):
    """Built before the watches begin, so that it can ask for the kinds it needs."""

    async def run(self) -> None:
        """Works until cancelled. Called once everything watched has been seen and this scheduler leads."""


ControllerFactory = Callable[[Any, Any, ControllerHandle], Controller]
"""Builds the controller of a plugin from the plugin, its arguments, and what the scheduler offers."""

"""Controllers: loops that write objects while this scheduler leads, and only then.

A controller belongs to a plugin and is started when a profile enables it. It reads the cluster state and the plugin's
own state, and writes through protocols declared here; it does not know queues, cycles or the API client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from koordsched.api.meta import HasMetadata, ObjectMeta
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Clock, EventRecorder
from koordsched.framework.profile import Profile
from koordsched.observability.metric_registry import MetricRegistry

T = TypeVar("T", bound=HasMetadata)


class ObjectWatch(Protocol):
    """A collection that a controller has watched."""

    @property
    def synced(self) -> asyncio.Event:
        """Set while what was seen is complete: from the first list of a run to its end."""

    async def run(self) -> None:
        """Lists and watches until cancelled."""


class ObjectWatches(Protocol):
    """Has objects watched that only a controller reads: decisions do not depend on them, and journals lack them."""

    def __call__(
        self,
        path: str,
        kind: type[T],
        selectors: Mapping[str, str],
        seen: Callable[[T], None],
        gone: Callable[[str], None],
    ) -> ObjectWatch:
        """The collection at a path, narrowed by labelSelector and fieldSelector, as objects of a wire type.

        `seen` is called with every object that is new or changed, `gone` with the uid of one that is not there any
        more. Objects are not kept.
        """


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
    watch: ObjectWatches
    features: frozenset[str] = frozenset()
    """The feature gates that are on."""


class Controller(Protocol):
    """Built before the watches begin, so that it can ask for the kinds it needs."""

    async def run(self) -> None:
        """Works until cancelled. Called once everything watched has been seen and this scheduler leads."""


ControllerFactory = Callable[[Any, Any, ControllerHandle], Controller]
"""Builds the controller of a plugin from the plugin, its arguments, and what the scheduler offers."""

"""Pods that are not Pod objects: plugins derive them from other objects (reservations); they are scheduled as pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from koordsched.cluster.pod import Pod


class VirtualPodWriter(Protocol):
    """Writes of one virtual pod to the object behind it. The coroutines raise WriteFailed (`framework.handle`)."""

    async def bind(self, pod: Pod, node: str) -> None:
        """Writes the node. The plugin upserts the pod with its node when it sees the object so."""

    def placed(self, pod: Pod, node: str) -> None:
        """Where nothing is written (simulations), in place of `bind`: the object is as it would be afterwards."""

    async def patch(self, pod: Pod, metadata: Mapping[str, Any]) -> None:
        """Merges what PreBind plugins changed into the metadata."""

    async def evict(self, pod: Pod, message: str) -> None:
        """Deletes the object. The plugin deletes the pod when it sees that the object is gone."""

    def condition(self, pod: Pod, reason: str, message: str, nominated: str | None) -> None:
        """It cannot be scheduled, for this reason ("": only the nomination changes); None leaves the nomination."""

    def event(self, pod: Pod, event_type: str, reason: str, message: str, action: str) -> None:
        """An event on the object."""


class VirtualPods(Protocol):
    """Where plugins bring them. To be called when the objects behind them change, and in no other step."""

    def upsert(self, pod: Pod, writer: VirtualPodWriter) -> None:
        """The pod appeared or changed: pending, or on `pod.node`.

        It is built with `ClusterState.pods` from an object created for it. Its uid must be no other pod's, and its
        resourceVersion another one after every change.
        """

    def delete(self, uid: str) -> None:
        """The pod is gone. One that is unknown is ignored."""

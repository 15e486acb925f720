"""Pods that used a Reservation that is gone lose the annotation of it (gate CleanExpiredReservationAllocated)."""

from __future__ import annotations

from collections.abc import Iterable

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.builtinkinds import PODS
from koordsched.cluster.pod import Pod
from koordsched.framework.controller import ObjectWrites
from koordsched.framework.handle import WriteFailed
from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED


async def release(pods: Iterable[Pod], writes: ObjectWrites) -> None:
    """Takes the annotation off each, unless the pod has changed. Raises WriteFailed if that was refused for one."""
    refused: list[str] = []
    for pod in pods:
        meta = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
        # A newer version may say that it uses another one.
        patch = {"resourceVersion": pod.resource_version, "annotations": {RESERVATION_ALLOCATED: None}}
        try:
            await writes.merge(PODS, meta, {"metadata": patch})
        except WriteFailed as error:
            refused.append(f"pod {pod.key}: {error}")
    if refused:
        raise WriteFailed("; ".join(refused))

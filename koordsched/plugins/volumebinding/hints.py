"""Which changes may help a pod whose volumes could not be placed (core spec 3.4)."""

from __future__ import annotations

from typing import Any

from koordsched.api.storage import CSIDriver
from koordsched.cluster.events import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    ActionType,
    ClusterEvent,
)
from koordsched.cluster.pod import Pod
from koordsched.plugins.shared.volumes.claims import BY_CLAIM
from koordsched.plugins.volumebinding.capacity import limit_of
from koordsched.plugins.volumebinding.migration import MIGRATED_PLUGINS
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

_CHANGE = ActionType.ADD | ActionType.UPDATE


def registrations(plugin: str) -> list[HintRegistration[Pod]]:
    """All of them."""
    return [
        HintRegistration(plugin, ClusterEvent(STORAGE_CLASS, _CHANGE), _after_class_change, Scope.SHAPE),
        HintRegistration(plugin, ClusterEvent(PERSISTENT_VOLUME_CLAIM, _CHANGE), None, BY_CLAIM),
        HintRegistration(plugin, ClusterEvent(PERSISTENT_VOLUME, _CHANGE), None, Scope.SHAPE),
        HintRegistration(plugin, ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL), None, Scope.SHAPE),
        HintRegistration(plugin, ClusterEvent(CSI_NODE, _CHANGE), _after_csi_node_change, Scope.SHAPE),
        HintRegistration(plugin, ClusterEvent(CSI_DRIVER, ActionType.UPDATE), _after_driver_change, Scope.SHAPE),
        HintRegistration(plugin, ClusterEvent(CSI_STORAGE_CAPACITY, _CHANGE), _after_capacity_change, Scope.SHAPE),
    ]


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _after_class_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    return _queue_if(old is None or old.allowed_topologies != new.allowed_topologies)


def _after_csi_node_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    return _queue_if(
        old is None or old.metadata.annotations.get(MIGRATED_PLUGINS) != new.metadata.annotations.get(MIGRATED_PLUGINS)
    )


def _after_driver_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    uses = any(v.csi is not None and v.csi.driver == new.metadata.name for v in pod.shape.spec.volumes)
    return _queue_if(uses and _tracks_capacity(old) and not _tracks_capacity(new))


def _tracks_capacity(driver: CSIDriver) -> bool:
    return bool(driver.spec.storage_capacity)


def _after_capacity_change(pod: Pod, old: Any, new: Any) -> QueueingHint:
    if old is None:
        return QueueingHint.QUEUE
    before, after = limit_of(old), limit_of(new)
    return _queue_if(after is not None and (before is None or after > before))

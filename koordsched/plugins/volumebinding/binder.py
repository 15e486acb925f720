"""Writes a reservation to the API server, and waits until the binder and the provisioner have done their part.

Source: upstream `volumebinding/binder.go` BindPodVolumes, bindAPIUpdate, checkBindings. Where upstream polls once a
second, here a change of one of the claims, or of a volume for it, triggers a check at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import msgspec

from koordsched.api.meta import HasMetadata
from koordsched.api.storage import PersistentVolume, PersistentVolumeClaim
from koordsched.cluster.builtinkinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import Writes
from koordsched.plugins.shared.volumes.claims import ClaimKey, is_fully_bound
from koordsched.plugins.volumebinding.assumedvolumes import BOUND_BY_CONTROLLER, AssumedVolumes
from koordsched.plugins.volumebinding.claims import SELECTED_NODE
from koordsched.plugins.volumebinding.volumes import Volumes

POLL = 1.0
"""Seconds between checks when nothing seems to happen: pods and nodes disappear without an event for us."""


class BindingFailed(Exception):
    """The volumes will not be bound; the message says why."""


class ClaimChanges:
    """Wakes tasks that wait for changes of claims and of the volumes meant for them."""

    def __init__(self, cluster: ClusterState) -> None:
        # In the order in which they came, which is the same in every run; that of a set is not.
        self._waiting: dict[ClaimKey, dict[asyncio.Event, None]] = {}
        cluster.objects.of(PERSISTENT_VOLUME_CLAIMS).subscribe(self._claim_changed)
        cluster.objects.of(PERSISTENT_VOLUMES).subscribe(self._volume_changed)

    @contextmanager
    def of(self, claims: Iterable[ClaimKey]) -> Iterator[asyncio.Event]:
        """An event that is set at each change."""
        event = asyncio.Event()
        keys = set(claims)
        for key in keys:
            self._waiting.setdefault(key, {})[event] = None
        try:
            yield event
        finally:
            for key in keys:
                waiting = self._waiting[key]
                del waiting[event]
                if not waiting:
                    del self._waiting[key]

    def _claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        for claim in (old, new):
            if claim is not None:
                self._wake((claim.metadata.namespace, claim.metadata.name))

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        for volume in (old, new):
            if volume is not None and (reference := volume.spec.claim_ref) is not None:
                self._wake((reference.namespace, reference.name))

    def _wake(self, key: ClaimKey) -> None:
        for event in self._waiting.get(key, ()):
            event.set()


class Binder:
    """Binds the volumes of pods, each within `timeout` seconds."""

    def __init__(self, cluster: ClusterState, volumes: Volumes, writes: Writes, timeout: float) -> None:
        self._cluster = cluster
        self._believed = volumes
        self._volumes = cluster.objects.of(PERSISTENT_VOLUMES)
        self._claims = cluster.objects.of(PERSISTENT_VOLUME_CLAIMS)
        self._changes = cluster.shared(ClaimChanges)
        self._writes = writes
        self._timeout = timeout

    async def bind(
        self,
        pod: Pod,
        node: str,
        assumed_volumes: AssumedVolumes,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Raises WriteFailed if a write was refused, BindingFailed if binding failed afterwards. `waiting` is entered
        when everything is written and only others have work to do.
        """
        written = await self._write(assumed_volumes, node)
        claims = [binding.claim for binding in assumed_volumes.bindings]
        claims += [provision.claim for provision in assumed_volumes.provisions]
        keys = [(claim.metadata.namespace, claim.metadata.name) for claim in claims]
        with self._changes.of(keys) as changed, waiting():
            try:
                async with asyncio.timeout(self._timeout):
                    while not self._is_done(pod, node, assumed_volumes, written):
                        changed.clear()
                        with suppress(TimeoutError):
                            async with asyncio.timeout(POLL):
                                await changed.wait()
            except TimeoutError as error:
                raise BindingFailed("context deadline exceeded") from error

    async def _write(self, assumed_volumes: AssumedVolumes, node: str) -> dict[str, str]:
        """Writes one object after the other; returns uid -> resourceVersion of what it wrote."""
        written: dict[str, str] = {}
        for binding in assumed_volumes.bindings:
            if binding.volume is not binding.before:
                changes = _bound_volume_patch(binding.before, binding.volume)
                volume = await self._writes.patch(PERSISTENT_VOLUMES, binding.before, changes)
                written[volume.metadata.uid] = volume.metadata.resource_version
        for provision in assumed_volumes.provisions:
            if provision.claim is not provision.before:
                changes = {"metadata": {"annotations": {SELECTED_NODE: node}}}
                claim = await self._writes.patch(PERSISTENT_VOLUME_CLAIMS, provision.before, changes)
                written[claim.metadata.uid] = claim.metadata.resource_version
        return written

    def _is_done(self, pod: Pod, node: str, assumed_volumes: AssumedVolumes, written: dict[str, str]) -> bool:
        """Whether all claims are bound. Raises BindingFailed if that will not happen any more."""
        if node not in self._cluster.table.row_of:
            raise BindingFailed(f'failed to get node "{node}": node "{node}" not found')
        if self._cluster.assumed.get(pod.uid) is not pod:
            raise BindingFailed(f'pod does not exist any more: pod "{pod.name}" not found')
        return all(
            self._is_bound(binding.claim, binding.volume.metadata.name, node, written)
            for binding in assumed_volumes.bindings
        ) and all(self._is_provisioned(provision.claim, node, written) for provision in assumed_volumes.provisions)

    def _is_bound(self, claim: PersistentVolumeClaim, name: str, node: str, written: dict[str, str]) -> bool:
        volume = self._volumes.get("", name)
        if volume is None:
            raise BindingFailed(f'failed to check binding: could not find v1.PersistentVolume "{name}"')
        current = self._claims.get(claim.metadata.namespace, claim.metadata.name)
        if current is None or current.metadata.uid != claim.metadata.uid:
            raise BindingFailed(f"failed to check binding: {_no_claim(claim)}")
        if _is_outdated(volume, written):
            return False
        self._check_affinity(volume, node)
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            raise BindingFailed(f'ClaimRef got reset for pv "{name}"')
        if current.spec.volume_name not in ("", name):
            # Not checked upstream: that volume may be out of the node's reach.
            meta = current.metadata
            raise BindingFailed(
                f'claim "{meta.namespace}/{meta.name}" was bound to pv "{current.spec.volume_name}", not to "{name}"'
            )
        return is_fully_bound(current)

    def _is_provisioned(self, claim: PersistentVolumeClaim, node: str, written: dict[str, str]) -> bool:
        current = self._claims.get(claim.metadata.namespace, claim.metadata.name)
        if current is None or current.metadata.uid != claim.metadata.uid:
            raise BindingFailed(f"failed to check provisioning pvc: {_no_claim(claim)}")
        if _is_outdated(current, written):
            return False
        name, annotations = current.metadata.name, current.metadata.annotations
        if not annotations:
            raise BindingFailed(f'selectedNode annotation reset for PVC "{name}"')
        if annotations.get(SELECTED_NODE) != node:
            raise BindingFailed(f'provisioning failed for PVC "{name}"')
        if current.spec.volume_name:
            volume = self._volumes.get("", current.spec.volume_name)
            if volume is None:
                return False  # its creation has not been seen yet, or it is gone and the claim will lose it
            self._check_affinity(volume, node)
        return is_fully_bound(current)

    def _check_affinity(self, volume: PersistentVolume, node: str) -> None:
        row = self._cluster.table.row_of[node]
        if not self._believed.usable(volume, slice(row, row + 1))[0]:
            raise BindingFailed(
                f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{node}": no matching NodeSelectorTerms'
            )


def _bound_volume_patch(before: PersistentVolume, volume: PersistentVolume) -> dict[str, Any]:
    changes: dict[str, Any] = {"spec": {"claimRef": msgspec.to_builtins(volume.spec.claim_ref)}}
    if BOUND_BY_CONTROLLER not in before.metadata.annotations and BOUND_BY_CONTROLLER in volume.metadata.annotations:
        changes["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
    return changes


def _is_outdated(seen: HasMetadata, written: dict[str, str]) -> bool:
    """Whether the watch has not shown us our own write yet."""
    ours, theirs = written.get(seen.metadata.uid, ""), seen.metadata.resource_version
    return ours.isdecimal() and theirs.isdecimal() and int(theirs) < int(ours)


def _no_claim(claim: PersistentVolumeClaim) -> str:
    return f'could not find v1.PersistentVolumeClaim "{claim.metadata.namespace}/{claim.metadata.name}"'

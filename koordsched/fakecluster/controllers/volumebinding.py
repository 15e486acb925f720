"""PersistentVolume binder and dynamic provisioner.

Claims of Immediate classes are bound or provisioned at once; claims of WaitForFirstConsumer classes when the scheduler
has chosen: either a volume (its claimRef) or a node (the claim's selected-node annotation). Source of the rules:
kube-controller-manager `pkg/controller/volume/persistentvolume/pv_controller.go`, external-provisioner (topology).
"""

from __future__ import annotations

from collections.abc import Callable

from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.ownership import Key, Object, is_deleting, key_of
from koordsched.fakecluster.controllers.provisioning import provisioned_volume
from koordsched.fakecluster.controllers.volumematching import VolumeMatcher, refers_to
from koordsched.fakecluster.controllers.workqueue import WorkQueue
from koordsched.fakecluster.resources import Resource

SELECTED_NODE = "volume.kubernetes.io/selected-node"
_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class VolumeBindingController:
    """Binds claims and volumes to each other. A volume is provisioned `provision_delay` seconds after it is due."""

    def __init__(self, context: ControllerContext, provision_delay: float) -> None:
        self._context = context
        self._delay = provision_delay
        self._due: dict[str, float] = {}
        """When the volume of a claim (by uid) will be there."""
        self._said: dict[str, str] = {}
        """The reason last given, by the uid of a claim that waits."""
        self._pending: dict[str, dict[Key, None]] = {}
        """The claims without a volume, by storage class."""
        self._matcher = VolumeMatcher(context.volumes)
        self.queue: WorkQueue[Key] = WorkQueue(context.registry, "claim-binder", self._reconcile_claim)
        self.volume_queue: WorkQueue[Key] = WorkQueue(context.registry, "volume-binder", self._reconcile_volume)
        context.claims.on_change(self._claim_changed)
        context.volumes.on_change(self._volume_changed)
        context.storage_classes.on_change(self._class_changed)

    def _claim_changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            self.queue.add(key_of(after))
            return
        if before is not None:
            self._due.pop(before["metadata"]["uid"], None)
            self._said.pop(before["metadata"]["uid"], None)
            self._set_pending(before, False)
            if before["spec"].get("volumeName"):
                self.volume_queue.add(("", before["spec"]["volumeName"]))

    def _volume_changed(self, before: Object | None, after: Object | None) -> None:
        volume = after or before
        if volume is None:
            return
        if after is not None:
            self.volume_queue.add(key_of(after))
        reference = volume["spec"].get("claimRef")
        if reference is not None:
            self.queue.add((reference["namespace"], reference["name"]))
        else:
            self._retry_pending(volume["spec"].get("storageClassName") or "")

    def _class_changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            self._retry_pending(after["metadata"]["name"])

    def _set_pending(self, claim: Object, pending: bool) -> None:
        waiting = self._pending.setdefault(claim["spec"].get("storageClassName") or "", {})
        if pending:
            waiting[key_of(claim)] = None
        else:
            waiting.pop(key_of(claim), None)

    def _retry_pending(self, storage_class: str) -> None:
        for key in self._pending.get(storage_class, ()):
            self.queue.add(key)

    def _reconcile_claim(self, key: Key) -> int:
        claim = self._context.claims.get(key)
        if claim is None or is_deleting(claim):
            return 0
        if claim["spec"].get("volumeName"):
            return self._complete(claim)
        volume = self._find_volume(claim)
        if volume is not None:
            self._set_pending(claim, False)
            return self._bind(claim, volume)
        self._set_pending(claim, True)
        return self._provision(claim)

    def _complete(self, claim: Object) -> int:
        """A claim that names its volume: check the volume, finish the binding."""
        volume = self._context.volumes.get(("", claim["spec"]["volumeName"]))
        completed = (claim["metadata"].get("annotations") or {}).get(_BIND_COMPLETED)
        self._set_pending(claim, False)
        if volume is None:
            return self._set_claim_phase(claim, "Lost" if completed else "Pending")
        reference = volume["spec"].get("claimRef")
        if reference is not None and not refers_to(reference, claim):
            return self._set_claim_phase(claim, "Lost" if completed else "Pending")
        return self._bind(claim, volume)

    def _class_of(self, claim: Object) -> Object | None:
        name = claim["spec"].get("storageClassName")
        return self._context.storage_classes.get(("", name)) if name else None

    def _find_volume(self, claim: Object) -> Object | None:
        """The volume that is already meant for the claim, else the smallest that will do, if it may be chosen now."""
        reserved = self._matcher.reserved_for(claim)
        storage_class = self._class_of(claim)
        if reserved is not None:
            return reserved
        if storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer":
            return None
        return self._matcher.smallest_fit(claim)

    def _bind(self, claim: Object, volume: Object) -> int:
        context, writes = self._context, 0
        key, name = key_of(claim), volume["metadata"]["name"]
        reference = volume["spec"].get("claimRef")
        if reference is None or not reference.get("uid"):
            full = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": key[0],
                "name": key[1],
                "uid": claim["metadata"]["uid"],
                "resourceVersion": claim["metadata"]["resourceVersion"],
            }
            mark = {_BOUND_BY_CONTROLLER: "yes"} if reference is None else {}
            self._change(context.volumes.resource, ("", name), mark, lambda spec: spec.update(claimRef=full))
            writes += 1
        annotations = claim["metadata"].get("annotations") or {}
        if claim["spec"].get("volumeName") != name or _BIND_COMPLETED not in annotations:
            mark = {_BIND_COMPLETED: "yes"}
            if not claim["spec"].get("volumeName"):
                mark[_BOUND_BY_CONTROLLER] = "yes"
            self._change(context.claims.resource, key, mark, lambda spec: spec.update(volumeName=name))
            writes += 1
        self._due.pop(claim["metadata"]["uid"], None)
        self._said.pop(claim["metadata"]["uid"], None)
        return writes + self._set_claim_bound(key, volume)

    def _set_claim_bound(self, key: Key, volume: Object) -> int:
        claim = self._context.claims.get(key)
        if claim is None:
            return 0
        old = claim.get("status") or {}
        spec = volume["spec"]
        status = {
            **old,
            "phase": "Bound",
            "accessModes": spec.get("accessModes") or [],
            "capacity": spec.get("capacity") or {},
        }
        if status == old:
            return 0
        return self._context.write_status(self._context.claims.resource, claim, status)

    def _set_claim_phase(self, claim: Object, phase: str) -> int:
        old = claim.get("status") or {}
        if old.get("phase") == phase:
            return 0
        return self._context.write_status(self._context.claims.resource, claim, {**old, "phase": phase})

    def _provision(self, claim: Object) -> int:
        """Has a volume made for the claim, when its class can and it need not wait for its first consumer."""
        storage_class, annotations = self._class_of(claim), claim["metadata"].get("annotations") or {}
        if storage_class is None:
            name = claim["spec"].get("storageClassName")
            if name:
                text = f'storageclass.storage.k8s.io "{name}" not found'
                return self._say(claim, "ProvisioningFailed", text, "Warning")
            text = "no persistent volumes available for this claim and no storage class is set"
            return self._say(claim, "FailedBinding", text, "Normal")
        waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        provisioner = storage_class.get("provisioner") or _NO_PROVISIONER
        if waits and SELECTED_NODE not in annotations:
            text = "waiting for first consumer to be created before binding"
            return self._say(claim, "WaitForFirstConsumer", text, "Normal")
        if provisioner == _NO_PROVISIONER:
            return self._say(claim, "FailedBinding", "no volume plugin matched", "Warning")
        key, uid, now = key_of(claim), claim["metadata"]["uid"], self._context.now()
        if annotations.get(_PROVISIONER) != provisioner:
            self._change(self._context.claims.resource, key, {_PROVISIONER: provisioner}, None)
        due = self._due.setdefault(uid, now + self._delay)
        if due > now:
            self.queue.add(key, due - now)
            return 1
        context = self._context
        node = context.nodes.get(annotations[SELECTED_NODE]) if waits else None
        csi_nodes = context.registry.resource("storage.k8s.io", "v1", "csinodes")
        csi_node = context.registry.peek(csi_nodes, None, node.name) if node is not None else None
        volume = provisioned_volume(claim, storage_class, node, csi_node)
        context.registry.create(context.volumes.resource, None, volume)
        context.events.record(
            claim,
            "v1",
            "PersistentVolumeClaim",
            "ProvisioningSucceeded",
            f"Successfully provisioned volume {volume['metadata']['name']}",
            "Normal",
        )
        return 2

    def _say(self, claim: Object, reason: str, message: str, type_: str) -> int:
        """Records once why a claim waits."""
        uid = claim["metadata"]["uid"]
        if self._said.get(uid) == reason:
            return 0
        self._said[uid] = reason
        self._context.events.record(claim, "v1", "PersistentVolumeClaim", reason, message, type_)
        return 1 + self._set_claim_phase(claim, "Pending")

    def _reconcile_volume(self, key: Key) -> int:
        volume = self._context.volumes.get(key)
        if volume is None or is_deleting(volume):
            return 0
        reference, phase = volume["spec"].get("claimRef"), "Available"
        if reference is not None and not reference.get("uid"):
            phase = "Available"  # Reserved for a claim that does not exist yet.
        elif reference is not None:
            claim = self._context.claims.get((reference["namespace"], reference["name"]))
            alive = claim is not None and refers_to(reference, claim)
            phase = "Bound" if alive else "Released"
            if not alive and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
                self._context.registry.delete(self._context.volumes.resource, None, key[1])
                return 1
        old = volume.get("status") or {}
        if old.get("phase") == phase:
            return 0
        return self._context.write_status(self._context.volumes.resource, volume, {**old, "phase": phase})

    def _change(
        self, resource: Resource, key: Key, annotations: dict[str, str], change: Callable[[Object], None] | None
    ) -> None:
        """Adds annotations to a claim or volume and changes its spec in place."""

        def make(current: Object) -> Object:
            metadata = current["metadata"]
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
            if change is not None:
                change(current["spec"])
            return current

        self._context.registry.update_record(resource, *key, make)

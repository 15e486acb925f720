"""Makes ResourceClaims of templates for pods, and takes claims back from pods that need them no longer.

An allocation ends with its last reservation; claims that were made for a pod are deleted with it, those of extended
resources too. Where PodGroups are served, their pods may have claims together (`groupclaims`). Source of the rules:
kube-controller-manager `pkg/controller/resourceclaim`.
"""

from __future__ import annotations

from collections.abc import Callable

from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.groupclaims import GroupClaims
from koordsched.fakecluster.controllers.informer import Informer
from koordsched.fakecluster.controllers.ownership import (
    Key,
    Object,
    controller_reference,
    controller_uid,
    is_deleting,
    key_of,
)
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.templateclaims import is_made_for, made_of
from koordsched.fakecluster.controllers.workqueue import WorkQueue
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.podclaims import PodClaim
from koordsched.fakecluster.workloadapi import GROUP, VERSION

FINALIZER = "resource.kubernetes.io/delete-protection"
"""On claims with an allocation."""
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of claims made of templates: the entry of the pod's spec."""
_MOST_RESERVATIONS = 256
_GROUP = "resource.k8s.io"


class ResourceClaimController:
    """Looks at a claim when it or one of its pods changes, and at a pod when one of its claims or templates does."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        registry = context.registry
        self._claims = Informer(registry, _GROUP, "v1", "resourceclaims")
        self._templates = Informer(registry, _GROUP, "v1", "resourceclaimtemplates")
        self._users: dict[Key, dict[Key, None]] = {}
        """The pods that have a claim, by its name."""
        self._waiting: dict[Key, dict[Key, None]] = {}
        """The pods that wait for a template, by its name."""
        self._said: dict[str, str] = {}
        """Why no claim could be made last, by the uid of the pod."""
        self.queue: WorkQueue[Key] = WorkQueue(registry, "resource-claim", self._reconcile_claim)
        self.pod_queue: WorkQueue[Key] = WorkQueue(registry, "pod-resource-claim", self._reconcile_pod)
        self._claims.on_change(self._claim_changed)
        self._templates.on_change(self._template_changed)
        context.pods.on_change(self._pod_changed)
        self._groups: GroupClaims | None = None
        """None where PodGroups are not served."""
        self._members: dict[Key, dict[Key, None]] = {}
        """The pods with claims that are in a PodGroup, by its name."""
        if registry.find(GROUP, VERSION, "podgroups") is not None:
            self._groups = GroupClaims(context, self._claims, self._templates, self._group_changed)

    def start(self) -> list[Callable[[], None]]:
        """Follows claims and templates, and PodGroups; returns what ends it."""
        endings = [self._templates.start(), self._claims.start()]
        return endings if self._groups is None else [*endings, self._groups.start()]

    def close(self) -> None:
        """Ends it; what was not done yet stays undone."""
        self.queue.close()
        self.pod_queue.close()
        if self._groups is not None:
            self._groups.queue.close()

    # -- what happens

    def _pod_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        old, new = _claim_keys(before), _claim_keys(after)
        pod = after or before
        if self._groups is not None and pod is not None and pod.group:
            if after is None:
                self._drop(self._members, (pod.namespace, pod.group), pod.key)
            else:
                self._members.setdefault((pod.namespace, pod.group), {})[pod.key] = None
        if old != new and pod is not None:
            for key in old:
                self._drop(self._users, key, pod.key)
            for key in new:
                self._users.setdefault(key, {})[pod.key] = None
        if after is not None and not _is_done(after):
            if after.claims and self._needs_work(after):
                self.pod_queue.add(after.key)
            return
        if pod is not None and (before is None or after is None or not _is_done(before)):
            self._let_go(pod, new or old)

    def _let_go(self, pod: PodRecord, claims: list[Key]) -> None:
        """The pod needs its claims no longer."""
        for key in claims:
            self.queue.add(key)
        for claim in self._claims.owned_by(pod.uid):
            self.queue.add(key_of(claim))
        for entry in pod.claims:
            if entry.template:
                self._drop(self._waiting, (pod.namespace, entry.template), pod.key)
        self._said.pop(pod.uid, None)

    def _claim_changed(self, before: Object | None, after: Object | None) -> None:
        claim = after or before
        if claim is None:
            return
        key = key_of(claim)
        if after is not None:
            self.queue.add(key)
        for user in self._users.get(key, ()):
            pod = self._context.pods.get(user)
            if pod is not None and self._needs_work(pod):
                self.pod_queue.add(user)

    def _group_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        for member in self._members.get(key, ()):
            pod = self._context.pods.get(member)
            if pod is not None and self._needs_work(pod):
                self.pod_queue.add(member)
        if before is not None and after is None:
            for claim in self._claims.in_namespace(key[0]):
                users = (claim.get("status") or {}).get("reservedFor") or ()
                if any(user.get("uid") == before["metadata"]["uid"] for user in users):
                    self.queue.add(key_of(claim))

    def _template_changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            for pod in self._waiting.pop(key_of(after), ()):
                self.pod_queue.add(pod)

    @staticmethod
    def _drop(index: dict[Key, dict[Key, None]], where: Key, pod: Key) -> None:
        members = index.get(where)
        if members is not None:
            members.pop(pod, None)
            if not members:
                del index[where]

    # -- pods

    def _needs_work(self, pod: PodRecord) -> bool:
        """Whether a claim has to be made for the pod, or reserved."""
        if pod.deleting or pod.finished:
            return False
        return any(self._is_missing(pod, entry) or self._reservable(pod, entry) for entry in pod.claims)

    def _is_missing(self, pod: PodRecord, entry: PodClaim) -> bool:
        if not entry.template or not entry.needed:
            return False
        claim = self._claims.get((pod.namespace, entry.claim)) if entry.claim else None
        return claim is None or controller_uid(claim) != self._owner(pod, entry)

    def _owner(self, pod: PodRecord, entry: PodClaim) -> str:
        """The uid of the pod, or of its group if the claim of the entry belongs to that."""
        group = self._groups.of(pod, entry) if self._groups is not None else None
        return pod.uid if group is None else str(group["metadata"]["uid"])

    def _reservable(self, pod: PodRecord, entry: PodClaim) -> Object | None:
        """The claim of a pod that was bound without a scheduler, if it is allocated and may be used by one more."""
        claim = self._claims.get((pod.namespace, entry.claim)) if pod.node and entry.claim else None
        if claim is None or (entry.template and controller_uid(claim) != self._owner(pod, entry)):
            return None
        status = claim.get("status") or {}
        reserved = status.get("reservedFor") or ()
        if status.get("allocation") is None or is_deleting(claim) or len(reserved) >= _MOST_RESERVATIONS:
            return None
        owners = (pod.uid, self._owner(pod, entry))
        return None if any(consumer.get("uid") in owners for consumer in reserved) else claim

    def _reconcile_pod(self, key: Key) -> int:
        pod = self._context.pods.get(key)
        if pod is None or pod.deleting or pod.finished:
            return 0
        writes = self._make_claims(pod)
        pod = self._context.pods.get(key) or pod
        for entry in pod.claims:
            claim = self._reservable(pod, entry)
            if claim is not None:
                status = claim.get("status") or {}
                reserved = [*(status.get("reservedFor") or ()), self._consumer(pod, entry)]
                writes += self._write_status(claim, {**status, "reservedFor": reserved})
        return writes

    def _consumer(self, pod: PodRecord, entry: PodClaim) -> Object:
        """Who the claim of the entry is to be reserved for."""
        uid = self._owner(pod, entry)
        if uid == pod.uid:
            return {"resource": "pods", "name": pod.name, "uid": uid}
        return {"apiGroup": GROUP, "resource": "podgroups", "name": pod.group, "uid": uid}

    def _make_claims(self, pod: PodRecord) -> int:
        """Makes the claims that are missing and says so in the pod's status."""
        writes, made = 0, dict[str, str]()
        for entry in pod.claims:
            if not self._is_missing(pod, entry):
                continue
            if self._groups is not None and pod.group:
                if self._groups.get((pod.namespace, pod.group)) is None:
                    continue  # whose the claim is to be, the group says
                if (group := self._groups.of(pod, entry)) is not None:
                    name = self._groups.claim_of(group, entry.entry)
                    if name and name != entry.claim:
                        made[entry.entry] = name
                    continue
            claim = self._made_before(pod, entry.entry)
            if claim is None:
                template = self._templates.get((pod.namespace, entry.template))
                if template is None:
                    self._waiting.setdefault((pod.namespace, entry.template), {})[pod.key] = None
                    name = f"resourceclaimtemplate.{_GROUP}"
                    self._complain(
                        pod, entry, f'resource claim template "{entry.template}": {name} "{entry.template}" not found'
                    )
                    continue
                claim = self._make(pod, entry, template)
                writes += 1
            made[entry.entry] = claim["metadata"]["name"]
        return writes + (self._report(pod, made) if made else 0)

    def _made_before(self, pod: PodRecord, entry: str) -> Object | None:
        """A claim that was made for the entry while the pod's status could not be written."""
        for claim in self._claims.owned_by(pod.uid):
            if is_made_for(claim, entry, POD_CLAIM_NAME) and not is_deleting(claim):
                return claim
        return None

    def _make(self, pod: PodRecord, entry: PodClaim, template: Object) -> Object:
        claim = claim_of_template(template, pod.name, pod.uid, entry.entry)
        try:
            return self._context.registry.create(self._claims.resource, pod.namespace, claim)
        except ApiStatusError as error:
            # The message has a name that is another one each time.
            cause = (error.details or {}).get("causes") or error.message.partition(" is forbidden: ")[2]
            self._complain(pod, entry, f"create ResourceClaim : {error.message}", str(cause))
            raise

    def _complain(self, pod: PodRecord, entry: PodClaim, problem: str, cause: str = "") -> None:
        """Records an Event about the pod, unless the last one had the same cause."""
        message = f"PodResourceClaim {entry.entry}: {problem}"
        found = self._context.registry.peek(self._context.pod_resource, *pod.key)
        if found is not None and self._said.get(pod.uid) != (cause or message):
            self._said[pod.uid] = cause or message
            self._context.events.record(found, "v1", "Pod", "FailedResourceClaimCreation", message, "Warning")

    def _report(self, pod: PodRecord, made: dict[str, str]) -> int:
        found = self._context.read_pod(pod)
        if found is None:
            return 0
        status = found.get("status") or {}
        entries = {entry["name"]: entry for entry in status.get("resourceClaimStatuses") or ()}
        entries |= {name: {"name": name, "resourceClaimName": claim} for name, claim in made.items()}
        changed = {**status, "resourceClaimStatuses": list(entries.values())}
        return self._context.write_status(self._context.pod_resource, found, changed)

    # -- claims

    def _reconcile_claim(self, key: Key) -> int:
        claim = self._claims.get(key)
        if claim is None:
            return 0
        status = claim.get("status") or {}
        reserved = status.get("reservedFor") or []
        valid = [consumer for consumer in reserved if self._may_use(key[0], consumer)]
        protected = FINALIZER in (claim["metadata"].get("finalizers") or ())
        writes = 0
        if len(valid) < len(reserved):
            writes += self._write_status(claim, _reserved_for(status, valid, keep_allocation=not protected))
            writes += self._unprotect(key) if protected and not valid else 0
        elif protected and not valid and is_deleting(claim):
            if status.get("allocation") is not None:
                writes += self._write_status(claim, _reserved_for(status, [], keep_allocation=False))
            writes += self._unprotect(key)
        return writes + (self._delete_unused(key) if not valid else 0)

    def _may_use(self, namespace: str, consumer: Object) -> bool:
        """Whether a reservation is for a pod that may still run, a PodGroup that exists, or for something else."""
        if self._groups is not None and (consumer.get("apiGroup"), consumer.get("resource")) == (GROUP, "podgroups"):
            group = self._groups.get((namespace, consumer.get("name") or ""))
            return group is not None and bool(group["metadata"]["uid"] == consumer.get("uid"))
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        pod = self._context.pods.get((namespace, consumer.get("name") or ""))
        return pod is not None and pod.uid == consumer.get("uid") and not _is_done(pod)

    def _delete_unused(self, key: Key) -> int:
        """Deletes a claim that was made for a pod that will not run any more. The pod may stay for long."""
        claim = self._claims.get(key)
        if claim is None or is_deleting(claim):
            return 0
        owner = _owning_pod(claim)
        pod = self._context.pods.get((key[0], owner["name"])) if owner is not None else None
        # Without the pod, the garbage collector deletes the claim.
        if owner is None or pod is None or (pod.uid == owner["uid"] and not _is_done(pod)):
            return 0
        self._context.registry.delete_record(self._claims.resource, *key, uid=claim["metadata"]["uid"])
        return 1

    def _write_status(self, claim: Object, status: Object) -> int:
        return self._context.write_status(self._claims.resource, claim, status)

    def _unprotect(self, key: Key) -> int:
        def make(current: Object) -> Object:
            metadata = current["metadata"]
            metadata["finalizers"] = [other for other in metadata.get("finalizers") or () if other != FINALIZER]
            if not metadata["finalizers"]:
                del metadata["finalizers"]
            return current

        self._context.registry.update_record(self._claims.resource, *key, make)
        return 1


def claim_of_template(template: Object, pod: str, uid: str, entry: str) -> Object:
    """The claim that is made of a template for an entry of a pod's `resourceClaims`; the server completes its name."""
    owner = controller_reference({"metadata": {"name": pod, "uid": uid}}, "v1", "Pod")
    return made_of(template, owner, entry, POD_CLAIM_NAME)


def _claim_keys(pod: PodRecord | None) -> list[Key]:
    if pod is None:
        return []
    names = [entry.claim for entry in pod.claims if entry.claim]
    return [(pod.namespace, name) for name in (*names, pod.extended_claim) if name]


def _is_done(pod: PodRecord) -> bool:
    """Whether no container of the pod runs or ever will."""
    return pod.finished or (pod.deleting and not pod.node)


def _owning_pod(claim: Object) -> Object | None:
    for reference in claim["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and (reference.get("apiVersion"), reference.get("kind")) == ("v1", "Pod"):
            found: Object = reference
            return found
    return None


def _reserved_for(status: Object, reserved: list[Object], *, keep_allocation: bool) -> Object:
    """The status with these reservations. The allocation goes with the last one, and what drivers said with it."""
    goes = {"reservedFor"} if reserved or keep_allocation else {"reservedFor", "allocation", "devices"}
    rest = {key: value for key, value in status.items() if key not in goes}
    return {**rest, "reservedFor": reserved} if reserved else rest

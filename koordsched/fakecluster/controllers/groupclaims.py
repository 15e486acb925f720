"""ResourceClaims that the pods of a PodGroup have together: made of templates, they belong to the group.

A pod has one where an entry of its spec equals one of the group's, in name and in template.
"""

from __future__ import annotations

from collections.abc import Callable

from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.informer import Informer
from koordsched.fakecluster.controllers.ownership import Key, Object, controller_reference, is_deleting, key_of
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.templateclaims import is_made_for, made_of
from koordsched.fakecluster.controllers.workqueue import WorkQueue
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.podclaims import PodClaim, pod_claims
from koordsched.fakecluster.workloadapi import GROUP, VERSION

GROUP_CLAIM_NAME = "resource.kubernetes.io/podgroup-claim-name"
"""Annotation of claims made for a PodGroup: the entry of its spec."""


class GroupClaims:
    """Looks at a PodGroup when it, one of its claims or one of their templates changes.

    `changed(key, before, after)` hears of groups that changed: their pods and claims may need work.
    """

    def __init__(
        self,
        context: ControllerContext,
        claims: Informer,
        templates: Informer,
        changed: Callable[[Key, Object | None, Object | None], None],
    ) -> None:
        self._context = context
        self._claims = claims
        self._templates = templates
        self._changed = changed
        self._groups = Informer(context.registry, GROUP, VERSION, "podgroups")
        self._waiting: dict[Key, dict[Key, None]] = {}
        """The groups that wait for a template, by its name."""
        self._said: dict[str, str] = {}
        """Why no claim could be made last, by the uid of the group."""
        self.queue: WorkQueue[Key] = WorkQueue(context.registry, "podgroup-resource-claim", self._reconcile)
        self._groups.on_change(self._group_changed)
        claims.on_change(self._claim_changed)
        templates.on_change(self._template_changed)

    def start(self) -> Callable[[], None]:
        """Follows PodGroups; returns what ends it."""
        return self._groups.start()

    def get(self, key: Key) -> Object | None:
        """The PodGroup of that name, if it exists."""
        return self._groups.get(key)

    def of(self, pod: PodRecord, entry: PodClaim) -> Object | None:
        """The pod's group if it has the entry, too."""
        group = self._groups.get((pod.namespace, pod.group)) if pod.group else None
        return group if group is not None and shared_entry(group, entry) is not None else None

    def claim_of(self, group: Object, entry: str) -> str:
        """The name of the claim that was made for an entry of the group; empty if none was."""
        return next((other.claim for other in _entries(group) if other.entry == entry), "")

    # -- what happens

    def _group_changed(self, before: Object | None, after: Object | None) -> None:
        group = after or before
        if group is None:
            return
        key = key_of(group)
        if after is not None:
            self.queue.add(key)
        else:
            self._said.pop(group["metadata"]["uid"], None)
            for waiting in self._waiting.values():
                waiting.pop(key, None)
        self._changed(key, before, after)

    def _claim_changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None or before is None:
            return
        for owner in before["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == "PodGroup":
                self.queue.add((before["metadata"]["namespace"], owner["name"]))

    def _template_changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            for key in self._waiting.pop(key_of(after), ()):
                self.queue.add(key)

    # -- groups

    def _reconcile(self, key: Key) -> int:
        group = self._groups.get(key)
        if group is None or is_deleting(group):
            return 0
        uid = group["metadata"]["uid"]
        writes, made = 0, dict[str, str]()
        for entry in _entries(group):
            if not entry.template or (entry.claim and self._claims.get((key[0], entry.claim)) is not None):
                continue
            claim = next(
                (each for each in self._claims.owned_by(uid) if is_made_for(each, entry.entry, GROUP_CLAIM_NAME)), None
            )
            if claim is None:
                claim = self._make(group, key, entry)
                if claim is None:
                    continue
                writes += 1
            made[entry.entry] = claim["metadata"]["name"]
        if not made:
            return writes
        status = group.get("status") or {}
        entries = {each["name"]: each for each in status.get("resourceClaimStatuses") or ()}
        entries |= {name: {"name": name, "resourceClaimName": claim} for name, claim in made.items()}
        changed = {**status, "resourceClaimStatuses": list(entries.values())}
        return writes + self._context.write_status(self._groups.resource, group, changed)

    def _make(self, group: Object, key: Key, entry: PodClaim) -> Object | None:
        """The claim that was made of the template; None if that is missing."""
        template = self._templates.get((key[0], entry.template))
        if template is None:
            self._waiting.setdefault((key[0], entry.template), {})[key] = None
            self._complain(group, entry, f'resource claim template "{entry.template}" not found')
            return None
        claim = claim_for_group(template, group, entry.entry)
        try:
            return self._context.registry.create(self._claims.resource, key[0], claim)
        except ApiStatusError as error:
            self._complain(group, entry, f"create ResourceClaim : {error.message}")
            raise

    def _complain(self, group: Object, entry: PodClaim, problem: str) -> None:
        """Records an Event about the group, unless the last one said the same."""
        message, uid = f"PodGroupResourceClaim {entry.entry}: {problem}", group["metadata"]["uid"]
        if self._said.get(uid) != message:
            self._said[uid] = message
            version = f"{GROUP}/{VERSION}"
            self._context.events.record(group, version, "PodGroup", "FailedResourceClaimCreation", message, "Warning")


def shared_entry(group: Object, entry: PodClaim) -> PodClaim | None:
    """The entry of the group that equals this one of a pod; None if there is none."""
    return next((other for other in _entries(group) if _is_same(entry, other)), None)


def claim_for_group(template: Object, group: Object, entry: str) -> Object:
    """The claim that is made of a template for an entry of a PodGroup; the server completes its name."""
    owner = controller_reference(group, f"{GROUP}/{VERSION}", "PodGroup")
    return made_of(template, owner, entry, GROUP_CLAIM_NAME)


def _entries(group: Object) -> tuple[PodClaim, ...]:
    """A PodGroup names claims as pods do."""
    return pod_claims(group.get("spec") or {}, group.get("status") or {})


def _is_same(entry: PodClaim, other: PodClaim) -> bool:
    if (entry.entry, entry.template) != (other.entry, other.template):
        return False
    return bool(entry.template) or entry.claim == other.claim

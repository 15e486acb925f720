"""What controllers remember of each pod, indexed by what they ask for.

A pod is decoded once per event into a small record; everything that needs the whole object reads it from the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from sys import intern
from typing import Any

import msgspec

from koordsched.api.selectors import Selector
from koordsched.fakecluster.controllers.conditions import find
from koordsched.fakecluster.controllers.ownership import Key
from koordsched.fakecluster.controllers.selectorindex import LabelIndex
from koordsched.fakecluster.podclaims import PodClaim, extended_claim, group_name, pod_claims
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.store import Record

JOB_TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    """The facts of a pod that some controller reads. Times are RFC 3339 text, which sorts as time does."""

    key: Key
    uid: str
    labels: dict[str, str]
    owner_kind: str
    owner_uid: str
    node: str
    target_node: str
    phase: str
    ready_since: str
    """When the pod became Ready; empty while it is not."""
    created: str
    deleting: bool
    restarts: int
    tracked: bool
    """Whether a Job still has to count it."""
    deletion_cost: int
    claims: tuple[PodClaim, ...] = ()
    extended_claim: str = ""
    """Name of the ResourceClaim for its extended resources."""
    group: str = ""
    """Name of its PodGroup; empty for a pod without one, and for one without claims."""

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def ready(self) -> bool:
        return bool(self.ready_since)

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """Neither finished nor terminating."""
        return not self.deleting and self.phase not in ("Succeeded", "Failed")

    def available(self, min_ready_seconds: int, ready_before: str) -> bool:
        """Whether it has been ready since `ready_before` (now minus minReadySeconds, as text) or longer."""
        return self.ready and (min_ready_seconds == 0 or self.ready_since <= ready_before)


PodListener = Callable[[PodRecord | None, PodRecord | None], None]
"""Called with (before, after); None stands for absent."""


class PodIndex:
    """All pods, by name, controller, node and, for those without a controller, by label."""

    def __init__(self) -> None:
        self._pods: dict[Key, PodRecord] = {}
        self._by_owner: dict[str, dict[Key, PodRecord]] = {}
        self._by_node: dict[str, dict[Key, PodRecord]] = {}
        self._orphans: dict[str, LabelIndex[Key]] = {}
        """By namespace, kept from the first query on: for most pods no controller ever asks."""
        self._listeners: list[PodListener] = []
        self._owner_listeners: dict[str, PodListener] = {}

    def start(self, registry: Registry) -> Callable[[], None]:
        """Follows the registry's pods, those that exist first; returns what ends it."""
        return registry.subscribe_changes(registry.pods, self._changed)

    def on_change(self, listener: PodListener) -> None:
        """Calls the listener for every relevant change of any pod. It must be cheap and must not write."""
        self._listeners.append(listener)

    def on_owned_change(self, kind: str, listener: PodListener) -> None:
        """Calls the listener for changes of pods whose controller is of that kind; "" for pods without one."""
        self._owner_listeners[kind] = listener

    def get(self, key: Key) -> PodRecord | None:
        """The record of that pod, if it exists."""
        return self._pods.get(key)

    def owned_by(self, uid: str) -> list[PodRecord]:
        """The pods whose controller has that uid, in the order they appeared."""
        return list(self._by_owner.get(uid, {}).values())

    def count_owned_by(self, uid: str) -> int:
        """How many pods the controller with that uid has."""
        return len(self._by_owner.get(uid, ()))

    def on_node(self, node: str) -> list[PodRecord]:
        """The pods bound to that node."""
        return list(self._by_node.get(node, {}).values())

    def all(self) -> list[PodRecord]:
        """Every pod: O(pods), for start-up alone."""
        return list(self._pods.values())

    def orphans_matching(self, namespace: str, selector: Selector) -> Iterator[Key]:
        """The pods of a namespace that no controller owns and that the selector matches, for adoption."""
        index = self._orphans.get(namespace)
        if index is None:
            index = self._orphans[namespace] = LabelIndex()
            for key, record in self._pods.items():
                if key[0] == namespace and not record.owner_uid:
                    index.put(key, namespace, record.labels)
        return index.matching(namespace, selector)

    def _changed(self, change: ChangeView) -> None:
        before = self._pods.get(change.record.key)
        after = None if change.type == "DELETED" else pod_record(change.record, before)
        if before == after:
            return
        self._file(before, after)
        for listener in self._listeners:
            listener(before, after)
        for owner_kind in _owner_kinds(before, after):
            owned = self._owner_listeners.get(owner_kind)
            if owned is not None:
                owned(before, after)

    def _file(self, before: PodRecord | None, after: PodRecord | None) -> None:
        if before is not None and (after is None or after.owner_uid != before.owner_uid):
            _remove(self._by_owner, before.owner_uid, before.key)
            if not before.owner_uid and before.namespace in self._orphans:
                self._orphans[before.namespace].discard(before.key)
        if before is not None and (after is None or after.node != before.node):
            _remove(self._by_node, before.node, before.key)
        if after is None:
            if before is not None:
                del self._pods[before.key]
            return
        self._pods[after.key] = after
        if after.owner_uid:
            self._by_owner.setdefault(after.owner_uid, {})[after.key] = after
        elif after.namespace in self._orphans and (before is None or before.owner_uid or before.labels != after.labels):
            self._orphans[after.namespace].put(after.key, after.namespace, after.labels)
        if after.node:
            self._by_node.setdefault(after.node, {})[after.key] = after


def _owner_kinds(before: PodRecord | None, after: PodRecord | None) -> tuple[str, ...]:
    """The kinds of the pod's controllers, earlier and now, each once and in order."""
    if before is None or after is None or before.owner_kind == after.owner_kind:
        one = after or before
        return (one.owner_kind,) if one is not None else ()
    return tuple(sorted((before.owner_kind, after.owner_kind)))


def _remove(index: dict[str, dict[Key, PodRecord]], where: str, key: Key) -> None:
    members = index.get(where)
    if members is not None:
        members.pop(key, None)
        if not members:
            del index[where]


def pod_record(record: Record, before: PodRecord | None = None) -> PodRecord:
    """Reads the facts of a stored pod; `before` are those of its earlier version, which shares what has not changed."""
    pod = record.obj()
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    owner_kind = owner_uid = ""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            owner_kind, owner_uid = intern(reference["kind"]), intern(reference["uid"])
            break
    ready = find(status["conditions"], "Ready") if "conditions" in status else None
    created = metadata.get("creationTimestamp") or ""
    containers = status.get("containerStatuses")
    cost = metadata["annotations"].get(_DELETION_COST, "0") if metadata.get("annotations") else "0"
    return PodRecord(
        record.key,
        record.uid,
        before.labels if before is not None and before.labels == record.labels else record.labels,
        owner_kind,
        owner_uid,
        intern(spec.get("nodeName") or ""),
        intern(_target_node(spec)) if owner_kind == "DaemonSet" else "",
        intern(status.get("phase") or "Pending"),
        (ready.get("lastTransitionTime") or created) if ready is not None and ready.get("status") == "True" else "",
        created,
        record.deleting,
        sum([container.get("restartCount", 0) for container in containers]) if containers else 0,
        JOB_TRACKING_FINALIZER in (metadata.get("finalizers") or ()),
        int(cost) if cost.lstrip("+-").isdecimal() else 0,
        pod_claims(spec, status) if spec.get("resourceClaims") else (),
        extended_claim(status) if "extendedResourceClaimStatus" in status else "",
        intern(group_name(spec)) if spec.get("resourceClaims") else "",
    )


def _target_node(spec: Mapping[str, Any]) -> str:
    """The node that a DaemonSet's pod is for: the one it is bound to, or the one its matchFields affinity names."""
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("operator") == "In" and field.get("values"):
                return str(field["values"][0])
    return ""

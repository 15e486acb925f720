"""Keeps the root quotas of trees at the size of their nodes (elasticquota spec 3.17, profile controller)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from koordsched.api.core import Node, Quantities
from koordsched.api.meta import ObjectMeta
from koordsched.api.quantity import NANO
from koordsched.api.selectors import SelectorError, compile_selector
from koordsched.cluster.objects import Store
from koordsched.cluster.state import ClusterState
from koordsched.framework.controller import ObjectWrites
from koordsched.framework.handle import WARNING, EventRecorder, WriteFailed
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, add_to, parse, texts, to_units, unit
from koordsched.plugins.elasticquota.kinds import (
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    IS_ROOT,
    PROFILE,
    RESOURCE_KEYS,
    TOTAL_RESOURCE,
    TREE_ID,
    UNSCHEDULABLE_RESOURCE,
    ElasticQuota,
    ElasticQuotaProfile,
)

_log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between checks of the nodes; a changed profile is processed at once."""

RETRY = 2.0
"""Seconds after a write that failed."""

UNBOUNDED = "4611686018427387"
"""The max of a root quota, in every resource it names (MaxInt64 / 2000)."""

DEFAULT_KEYS = ("cpu", "memory")

_NODES_AT_ONCE = 200

_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def tree_id_of(namespace: str, name: str) -> str:
    """The tree of a profile that names none: FNV-1a, 64 bits, of `namespace/name`, in decimal."""
    number = _FNV_OFFSET
    for byte in f"{namespace}/{name}".encode():
        number = (number ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return str(number)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What nodes have together, and what of it is on nodes that are cordoned or not ready."""

    total: Amounts
    unschedulable: Amounts

    def scaled(self, ratio: float) -> Capacity:
        """A part of it, in whole steps of the resource's unit (cpu: milli)."""
        if ratio == 1:
            return self
        return Capacity(_part(self.total, ratio), _part(self.unschedulable, ratio))


def _part(amounts: Amounts, ratio: float) -> Amounts:
    return {name: int(to_units(name, amount) * ratio) * unit(name) for name, amount in amounts.items()}


def ratio_of(text: str | None) -> float:
    """The ratio of a profile; 1 unless the text is a number above 0 and up to 1."""
    try:
        ratio = float(text or "1")
    except ValueError:
        return 1.0
    return ratio if 0 < ratio <= 1 else 1.0


def keys_of(annotation: str | None) -> tuple[str, ...]:
    """The resources that the root quota names."""
    try:
        keys = msgspec.json.decode(annotation or "null", type=list[str] | None)
    except msgspec.MsgspecError:
        return DEFAULT_KEYS
    return tuple(dict.fromkeys(keys)) if keys else DEFAULT_KEYS


def wanted_changes(
    profile: ElasticQuotaProfile, tree_id: str, capacity: Capacity, quota: ElasticQuota | None
) -> dict[str, Any]:
    """The merge patch that makes the quota what the profile wants, {} if it is; for None the whole of it."""
    meta = profile.metadata
    labels = {**profile.spec.quota_labels, PROFILE: meta.name, TREE_ID: tree_id, IS_ROOT: "true"}
    annotated = {TOTAL_RESOURCE: capacity.total, UNSCHEDULABLE_RESOURCE: capacity.unschedulable}
    keys = keys_of(meta.annotations.get(RESOURCE_KEYS))
    minimum = {key: capacity.total.get(key, 0) for key in keys}
    spec: dict[str, Any] = {"min": texts(minimum), "max": dict.fromkeys(sorted(keys), UNBOUNDED)}
    annotations = {key: orjson.dumps(texts(amounts)).decode() for key, amounts in annotated.items()}
    if quota is None:
        return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
    changes: dict[str, Any] = {}
    shown = quota.metadata
    new_labels = {key: value for key, value in labels.items() if shown.labels.get(key) != value}
    new_annotations = {
        key: annotations[key] for key, amounts in annotated.items() if _read(shown.annotations.get(key)) != amounts
    }
    if new_labels or new_annotations:
        parts = {"labels": new_labels, "annotations": new_annotations}
        changes["metadata"] = {name: part for name, part in parts.items() if part}
    bounds = dict.fromkeys(keys, int(UNBOUNDED) * NANO)
    if parse(quota.spec.min)[0] != minimum or parse(quota.spec.max)[0] != bounds:
        changes["spec"] = {
            "min": {**dict.fromkeys(name for name in quota.spec.min if name not in keys), **spec["min"]},
            "max": {**dict.fromkeys(name for name in quota.spec.max if name not in keys), **spec["max"]},
        }
    return changes


def _read(annotation: str | None) -> Amounts | None:
    try:
        return parse(msgspec.json.decode(annotation or "null", type=Quantities))[0]
    except msgspec.MsgspecError:
        return None


def is_unschedulable(node: Node) -> bool:
    """Whether a node is cordoned or not ready."""
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    return node.spec.unschedulable or not ready


class ProfileController:
    """Watches profiles and nodes, writes quotas."""

    def __init__(self, cluster: ClusterState, writes: ObjectWrites, reporter: EventRecorder) -> None:
        self._cluster = cluster
        self._writes = writes
        self._reporter = reporter
        self._profiles: Store[ElasticQuotaProfile] = cluster.objects.of(ELASTIC_QUOTA_PROFILES)
        self._quotas: Store[ElasticQuota] = cluster.objects.of(ELASTIC_QUOTAS)
        self._changed = asyncio.Event()
        self._profiles.subscribe(self._profile_changed)

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            self._changed.clear()
            failed = False
            for profile in list(self._profiles):
                failed |= not await self.reconcile(profile)
            try:
                async with asyncio.timeout(RETRY if failed else INTERVAL):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def reconcile(self, profile: ElasticQuotaProfile) -> bool:
        """Brings the quota of a profile up to date; False if a write failed."""
        meta, name = profile.metadata, profile.spec.quota_name
        if meta.deletion_timestamp is not None:
            return True
        try:
            capacity = await self._capacity(profile)
        except SelectorError as error:
            self._warn(meta, "InvalidNodeSelector", f"nodeSelector: {error}")
            return True
        tree_id = meta.labels.get(TREE_ID)
        quota = self._quotas.get(meta.namespace, name)
        doing = "update" if quota is not None else "create"
        try:
            if not tree_id:
                tree_id = tree_id_of(meta.namespace, meta.name)
                await self._writes.merge(ELASTIC_QUOTA_PROFILES, meta, {"metadata": {"labels": {TREE_ID: tree_id}}})
            changes = wanted_changes(profile, tree_id, capacity, quota)
            if quota is not None and changes:
                await self._writes.merge(ELASTIC_QUOTAS, quota.metadata, changes)
            elif quota is None:
                await self._writes.create(ELASTIC_QUOTAS, meta.namespace, _new(meta.namespace, name, changes))
        except WriteFailed as error:
            reason = "UpdateQuotaFailed" if doing == "update" else "CreateQuotaFailed"
            text = f"failed to {doing} quota, err: {error}"
            self._warn(meta, reason, text)
            return False
        return True

    def _warn(self, meta: ObjectMeta, reason: str, text: str) -> None:
        self._reporter.event(ELASTIC_QUOTA_PROFILES, meta, WARNING, reason, text, action="Checking")

    async def _capacity(self, profile: ElasticQuotaProfile) -> Capacity:
        """Of the nodes that the profile selects. Raises SelectorError."""
        if profile.spec.node_selector is None:
            return Capacity({}, {})
        matches = compile_selector(profile.spec.node_selector).matches
        total: Amounts = {}
        unschedulable: Amounts = {}
        nodes: Iterable[Node | None] = list(self._cluster.table.nodes)
        for turn, node in enumerate(nodes):
            if turn % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
                await asyncio.sleep(0)
            if node is None or not matches(node.metadata.labels):
                continue
            allocatable: Mapping[str, int] = parse(node.status.allocatable)[0]
            add_to(total, allocatable)
            if is_unschedulable(node):
                add_to(unschedulable, allocatable)
        return Capacity(total, unschedulable).scaled(ratio_of(profile.spec.resource_ratio))

    def _profile_changed(self, old: ElasticQuotaProfile | None, new: ElasticQuotaProfile | None) -> None:
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            self._changed.set()


def _new(namespace: str, name: str, content: dict[str, Any]) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, **content["metadata"]}
    return {
        "apiVersion": ELASTIC_QUOTAS.api_version,
        "kind": ELASTIC_QUOTAS.name,
        "metadata": metadata,
        "spec": content["spec"],
    }

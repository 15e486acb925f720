"""Whether a quota may be created, changed or deleted (elasticquota spec 3.18, validating)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts
from koordsched.plugins.elasticquota.kinds import (
    DEFAULT_QUOTA,
    IS_PARENT,
    MAX_STRICT_CHECK_RESOURCE_KEYS,
    NAMESPACES,
    PARENT,
    ROOT_QUOTA,
    SHARED_WEIGHT,
    SYSTEM_QUOTA,
    TREE_ID,
    ElasticQuota,
)
from koordsched.plugins.elasticquota.webhook import topology
from koordsched.plugins.elasticquota.webhook.declared import (
    Declared,
    DeclaredQuotas,
    Refused,
    amounts_in,
    amounts_of,
    names_in,
    quantity_text,
)

BUILT_IN = frozenset({ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA})

_NAMED = 2
"""Pods that a refusal names."""


class Pods(Protocol):
    """The pods there are."""

    def labelled(self, quota: str) -> Sequence[str]:
        """Names of the pods that carry the label of this quota."""

    def any_in(self, namespace: str) -> bool:
        """Whether there is a pod in the namespace."""


@dataclass(frozen=True, slots=True)
class Gates:
    """`update_resource_key`: ElasticQuotaEnableUpdateResourceKey; `guarantee_usage`: ElasticQuotaGuaranteeUsage."""

    update_resource_key: bool = False
    guarantee_usage: bool = False


class QuotaRules:
    """Decides on quotas, given all quotas and pods there are. Every method raises Refused, or returns."""

    def __init__(self, quotas: DeclaredQuotas, pods: Pods, gates: Gates = Gates()) -> None:
        self._quotas = quotas
        self._pods = pods
        self._gates = gates

    def check_create(self, quota: ElasticQuota) -> None:
        """A new quota, defaults filled in."""
        name = quota.metadata.name
        if name in self._quotas.by_name:
            raise Refused(f"AddQuota quota already exist:{name}")
        for namespace in names_in(quota.metadata.annotations.get(NAMESPACES)):
            if (owner := self._quotas.bound_to(namespace)) is not None:
                raise Refused(
                    f"AddQuota quota {name}'s annotation namespace {namespace} is already bound to quota {owner}"
                )
        check_self(quota)
        if name != ROOT_QUOTA:
            self._check_topology(Declared.of(quota), None)

    def check_update(self, quota: ElasticQuota, before: ElasticQuota) -> None:
        """A changed quota. Changes of anything but place, namespaces and spec are not looked at."""
        name = quota.metadata.name
        if _watched_fields(quota) == _watched_fields(before):
            return
        if name in (SYSTEM_QUOTA, ROOT_QUOTA):
            raise Refused(f"invalid quota {name}")
        known = self._quotas.by_name.get(name)
        if known is None:
            raise Refused(f"UpdateQuota quota not exist in quotaInfoMap:{name}")
        for namespace in names_in(quota.metadata.annotations.get(NAMESPACES)):
            owner = self._quotas.bound_to(namespace)
            if owner not in (None, name):
                raise Refused(
                    f"UpdadteQuota, quota {name} update namespaces, but namespace {namespace} "
                    f"is already bound to quota {owner}"
                )
        check_self(quota)
        changed = Declared.of(quota)
        self._check_role(changed, known)
        self._check_topology(changed, known)

    def check_delete(self, name: str) -> None:
        """A quota that is to go. Pods that belong to it by their namespace do not keep it."""
        if name in BUILT_IN:
            raise Refused(f"can not delete quotaGroup :{name}")
        if name not in self._quotas.by_name:
            raise Refused(f"delete quota failed, quota not exist in quotaInfoMap:{name}")
        if children := self._quotas.children(name):
            raise Refused(f"delete quota failed, quota {name} has {len(children)} child quotas")
        if pods := self._pods.labelled(name):
            shown = ", ".join(pods[:_NAMED]) + (", ..." if len(pods) > _NAMED else "")
            raise Refused(f"delete quota failed, quota {name} has {len(pods)} child pods: {shown}")

    def _check_role(self, quota: Declared, before: Declared) -> None:
        """(a) Pods and child quotas do not go together."""
        if before.is_parent and not quota.is_parent and self._quotas.children(quota.name):
            raise Refused(f"quota has children, isParent is forbidden to modify as false, quotaName:{quota.name}")
        if quota.is_parent and not before.is_parent:
            namespaces = (quota.name, *before.namespaces)
            if self._pods.labelled(quota.name) or any(map(self._pods.any_in, namespaces)):
                raise Refused(f"quota has bound pods, isParent is forbidden to modify as true, quotaName: {quota.name}")

    def _check_topology(self, quota: Declared, before: Declared | None) -> None:
        topology.check_tree(quota, before, self._quotas)
        if quota.parent == ROOT_QUOTA and not quota.is_parent:
            return
        topology.check_parent(quota, self._quotas)
        topology.check_keys(quota, self._quotas, subset=self._gates.update_resource_key)
        topology.check_min_sums(quota, self._quotas)
        if self._gates.guarantee_usage:
            topology.check_guarantee(quota, self._quotas)


def check_self(quota: ElasticQuota) -> None:
    """Checks of a quota by itself. Raises Refused."""
    name, spec = quota.metadata.name, quota.spec
    maximum = amounts_of(spec.max, f"{name} quota.Spec.Max")
    minimum = amounts_of(spec.min, f"{name} quota.Spec.Min")
    _no_negatives(maximum, f"{name} quota.Spec.Max's value < 0, in dimensions :")
    _no_negatives(minimum, f"{name} quota.Spec.Min's value < 0, in dimensions :")
    weight = amounts_in(quota.metadata.annotations.get(SHARED_WEIGHT))
    _no_negatives(weight, f"{name} quota.Annotation[{SHARED_WEIGHT}]'s value < 0, in dimension :")
    for key in sorted(minimum):
        if key not in maximum:
            raise Refused(f"resourceKey {key} of quota {name} is included in min, which is not included in max")
        if minimum[key] > maximum[key]:
            shown = f"min {quantity_text(key, spec.min)} > max {quantity_text(key, spec.max)}"
            raise Refused(f"resourceKey {key} of quota {name} {shown}")
    used = amounts_of(quota.status.used, f"{name} quota.Status.Used")
    for key in names_in(quota.metadata.annotations.get(MAX_STRICT_CHECK_RESOURCE_KEYS)):
        if key in used and key in maximum and maximum[key] < used[key]:
            shown = f"max {quantity_text(key, spec.max)} < used {quantity_text(key, quota.status.used)}"
            raise Refused(f"resourceKey {key} of quota {name} {shown}")


def _no_negatives(amounts: Amounts, problem: str) -> None:
    negative = sorted(key for key, amount in amounts.items() if amount < 0)
    if negative:
        raise Refused(f"{problem}[{' '.join(negative)}]")


def _watched_fields(quota: ElasticQuota) -> tuple[object, ...]:
    labels = quota.metadata.labels
    return (
        *(labels.get(key, "") for key in (PARENT, IS_PARENT, TREE_ID)),
        quota.metadata.annotations.get(NAMESPACES, ""),
        amounts_of(quota.spec.max, "max"),
        amounts_of(quota.spec.min, "min"),
    )

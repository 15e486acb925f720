"""What quotas demand of pods, and where pods of a quota tree may go (elasticquota spec 3.17, 3.18)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from koordsched.api.meta import LabelSelector
from koordsched.plugins.elasticquota.kinds import PREEMPTIBLE, QUOTA_NAME, TREE_ID, ElasticQuotaProfile
from koordsched.plugins.elasticquota.webhook.declared import DeclaredQuotas, Refused

Labels = Mapping[str, str]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def check_pod_create(
    namespace: str, name: str, labels: Labels, quotas: DeclaredQuotas, *, parents_take_pods: bool = False
) -> None:
    """A new pod. `parents_take_pods`: gate SupportParentQuotaSubmitPod. Raises Refused."""
    quota = quotas.of_pod(namespace, labels.get(QUOTA_NAME, ""))
    if quota is not None and quota.is_parent and not parents_take_pods:
        raise Refused(f"pod can not be linked to a parentQuotaGroup,quota:{quota.name}, pod:{name}")


def check_pod_update(labels: Labels, before: Labels) -> None:
    """A changed pod. Raises Refused."""
    if labels.get(PREEMPTIBLE) != before.get(PREEMPTIBLE):
        raise Refused("Preemptible label is forbidden modify now.")


def kept_to_its_tree(
    pod: dict[str, Any], quotas: DeclaredQuotas, profiles: Iterable[ElasticQuotaProfile]
) -> dict[str, Any]:
    """A new pod (JSON) with the nodes of its tree's profile as required node affinity; without a tree, as it was.

    Gate MultiQuotaTree.
    """
    meta = pod.get("metadata") or {}
    quota = quotas.of_pod(meta.get("namespace") or "", (meta.get("labels") or {}).get(QUOTA_NAME, ""))
    if quota is None or not quota.tree_id:
        return pod
    profile = next((one for one in profiles if one.metadata.labels.get(TREE_ID) == quota.tree_id), None)
    if profile is None or profile.spec.node_selector is None:
        return pod
    expressions = _expressions(profile.spec.node_selector)
    if not expressions:
        return pod
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    narrowed = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *expressions]} for term in terms]
    node_affinity = {**node_affinity, _REQUIRED: {"nodeSelectorTerms": narrowed}}
    return {**pod, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": node_affinity}}}


def _expressions(selector: LabelSelector) -> list[dict[str, Any]]:
    equal = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(selector.match_labels.items())]
    others: list[dict[str, Any]] = []
    for expression in selector.match_expressions:
        shown: dict[str, Any] = {"key": expression.key, "operator": expression.operator}
        if expression.values:
            shown["values"] = list(expression.values)
        others.append(shown)
    return [*equal, *others]

"""ResourceClaims for pods whose templates are in the input, as the controller of claims would make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koordsched.cli.admission import Admission
from koordsched.cli.objectfiles import Object, Sourced
from koordsched.fakecluster.controllers.groupclaims import claim_for_group, shared_entry
from koordsched.fakecluster.controllers.resourceclaim import claim_of_template
from koordsched.fakecluster.podclaims import group_name, pod_claims
from koordsched.fakecluster.workloadapi import GROUP, VERSION

_TEMPLATE = "ResourceClaimTemplate"

_Key = tuple[str, str]
"""(namespace, name)."""


def make_claims(
    pods: Iterable[Sourced], stored: Sequence[Sourced], admission: Admission, *, for_groups: bool
) -> list[Sourced]:
    """The claims for entries that have none yet; the status of each pod names its claims then.

    `for_groups`: PodGroups have claims, too. Raises InputError for a claim that a server would refuse.
    """
    templates = _by_key(each for each in stored if each.kind == _TEMPLATE)
    groups = _by_key(each for each in stored if for_groups and _is_group(each))
    made: list[Sourced] = []
    of_groups: dict[tuple[_Key, str], str] = {}
    for pod in pods:
        status: dict[str, Any] = pod.obj.get("status") or {}
        known = list(status.get("resourceClaimStatuses") or ())
        named = {each["name"] for each in known}
        group = groups.get((pod.namespace, group_name(pod.obj.get("spec") or {})))
        for entry in pod_claims(pod.obj.get("spec") or {}, {}):
            template = templates.get((pod.namespace, entry.template))
            if template is None or entry.entry in named:
                continue
            shared = shared_entry(group.obj, entry) if group is not None else None
            if group is None or shared is None:
                claim = claim_of_template(template.obj, pod.name, pod.meta["uid"], entry.entry)
                made.append(admission.admit(_claim(template, claim, pod.namespace)))
                name = made[-1].name
            else:
                key = (group.namespace, group.name), entry.entry
                name = shared.claim or of_groups.get(key, "")
                if not name:
                    # Files may have groups that no server has given a uid.
                    group.meta.setdefault("uid", f"podgroup-{group.namespace}-{group.name}")
                    claim = claim_for_group(template.obj, group.obj, entry.entry)
                    made.append(admission.admit(_claim(template, claim, pod.namespace)))
                    name = of_groups[key] = made[-1].name
            known.append({"name": entry.entry, "resourceClaimName": name})
        if known:
            pod.obj["status"] = {**status, "resourceClaimStatuses": known}
    return made


def notes_on_claims(claims: Iterable[Sourced]) -> list[str]:
    """How many claims were made, for the user."""
    count = Counter(claim.namespace for claim in claims)
    return [
        f"{number} ResourceClaims made from templates in {namespace}" for namespace, number in sorted(count.items())
    ]


def _by_key(things: Iterable[Sourced]) -> Mapping[_Key, Sourced]:
    return {(each.namespace, each.name): each for each in things}


def _is_group(thing: Sourced) -> bool:
    return (thing.api_version, thing.kind) == (f"{GROUP}/{VERSION}", "PodGroup")


def _claim(template: Sourced, claim: Object, namespace: str) -> Sourced:
    metadata = {"name": "", "namespace": namespace, **claim["metadata"]}
    obj = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim, "metadata": metadata}
    return Sourced(template.where, obj)

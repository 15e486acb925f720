"""ResourceClaims for pods whose templates are in the input, as the controller of claims would make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from koordsched.cli.admission import Admission
from koordsched.cli.objectfiles import Object, Sourced
from koordsched.fakecluster.controllers.resourceclaim import claim_of_template

_TEMPLATE = "ResourceClaimTemplate"


def make_claims(pods: Iterable[Sourced], stored: Sequence[Sourced], admission: Admission) -> list[Sourced]:
    """The claims for entries that have none yet; the status of each pod names its claims then.

    Raises InputError for a claim that a server would refuse.
    """
    templates = {(each.namespace, each.name): each for each in stored if each.kind == _TEMPLATE}
    made: list[Sourced] = []
    for pod in pods:
        entries = (pod.obj.get("spec") or {}).get("resourceClaims") or ()
        status: dict[str, Any] = pod.obj.get("status") or {}
        known = list(status.get("resourceClaimStatuses") or ())
        named = {each["name"] for each in known}
        for entry in entries:
            template = templates.get((pod.namespace, entry.get("resourceClaimTemplateName") or ""))
            if template is None or entry["name"] in named:
                continue
            claim = admission.admit(Sourced(template.where, _claim(template.obj, pod, entry["name"])))
            known.append({"name": entry["name"], "resourceClaimName": claim.name})
            made.append(claim)
        if known:
            pod.obj["status"] = {**status, "resourceClaimStatuses": known}
    return made


def notes_on_claims(claims: Iterable[Sourced]) -> list[str]:
    """How many claims were made, for the user."""
    count = Counter(claim.namespace for claim in claims)
    return [
        f"{number} ResourceClaims made from templates in {namespace}" for namespace, number in sorted(count.items())
    ]


def _claim(template: Object, pod: Sourced, entry: str) -> Object:
    claim = claim_of_template(template, pod.name, pod.meta["uid"], entry)
    metadata = {"name": "", "namespace": pod.namespace, **claim["metadata"]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim, "metadata": metadata}

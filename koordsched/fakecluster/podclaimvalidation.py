"""Validation of the claims of pods: those that a spec names, and those that a status says were made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from koordsched.fakecluster.errors import FieldError, duplicate, invalid_value, not_found_value, required
from koordsched.fakecluster.names import label_error, subdomain_error
from koordsched.fakecluster.quantities import canonicalize

Object = dict[str, Any]


def pod_claim_errors(spec: Object, field: str) -> list[FieldError]:
    """What is wrong with the claims of a pod spec, and with those that its containers name."""
    claims = spec.get("resourceClaims") or []
    wrong = entry_errors(claims, f"{field}.resourceClaims")
    names = {claim["name"] for claim in claims if claim.get("name")}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            references = (container.get("resources") or {}).get("claims")
            if references:
                _reference_errors(references, names, f"{field}.{kind}[{i}].resources.claims", wrong)
    return wrong


def entry_errors(claims: list[Object], field: str) -> list[FieldError]:
    """What is wrong with the entries of a spec's list `resourceClaims`."""
    wrong: list[FieldError] = []
    names: set[str] = set()
    for i, claim in enumerate(claims):
        where, name = f"{field}[{i}]", claim.get("name") or ""
        if not name:
            wrong.append(required(f"{where}.name"))
        elif name in names:
            wrong.append(duplicate(f"{where}.name", name))
        elif (text := label_error(name)) is not None:
            wrong.append(invalid_value(f"{where}.name", name, text))
        if name:
            names.add(name)
        wrong += _source_errors(claim, where)
    return wrong


def _source_errors(claim: Object, field: str) -> list[FieldError]:
    keys = ("resourceClaimName", "resourceClaimTemplateName")
    chosen = [key for key in keys if claim.get(key) is not None]
    wrong: list[FieldError] = []
    if len(chosen) > 1:
        text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        wrong.append(invalid_value(field, claim, text))
    if not chosen:
        text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        wrong.append(invalid_value(field, claim, text))
    problems = ((key, subdomain_error(claim[key])) for key in chosen)
    return wrong + [invalid_value(f"{field}.{key}", claim[key], text) for key, text in problems if text is not None]


def _reference_errors(claims: list[Object], names: set[str], field: str, wrong: list[FieldError]) -> None:
    seen: set[str] = set()
    for i, claim in enumerate(claims):
        name, request = claim.get("name"), claim.get("request")
        where = f"{field}[{i}]"
        if not name:
            wrong.append(required(where))
            continue
        key = f"{name}/{request}" if request else name
        if request and (text := label_error(request)) is not None:
            wrong.append(invalid_value(f"{where}.request", request, text))
        if name in seen or key in seen:
            wrong.append(duplicate(where, key))
        seen.add(key)
        if name not in names:
            known = f": {', '.join(sorted(names))}" if names else " which is empty"
            text = f"must be one of the names in pod.spec.resourceClaims{known}"
            wrong.append(not_found_value(where, name, text))


def claim_status_errors(pod: Object, old: Object) -> list[FieldError]:
    """What is wrong with what an update of a pod's status says of claims."""
    status, before = pod.get("status") or {}, old.get("status") or {}
    wrong: list[FieldError] = []
    if status.get("resourceClaimStatuses") != before.get("resourceClaimStatuses"):
        known = {claim.get("name") for claim in pod["spec"].get("resourceClaims") or ()}
        wrong += generated_errors(status.get("resourceClaimStatuses") or [], known, "status.resourceClaimStatuses")
    extended = status.get("extendedResourceClaimStatus")
    if extended is not None and extended != before.get("extendedResourceClaimStatus"):
        wrong += _extended_errors(extended, pod["spec"], "status.extendedResourceClaimStatus")
    taken = status.get("nodeAllocatableResourceClaimStatuses")
    if taken != before.get("nodeAllocatableResourceClaimStatuses"):
        wrong += _taken_errors(taken or [], pod["spec"], "status.nodeAllocatableResourceClaimStatuses")
    return wrong


def _taken_errors(statuses: list[Object], spec: Object, field: str) -> list[FieldError]:
    """What claims take of the node; makes its quantities canonical."""
    wrong: list[FieldError] = []
    containers = {container.get("name") for container in _containers(spec)}
    for i, status in enumerate(statuses):
        wrong += canonicalize(status.get("resources"), f"{field}[{i}].resources")
        for k, name in enumerate(status.get("containers") or ()):
            if name not in containers:
                wrong.append(not_found_value(f"{field}[{i}].containers[{k}]", name, "must be a container of the pod"))
    return wrong


def generated_errors(statuses: list[Object], known: set[str | None], field: str) -> list[FieldError]:
    """What is wrong with what a status says of claims that were made for the entries of these names."""
    wrong: list[FieldError] = []
    seen: set[str] = set()
    for i, status in enumerate(statuses):
        where, name = f"{field}[{i}].name", status.get("name") or ""
        if name not in known:
            wrong.append(invalid_value(where, name, "must match the name of an entry in `spec.resourceClaims`"))
        if name in seen:
            wrong.append(duplicate(where, name))
        seen.add(name)
        claim = status.get("resourceClaimName")
        if claim is not None and (problem := subdomain_error(claim)) is not None:
            wrong.append(invalid_value(where, claim, problem))
    return wrong


def _containers(spec: Object) -> Iterator[Object]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _extended_errors(extended: Object, spec: Object, field: str) -> list[FieldError]:
    requests = {
        container.get("name"): (container.get("resources") or {}).get("requests") or {}
        for container in _containers(spec)
    }
    places = "spec.initContainers{0} or spec.containers{0}"
    mappings = extended.get("requestMappings") or []
    wrong: list[FieldError] = []
    if not mappings:
        wrong.append(required(f"{field}.requestMappings", "at least one request mapping is required"))
    seen: set[tuple[str, ...]] = set()
    for i, mapping in enumerate(mappings):
        where = f"{field}.requestMappings[{i}]"
        key = tuple(mapping.get(part) or "" for part in ("containerName", "resourceName", "requestName"))
        container, resource, request = key
        if container not in requests:
            text = f"must match the name of an entry in {places.format('.name')}"
            wrong.append(invalid_value(f"{where}.containerName", container, text))
        elif resource not in requests[container]:
            text = f"must match the extended resource name of an entry in {places.format('.resources.requests')}"
            wrong.append(invalid_value(f"{where}.resourceName", resource, text))
        if (problem := label_error(request)) is not None:
            wrong.append(invalid_value(f"{field}.requestName", request, problem))
        if key in seen:
            parts = zip(("containerName", "resourceName", "requestName"), key, strict=True)
            wrong += [duplicate(f"{where}.{part}", value) for part, value in parts]
        seen.add(key)
    claim = extended.get("resourceClaimName")
    if not claim:
        wrong.append(required(f"{field}.resourceClaimName"))
    elif (problem := subdomain_error(claim)) is not None:
        wrong.append(invalid_value(f"{field}.resourceClaimName", claim, problem))
    return wrong

"""The claims of a pod in words: what keeps it from being tried, and where its devices are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from koordsched.api.core import NodeSelector, PodResourceClaim
from koordsched.api.resource import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.display import Line, Table
from koordsched.plugins.dynamicresources.books import DeviceBooks
from koordsched.plugins.dynamicresources.claims import ClaimProblem, names_of_entries, title_of
from koordsched.plugins.dynamicresources.inflight import InFlight
from koordsched.plugins.dynamicresources.prefilter import problem_of

ALLOCATED, BEING_ALLOCATED, NOT_ALLOCATED = "allocated", "being allocated", "not allocated"
MISSING, NOT_CREATED, DELETED, FOREIGN = "missing", "not created yet", "being deleted", "made for another pod"

EVERYWHERE = "every node"


class ClaimState(msgspec.Struct, rename="camel"):
    """An entry of a pod's `spec.resourceClaims`, and the claim (`namespace/name`) that it stands for, "" while that is
    not known. `devices`: what is allocated, `driver/pool/device` each; `nodes`: where these can be used; `pods`: for
    which the claim is reserved, or is being allocated.
    """

    entry: str
    claim: str
    state: str
    devices: list[str] = []
    nodes: str = ""
    pods: list[str] = []


class ClaimsRefusal(msgspec.Struct, rename="camel"):
    """Why a pod is not tried. `problem`: the text of its condition."""

    problem: str
    claims: list[ClaimState]


def refusal_of(pod: Pod, books: DeviceBooks, cluster: ClusterState) -> ClaimsRefusal | None:
    """What is wrong with the pod's claims before any node is looked at; None if nothing is."""
    try:
        found = problem_of(
            books.claims_of(pod),
            books.in_flight,
            books.device_class,
            prioritized_list=books.features.prioritized_list,
        )
    except ClaimProblem as problem:
        return ClaimsRefusal(str(problem), states_of(pod, books, cluster))
    return None if found.ok else ClaimsRefusal(found.message, states_of(pod, books, cluster))


def states_of(pod: Pod, books: DeviceBooks, cluster: ClusterState) -> list[ClaimState]:
    """All claims of the pod, in the order of its spec."""
    return [_state_of(pod, entry, books, cluster) for entry in pod.shape.spec.resource_claims]


def _state_of(pod: Pod, entry: PodResourceClaim, books: DeviceBooks, cluster: ClusterState) -> ClaimState:
    name = next((name for other, name in names_of_entries(pod) if other is entry), None)
    if name is None:
        return ClaimState(entry.name, "", NOT_CREATED)
    claim = books.claims.get(pod.namespace, name)
    title = f"{pod.namespace}/{name}"
    if claim is None:
        return ClaimState(entry.name, title, MISSING)
    return state_of_claim(entry.name, claim, books, cluster, _trouble(entry, claim, pod, books))


def _trouble(entry: PodResourceClaim, claim: ResourceClaim, pod: Pod, books: DeviceBooks) -> str:
    if claim.metadata.deletion_timestamp is not None:
        return DELETED
    return FOREIGN if entry.resource_claim_name is None and not books.may_have(claim, pod) else ""


def state_of_claim(
    entry: str, claim: ResourceClaim, books: DeviceBooks, cluster: ClusterState, trouble: str = ""
) -> ClaimState:
    """A claim that there is. `trouble`: why it is not the pod's."""
    flight = books.in_flight.entry(claim.metadata.uid)
    allocation = claim.status.allocation
    if flight is not None and allocation is None:
        found = flight.allocation
        return ClaimState(
            entry,
            title_of(claim),
            trouble or BEING_ALLOCATED,
            devices_of(found),
            nodes_text(found.node_selector),
            holders_of(flight, cluster),
        )
    if allocation is None:
        return ClaimState(entry, title_of(claim), trouble or NOT_ALLOCATED)
    return ClaimState(
        entry,
        title_of(claim),
        trouble or ALLOCATED,
        devices_of(allocation),
        nodes_text(allocation.node_selector),
        pods_of(claim),
    )


def holders_of(flight: InFlight, cluster: ClusterState) -> list[str]:
    """The pods that get what is in flight, `namespace/name`."""
    found = (cluster.assigned.get(uid) for uid in flight.holders)
    return [pod.title for pod in found if pod is not None]


def pods_of(claim: ResourceClaim) -> list[str]:
    """What a claim is reserved for: pods by `namespace/name`, anything else with what it is."""
    namespace = claim.metadata.namespace
    return [
        f"{namespace}/{user.name}" if user.resource == "pods" else f"{user.resource} {namespace}/{user.name}"
        for user in claim.status.reserved_for
    ]


def device_title(result: DeviceRequestAllocationResult) -> str:
    """`driver/pool/device`."""
    return f"{result.driver}/{result.pool}/{result.device}"


def devices_of(allocation: AllocationResult) -> list[str]:
    """The devices in the order in which they were chosen."""
    return [device_title(result) for result in allocation.devices.results]


def nodes_text(selector: NodeSelector | None) -> str:
    """The nodes that a selector matches, in words."""
    if selector is None:
        return EVERYWHERE
    terms = []
    for term in selector.node_selector_terms:
        named = [f"node {', '.join(each.values)}" for each in term.match_fields if each.operator == "In"]
        labels = [f"{each.key} {each.operator} {', '.join(each.values)}".rstrip() for each in term.match_expressions]
        terms.append(", ".join([*named, *labels]))
    return " or ".join(terms)


def placement_lines(claims: Iterable[tuple[ResourceClaim, AllocationResult]]) -> list[str]:
    """What each claim got: `claim default/c: gpu = driver/pool/a, driver/pool/b; nic = ...`."""
    lines = []
    for claim, allocation in claims:
        given: dict[str, list[str]] = {}
        for result in allocation.devices.results:
            given.setdefault(result.request, []).append(_given(result))
        texts = [f"{request} = {', '.join(devices)}" for request, devices in given.items()]
        lines.append(f"claim {title_of(claim)}: {'; '.join(texts) or 'no device'}")
    return lines


def _given(result: DeviceRequestAllocationResult) -> str:
    amounts = [f"{name} {amount}" for name, amount in sorted(result.consumed_capacity.items())]
    return device_title(result) + (f" ({', '.join(amounts)})" if amounts else "")


def show_refusal(values: Any) -> Iterator[Line | Table]:
    """Why a pod is not tried. `values`: a `ClaimsRefusal` as JSON. Raises msgspec.ValidationError if they are not."""
    refusal = msgspec.convert(values, ClaimsRefusal)
    rows = [
        (
            each.entry,
            each.claim or "-",
            each.state,
            ", ".join(each.devices) or "-",
            each.nodes or "-",
            ", ".join(each.pods) or "-",
        )
        for each in refusal.claims
    ]
    return iter([Table(("ENTRY", "CLAIM", "STATE", "DEVICES", "USABLE ON", "PODS"), rows)])

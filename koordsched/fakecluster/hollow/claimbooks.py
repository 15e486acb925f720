"""What the pods of hollow nodes hold of devices by ResourceClaims: whether a pod can be given what was allocated.

It detects a scheduler that allocates devices twice, or devices that do not exist or are out of the node's reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from koordsched.fakecluster.deviceapi.statusrules import allocation_results, device_id
from koordsched.fakecluster.hollow.resourcepools import Pool, PoolId
from koordsched.fakecluster.hollow.slicepublisher import SlicePublisher
from koordsched.fakecluster.podclaims import extended_claim, is_reserved, pod_claims
from koordsched.fakecluster.quantities import amount
from koordsched.fakecluster.registry import Registry

Object = dict[str, Any]


class _Held(NamedTuple):
    """A device, or a share of one, that a claim holds."""

    pool: PoolId
    device: str
    consumed: Mapping[str, Any]
    """Of the capacity of a device that is shared."""
    shared: bool


class ClaimBooks:
    """Of all nodes together: devices may be attached to several."""

    def __init__(self, registry: Registry, publisher: SlicePublisher) -> None:
        self._registry = registry
        self._publisher = publisher
        self._claims = registry.find("resource.k8s.io", "v1", "resourceclaims")
        self._held: dict[str, list[_Held]] = {}
        """By the uid of the claim; without admin access, which takes nothing from others."""
        self._holders: dict[PoolId, dict[str, None]] = {}
        """The claims that hold devices of a pool."""
        self._users: dict[str, set[str]] = {}
        """The uids of the pods of a claim, by its uid."""
        self._pods: dict[str, tuple[str, ...]] = {}
        """The uids of the claims of a pod, by its uid."""

    def problem(self, pod: Object, node: str) -> str | None:
        """Why the devices of the pod cannot be prepared on the node; None if they can, or if there are none."""
        names = list(_claim_names(pod))
        if not names or self._claims is None:
            return None
        namespace = pod["metadata"]["namespace"]
        taken: dict[str, list[_Held]] = {}
        for name in names:
            claim = self._registry.peek(self._claims, namespace, name)
            if claim is None:
                return f"ResourceClaim {namespace}/{name} does not exist"
            status = claim.get("status") or {}
            if status.get("allocation") is None:
                return f"ResourceClaim {namespace}/{name} is not allocated"
            if not is_reserved(status, pod):
                return f"ResourceClaim {namespace}/{name} is not reserved for the pod"
            held = _held(claim)
            missing = (self._missing(each, node) for each in held)
            problem = next((text for text in missing if text is not None), None)
            if problem is not None:
                return f"ResourceClaim {namespace}/{name}: {problem}"
            if claim["metadata"]["uid"] not in self._held:
                taken[claim["metadata"]["uid"]] = held
        return self._overcommitted(taken)

    def take(self, pod: Object) -> None:
        """Records what a pod holds."""
        names = list(_claim_names(pod))
        uid = pod["metadata"]["uid"]
        if not names or self._claims is None or uid in self._pods:
            return
        found = (self._registry.peek(self._claims, pod["metadata"]["namespace"], name) for name in names)
        claims = [claim for claim in found if claim is not None]
        self._pods[uid] = tuple(claim["metadata"]["uid"] for claim in claims)
        for claim in claims:
            claim_uid = claim["metadata"]["uid"]
            self._users.setdefault(claim_uid, set()).add(uid)
            if claim_uid not in self._held:
                held = self._held[claim_uid] = _held(claim)
                for each in held:
                    self._holders.setdefault(each.pool, {})[claim_uid] = None

    def give_back(self, uid: str) -> None:
        """The pod holds nothing any longer; nor do claims that no other pod uses."""
        for claim in self._pods.pop(uid, ()):
            users = self._users[claim]
            users.discard(uid)
            if users:
                continue
            del self._users[claim]
            for each in self._held.pop(claim, ()):
                holders = self._holders.get(each.pool, {})
                holders.pop(claim, None)
                if not holders:
                    self._holders.pop(each.pool, None)

    def _missing(self, held: _Held, node: str) -> str | None:
        """Why the node does not have the device; None if it has, or if its driver is another one's."""
        found = self._publisher.pools.get(held.pool)
        name = "/".join((*held.pool, held.device))
        if found is None:
            return None
        home, pool = found
        if held.device not in pool.devices:
            return f"there is no device {name}"
        return f"device {name} is on node {home}" if home not in ("", node) else None

    def _overcommitted(self, taken: dict[str, list[_Held]]) -> str | None:
        """Why a pool does not have what these claims take besides those that hold it already; None if it has."""
        for pool_id in dict.fromkeys(each.pool for held in taken.values() for each in held):
            found = self._publisher.pools.get(pool_id)
            if found is None:
                continue
            others = [each for claim in self._holders.get(pool_id, ()) for each in self._held[claim]]
            more = [each for held in taken.values() for each in held]
            problem = _shortage(found[1], [each for each in (*others, *more) if each.pool == pool_id])
            if problem is not None:
                return problem
        return None


def _claim_names(pod: Object) -> Iterator[str]:
    spec, status = pod["spec"], pod.get("status") or {}
    if spec.get("resourceClaims"):
        yield from (entry.claim for entry in pod_claims(spec, status) if entry.needed)
    if (extended := extended_claim(status)) != "":
        yield extended


def _held(claim: Object) -> list[_Held]:
    return [
        _Held(device_id(result)[:2], device_id(result)[2], result.get("consumedCapacity") or {}, "shareID" in result)
        for result in allocation_results(claim.get("status") or {})
        if not result.get("adminAccess")
    ]


def _shortage(pool: Pool, held: list[_Held]) -> str | None:
    """What is given out twice, or more of it than there is; None if nothing is."""
    consumed: dict[tuple[str, str], Fraction] = {}
    counted: dict[tuple[str, str], Fraction] = {}
    exclusive: set[str] = set()
    seen: set[str] = set()
    for each in held:
        name = "/".join((*pool.id, each.device))
        if each.device in exclusive or (each.device in seen and not each.shared):
            return f"device {name} is in use by another claim"
        if not each.shared:
            exclusive.add(each.device)
        device = pool.devices.get(each.device) or {}
        for capacity, taken in each.consumed.items():
            key = each.device, capacity
            consumed[key] = consumed.get(key, Fraction(0)) + amount(taken)
            total = (device.get("capacity") or {}).get(capacity, {}).get("value", "0")
            if consumed[key] > amount(total):
                return f"device {name} does not have enough {capacity}"
        # The shares of a device take its counters once.
        for consumption in device.get("consumesCounters") or () if each.device not in seen else ():
            for counter, entry in consumption["counters"].items():
                key = consumption["counterSet"], counter
                counted[key] = counted.get(key, Fraction(0)) + amount(entry["value"])
                if counted[key] > amount(pool.counters[key[0]]["counters"][counter]["value"]):
                    return (
                        f"counter set {'/'.join((*pool.id, key[0]))} does not have enough {counter} for {each.device}"
                    )
        seen.add(each.device)
    return None

"""The end of a run with claims: a naive DynamicResources for the naive reference, and what must be true of claims."""

from koordsched.api.decoding import convert
from koordsched.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from koordsched.plugins.dynamicresources.structured import Features
from koordsched.plugins.dynamicresources.structured.selectors import SelectorFailure
from tests.plugins.dynamicresources.structured.naive import Failed, Naive
from tests.plugins.dynamicresources.structured.world import selects
from tests.reference.selectors import node_selector_matches
from tests.reference.status import ERROR, SKIP, Status, unresolvable
from tests.simulation.claiminvariants import served_by_claims, without_served
from tests.simulation.claimobjects import (
    FAILED,
    RESOURCE,
    allocation_of,
    claims_named,
    exactly,
    reserved_for,
    wants_extended,
)
from tests.simulation.configuration import CLAIMS, PROFILE
from tests.simulation.invariants import is_finished

SPECIAL = "resource.kubernetes.io/extended-resource-claim"
IN_FLIGHT = "in flight"
"""Key of a claim that got its devices in a trial: until they are written no other pod may use it."""


class NaiveClaims:
    """PreFilter and Filter; which node would be chosen is not asked."""

    def pre_score(self, pod, world, nodes):
        """Nothing: where a pod goes does not matter."""
        return SKIP

    def pre_filter(self, pod, world):
        problem, claims = _claims_of(pod, world)
        if not problem and any(IN_FLIGHT in claim for claim in claims):
            problem = "in the process of being allocated"
        if problem:
            return unresolvable(problem)
        extended = wants_extended(pod) and _class_of_resource(world) is not None
        if not claims and not extended:
            return SKIP
        known = {each["metadata"]["name"] for each in world.kind("DeviceClass")}
        for claim in claims:
            for name in _classes_of(claim) if allocation_of(claim) is None else ():
                if name not in known:
                    return unresolvable(f"device class {name} does not exist")
        return None

    def filter(self, pod, node, world):
        _, claims = _claims_of(pod, world)
        made = any(SPECIAL in (each["metadata"].get("annotations") or {}) for each in _owned(pod, world))
        if made and _is_special_on(pod, node, world):
            return unresolvable("cannot schedule extended resource claim")
        wanted = _wanted_on(pod, node, world)
        if wanted:
            try:
                if _naive(node, world).allocate(wanted) is None:
                    return unresolvable("cannot allocate all claims")
            except Failed as error:
                return Status(ERROR, (str(error),))
        for claim in claims:
            allocation = allocation_of(claim)
            if allocation is None:
                continue
            selector = allocation.get("nodeSelector")
            if (selector and not node_selector_matches(selector, node)) or _has_failed(claim):
                return unresolvable("resourceclaim not available on the node")
        return None


def lacks_claims(pod, world):
    """Whether a claim of the pod is not there, or not its own: it is not tried."""
    problem, _ = _claims_of(pod, world)
    return problem is not None


def with_allocations(world, pod, node):
    """A copy of the world in which the claims of the pod, which fits on the node, have devices there."""
    wanted = _wanted_on(pod, node, world)
    if not wanted:
        return world
    naive = _naive(node, world)
    naive.allocate(wanted)
    copy, claims = world.with_pods([]), list(world.kind("ResourceClaim"))
    copy.objects = {**world.objects, "ResourceClaim": claims}
    for number, claim in enumerate(wanted):
        results = [_result(each) for each in naive.picked if each.want.claim == number]
        status = {"status": {"allocation": {"devices": {"results": results}}}, IN_FLIGHT: True}
        at = next((i for i, each in enumerate(claims) if each["metadata"]["uid"] == claim.metadata.uid), None)
        if at is None:
            meta = {"name": f"special of {pod['metadata']['name']}", "namespace": "", "uid": pod["metadata"]["uid"]}
            claims.append({"kind": "ResourceClaim", "metadata": meta, "spec": {"devices": {}}, **status})
        else:
            claims[at] = {**claims[at], **status}
    return copy


def _result(picked):
    driver, pool, device = picked.identity
    found = {"request": picked.want.name, "driver": driver, "pool": pool, "device": device}
    if picked.want.admin:
        found["adminAccess"] = True
    elif picked.device.allow_multiple_allocations:
        consumed = {name: str(int(amount)) for name, amount in picked.consumed.items()}
        found |= {"shareID": f"trial {id(picked)}", "consumedCapacity": consumed}
    return found


class NaiveFit:
    """NodeResourcesFit, which leaves an extended resource to claims where the node has none of it."""

    def __init__(self, fit):
        self._fit = fit

    def __getattr__(self, name):
        return getattr(self._fit, name)

    def filter(self, pod, node, world):
        if _class_of_resource(world) is not None:
            pod = without_served(pod, node)
        return self._fit.filter(pod, node, world)


def with_claims(profile):
    """The profile with this DynamicResources in place of the reference's: it refuses nodes, and scores none."""
    profile.plugins[CLAIMS] = NaiveClaims()
    for point, chain in profile.points.items():
        if point not in ("preFilter", "filter"):
            profile.points[point] = [name for name in chain if name != CLAIMS]
        elif CLAIMS not in chain:
            chain.append(CLAIMS)  # else it comes before plugins that are no default ones
    profile.plugins["NodeResourcesFit"] = NaiveFit(profile.plugins["NodeResourcesFit"])
    return profile


def wrong_claims(server, is_waiting):
    """Claims that are reserved for pods that are gone, and special ones that keep a waiting pod waiting. Texts."""
    pods = {pod["metadata"]["uid"]: pod for pod in server.objects("Pod")}
    for claim in server.objects("ResourceClaim", "resource.k8s.io/v1"):
        name, annotations = claim["metadata"]["name"], claim["metadata"].get("annotations") or {}
        waiting = [pod for pod in pods.values() if is_waiting(pod) and name in claims_named(pod)]
        if _has_failed(claim) and not reserved_for(claim) and waiting:
            yield f"claim {name} has failed devices, and {waiting[0]['metadata']['name']} waits"
        gone = [uid for uid in reserved_for(claim) if uid not in pods or is_finished(pods[uid])]
        if gone:
            yield f"claim {name} is reserved for pods that are gone: {gone}"
        lost = [uid for uid in reserved_for(claim) if uid in pods and is_waiting(pods[uid])]
        if lost:
            yield f"claim {name} is reserved for pods that wait: {lost}"
        owners = [each["uid"] for each in claim["metadata"].get("ownerReferences") or ()]
        if SPECIAL in annotations and any(uid in pods and is_waiting(pods[uid]) for uid in owners):
            yield f"claim {name} for extended resources is left over from an earlier attempt"


def strays(scheduler):
    """What the plugin holds on to at rest. Texts."""
    plugin = scheduler.profiles[PROFILE].plugins[CLAIMS]
    books = plugin._books
    if len(books.in_flight):
        yield f"allocations in flight: {[entry.claim.metadata.name for entry in books.in_flight.recorded_state()]}"
    if plugin.binding._releases:
        yield f"claims being released for {sorted(plugin.binding._releases)}"
    if books.claim_changes._waiting:
        yield f"waiting for claims {sorted(books.claim_changes._waiting)}"
    for claim in books.claims:
        key = claim.metadata.namespace, claim.metadata.name
        seen = books.claims.seen(*key)
        if seen is None or seen.metadata.resource_version != claim.metadata.resource_version:
            yield f"claim {'/'.join(key)} is assumed"


def believed(scheduler):
    """Device -> the claims that use it, as the scheduler has counted it; and for scoring, by node."""
    books = scheduler.profiles[PROFILE].plugins[CLAIMS]._books
    found = {}
    for (driver, pool), use in books.in_use.pools.items():
        for device in use.devices:
            shares = {share: dict(held.consumed) for share, held in use.shares.get(device, {}).items()}
            found[f"{driver}/{pool}/{device}"] = (use.exclusive.get(device, 0), shares)
    return found


def _claims_of(pod, world):
    """(what is wrong with them, the claims)."""
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        one = {**pod, "spec": {**pod["spec"], "resourceClaims": [entry]}}
        one["status"] = {key: v for key, v in (pod.get("status") or {}).items() if key != "extendedResourceClaimStatus"}
        (name,) = claims_named(one)
        claim = _find(world, pod["metadata"]["namespace"], name)
        if claim is None or "deletionTimestamp" in claim["metadata"]:
            return f"claim {name} is not there", []
        owners = [each["uid"] for each in claim["metadata"].get("ownerReferences") or ()]
        if "resourceClaimTemplateName" in entry and owners != [pod["metadata"]["uid"]]:
            return f"claim {name} is of another pod", []
        if claim not in found:
            found.append(claim)
    return None, found


def _find(world, namespace, name):
    for claim in world.kind("ResourceClaim"):
        if (claim["metadata"]["namespace"], claim["metadata"]["name"]) == (namespace, name):
            return claim
    return None


def _owned(pod, world):
    uid = pod["metadata"]["uid"]
    for claim in world.kind("ResourceClaim"):
        if uid in [each["uid"] for each in claim["metadata"].get("ownerReferences") or ()]:
            yield claim


def _classes_of(claim):
    for request in claim["spec"]["devices"].get("requests") or ():
        for each in [request["exactly"]] if "exactly" in request else request["firstAvailable"]:
            yield each["deviceClassName"]


def _class_of_resource(world):
    named = [each for each in world.kind("DeviceClass") if each["spec"].get("extendedResourceName") == RESOURCE]
    return named[0]["metadata"]["name"] if named else None


def _special(count, of):
    request = {"name": "container-0-request-0", "exactly": exactly(of, count)}
    meta = {"name": "special", "namespace": "default", "uid": "special"}
    return convert({"metadata": meta, "spec": {"devices": {"requests": [request]}}}, ResourceClaim)


def _is_special_on(pod, node, world):
    """Whether a claim has to be made for the pod's extended resource there."""
    return wants_extended(pod) and served_by_claims(node) and _class_of_resource(world) is not None


def _wanted_on(pod, node, world):
    """The claims to be allocated on the node."""
    wanted = [convert(each, ResourceClaim) for each in _claims_of(pod, world)[1] if allocation_of(each) is None]
    if _is_special_on(pod, node, world):
        wanted.append(_special(wants_extended(pod), _class_of_resource(world)))
    return wanted


def _naive(node, world):
    allocated = [allocation for each in world.kind("ResourceClaim") if (allocation := allocation_of(each)) is not None]
    return Naive(
        Features(),
        [convert(each, ResourceSlice) for each in world.kind("ResourceSlice")],
        [convert(each, AllocationResult) for each in allocated],
        {each["metadata"]["name"]: convert(each, DeviceClass) for each in world.kind("DeviceClass")},
        _selects,
        node["metadata"]["name"],
        node["metadata"].get("labels") or {},
    )


def _selects(text, driver, device):
    try:
        return selects(text, driver, device)
    except AttributeError as error:
        raise SelectorFailure(str(error)) from error


def _has_failed(claim):
    devices = (claim.get("status") or {}).get("devices") or ()
    return any(each["type"] == FAILED for device in devices for each in device.get("conditions") or ())

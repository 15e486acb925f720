"""Whatever is written to resource.k8s.io is stored or refused; nothing that is stored stops the cluster."""

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.test_protobuf_devices import EVERY_FIELD
from tests.depth import examples
from tests.fakecluster.apiclient import NOW, PODS, Api, pod
from tests.fakecluster.deviceobjects import CLAIMS, CLASSES, SLICES, TAINT_RULES, TEMPLATES, claim_template
from tests.fakecluster.timeline import Cluster

API = Api()
BODIES = {kind.__name__: body for kind, body in EVERY_FIELD.items()}
TEMPLATE = claim_template(spec=BODIES["ResourceClaim"]["spec"])
RULE = {
    "spec": {"deviceSelector": {"driver": "d", "pool": "p", "device": "x"}, "taint": {"key": "k", "effect": "None"}}
}
PLACES = {
    CLASSES: BODIES["DeviceClass"],
    SLICES: BODIES["ResourceSlice"],
    CLAIMS: BODIES["ResourceClaim"],
    TEMPLATES: {"spec": TEMPLATE["spec"]},
    TAINT_RULES: RULE,
}
JUNK = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2**70,
        1.5,
        "",
        "x" * 300,
        "\u0000",
        "a/b/c",
        "1e99999",
        [],
        [None],
        {},
        {"": {}},
        [[]],
        ["a"] * 300,
    ]
)


def places(value, path=()):
    """The paths of everything within a JSON value."""
    found = [path] if path else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in children:
        found += places(item, (*path, key))
    return found


@st.composite
def damaged(draw, bodies):
    """A place, and an object for it in which something is missing or is something else."""
    at = draw(st.sampled_from(sorted(bodies)))
    body = copy.deepcopy(bodies[at])
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(places(body)))
        holder = body
        for key in path:
            holder = holder[key]
        if draw(st.booleans()):
            holder[last] = copy.deepcopy(draw(JUNK))
        elif isinstance(holder, dict):
            del holder[last]
        if not places(body):
            break
    return at, body


@settings(max_examples=examples(300), deadline=None)
@given(damaged(PLACES))
def test_new_objects(case):
    at, body = case
    status, answer = API.post(f"{at}?dryRun=All", {"metadata": {"name": "x"}, **body})
    assert status in (201, 400, 422), answer


def with_objects(allocated):
    """A server that has a claim and a pod."""
    api = Api()
    api.merge("/api/v1/namespaces/default", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    first = {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]}
    api.post(CLAIMS, {"metadata": {"name": "x"}, "spec": {"devices": {"requests": [first]}}})
    if allocated:
        status, answer = api.merge(f"{CLAIMS}/x/status", {"status": STATUS})
        assert status == 200, answer
    api.post(PODS, pod(resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}]))
    return api


STATUS = copy.deepcopy(BODIES["ResourceClaim"]["status"])
STATUS["devices"][0]["conditions"][0]["lastTransitionTime"] = NOW
NEW, ALLOCATED = with_objects(False), with_objects(True)


@settings(max_examples=examples(200), deadline=None)
@given(damaged({"status": {"status": STATUS}}), st.sampled_from([NEW, ALLOCATED]))
def test_statuses(case, api):
    status, answer = api.merge(f"{CLAIMS}/x/status?dryRun=All", case[1])
    assert status in (200, 400, 422), answer


MAPPING = {"containerName": "c", "resourceName": "x/y", "requestName": "r"}
CONTAINER = {"name": "c", "image": "i", "resources": {"claims": [{"name": "a", "request": "r"}]}}
POD_PARTS = {
    "spec": {"spec": {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}], "containers": [CONTAINER]}},
    "status": {
        "status": {
            "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [MAPPING]},
        }
    },
}


@settings(max_examples=examples(200), deadline=None)
@given(damaged(POD_PARTS))
def test_pods(case):
    part, body = case
    if part == "spec":
        status, answer = NEW.post(f"{PODS}?dryRun=All", {"metadata": {"name": "other"}, **body})
    else:
        status, answer = NEW.merge(f"{PODS}/p/status?dryRun=All", body)
    assert status in (200, 201, 400, 422), answer


@settings(max_examples=40, deadline=None)
@given(damaged({"claim": BODIES["ResourceClaim"], "slice": BODIES["ResourceSlice"]}))
def test_what_a_loaded_snapshot_may_contain(case):
    """Objects of a snapshot are not validated, and must not stop the controllers and nodes of others."""
    kind, body = case
    cluster = Cluster(1, bind=False)
    plural, name = ("resourceclaims", "x") if kind == "claim" else ("resourceslices", "x")
    resource = cluster.resource(plural)
    metadata = {"name": name, "uid": "u", **({"namespace": "default"} if kind == "claim" else {})}
    try:
        cluster.registry.restore(
            resource, {"apiVersion": "resource.k8s.io/v1", "kind": resource.kind, "metadata": metadata, **body}
        )
    except (AttributeError, TypeError):
        # Not of the types that the kind has: no API server ever stored that.
        return
    cluster.create(claim_template("t0"))
    made = pod("p", resourceClaims=[{"name": "t", "resourceClaimTemplateName": "t0"}])
    cluster.create(made)
    cluster.run(5)
    assert cluster.get("pods", "p")["status"]["resourceClaimStatuses"]

"""ResourceQuotas of claims, devices and extended resources: what is counted, refused and reported."""

import pytest

from koordsched.fakecluster.errors import ApiStatusError
from tests.fakecluster.deviceobjects import claim, claim_spec, claim_template, device_class, request
from tests.fakecluster.timeline import Cluster
from tests.fakecluster.timeline import namespace as namespace_object

COUNT = "count/resourceclaims.resource.k8s.io"
DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
EXPLICIT = "requests.example.com/gpu"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io/gpu"
SPECIAL = {"resource.kubernetes.io/extended-resource-claim": "true"}


@pytest.fixture
def cluster():
    return Cluster(bind=False)


def quota(name="q", namespace="default", spec=None, **hard):
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard, **(spec or {})}}


def limits(*names, each="100"):
    return quota(**dict.fromkeys(names, each))


def used(cluster, name="q"):
    return cluster.get("resourcequotas", name)["status"]["used"]


def refusal(cluster, obj):
    with pytest.raises(ApiStatusError) as found:
        cluster.create(obj)
    assert (found.value.code, found.value.reason) == (403, "Forbidden")
    return found.value.message


def pod(name, sidecars=(), inits=(), **requests):
    def container(number, amounts, **more):
        resources = {"requests": amounts, "limits": amounts}
        return {"name": f"c{number}", "image": "i", "resources": resources, **more}

    first = [container(f"s{i}", amounts, restartPolicy="Always") for i, amounts in enumerate(sidecars)]
    spec = {"containers": [container("", requests)], "initContainers": first}
    spec["initContainers"] += [container(f"i{i}", amounts) for i, amounts in enumerate(inits)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def special_claim(name, owner, count=1):
    made = claim(name, request(count=count))
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    made["metadata"] |= {"annotations": SPECIAL, "ownerReferences": [{**reference, "controller": True}]}
    return made


def test_a_quota_says_what_is_used(cluster):
    cluster.create(claim("before", request(count=3)))
    cluster.create(limits(COUNT, DEVICES, each="5"))
    status = cluster.get("resourcequotas", "q")["status"]
    assert status == {"hard": {COUNT: "5", DEVICES: "5"}, "used": {COUNT: "1", DEVICES: "3"}}
    cluster.create(claim("after"))
    assert used(cluster) == {COUNT: "2", DEVICES: "4"}
    cluster.registry.delete_record(
        cluster.registry.resource("resource.k8s.io", "v1", "resourceclaims"), "default", "before"
    )
    assert used(cluster) == {COUNT: "1", DEVICES: "1"}


def test_a_claim_over_the_quota_is_refused(cluster):
    cluster.create(quota(**{COUNT: "2", DEVICES: "4"}))
    cluster.create(claim("a", request(count=3)))
    text = 'resourceclaims.resource.k8s.io "b" is forbidden: exceeded quota: q, requested: '
    assert (
        refusal(cluster, claim("b", request(count=2))) == f"{text}{DEVICES}=2, used: {DEVICES}=3, limited: {DEVICES}=4"
    )
    cluster.create(claim("b"))
    text = f"requested: {COUNT}=1,{DEVICES}=1, used: {COUNT}=2,{DEVICES}=4, limited: {COUNT}=2,{DEVICES}=4"
    assert refusal(cluster, claim("c")).endswith(f"exceeded quota: q, {text}")
    assert used(cluster) == {COUNT: "2", DEVICES: "4"}


def test_what_is_not_valid_is_said_first_and_costs_nothing(cluster):
    cluster.create(quota(**{COUNT: "0"}))
    with pytest.raises(ApiStatusError) as found:
        cluster.create(claim("a", request(count=-1)))
    assert found.value.code == 422


def test_another_namespace_has_its_own(cluster):
    cluster.create(namespace_object("other"))
    cluster.create(quota(namespace="other", **{COUNT: "0"}))
    cluster.create(claim("a"))
    made = claim("a")
    made["metadata"]["namespace"] = "other"
    assert "exceeded quota" in refusal(cluster, made)


@pytest.mark.parametrize(
    ("spec", "gpus", "nics"),
    [
        ([request(count=4), request("s", count=2)], 6, 0),
        ([request(allocationMode="All")], 32, 0),
        ([request(adminAccess=True)], 1, 0),
        (
            [
                {
                    "name": "r",
                    "firstAvailable": [
                        {"name": "a", "deviceClassName": "gpu", "count": 2},
                        {"name": "b", "deviceClassName": "gpu", "count": 5},
                        {"name": "c", "deviceClassName": "nic", "count": 1},
                    ],
                }
            ],
            5,
            1,
        ),
    ],
)
def test_what_a_claim_counts(cluster, spec, gpus, nics):
    cluster.patch("namespaces", "default", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    nic_devices = "nic.deviceclass.resource.k8s.io/devices"
    cluster.create(limits(COUNT, DEVICES, nic_devices))
    cluster.create(claim("c", *spec))
    assert used(cluster) == {COUNT: "1", DEVICES: str(gpus), nic_devices: str(nics)}


def test_devices_of_claims_count_as_extended_resources_of_their_class(cluster):
    cluster.create(limits(EXPLICIT, IMPLICIT))
    cluster.create(claim("c", request(count=3)))
    assert used(cluster) == {EXPLICIT: "0", IMPLICIT: "0"}
    cluster.create(device_class(extendedResourceName="example.com/gpu"))
    assert used(cluster) == {EXPLICIT: "3", IMPLICIT: "3"}


def test_pods_count_the_extended_resources_that_they_request(cluster):
    cluster.create(limits(EXPLICIT, IMPLICIT, each="9"))
    gpus = [{"example.com/gpu": "2"}, {"example.com/gpu": "4"}]
    made = cluster.create(pod("p", gpus[:1], gpus[1:], **{"example.com/gpu": "1", "cpu": "1"}))
    cluster.create(pod("q", **{"deviceclass.resource.kubernetes.io/gpu": "3"}))
    assert used(cluster) == {EXPLICIT: "6", IMPLICIT: "3"}  # the sidecar runs beside the init container
    assert f"requested: {EXPLICIT}=4, used: {EXPLICIT}=6, limited: {EXPLICIT}=9" in refusal(
        cluster, pod("r", **{"example.com/gpu": "4"})
    )
    made["status"]["phase"] = "Succeeded"
    cluster.registry.update(cluster.registry.pods, made, "status")
    assert used(cluster) == {EXPLICIT: "0", IMPLICIT: "3"}


def test_a_claim_for_a_pods_extended_resources_is_not_counted_twice(cluster):
    cluster.create(device_class(extendedResourceName="example.com/gpu"))
    cluster.create(limits(EXPLICIT, IMPLICIT, DEVICES, each="3"))
    made = cluster.create(pod("p", **{"example.com/gpu": "2"}))
    assert used(cluster) == {EXPLICIT: "2", IMPLICIT: "0", DEVICES: "0"}
    cluster.create(special_claim("x", made, 2))
    assert used(cluster) == {EXPLICIT: "2", IMPLICIT: "2", DEVICES: "2"}
    # Only one claim is the pod's: a second one counts in full, and there is no room for it.
    cluster.run(1)
    assert f",{EXPLICIT}=2, used: " in refusal(cluster, special_claim("y", made, 2))
    # A pod that has ended counts nothing itself any more, its claim still does.
    made["status"]["phase"] = "Failed"
    cluster.registry.update(cluster.registry.pods, made, "status")
    assert used(cluster)[EXPLICIT] == "2"


def test_a_changed_quota_counts_anew_and_a_deleted_one_refuses_nothing(cluster):
    cluster.create(quota(**{COUNT: "0"}))
    refusal(cluster, claim("a"))
    cluster.patch("resourcequotas", "q", {"spec": {"hard": {COUNT: "1"}}})
    cluster.create(claim("a"))
    assert cluster.get("resourcequotas", "q")["status"] == {"hard": {COUNT: "1"}, "used": {COUNT: "1"}}
    refusal(cluster, claim("b"))
    cluster.registry.delete_record(cluster.registry.resource("", "v1", "resourcequotas"), "default", "q")
    cluster.create(claim("b"))


def test_quotas_with_scopes_are_never_about_claims(cluster):
    cluster.create(quota(spec={"scopes": ["BestEffort"]}, **{COUNT: "0"}))
    cluster.create(claim("a"))


@pytest.mark.parametrize("limit", ["-1", "x", "500m"])
def test_limits_are_whole_numbers(cluster, limit):
    with pytest.raises(ApiStatusError) as found:
        cluster.create(quota(**{COUNT: limit}))
    assert found.value.code == 422


def test_a_pod_whose_claim_is_refused_says_so(cluster):
    cluster.create(quota(**{COUNT: "1"}))
    cluster.create(claim("a"))
    cluster.create(claim_template("t", claim_spec(request())))
    waiting = pod("p")
    waiting["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "t"}]
    cluster.create(waiting)
    cluster.run(300)
    (event,) = [e for e in cluster.list("events", "default") if e["reason"] == "FailedResourceClaimCreation"]
    assert event["type"] == "Warning"
    assert event["involvedObject"]["name"] == "p"
    assert event["message"].startswith(
        'PodResourceClaim gpus: create ResourceClaim : resourceclaims.resource.k8s.io "p-gpus-'
    )
    assert event["message"].endswith(
        f'" is forbidden: exceeded quota: q, requested: {COUNT}=1, used: {COUNT}=1, limited: {COUNT}=1'
    )
    cluster.registry.delete_record(cluster.registry.resource("resource.k8s.io", "v1", "resourceclaims"), "default", "a")
    cluster.run(61)
    (entry,) = cluster.get("pods", "p")["status"]["resourceClaimStatuses"]
    assert entry["resourceClaimName"].startswith("p-gpus-")
    assert used(cluster) == {COUNT: "1"}

"""Claims are made of templates, and taken back from pods that need them no longer."""

import pytest

from koordsched.fakecluster.controllers import Controllers
from koordsched.fakecluster.release import Release
from koordsched.fakecluster.store import Store
from tests.fakecluster.apiclient import Api
from tests.fakecluster.deviceobjects import FINALIZER, allocation, claim, claim_spec, claim_template, request
from tests.fakecluster.timeline import Cluster, namespace, pod_template, workload

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
EXTENDED = "resource.kubernetes.io/extended-resource-claim"


@pytest.fixture
def cluster():
    return Cluster(bind=False)


def pod(name="p", *claims, **spec):
    template = pod_template({"app": "x"}, **spec)
    entries = [
        {"name": entry, "resourceClaimTemplateName" if entry.startswith("t") else "resourceClaimName": f"{entry}0"}
        for entry in claims
    ]
    metadata = {"name": name, "namespace": "default", **template["metadata"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**template["spec"], "resourceClaims": entries},
    }


def claims_of(cluster):
    return {c["metadata"]["annotations"].get(POD_CLAIM): c for c in cluster.list("resourceclaims", "default")}


def allocate(cluster, name, *pods, finalizer=True):
    """What the scheduler writes when it binds pods that use the claim."""
    if finalizer:
        cluster.patch("resourceclaims", name, {"metadata": {"finalizers": [FINALIZER]}})
    consumers = [{"resource": "pods", "name": p, "uid": cluster.get("pods", p)["metadata"]["uid"]} for p in pods]
    status = {"allocation": allocation(), "reservedFor": consumers}
    return cluster.patch("resourceclaims", name, {"status": status}, subresource="status")


def bind(cluster, name, node="node-0"):
    cluster.registry.bind("default", name, None, node)


def test_a_claim_is_made_of_a_template(cluster):
    spec = claim_spec(request(selectors=[{"cel": {"expression": "true"}}]))
    cluster.create(claim_template("t0", spec, labels={"a": "b"}, annotations={"x": "y"}))
    made = cluster.create(pod("p", "t"))
    cluster.run(1)
    (found,) = cluster.list("resourceclaims", "default")
    metadata = found["metadata"]
    assert metadata["name"].startswith("p-t-")
    assert len(metadata["name"]) == len("p-t-") + 5
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"x": "y", POD_CLAIM: "t"}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": made["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert found["spec"] == cluster.get("resourceclaimtemplates", "t0")["spec"]["spec"]
    assert cluster.get("pods", "p")["status"]["resourceClaimStatuses"] == [
        {"name": "t", "resourceClaimName": metadata["name"]}
    ]


def test_each_entry_has_its_own_claim(cluster):
    for name in ("t0", "tt0"):
        cluster.create(claim_template(name))
    cluster.create(claim("c0"))
    cluster.create(pod("p", "t", "c", "tt"))
    cluster.run(1)
    statuses = cluster.get("pods", "p")["status"]["resourceClaimStatuses"]
    assert [entry["name"] for entry in statuses] == ["t", "tt"]
    assert len({entry["resourceClaimName"] for entry in statuses}) == 2
    assert len(cluster.list("resourceclaims", "default")) == 3


def test_long_names_are_shortened_in_proportion(cluster):
    long = "t" * 40
    cluster.create(claim_template(f"{long}0"))
    cluster.create(pod("p" * 80, long))
    cluster.run(1)
    (found,) = cluster.list("resourceclaims", "default")
    assert found["metadata"]["name"][:-5] == "p" * 37 + "-" + "t" * 18
    assert len(found["metadata"]["name"]) <= 63


def events(cluster):
    return [e["message"] for e in cluster.list("events", "default") if e["reason"] == "FailedResourceClaimCreation"]


def test_a_pod_waits_for_its_template(cluster):
    cluster.create(pod("p", "t"))
    cluster.run(300)
    text = 'resource claim template "t0": resourceclaimtemplate.resource.k8s.io "t0" not found'
    assert events(cluster) == [f"PodResourceClaim t: {text}"]
    cluster.create(claim_template("t0"))
    cluster.run(0.1)
    assert len(cluster.list("resourceclaims", "default")) == 1
    assert events(cluster) == [f"PodResourceClaim t: {text}"]


def test_a_claim_that_is_refused_is_tried_again(cluster):
    cluster.create(namespace("other"))
    cluster.patch("namespaces", "other", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    template = claim_template("t0", claim_spec(request(adminAccess=True)))
    template["metadata"]["namespace"] = "other"
    cluster.create(template)
    cluster.patch("namespaces", "other", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}})
    made = pod("p", "t")
    made["metadata"]["namespace"] = "other"
    cluster.create(made)
    cluster.run(120)
    assert not cluster.list("resourceclaims", "other")
    (message,) = [e["message"] for e in cluster.list("events", "other") if "Claim" in e["reason"]]
    assert "admin access to devices requires" in message
    cluster.patch("namespaces", "other", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    cluster.run(120)
    assert len(cluster.list("resourceclaims", "other")) == 1


def test_a_claim_that_was_deleted_is_made_again(cluster):
    cluster.create(claim_template("t0"))
    cluster.create(pod("p", "t"))
    cluster.run(1)
    first = cluster.list("resourceclaims", "default")[0]["metadata"]["name"]
    cluster.delete("resourceclaims", first)
    cluster.run(1)
    (second,) = cluster.list("resourceclaims", "default")
    assert second["metadata"]["name"] != first
    assert (
        cluster.get("pods", "p")["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        == (second["metadata"]["name"])
    )


def test_a_claim_that_was_made_before_is_used(cluster):
    """The claim was made, and then the controller was stopped before it wrote the pod's status."""
    cluster.create(claim_template("t0"))
    cluster.create(pod("p", "t"))
    cluster.run(1)
    stored = cluster.get("pods", "p")
    status = {key: value for key, value in stored["status"].items() if key != "resourceClaimStatuses"}
    cluster.registry.replace_status(cluster.resource("pods"), "default", "p", status)
    cluster.run(1)
    (only,) = cluster.list("resourceclaims", "default")
    assert cluster.get("pods", "p")["status"]["resourceClaimStatuses"] == [
        {"name": "t", "resourceClaimName": only["metadata"]["name"]}
    ]


@pytest.mark.parametrize("end", ["finished", "deleted"])
def test_a_claim_of_a_template_ends_with_its_pod(cluster, end):
    cluster.create(claim_template("t0"))
    made = pod("p", "t", restartPolicy="Never")
    made["metadata"]["annotations"] = {"koordsched.io/run-duration": "20s"}
    cluster.create(made)
    cluster.run(1)
    name = cluster.list("resourceclaims", "default")[0]["metadata"]["name"]
    allocate(cluster, name, "p")
    bind(cluster, "p")
    cluster.run(10)
    assert cluster.get("pods", "p")["status"]["phase"] == "Running"
    assert cluster.get("resourceclaims", name)["status"]["reservedFor"]
    if end == "deleted":
        cluster.delete("pods", "p")
        cluster.run(0.5)
        # Its containers still run.
        assert cluster.get("resourceclaims", name)["status"]["allocation"]
    cluster.run(20)
    assert cluster.exists("pods", "p") == (end == "finished")
    assert not cluster.exists("resourceclaims", name)


def test_a_claim_with_a_name_of_its_own_stays_and_is_deallocated(cluster):
    cluster.create(claim("c0"))
    for name in ("a", "b"):
        cluster.create(pod(name, "c"))
        bind(cluster, name)
    allocate(cluster, "c0", "a", "b")
    cluster.run(3)
    cluster.delete("pods", "a")
    cluster.run(5)
    stored = cluster.get("resourceclaims", "c0")
    assert [consumer["name"] for consumer in stored["status"]["reservedFor"]] == ["b"]
    assert stored["status"]["allocation"]
    assert stored["metadata"]["finalizers"] == [FINALIZER]
    cluster.delete("pods", "b")
    cluster.run(5)
    stored = cluster.get("resourceclaims", "c0")
    assert stored["status"] == {}
    assert "finalizers" not in stored["metadata"]


def test_an_unused_allocation_stays(cluster):
    """It is the end of a reservation that ends an allocation, not its absence."""
    cluster.create(claim("c0"))
    allocate(cluster, "c0")
    cluster.run(60)
    assert cluster.get("resourceclaims", "c0")["status"]["allocation"]


def test_an_allocation_by_other_means_stays(cluster):
    """Without the finalizer, it was not the scheduler's."""
    cluster.create(claim("c0"))
    cluster.create(pod("p", "c"))
    allocate(cluster, "c0", "p", finalizer=False)
    cluster.delete("pods", "p")
    cluster.run(5)
    assert cluster.get("resourceclaims", "c0")["status"] == {"allocation": allocation()}


def test_a_reservation_for_a_pod_that_was_replaced_ends(cluster):
    cluster.create(claim("c0"))
    cluster.create(pod("p", "c"))
    allocate(cluster, "c0", "p")
    cluster.delete("pods", "p")
    cluster.create(pod("p", "c"))
    cluster.run(5)
    assert cluster.get("resourceclaims", "c0")["status"] == {}


def test_reservations_that_are_not_for_pods_are_left_alone(cluster):
    cluster.create(claim("c0"))
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}
    status = {"allocation": allocation(), "reservedFor": [group]}
    cluster.patch("resourceclaims", "c0", {"status": status}, subresource="status")
    cluster.run(5)
    assert cluster.get("resourceclaims", "c0")["status"]["reservedFor"] == [group]


def test_a_claim_that_is_in_use_is_deleted_when_it_no_longer_is(cluster):
    cluster.create(claim("c0"))
    cluster.create(pod("p", "c"))
    bind(cluster, "p")
    allocate(cluster, "c0", "p")
    cluster.run(3)
    cluster.delete("resourceclaims", "c0")
    cluster.run(60)
    assert cluster.get("resourceclaims", "c0")["status"]["allocation"]
    cluster.delete("pods", "p")
    cluster.run(5)
    assert not cluster.exists("resourceclaims", "c0")


def test_a_claim_that_is_not_in_use_is_deleted_at_once(cluster):
    cluster.create(claim("c0"))
    allocate(cluster, "c0")
    cluster.delete("resourceclaims", "c0")
    cluster.run(1)
    assert not cluster.exists("resourceclaims", "c0")


def test_a_pod_that_is_deleted_before_it_is_scheduled(cluster):
    cluster.create(claim_template("t0"))
    cluster.create(pod("p", "t"))
    cluster.run(1)
    cluster.delete("pods", "p")
    cluster.run(5)
    assert not cluster.list("resourceclaims", "default")


def test_claims_of_extended_resources_end_with_their_pod(cluster):
    made = cluster.create({**pod("p", restartPolicy="Never")})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"], "controller": True}
    special = claim("p-extended-resources-x")
    special["metadata"] |= {"annotations": {EXTENDED: "true"}, "ownerReferences": [owner]}
    cluster.create(special)
    allocate(cluster, "p-extended-resources-x", "p")
    cluster.run(1)
    assert cluster.exists("resourceclaims", "p-extended-resources-x")
    cluster.registry.replace_status(cluster.resource("pods"), "default", "p", {"phase": "Succeeded"})
    cluster.run(5)
    assert not cluster.exists("resourceclaims", "p-extended-resources-x")


def test_a_pod_that_was_bound_by_hand_gets_a_reservation(cluster):
    cluster.create(claim("c0"))
    allocate(cluster, "c0")
    made = cluster.create(pod("p", "c", nodeName="node-0"))
    cluster.run(1)
    assert cluster.get("resourceclaims", "c0")["status"]["reservedFor"] == [
        {"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}
    ]


def test_what_happened_while_nothing_watched(cluster):
    """Controllers that start find pods without claims, and claims of pods that have gone."""
    cluster.controllers.stop()
    cluster.create(claim_template("t0"))
    cluster.create(claim("c0"))
    for name, entry in (("new", "t"), ("gone", "c")):
        cluster.create(pod(name, entry))
    allocate(cluster, "c0", "gone")
    cluster.delete("pods", "gone")
    cluster.run(5)
    assert not [c for c in cluster.list("resourceclaims", "default") if c["metadata"]["name"] != "c0"]
    Controllers(cluster.registry).start()
    cluster.run(5)
    assert cluster.get("resourceclaims", "c0")["status"] == {}
    assert len(cluster.list("resourceclaims", "default")) == 2


def test_a_namespace_with_claims_in_use_is_emptied(cluster):
    cluster.create(namespace("other"))
    for made in (claim("c0"), pod("p", "c")):
        made["metadata"]["namespace"] = "other"
        cluster.create(made)
    cluster.patch("resourceclaims", "c0", {"metadata": {"finalizers": [FINALIZER]}}, "other")
    uid = cluster.get("pods", "p", "other")["metadata"]["uid"]
    status = {"allocation": allocation(), "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]}
    cluster.patch("resourceclaims", "c0", {"status": status}, "other", subresource="status")
    cluster.delete("namespaces", "other")
    cluster.run(10)
    assert not cluster.exists("namespaces", "other")


def test_pods_of_a_deployment(cluster):
    """Every replica has a claim of its own, and each change costs as much as one pod, not as all."""
    cluster.create(claim_template("t0"))
    template = pod_template({"app": "web"}, resourceClaims=[{"name": "t", "resourceClaimTemplateName": "t0"}])
    cluster.create(workload("Deployment", "web", 300, template=template, labels={"app": "web"}))
    cluster.run(60)
    assert len(cluster.list("resourceclaims", "default")) == 300
    before = cluster.registry.store.rv
    cluster.delete("pods", cluster.pods()[0]["metadata"]["name"])
    cluster.run(10)
    assert len(cluster.list("resourceclaims", "default")) == 300
    assert cluster.registry.store.rv - before < 20


def test_servers_without_the_api_have_no_such_controller():
    api = Api(store=Store())
    api.registry.be_like(Release(33))
    controllers = Controllers(api.registry)
    controllers.start()
    api.post("/api/v1/namespaces/default/pods", pod("p", "t"))
    api.timers.advance(10)
    assert api.get("/apis/resource.k8s.io/v1/resourceclaims")[0] == 404
    controllers.stop()

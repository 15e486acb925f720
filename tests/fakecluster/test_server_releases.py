"""What a server of an earlier release serves, knows and does."""

import pytest

from koordsched.fakecluster.release import Release, parse_release, without
from tests.fakecluster.apiclient import PODS, Api, pod

WATCH_LIST = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
NODE = {"metadata": {"name": "alder"}}


def server(minor):
    api = Api()
    api.registry.be_like(Release(minor))
    return api


@pytest.mark.parametrize("text", ["1.30", "v1.30", "1.30.4"])
def test_a_version_names_a_release(text):
    assert parse_release(text).minor == 30


@pytest.mark.parametrize("text", ["", "1", "1.", "1.29", "1.37", "2.30", "1.x", "30"])
def test_any_other_text_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a version from 1\.30 to 1\.36"):
        parse_release(text)


@pytest.mark.parametrize("minor", range(30, 37))
def test_version_and_resources(minor):
    api = server(minor)
    assert api.get("/version")[1]["minor"] == str(minor)
    groups = {group["name"] for group in api.get("/apis")[1]["groups"]}
    assert ("resource.k8s.io" in groups) == (minor >= 34)
    names = {r["name"] for r in api.get("/apis/storage.k8s.io/v1")[1]["resources"]}
    assert "csistoragecapacities" in names
    assert ("volumeattributesclasses" in names) == (minor >= 34)
    expected = 200 if minor >= 34 else 404
    assert api.get("/apis/resource.k8s.io/v1/resourceclaims")[0] == expected


@pytest.mark.parametrize("minor", range(30, 37))
def test_a_watch_begins_with_the_state_where_that_is_known(minor):
    response = server(minor).response("GET", f"/api/v1/pods?{WATCH_LIST}")
    if minor == 32 or minor >= 34:
        assert response.status == 200
    else:
        assert response.status == 422
        assert b"WatchList feature gate" in response.body


@pytest.mark.parametrize("minor", range(30, 37))
def test_unknown_fields_are_dropped_and_nominations_kept(minor):
    api = server(minor)
    api.post("/api/v1/nodes", NODE)
    made = pod("p")
    made["spec"]["hostnameOverride"] = "other"
    created = api.post(PODS, made)[1]
    assert ("generation" in created["metadata"]) == (minor >= 33)
    assert ("hostnameOverride" in created["spec"]) == (minor >= 35)
    condition = {"type": "PodScheduled", "status": "False", "observedGeneration": 1}
    patch = {"status": {"nominatedNodeName": "alder", "conditions": [condition]}}
    patched = api.call("PATCH", f"{PODS}/p/status", patch, "application/strategic-merge-patch+json")[1]
    assert patched["status"]["nominatedNodeName"] == "alder"
    assert ("observedGeneration" in patched["status"]["conditions"][0]) == (minor >= 33)
    again = api.call("PATCH", f"{PODS}/p/status", patch, "application/strategic-merge-patch+json")[1]
    assert again["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]
    assert api.post(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "alder"}})[0] == 201
    bound = api.get(f"{PODS}/p")[1]
    assert bound["spec"]["nodeName"] == "alder"
    assert ("nominatedNodeName" in bound["status"]) == (minor < 34)


@pytest.mark.parametrize("minor", range(30, 37))
def test_a_binding_sets_annotations_and_of_late_labels(minor):
    api = server(minor)
    made = pod("p")
    made["metadata"] |= {"annotations": {"kept": "1", "set": "1"}, "labels": {"kept": "1", "set": "1"}}
    api.post(PODS, made)
    meta = {"annotations": {"set": "2"}, "labels": {"set": "2", "new": "2"}}
    assert api.post(f"{PODS}/p/binding", {"metadata": meta, "target": {"name": "alder"}})[0] == 201
    bound = api.get(f"{PODS}/p")[1]["metadata"]
    assert bound["annotations"] == {"kept": "1", "set": "2"}
    assert bound["labels"] == {"kept": "1", "set": "2", "new": "2"} if minor >= 35 else {"kept": "1", "set": "1"}


def test_dropping_fields_changes_nothing_that_is_shared():
    inner = {"a": 1, "b": 2}
    thing = {"list": [inner, {"b": 3}], "kept": {"a": 1}}
    assert without(thing, [("list", "*", "a"), ("missing", "a"), ("kept", "x")]) == {
        "list": [{"b": 2}, {"b": 3}],
        "kept": {"a": 1},
    }
    assert inner == {"a": 1, "b": 2}
    assert thing["list"][0] is inner


FORBIDDEN = [
    ("GET", "/apis/policy/v1/poddisruptionbudgets", "list", "at the cluster scope"),
    ("GET", "/apis/policy/v1/poddisruptionbudgets?watch=1", "watch", "at the cluster scope"),
    ("GET", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/x", "get", 'in the namespace "default"'),
    ("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", "create", 'in the namespace "default"'),
    ("PUT", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/x", "update", 'in the namespace "default"'),
    ("PATCH", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/x", "patch", 'in the namespace "default"'),
    ("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/x", "delete", 'in the namespace "default"'),
    ("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", "deletecollection",
     'in the namespace "default"'),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "verb", "scope"), FORBIDDEN)
def test_a_forbidden_resource(method, path, verb, scope):
    api = Api()
    api.server.forbidden.add("poddisruptionbudgets.policy")
    status, body = api.call(method, path, {})
    assert (status, body["reason"], body["message"]) == (
        403,
        "Forbidden",
        f'poddisruptionbudgets.policy is forbidden: User "system:anonymous" cannot {verb} resource '
        f'"poddisruptionbudgets" in API group "policy" {scope}',
    )
    assert api.get(PODS)[0] == 200

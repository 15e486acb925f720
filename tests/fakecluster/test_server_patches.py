"""Patches of every kind, and server-side apply."""

import pytest

from koordsched.fakecluster.patching import json_patch, merge_patch
from koordsched.fakecluster.strategic import strategic_merge
from tests.fakecluster.apiclient import CONFIG_MAPS, Api, config_map

POD_SPEC = {"$ref": "#/definitions/io.k8s.api.core.v1.PodSpec"}
OBJECT_META = {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}

MERGE = [
    ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
    ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
    ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    ({"a": "x"}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
]


@pytest.mark.parametrize("current, patch, expected", MERGE)
def test_merge_patch(current, patch, expected):
    kept = repr(current)
    assert merge_patch(current, patch) == expected
    assert repr(current) == kept


JSON = [
    ([{"op": "add", "path": "/b", "value": 2}], {"a": [1, 2], "b": 2}),
    ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
    ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}),
    ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
    ([{"op": "replace", "path": "/a", "value": {}}], {"a": {}}),
    ([{"op": "test", "path": "/a/0", "value": 1}, {"op": "move", "from": "/a", "path": "/b"}], {"b": [1, 2]}),
    ([{"op": "copy", "from": "/a/1", "path": "/x~1y"}], {"a": [1, 2], "x/y": 2}),
]


@pytest.mark.parametrize("operations, expected", JSON)
def test_json_patch(operations, expected):
    assert json_patch({"a": [1, 2]}, operations) == expected


BAD_JSON = [
    ([{"op": "test", "path": "/metadata/name", "value": "z"}], 422),
    ([{"op": "remove", "path": "/data/none"}], 422),
    ([{"op": "replace", "path": "/data/none", "value": "1"}], 422),
    ([{"op": "add", "path": "data", "value": "1"}], 422),
    ([{"op": "shuffle", "path": "/data"}], 400),
    ([{"path": "/data"}], 400),
    ({"op": "add"}, 400),
]


@pytest.mark.parametrize("operations, code", BAD_JSON)
def test_json_patches_that_do_not_apply(operations, code):
    api = Api()
    api.post(CONFIG_MAPS, config_map("a", k="v"))
    assert api.call("PATCH", f"{CONFIG_MAPS}/a", operations, "application/json-patch+json")[0] == code


STRATEGIC = [
    (
        "lists merge by key",
        POD_SPEC,
        {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]},
        {"containers": [{"name": "b", "image": "2"}, {"name": "c"}]},
        {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c"}]},
    ),
    (
        "elements are deleted by key",
        POD_SPEC,
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "a", "$patch": "delete"}]},
        {"containers": [{"name": "b"}]},
    ),
    (
        "a list is replaced when told",
        POD_SPEC,
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "c"}, {"$patch": "replace"}]},
        {"containers": [{"name": "c"}]},
    ),
    (
        "lists without merge key are replaced",
        POD_SPEC,
        {"tolerations": [{"key": "a"}, {"key": "b"}]},
        {"tolerations": [{"key": "c"}]},
        {"tolerations": [{"key": "c"}]},
    ),
    (
        "order is kept as said",
        POD_SPEC,
        {"containers": [{"name": "a"}, {"name": "server"}, {"name": "b"}]},
        {"containers": [{"name": "c"}], "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]},
        {"containers": [{"name": "c"}, {"name": "server"}, {"name": "b"}, {"name": "a"}]},
    ),
    (
        "primitive lists merge",
        OBJECT_META,
        {"finalizers": ["a", "b"]},
        {"finalizers": ["c", "b"]},
        {"finalizers": ["a", "b", "c"]},
    ),
    (
        "and lose elements",
        OBJECT_META,
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    (
        "kept keys of a union",
        POD_SPEC,
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]},
        {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    ),
    (
        "null deletes",
        POD_SPEC,
        {"nodeSelector": {"a": "b", "c": "d"}, "hostname": "x"},
        {"nodeSelector": {"a": None}, "hostname": None},
        {"nodeSelector": {"c": "d"}},
    ),
    (
        "a map is replaced when told",
        POD_SPEC,
        {"nodeSelector": {"a": "b"}},
        {"nodeSelector": {"c": "d", "$patch": "replace"}},
        {"nodeSelector": {"c": "d"}},
    ),
]


@pytest.mark.parametrize("schema, current, patch, expected", [s[1:] for s in STRATEGIC], ids=[s[0] for s in STRATEGIC])
def test_strategic_merge(schema, current, patch, expected):
    kept = repr(current)
    assert strategic_merge(current, patch, schema) == expected
    assert repr(current) == kept


def apply(api, body, manager="kubectl", query=""):
    name = body["metadata"]["name"]
    path = f"/apis/apps/v1/namespaces/default/deployments/{name}?fieldManager={manager}{query}"
    return api.call("PATCH", path, body, "application/apply-patch+yaml")


def deployment(image="app:1", **spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec},
    }


def test_apply_creates_then_changes_then_removes():
    api = Api()
    status, made = apply(api, deployment(replicas=3, paused=True))
    assert (status, made["spec"]["replicas"]) == (201, 3)
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl", "Apply")
    assert entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"] == {
        'k:{"name":"c"}': {".": {}, "f:name": {}, "f:image": {}}
    }
    status, changed = apply(api, deployment(image="app:2", replicas=3))
    assert (status, changed["spec"]["template"]["spec"]["containers"][0]["image"]) == (200, "app:2")
    assert "paused" not in changed["spec"]
    rv = api.registry.store.rv
    assert apply(api, deployment(image="app:2", replicas=3)) == (200, changed)
    assert api.registry.store.rv == rv


def test_appliers_conflict_unless_forced():
    api = Api()
    apply(api, deployment(replicas=3))
    status, body = apply(api, deployment(replicas=4), "other")
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"] == 'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas'
    assert body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl"', "field": ".spec.replicas"}
    ]
    status, forced = apply(api, deployment(replicas=4), "other", "&force=true")
    assert (status, forced["spec"]["replicas"]) == (200, 4)
    # The first applier has lost the field: what it no longer says stays.
    assert apply(api, deployment())[1]["spec"]["replicas"] == 4


def test_apply_needs_a_manager_and_an_object():
    api = Api()
    path = f"{CONFIG_MAPS}/a"
    assert api.call("PATCH", path, config_map("a"), "application/apply-patch+yaml")[0] == 422
    yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
    status, made = api.call("PATCH", f"{path}?fieldManager=m", yaml, "application/apply-patch+yaml")
    assert (status, made["data"]) == (201, {"k": "v"})
    assert api.call("PATCH", f"{path}?fieldManager=m", b"[1]", "application/apply-patch+yaml")[0] == 400
    assert api.call("PATCH", path, {}, "application/unknown")[0] == 415

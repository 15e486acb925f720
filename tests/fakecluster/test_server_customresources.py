"""Custom resources: served as defined, at once."""

import asyncio
import copy

import pytest

from tests.fakecluster.apiclient import Api

DEADLINE = 20
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/ex.com/v1/namespaces/default/widgets"

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "replicas": {"type": "integer", "default": 1},
                "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
                "port": {"x-kubernetes-int-or-string": True},
                "note": {"type": "string", "nullable": True, "maxLength": 5},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "weight": {"type": "integer", "default": 7}},
                    },
                },
                "limits": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def definition(**changes):
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": copy.deepcopy(SCHEMA)},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1},
        ],
        "selectableFields": [{"jsonPath": ".spec.mode"}],
    }
    spec = {
        "group": "ex.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [version],
        **changes,
    }
    return {"metadata": {"name": "widgets.ex.com"}, "spec": spec}


def widget(name="w", **spec):
    return {"apiVersion": "ex.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1, **spec}}


@pytest.fixture
def api():
    api = Api()
    assert api.get(WIDGETS)[0] == 404
    status, made = api.post(CRDS, definition())
    assert status == 201
    assert {c["type"]: c["status"] for c in made["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert made["status"]["storedVersions"] == ["v1"]
    assert made["spec"]["names"]["listKind"] == "WidgetList"
    return api


def test_objects_are_defaulted_and_pruned(api):
    body = widget(unknown=1, free={"a": {"b": 1}}, parts=[{"name": "x", "extra": 2}], limits={"cpu": "1"}, port="http")
    response = api.response("POST", WIDGETS, body)
    assert response.status == 201
    assert sorted(response.headers["warning"].split(", ")) == [
        '299 - "unknown field \\"spec.parts[0].extra\\""',
        '299 - "unknown field \\"spec.unknown\\""',
    ]
    spec = api.get(f"{WIDGETS}/w")[1]["spec"]
    assert spec == {
        "size": 1,
        "replicas": 1,
        "mode": "A",
        "port": "http",
        "free": {"a": {"b": 1}},
        "parts": [{"name": "x", "weight": 7}],
        "limits": {"cpu": "1"},
    }


INVALID = [
    ({"size": 0}, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
    ({"size": "x"}, "spec.size", 'Invalid value: "string": spec.size in body must be of type integer: "string"'),
    ({"mode": "Z"}, "spec.mode", 'Unsupported value: "Z": supported values: "A", "B"'),
    ({"note": "too long"}, "spec.note", 'Invalid value: "too long": spec.note in body should be at most 5 chars long'),
    (
        {"port": [1]},
        "spec.port",
        'Invalid value: "array": spec.port in body must be of type integer: "array"',
    ),
    (
        {"limits": {"cpu": 1}},
        "spec.limits.cpu",
        'Invalid value: "integer": spec.limits.cpu in body must be of type string: "integer"',
    ),
]


@pytest.mark.parametrize("spec, field, message", INVALID)
def test_invalid_objects(api, spec, field, message):
    status, body = api.post(WIDGETS, widget(**spec))
    assert status == 422
    assert [(c["field"], c["message"]) for c in body["details"]["causes"]] == [(field, message)]
    assert body["message"] == f'Widget.ex.com "w" is invalid: {field}: {message}'


def test_missing_fields_and_nulls(api):
    status, body = api.post(WIDGETS, {"metadata": {"name": "w"}, "spec": {}})
    assert (status, body["details"]["causes"][0]["field"]) == (422, "spec.size")
    assert api.post(WIDGETS, widget(note=None, replicas=None))[1]["spec"] == {
        "size": 1,
        "note": None,
        "replicas": 1,
        "mode": "A",
    }


METADATA = [
    ({"finalizers": 5}, "metadata: Expected `array`, got `int` - at `finalizers`"),
    ({"labels": {"a": 1}}, "metadata: Expected `str`, got `int` - at `labels[...]`"),
    ({"ownerReferences": ["x"]}, "metadata: Expected `object`, got `str` - at `ownerReferences[0]`"),
]


@pytest.mark.parametrize("meta, message", METADATA)
def test_malformed_metadata_is_told(api, meta, message):
    status, body = api.post(WIDGETS, {"metadata": {"name": "w", **meta}, "spec": {"size": 1}})
    assert (status, body["message"]) == (400, f'Widget in version "v1" cannot be handled as a Widget: {message}')


def test_status_scale_and_generation(api):
    made = api.post(WIDGETS, {**widget(), "status": {"replicas": 9}})[1]
    assert "status" not in made
    _, status = api.merge(f"{WIDGETS}/w/status", {"spec": {"size": 5}, "status": {"replicas": 2, "selector": "a=b"}})
    assert (status["spec"]["size"], status["status"]["replicas"], status["metadata"]["generation"]) == (1, 2, 1)
    scale = api.get(f"{WIDGETS}/w/scale")[1]
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 1},
        {"replicas": 2, "selector": "a=b"},
    )
    assert api.merge(f"{WIDGETS}/w/scale", {"spec": {"replicas": 4}})[0] == 200
    stored = api.get(f"{WIDGETS}/w")[1]
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (4, 2)


def test_updates_must_say_their_version(api):
    made = api.post(WIDGETS, widget())[1]
    assert api.put(f"{WIDGETS}/w", widget(mode="B"))[0] == 422
    assert api.put(f"{WIDGETS}/w", {**widget(mode="B"), "metadata": made["metadata"]})[0] == 200


def test_strategic_patches_are_for_built_in_kinds(api):
    api.post(WIDGETS, widget())
    answer = api.call("PATCH", f"{WIDGETS}/w", {}, "application/strategic-merge-patch+json")
    assert (answer[0], answer[1]["reason"]) == (415, "UnsupportedMediaType")


def test_columns_and_selectable_fields(api):
    api.post(WIDGETS, widget("a", mode="B"))
    api.post(WIDGETS, widget("b"))
    api.merge(f"{WIDGETS}/a/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    api.clock.time += 90
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    _, table = api.get(WIDGETS, headers=accept)
    columns = [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]]
    assert columns == [("Name", "string", 0), ("Size", "integer", 0), ("Ready", "string", 0), ("Age", "date", 1)]
    assert [r["cells"] for r in table["rows"]] == [["a", 1, "True", "90s"], ["b", 1, None, "90s"]]
    assert [i["metadata"]["name"] for i in api.get(f"{WIDGETS}?fieldSelector=spec.mode=B")[1]["items"]] == ["a"]


async def test_versions_share_their_objects(api):
    changed = definition()
    changed["spec"]["versions"].append({**changed["spec"]["versions"][0], "name": "v1beta1", "storage": False})
    assert api.merge(f"{CRDS}/widgets.ex.com", changed)[0] == 200
    api.post(WIDGETS, widget())
    beta = WIDGETS.replace("/v1/", "/v1beta1/")
    assert api.get(f"{beta}/w")[1]["apiVersion"] == "ex.com/v1beta1"
    assert api.merge(f"{beta}/w", {"spec": {"size": 8}})[1]["apiVersion"] == "ex.com/v1beta1"
    assert api.get(f"{WIDGETS}/w")[1]["spec"]["size"] == 8
    stream = api.watch(f"{beta}?watch=1")
    assert (await stream.raw(1))[0]["object"]["apiVersion"] == "ex.com/v1beta1"
    assert [v["groupVersion"] for v in api.get("/apis/ex.com")[1]["versions"]] == ["ex.com/v1", "ex.com/v1beta1"]


GADGETS, NEWER = "/apis/ex.com/v1alpha1/gadgets", "/apis/ex.com/v1alpha2/gadgets"


def gadgets():
    """Two versions, of which the newer one is stored. Each knows a field that the other does not."""

    def version(name, stored, required, **properties):
        text = {"type": "string"}
        schema = {"type": "object", "required": required, "properties": {"policies": text, "zones": text, **properties}}
        return {"name": name, "served": True, "storage": stored, "schema": {"openAPIV3Schema": schema}}

    old = version("v1alpha1", False, ["policies", "zones"], old={"type": "string"})
    new = version("v1alpha2", True, ["zones"], new={"type": "string", "default": "n"})
    names = {"plural": "gadgets", "kind": "Gadget"}
    spec = {"group": "ex.com", "scope": "Cluster", "names": names, "versions": [old, new]}
    return {"metadata": {"name": "gadgets.ex.com"}, "spec": spec}


def gadget(**fields):
    return {"metadata": {"name": "g"}, **fields}


def fields(body):
    return {key: value for key, value in body.items() if key not in ("kind", "metadata")}


async def test_the_version_that_is_written_need_not_be_the_stored_one():
    api = Api()
    assert api.post(CRDS, gadgets())[1]["status"]["storedVersions"] == ["v1alpha2"]
    stream = api.watch(f"{NEWER}?watch=1")
    # The rules are those of the version that the request speaks; what is stored is what the stored one knows of it.
    status, made = api.post(GADGETS, gadget(policies="p", zones="z", old="x"))
    known = {"policies": "p", "zones": "z"}
    assert (status, fields(made)) == (201, {"apiVersion": "ex.com/v1alpha1", **known})
    assert fields(api.get(f"{GADGETS}/g")[1]) == {"apiVersion": "ex.com/v1alpha1", **known}
    stored = {"apiVersion": "ex.com/v1alpha2", **known, "new": "n"}
    assert fields(api.get(f"{NEWER}/g")[1]) == stored
    assert fields((await stream.raw(1))[0]["object"]) == stored
    status, changed = api.merge(f"{GADGETS}/g", {"zones": "y"})
    assert (status, changed["zones"], changed["metadata"]["generation"]) == (200, "y", 2)
    # A write that changes nothing writes nothing, though the other version has a default.
    assert api.put(f"{GADGETS}/g", changed)[1] == changed
    status, body = api.post(GADGETS, {"metadata": {"name": "h"}, "zones": "z"})
    assert (status, body["details"]["causes"][0]["field"]) == (422, "policies")
    assert api.post(NEWER, {"metadata": {"name": "h"}, "zones": "z"})[0] == 201
    # Without a conversion there is nothing that could add it.
    assert "policies" not in api.get(f"{GADGETS}/h")[1]
    assert api.merge(f"{GADGETS}/h", {"metadata": {"labels": {"a": "b"}}})[0] == 422
    assert api.merge(f"{NEWER}/h", {"metadata": {"labels": {"a": "b"}}})[0] == 200


def test_deleting_the_definition_deletes_the_objects(api):
    gone = []
    resource = api.registry.resource("ex.com", "v1", "widgets")
    api.registry.subscribe(resource, lambda kind, old, new: gone.append((kind, new["metadata"]["name"])))
    api.post(WIDGETS, widget())
    assert api.delete(f"{CRDS}/widgets.ex.com")[0] == 200
    assert gone == [("ADDED", "w"), ("DELETED", "w")]
    assert api.get(WIDGETS)[0] == 404
    api.post(CRDS, definition())
    assert api.get(WIDGETS)[1]["items"] == []


def _with_a_field(spec):
    spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"] = {"type": "string"}


def _no_longer_served(spec):
    spec["versions"][0] |= {"served": False, "storage": True}
    spec["versions"].append({**spec["versions"][0], "name": "v2", "served": True, "storage": False})


CHANGED = [("another schema", _with_a_field), ("no longer served", _no_longer_served)]


@pytest.mark.parametrize("change", [c[1] for c in CHANGED], ids=[c[0] for c in CHANGED])
async def test_a_changed_definition_ends_the_watches(api, change):
    stream = api.watch(f"{WIDGETS}?watch=1")
    api.post(WIDGETS, widget())
    changed = definition()
    change(changed["spec"])
    assert api.merge(f"{CRDS}/widgets.ex.com", changed)[0] == 200
    async with asyncio.timeout(DEADLINE):
        assert [(e["type"], e["object"]["metadata"]["name"]) for e in await stream.rest()] == [("ADDED", "w")]


async def test_a_definition_that_stays_the_same_ends_no_watch(api):
    stream = api.watch(f"{WIDGETS}?watch=1")
    version = api.registry.store.rv
    api.merge(f"{CRDS}/widgets.ex.com", {"metadata": {"labels": {"a": "b"}}})
    api.post(WIDGETS, widget())
    async with asyncio.timeout(DEADLINE):
        assert [name for _, name, _ in await stream.take(1)] == ["w"]
        assert [name for _, name, _ in await api.watch(f"{WIDGETS}?watch=1&resourceVersion={version}").take(1)] == ["w"]


BAD = [
    ("name", lambda d: d["metadata"].update(name="other.ex.com"), "metadata.name"),
    ("scope", lambda d: d["spec"].update(scope="Galaxy"), "spec.scope"),
    ("no storage", lambda d: d["spec"]["versions"][0].update(storage=False), "spec.versions"),
    ("no schema", lambda d: d["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema"),
    (
        "wrong schema",
        lambda d: d["spec"]["versions"][0]["schema"]["openAPIV3Schema"].update(type="thing"),
        "spec.versions[0].schema.openAPIV3Schema",
    ),
    (
        "wrong path",
        lambda d: d["spec"]["versions"][0]["additionalPrinterColumns"][0].update(jsonPath=".a[?("),
        "spec.versions[0].additionalPrinterColumns[0].jsonPath",
    ),
]


@pytest.mark.parametrize("spoil, field", [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_definitions(spoil, field):
    api, body = Api(), definition()
    spoil(body)
    status, answer = api.post(CRDS, body)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, field)


def test_discovery_and_openapi_follow(api):
    listed = api.get("/apis/ex.com/v1")[1]["resources"]
    assert [r["name"] for r in listed] == ["widgets", "widgets/scale", "widgets/status"]
    schema = api.get("/openapi/v3/apis/ex.com/v1")[1]["components"]["schemas"]["com.ex.v1.Widget"]
    assert schema["properties"]["spec"]["properties"]["size"] == {"type": "integer", "minimum": 1}
    api.delete(f"{CRDS}/widgets.ex.com")
    assert api.get("/apis/ex.com/v1")[0] == 404
    assert api.get("/openapi/v3/apis/ex.com/v1")[0] == 404

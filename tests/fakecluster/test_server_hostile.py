"""Requests that no client should send: refused as the client's fault, never an internal error."""

import json

import pytest

from tests.fakecluster.apiclient import CONFIG_MAPS, PODS, Api
from tests.plugins.objects import container, pod

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TARGET = {"kind": "Node", "name": "n"}


@pytest.fixture
def api(caplog):
    """With a pod, a Deployment and a ServiceAccount that are named x; no request may have failed in the end."""
    api = Api()
    selector = {"selector": {"matchLabels": {"a": "b"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x", container(cpu="1"))["spec"]}
    template["spec"].pop("schedulerName", None)
    for path, obj in (
        (PODS, pod("x", container(cpu="1"))),
        (DEPLOYMENTS, {"metadata": {"name": "x"}, "spec": {"replicas": 1, **selector, "template": template}}),
        (ACCOUNTS, {"metadata": {"name": "x"}}),
    ):
        status, answer = api.post(path, obj)
        assert status == 201, answer
    yield api
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("odd", [5, 1.5, True, "x", [5]])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{PODS}/x/binding", lambda odd: {"metadata": odd, "target": TARGET}),
        ("POST", f"{PODS}/x/binding", lambda odd: {"target": odd}),
        ("POST", f"{PODS}/x/binding", lambda odd: {"metadata": {"annotations": odd}, "target": TARGET}),
        ("POST", f"{PODS}/x/binding", lambda odd: {"metadata": {"labels": {"a": [odd]}}, "target": TARGET}),
        ("POST", f"{PODS}/x/eviction", lambda odd: {"deleteOptions": odd}),
        ("POST", f"{PODS}/x/eviction", lambda odd: {"deleteOptions": {"preconditions": odd}}),
        ("POST", f"{PODS}/x/eviction", lambda odd: {"deleteOptions": {"gracePeriodSeconds": [odd]}}),
        ("DELETE", f"{PODS}/x", lambda odd: {"preconditions": odd}),
        ("PUT", f"{DEPLOYMENTS}/x/scale", lambda odd: {"metadata": odd}),
        ("PUT", f"{DEPLOYMENTS}/x/scale", lambda odd: {"spec": odd}),
        ("POST", f"{ACCOUNTS}/x/token", lambda odd: {"spec": odd}),
        ("POST", f"{ACCOUNTS}/x/token", lambda odd: {"spec": {"expirationSeconds": odd}}),
    ],
)
def test_what_is_no_object(api, method, path, body, odd):
    before = api.get(f"{PODS}/x")
    assert api.call(method, path, body(odd))[0] in (400, 422)
    assert api.get(f"{PODS}/x") == before


@pytest.mark.parametrize("odd", [b"5", b"true", b"null", b'"x"', b"{}"])
@pytest.mark.parametrize("path", [f"{DEPLOYMENTS}/x/scale", f"{DEPLOYMENTS}/x"])
def test_a_patch_that_is_no_list(api, path, odd):
    assert api.call("PATCH", path, odd, "application/json-patch+json")[0] == 400


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 20, str(1 << 64)])
@pytest.mark.parametrize("name", ["limit", "timeoutSeconds", "resourceVersion"])
def test_numbers_beyond_64_bits(api, name, number):
    verb = "watch=1&" if name == "timeoutSeconds" else ""
    status, answer = api.get(f"{CONFIG_MAPS}?{verb}{name}={number}")
    assert (status, answer["message"].endswith("value out of range")) == (400, True)


def test_leading_zeros_are_no_digits(api):
    assert api.get(f"{PODS}?limit={'0' * 5000}1")[0] == 200


@pytest.mark.parametrize("seconds", [599, (1 << 32) + 1, 10**19, 1e300])
def test_lifetimes_of_tokens_that_the_server_does_not_give(api, seconds):
    assert api.post(f"{ACCOUNTS}/x/token", {"spec": {"expirationSeconds": seconds}})[0] == 422


def test_a_grace_period_of_ages(api):
    assert api.post(f"{PODS}/x/binding", {"target": TARGET})[0] == 201
    status, answer = api.delete(f"{PODS}/x", {"gracePeriodSeconds": 10**18})
    assert (status, answer["metadata"]["deletionGracePeriodSeconds"]) == (200, (1 << 31) - 1)


def test_an_eviction_that_is_only_tried(api):
    assert api.post(f"{PODS}/x/eviction", {"deleteOptions": {"dryRun": ["All"]}})[0] == 201
    assert api.get(f"{PODS}/x")[0] == 200


@pytest.mark.parametrize("part", ["properties", "allOf", "anyOf", "oneOf", "enum"])
@pytest.mark.parametrize("odd", [5, True, "x", [5]])
def test_definitions_whose_schema_is_none(api, part, odd):
    inner = {"type": "object", "nullable": True, part: odd}
    schema = {"type": "object", "properties": {"spec": inner}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": "e.com", "scope": "Namespaced", "names": names, "versions": [version]}
    status, answer = api.post(CRDS, {"metadata": {"name": "things.e.com"}, "spec": spec})
    assert status in ((201, 422) if (part, odd) == ("enum", [5]) else (422,)), answer


@pytest.mark.parametrize("depth", [300, 900])
def test_what_is_nested_too_deeply_to_be_stored(api, depth):
    nested = {}
    for _ in range(depth):
        nested = {"a": nested}
    definition = {
        "metadata": {"name": "xs.ex.com"},
        "spec": {
            "group": "ex.com",
            "names": {"kind": "X", "plural": "xs", "singular": "x", "listKind": "XList"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    assert api.post(CRDS, definition)[0] == 201
    body = json.dumps({"apiVersion": "ex.com/v1", "kind": "X", "metadata": {"name": "n"}, "a": nested}).encode()
    status, answer = api.call("POST", "/apis/ex.com/v1/namespaces/default/xs", body)
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert "cannot be stored" in answer["message"]

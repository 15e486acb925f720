"""The CustomResourceDefinitions: what Koordinator's accept is accepted and kept, what is no quantity is not."""

import json
from pathlib import Path

import pytest

from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.errors import ApiStatusError
from tests.plugins.elasticquota.controller.cluster import PROFILE_API, QUOTA_API, ROOT
from tests.yamlfiles import documents

RECORDS = [*(ROOT / "tests/parity/golden-koord").glob("*.json"), *(Path(__file__).parent / "golden").glob("*.json")]
CRDS = ("elasticquotas", "elasticquotaprofiles")


@pytest.fixture
def registry():
    made = new_cluster()
    for name in CRDS:
        (crd,) = documents(ROOT / "manifests" / "crds" / f"{name}.yaml")
        made.create(made.resource_for_kind(crd["apiVersion"], crd["kind"]), None, crd)
    return made


def created(registry, thing):
    resource = registry.resource_for_kind(thing["apiVersion"], thing["kind"])
    return registry.create(resource, "default", json.loads(json.dumps(thing)))


def recorded():
    """Every quota and profile that a record creates, once."""
    found = {}
    for path in RECORDS:
        record = json.loads(path.read_text())
        things = list(record["objects"])
        for step in record.get("steps", ()):
            made = step.get("create", [])
            things += made if isinstance(made, list) else [made]
        for thing in things:
            if thing["kind"] in ("ElasticQuota", "ElasticQuotaProfile"):
                found[
                    json.dumps([thing["metadata"].get("labels"), thing["metadata"].get("annotations"), thing["spec"]])
                ] = thing
    return list(found.values())


def test_recorded_objects_are_kept_as_they_are(registry):
    things = recorded()
    assert len(things) > 100
    for number, thing in enumerate(things):
        thing["metadata"] = {**thing["metadata"], "name": f"q-{number}", "namespace": "default"}
        stored = created(registry, thing)
        assert stored["spec"] == thing["spec"]
        assert stored.get("status") == thing.get("status")
        for part in ("labels", "annotations"):
            assert (stored["metadata"].get(part) or {}) == (thing["metadata"].get(part) or {})


TEXTS = "4 0.5 .5 5. +1 -1 100m 1Gi 1Ki 1n 1u 1k 1M 1G 1T 1P 1E 1Ei 1e3 1E3 1e-3 12e+2"


@pytest.mark.parametrize("quantity", [4, 0, -1, *TEXTS.split()])
def test_quantities(registry, quantity):
    thing = {
        "apiVersion": QUOTA_API,
        "kind": "ElasticQuota",
        "metadata": {"name": "q"},
        "spec": {"max": {"x": quantity}},
    }
    assert created(registry, thing)["spec"] == thing["spec"]


@pytest.mark.parametrize("quantity", ["", "lots", "1 Gi", "1gi", "--1", "1Zi", True, [], {}])
def test_what_is_no_quantity(registry, quantity):
    thing = {
        "apiVersion": QUOTA_API,
        "kind": "ElasticQuota",
        "metadata": {"name": "q"},
        "spec": {"min": {"x": quantity}},
    }
    with pytest.raises(ApiStatusError):
        created(registry, thing)


@pytest.mark.parametrize("spec", [None, {}, {"min": {}}, {"max": {}, "min": {}}])
def test_a_quota_may_be_empty(registry, spec):
    thing = {"apiVersion": QUOTA_API, "kind": "ElasticQuota", "metadata": {"name": "q"}}
    if spec is not None:
        thing["spec"] = spec
    assert created(registry, thing).get("spec") == spec


@pytest.mark.parametrize(
    ("spec", "accepted"),
    [
        ({"quotaName": "q", "nodeSelector": {}}, True),
        ({"quotaName": "q", "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}, True),
        ({"quotaName": "q", "nodeSelector": {}, "quotaLabels": {"a": "b"}, "resourceRatio": "0.9"}, True),
        ({"quotaName": "q"}, False),
        ({"nodeSelector": {}}, False),
        ({"quotaName": "q", "nodeSelector": {}, "resourceRatio": 1}, False),
    ],
)
def test_profiles(registry, spec, accepted):
    thing = {"apiVersion": PROFILE_API, "kind": "ElasticQuotaProfile", "metadata": {"name": "p"}, "spec": spec}
    if accepted:
        assert created(registry, thing)["spec"] == spec
        return
    with pytest.raises(ApiStatusError):
        created(registry, thing)


def test_quotas_have_no_status_subresource(registry):
    quota = {"apiVersion": QUOTA_API, "kind": "ElasticQuota", "metadata": {"name": "q"}, "status": {"used": {"cpu": 1}}}
    assert created(registry, quota)["status"] == {"used": {"cpu": 1}}

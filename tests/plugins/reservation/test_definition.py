"""The CustomResourceDefinition: what Koordinator's accepts is accepted, kept and defaulted, the rest is not."""

import json
from pathlib import Path

import pytest
import yaml

from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.plugins.reservation.kinds import offer_of
from tests.parity.koord import GOLDEN
from tests.plugins.reservation.objects import reservation

CRD = Path(__file__).parents[3] / "manifests" / "crds" / "reservations.yaml"
API = "scheduling.koordinator.sh/v1alpha1"
DEFAULTS = {"ttl": "24h", "allocateOnce": True}
OF_POLICY = {"mode": "Default", "enableMultiple": False}
SPEC = {"template": {"spec": {}}, "owners": [{"object": {"name": "p"}}]}
TTL = {"ttl": "1h", "allocateOnce": False}


@pytest.fixture
def registry():
    made = new_cluster()
    crd = yaml.safe_load(CRD.read_text())
    made.create(made.resource_for_kind(crd["apiVersion"], crd["kind"]), None, crd)
    return made


@pytest.mark.parametrize(
    ("policy", "same"), [({}, True), (OF_POLICY, True), ({"mode": "Other"}, False), ({"enableMultiple": True}, False)]
)
def test_what_the_server_fills_in_is_the_same_offer(policy, same):
    before, after = reservation(preAllocation=True), reservation(preAllocation=True, preAllocationPolicy=policy)
    assert (offer_of(before) == offer_of(after)) is same
    assert offer_of(after) == offer_of(reservation(preAllocation=True, preAllocationPolicy=policy))


def created(registry, spec, name="r"):
    thing = {"apiVersion": API, "kind": "Reservation", "metadata": {"name": name}, "spec": spec}
    return registry.create(registry.resource_for_kind(API, "Reservation"), None, json.loads(json.dumps(thing)))


def recorded():
    """The spec of every Reservation that a record creates."""
    for path in sorted(GOLDEN.glob("resv-*.json")):
        record = json.loads(path.read_text())
        made = [step["create"] for step in record.get("steps", ()) if "create" in step]
        things = [*record["objects"], *(one for each in made for one in (each if isinstance(each, list) else [each]))]
        yield from (thing["spec"] for thing in things if thing["kind"] == "Reservation")


def test_recorded_ones_are_kept_and_defaulted(registry):
    specs = list(recorded())
    assert len(specs) > 30
    for number, spec in enumerate(specs):
        if "preAllocationPolicy" in spec:
            spec = spec | {"preAllocationPolicy": OF_POLICY | spec["preAllocationPolicy"]}
        assert created(registry, spec, f"r-{number}")["spec"] == DEFAULTS | spec


@pytest.mark.parametrize(
    "spec",
    [
        SPEC | TTL | {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"anything": [1, {"deep": None}]}}},
        SPEC
        | TTL
        | {"owners": [{"labelSelector": {}}, {"controller": dict.fromkeys(["apiVersion", "kind", "name", "uid"], "")}]},
        SPEC | TTL | {"owners": [{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]},
        SPEC | TTL | {"expires": "2030-01-01T00:00:00Z", "allocatePolicy": "Restricted", "unschedulable": True},
        SPEC | TTL | {"taints": [{"key": "k", "effect": "NoSchedule", "value": "v"}], "preAllocation": True},
        SPEC | TTL | {"preAllocationPolicy": {"mode": "Cluster", "enableMultiple": True}},
    ],
)
def test_what_is_kept(registry, spec):
    assert created(registry, spec)["spec"] == spec


def test_the_defaults_of_pre_allocation(registry):
    stored = created(registry, SPEC | {"preAllocationPolicy": {}})
    assert stored["spec"]["preAllocationPolicy"] == OF_POLICY


@pytest.mark.parametrize(
    "spec",
    [
        {"owners": [{"object": {}}]},
        {"template": {}},
        SPEC | {"owners": []},
        SPEC | {"owners": [{}]},
        SPEC | {"owners": [{"controller": {"name": "rs"}}]},
        SPEC | {"owners": [{"labelSelector": {"matchLabels": {"a": 5}}}]},
        SPEC | {"allocatePolicy": ""},
        SPEC | {"allocatePolicy": "Default"},
        SPEC | {"preAllocationPolicy": {"mode": "Node"}},
        SPEC | {"taints": [{"key": "k"}]},
        SPEC | {"ttl": 60},
        SPEC | {"allocateOnce": "yes"},
    ],
)
def test_what_is_refused(registry, spec):
    with pytest.raises(ApiStatusError):
        created(registry, spec)

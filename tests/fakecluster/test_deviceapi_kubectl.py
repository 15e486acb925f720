"""Devices and claims with kubectl, end to end over HTTP, by the examples."""

import json

import pytest
import yaml

from koordsched.fakecluster.hollow.nodeobjects import plan_nodes
from koordsched.fakecluster.hollow.templates import load_pools, load_templates
from tests.fakecluster.deviceobjects import allocation, claim, resource_slice
from tests.fakecluster.liveserver import live_cluster
from tests.fakecluster.test_controllers_kubectl import EXAMPLES, KUBECTL, Kubectl

CLAIMS = EXAMPLES / "dra" / "claims.yaml"
TEMPLATE = EXAMPLES / "dra" / "node-template.yaml"


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    if KUBECTL is None:
        pytest.skip("kubectl is not installed")
    home = tmp_path_factory.mktemp("cluster")
    with live_cluster(home, 3, TEMPLATE) as path:
        made = Kubectl(path, home)
        made.until(lambda: len(made.json("get", "resourceslices")["items"]) == 6)
        made("apply", "-f", str(CLAIMS))
        made.until(lambda: len(made.json("get", "resourceclaims")["items"]) == 6)
        yield made


def test_the_examples_can_be_used():
    assert len(plan_nodes(load_templates(TEMPLATE), 3)) == 3
    assert [pool.id[1] for pool in load_pools(TEMPLATE)] == ["fabric", "ports"]
    classes = {d["metadata"]["name"] for d in yaml.safe_load_all(CLAIMS.read_text()) if d["kind"] == "DeviceClass"}
    assert classes == {"gpu.example.com", "gpu-partition.example.com", "nic.example.com", "port.example.com"}


def test_slices(kubectl):
    lines = [line.split()[:4] for line in kubectl("get", "resourceslices").splitlines()]
    assert lines[0] == ["NAME", "NODE", "DRIVER", "POOL"]
    assert ["h100-1-gpu.example.com-0", "h100-1", "gpu.example.com", "h100-1"] in lines
    assert ["fabric-nic.example.com-0", "<unset>", "nic.example.com", "fabric"] in lines
    of_node = kubectl("get", "resourceslices", "--field-selector=spec.nodeName=a100-0", "-o", "name").split()
    assert len(of_node) == 2


def test_claims(kubectl):
    assert kubectl("get", "resourceclaim", "network").split()[:5] == ["NAME", "STATE", "AGE", "network", "pending"]
    made = kubectl.json("get", "resourceclaims")["items"]
    owners = {each["metadata"]["ownerReferences"][0]["name"] for each in made if "ownerReferences" in each["metadata"]}
    assert {name.rsplit("-", 2)[0] for name in owners} >= {"inference"}
    assert {"training", "notebook"} <= owners
    assert "Requests" in kubectl("describe", "resourceclaim", "network")
    explained = kubectl("explain", "resourceclaim.spec.devices.requests.firstAvailable")
    assert "deviceClassName" in explained


def test_applying_again_changes_nothing(kubectl):
    before = kubectl.json("get", "resourceclaim", "network")
    # kubectl sends what it takes for a change: lists of requests are replaced as a whole, and it knows no defaults.
    kubectl("apply", "-f", str(CLAIMS))
    assert kubectl.json("get", "resourceclaim", "network") == before
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CLAIMS))
    assert kubectl.json("get", "resourceclaim", "network")["spec"] == before["spec"]


def test_refusals(kubectl):
    patch = json.dumps({"spec": {"devices": {"requests": []}}})
    refusal = kubectl("patch", "resourceclaim", "network", "--type=merge", "-p", patch, fails=True)
    assert 'The ResourceClaim "network" is invalid: spec: Invalid value:' in refusal
    assert "field is immutable" in refusal
    hostile = resource_slice(*[{"name": f"d{n}"} for n in range(129)])
    assert "spec.devices: Too many: 129: must have at most 128 items" in kubectl(
        "create", "-f", "-", stdin=hostile, fails=True
    )
    unknown = claim("c", {"name": "r", "exactly": {"deviceClassName": "gpu", "unicorns": 1}})
    assert 'unknown field "spec.devices.requests[0].exactly.unicorns"' in kubectl(
        "create", "-f", "-", stdin=unknown, fails=True
    )


def test_an_allocation_by_hand(kubectl):
    kubectl("create", "-f", "-", stdin=claim("mine"))
    status = json.dumps({"status": {"allocation": allocation()}})
    kubectl("patch", "resourceclaim", "mine", "--subresource=status", "--type=merge", "-p", status)
    assert kubectl("get", "resourceclaim", "mine").split()[4] == "allocated"
    kubectl("delete", "resourceclaim", "mine")
    assert "NotFound" in kubectl("get", "resourceclaim", "mine", fails=True)

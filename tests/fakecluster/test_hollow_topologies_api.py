"""Reports on the insides of nodes as clients of the API see them, and those that real agents write."""

import json

import pytest

from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from tests.fakecluster.apiclient import Api
from tests.fakecluster.topologies import DEFINITION, STATIC, pod, template

OLD = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
NEW = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ALLOCATIONS = "node.koordinator.sh/pod-cpu-allocs"


@pytest.fixture
def api():
    made = Api()
    kubelet = {**STATIC, "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}
    HollowNodes(made.registry, HollowOptions(count=2, template=template(kubelet=kubelet))).start()
    assert made.get(OLD)[0] == 404
    status, definition = made.post(DEFINITIONS, DEFINITION)
    assert (status, definition["status"]["storedVersions"]) == (201, ["v1alpha2"])
    made.timers.advance(4)
    return made


async def test_reports_are_watched(api):
    status, listed = api.get(OLD)
    assert (status, [each["metadata"]["name"] for each in listed["items"]]) == (200, ["node-0", "node-1"])
    watch = api.watch(f"{OLD}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}")
    assert api.post("/api/v1/namespaces/default/pods", pod("p"))[0] == 201
    api.timers.advance(4)
    ((kind, name, report),) = await watch.take(1)
    assert (kind, name, report["apiVersion"]) == ("MODIFIED", "node-0", "topology.node.k8s.io/v1alpha1")
    (allocation,) = json.loads(report["metadata"]["annotations"][ALLOCATIONS])
    uid = api.get("/api/v1/namespaces/default/pods/p")[1]["metadata"]["uid"]
    assert allocation == {
        "namespace": "default",
        "name": "p",
        "uid": uid,
        "cpuset": "2-3",
        "managedByKubelet": True,
    }
    # Annotations are no part of what is counted.
    assert report["metadata"]["generation"] == 1
    await watch.close()


def test_both_versions_show_the_same(api):
    old, new = api.get(f"{OLD}/node-0")[1], api.get(f"{NEW}/node-0")[1]
    assert new == {**old, "apiVersion": "topology.node.k8s.io/v1alpha2"}
    attributes = [{"name": "a", "value": "b"}]
    assert api.merge(f"{NEW}/node-0", {"attributes": attributes})[1]["attributes"] == attributes
    assert "attributes" not in api.get(f"{OLD}/node-0")[1]


def test_columns(api):
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = api.get(OLD, headers=accept)[1]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Policy", "Age"]
    assert table["rows"][0]["cells"][:2] == ["node-0", "RestrictedPodLevel"]
    resources = api.get("/apis/topology.node.k8s.io/v1alpha1")[1]["resources"]
    (resource,) = resources
    assert (resource["shortNames"], resource["namespaced"]) == (["node-res-topo"], False)


def koordlets(**fields):
    """What koordlet and koord-manager write of a real machine."""

    def amounts(name, amount):
        return {"name": name, "capacity": amount, "allocatable": amount, "available": amount}

    resources = [
        amounts("cpu", "52"),
        amounts("hugepages-1Gi", "0"),
        amounts("hugepages-2Mi", "0"),
        amounts("kubernetes.io/batch-cpu", "43200"),
        amounts("kubernetes.io/batch-memory", "101Gi"),
        amounts("memory", "263564520Ki"),
    ]
    return {
        "metadata": {
            "name": "real",
            "labels": {"app.kubernetes.io/managed-by": "Koordinator"},
            "annotations": {"node.koordinator.sh/cpu-topology": '{"detail":[{"id":0,"core":0,"socket":0,"node":0}]}'},
        },
        "topologyPolicies": ["None"],
        "zones": [{"name": "node-0", "type": "Node", "resources": resources}],
        **fields,
    }


ACCEPTED = [
    koordlets(),
    koordlets(zones=[]),
    koordlets(zones=[{"name": "node-0", "type": "Node", "costs": [{"name": "node-0", "value": 10}], "parent": "s"}]),
    koordlets(zones=[{"name": "n", "type": "Node", "attributes": [{"name": "a", "value": "b"}]}]),
    # Numbers are quantities, too.
    koordlets(zones=[{"name": "n", "type": "Node", "resources": [
        {"name": "cpu", "capacity": 4, "allocatable": 4, "available": "-1"}]}]),
]  # fmt: skip


@pytest.mark.parametrize("obj", ACCEPTED)
@pytest.mark.parametrize("path", [OLD, NEW])
def test_what_agents_write_is_accepted(api, obj, path):
    status, made = api.post(path, obj)
    assert (status, made["zones"], made["topologyPolicies"]) == (201, obj["zones"], obj["topologyPolicies"])
    status, changed = api.put(f"{path}/real", {**made, "topologyPolicies": ["Restricted"]})
    assert (status, changed["topologyPolicies"], changed["zones"]) == (200, ["Restricted"], obj["zones"])


RESOURCE = {"name": "cpu", "capacity": "1", "allocatable": "1", "available": "1"}
REFUSED = [
    ({"zones": None}, "zones"),
    ({"zones": [{"name": "n"}]}, "zones[0].type"),
    (
        {"zones": [{"name": "n", "type": "Node", "resources": [{**RESOURCE, "capacity": "x"}]}]},
        "zones[0].resources[0].capacity",
    ),
    ({"zones": [{"name": "n", "type": "Node", "costs": [{"name": "n", "value": "1"}]}]}, "zones[0].costs[0].value"),
    ({"topologyPolicies": "None"}, "topologyPolicies"),
]


@pytest.mark.parametrize("fields, where", REFUSED)
@pytest.mark.parametrize("path", [OLD, NEW])
def test_what_makes_no_sense_is_refused(api, fields, where, path):
    status, body = api.post(path, koordlets(**fields))
    assert (status, body["details"]["causes"][0]["field"]) == (422, where)


def test_policies_are_required_in_the_old_version_alone(api):
    obj = {key: value for key, value in koordlets().items() if key != "topologyPolicies"}
    assert api.post(OLD, obj)[0] == 422
    assert api.post(NEW, obj)[0] == 201

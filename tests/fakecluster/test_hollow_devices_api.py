"""Devices as clients of the API see them, and those that real agents write."""

import pytest

from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from tests.fakecluster.apiclient import Api
from tests.fakecluster.devices import CORE, DEFINITION, FAIL_DEVICES, MEMORY, RATIO, gpus, template

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def api():
    made = Api()
    HollowNodes(made.registry, HollowOptions(count=2, template=template(gpus(2), model="T4"))).start()
    assert made.get(DEVICES)[0] == 404
    assert made.post(DEFINITIONS, DEFINITION)[0] == 201
    made.timers.advance(4)
    return made


async def test_reports_are_watched(api):
    status, listed = api.get(DEVICES)
    assert (status, [each["metadata"]["name"] for each in listed["items"]]) == (200, ["node-0", "node-1"])
    watch = api.watch(f"{DEVICES}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}")
    api.merge("/api/v1/nodes/node-1", {"metadata": {"annotations": {FAIL_DEVICES: "gpu/1"}}})
    api.timers.advance(4)
    ((kind, name, device),) = await watch.take(1)
    assert (kind, name, device["metadata"]["generation"]) == ("MODIFIED", "node-1", 2)
    assert [entry["health"] for entry in device["spec"]["devices"]] == [True, False]
    await watch.close()


def test_columns(api):
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = api.get(DEVICES, headers=accept)[1]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Vendor", "Model", "Age"]
    assert table["rows"][0]["cells"][:3] == ["node-0", "nvidia", "T4"]
    (resource,) = api.get("/apis/scheduling.koordinator.sh/v1alpha1")[1]["resources"]
    assert (resource["kind"], resource["namespaced"]) == ("Device", False)


def koordlets(*devices, **metadata):
    """What koordlet writes of a real machine."""
    gpu = {
        "type": "gpu",
        "id": "GPU-9c6a1d0e-6f6c-6bd5-1f3b-1a2b3c4d5e6f",
        "minor": 0,
        "health": True,
        "resources": {CORE: "100", MEMORY: "85198045184", RATIO: "100"},
        "topology": {"socketID": -1, "nodeID": 0, "pcieID": "pci0000:00", "busID": "0000:08:00.0"},
    }
    return {"metadata": {"name": "real", **metadata}, "spec": {"devices": list(devices) or [gpu]}}


HEALTHY = {
    "type": "Healthy",
    "status": "False",
    "reason": "Xid79",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
ACCEPTED = [
    koordlets(),
    koordlets(labels={"node.koordinator.sh/gpu-vendor": "huawei"},
              annotations={"scheduling.koordinator.sh/gpu-partitions": "null"}),
    {"metadata": {"name": "real"}, "spec": {"devices": []}},
    {"metadata": {"name": "real"}, "spec": {}},
    {"metadata": {"name": "real"}},
    koordlets({"type": "rdma", "id": "0000:1f:00.0", "minor": 1, "health": True,
               "resources": {"koordinator.sh/rdma": 100},
               "vfGroups": [{"labels": {"type": "fast"}, "vfs": [{"minor": -1, "busID": "0000:1f:00.2"}]}]}),
    koordlets({"type": "gpu", "minor": 0, "moduleID": 3, "health": False, "conditions": [HEALTHY],
               "labels": {"a": "b"}}),
    # What cannot be right, and is accepted all the same: no minor, one twice, one below 0, and an unknown type.
    koordlets({"type": "gpu", "health": True}, {"type": "gpu", "health": True, "minor": -1}),
    koordlets(*({"type": "tpu", "health": True, "minor": 0, "id": ""} for _ in range(2))),
    koordlets(*({"type": "gpu", "health": True, "minor": minor} for minor in range(200))),
]  # fmt: skip


@pytest.mark.parametrize("obj", ACCEPTED)
def test_what_agents_write_is_accepted(api, obj):
    status, made = api.post(DEVICES, obj)
    assert (status, made.get("spec")) == (201, obj.get("spec"))
    status, changed = api.put(f"{DEVICES}/real", {**made, "spec": {"devices": []}})
    assert (status, changed["spec"]) == (200, {"devices": []})


def test_health_that_is_not_stated_is_bad_health(api):
    assert api.post(DEVICES, koordlets({"type": "gpu", "minor": 0}))[1]["spec"]["devices"][0]["health"] is False


def test_the_status_is_no_subresource(api):
    allocations = [{"type": "gpu", "entries": [{"namespace": "a", "name": "b", "uuid": "c", "minors": [0]}]}]
    made = api.post(DEVICES, {**koordlets(), "status": {"allocations": allocations}})[1]
    assert made["status"]["allocations"] == allocations
    assert api.get(f"{DEVICES}/real/status")[0] == 404


def test_unknown_fields_are_dropped(api):
    made = api.post(DEVICES, koordlets({"type": "gpu", "minor": 0, "health": True, "colour": "red"}))[1]
    assert made["spec"]["devices"] == [{"type": "gpu", "minor": 0, "health": True}]


PLACE = {"socketID": 0, "nodeID": 0, "pcieID": "0"}
REFUSED = [
    ({"minor": "0"}, "minor"),
    ({"health": "true"}, "health"),
    ({"resources": {CORE: "much"}}, f"resources.{CORE}"),
    ({"resources": []}, "resources"),
    ({"topology": {"socketID": 0, "nodeID": 0}}, "topology.pcieID"),
    ({"topology": {**PLACE, "nodeID": "0"}}, "topology.nodeID"),
    ({"vfGroups": [{"vfs": [{"busID": "x"}]}]}, "vfGroups[0].vfs[0].minor"),
    ({"conditions": [{**HEALTHY, "status": "Perhaps"}]}, "conditions[0].status"),
    ({"conditions": [{**HEALTHY, "reason": ""}]}, "conditions[0].reason"),
    ({"conditions": [{"type": "Healthy"}]}, "conditions[0].status"),
    ({"labels": {"a": 1}}, "labels.a"),
]


@pytest.mark.parametrize("fields, where", REFUSED)
def test_what_makes_no_sense_is_refused(api, fields, where):
    status, body = api.post(DEVICES, koordlets({"type": "gpu", "health": True, **fields}))
    assert status == 422
    assert f"spec.devices[0].{where}" in [cause["field"] for cause in body["details"]["causes"]]

"""Drivers on hollow nodes: which slices they publish, when, and what they do for pods with claims."""

import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from koordsched.fakecluster.hollow.driverlayout import DRIVERS, DeviceKind, DriverLayout, Partition, PoolLayout
from koordsched.fakecluster.hollow.templates import TemplateError, load_pools, load_templates
from tests.fakecluster.deviceobjects import DRIVER, FINALIZER, claim, request
from tests.fakecluster.timeline import Cluster, condition, pod_template

ROOT = Path(__file__).parents[2]
CONDITIONS = "koordsched.io/binding-conditions"
GPUS = {
    "name": "gpu",
    "count": 4,
    "attributes": {"model": "H100", "driverVersion": {"version": "550.54.15"}, "nvlink": True, "cores": 132},
    "spread": {"numa": [0, 1], "resource.kubernetes.io/pcieRoot": ["pci0000:10", "pci0000:20"]},
    "capacity": {"memory": "80Gi"},
}


def template(*devices, pools=(), **driver):
    drivers = [{"name": DRIVER, "devices": list(devices), **driver}] if devices else []
    node = {"nodeName": "node-${index}", "capacity": {"cpu": 16, "memory": "64Gi"}, "drivers": drivers}
    return {"templates": [node], "pools": list(pools)}


def cluster_of(*devices, nodes=2, pools=(), **driver):
    made = Cluster(nodes, template(*devices, pools=pools, **driver), bind=False)
    made.run(1)
    return made


def slices(cluster, pool=None):
    found = cluster.list("resourceslices")
    return [each for each in found if pool in (None, each["spec"]["pool"]["name"])]


def generations(cluster, pool="node-0"):
    return [each["spec"]["pool"]["generation"] for each in slices(cluster, pool)]


def restarted(cluster, **options):
    """Another process over the same objects."""
    cluster.hollow.stop()
    cluster.hollow = HollowNodes(cluster.registry, HollowOptions(count=2, **options))
    cluster.hollow.start()
    cluster.run(1)


def test_plain_devices():
    cluster = cluster_of(GPUS)
    first, second = slices(cluster)
    assert first["metadata"]["name"] == f"node-0-{DRIVER}-0"
    (owner,) = first["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", cluster.get("nodes", "node-0")["metadata"]["uid"])
    spec = first["spec"]
    assert spec["pool"] == {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    assert (spec["driver"], spec["nodeName"]) == (DRIVER, "node-0")
    assert [device["name"] for device in spec["devices"]] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    attributes = dict(spec["devices"][2]["attributes"])
    assert attributes.pop("uuid")["string"].startswith("GPU-")
    assert attributes == {
        "index": {"int": 2},
        "model": {"string": "H100"},
        "driverVersion": {"version": "550.54.15"},
        "nvlink": {"bool": True},
        "cores": {"int": 132},
        "numa": {"int": 1},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:20"},
    }
    assert spec["devices"][2]["capacity"] == {"memory": {"value": "80Gi"}}
    uuids = {d["attributes"]["uuid"]["string"] for s in (first, second) for d in s["spec"]["devices"]}
    assert len(uuids) == 8


PARTITIONED = {
    "name": "gpu",
    "count": 10,
    "attributes": {"profile": "whole"},
    "capacity": {"memory": "80Gi"},
    "counters": {"memory": "80Gi", "slices": 7},
    "partitions": [
        {
            "name": "1g",
            "count": 7,
            "attributes": {"profile": "1g.10gb"},
            "capacity": {"memory": "10Gi"},
            "counters": {"memory": "10Gi", "slices": 1},
        },
    ],
}


def test_partitions_share_counters():
    cluster = cluster_of(PARTITIONED, nodes=1)
    made = slices(cluster)
    # Ten counter sets, of which eight go into a slice, and 80 devices, of which 64 do.
    assert [len(s["spec"].get("sharedCounters", ())) for s in made] == [8, 2, 0, 0]
    assert [len(s["spec"].get("devices", ())) for s in made] == [0, 0, 64, 16]
    assert {s["spec"]["pool"]["resourceSliceCount"] for s in made} == {4}
    assert made[0]["spec"]["sharedCounters"][0] == {
        "name": "gpu-0",
        "counters": {"memory": {"value": "80Gi"}, "slices": {"value": "7"}},
    }
    devices = {d["name"]: d for s in made for d in s["spec"].get("devices", ())}
    assert devices["gpu-9"]["consumesCounters"] == [
        {"counterSet": "gpu-9", "counters": {"memory": {"value": "80Gi"}, "slices": {"value": "7"}}}
    ]
    part = devices["gpu-9-1g-6"]
    assert part["consumesCounters"] == [
        {"counterSet": "gpu-9", "counters": {"memory": {"value": "10Gi"}, "slices": {"value": "1"}}}
    ]
    assert part["capacity"] == {"memory": {"value": "10Gi"}}
    assert (part["attributes"]["profile"], part["attributes"]["parent"]) == ({"string": "1g.10gb"}, {"string": "gpu-9"})


def test_shared_devices_and_small_slices():
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    shared = {
        "name": "nic",
        "count": 5,
        "shared": True,
        "capacity": {"bandwidth": {"value": "40Gi", "requestPolicy": policy}},
    }
    cluster = cluster_of(shared, nodes=1, devicesPerSlice=2)
    made = slices(cluster)
    assert [len(s["spec"]["devices"]) for s in made] == [2, 2, 1]
    device = made[0]["spec"]["devices"][0]
    assert device["allowMultipleAllocations"] is True
    assert device["capacity"]["bandwidth"]["requestPolicy"] == policy


def test_pools_that_are_attached_to_no_node():
    fabric = {"name": "fabric/a", "driver": "nic.example.com", "devices": [{"name": "nic", "count": 2}]}
    rack = {**fabric, "name": "rack", "nodeSelector": {"rack": "r1"}}
    cluster = cluster_of(pools=[fabric, rack])
    everywhere, somewhere = slices(cluster)
    assert everywhere["metadata"]["name"] == "fabric.a-nic.example.com-0"
    assert everywhere["spec"]["allNodes"] is True
    assert "ownerReferences" not in everywhere["metadata"]
    assert somewhere["spec"]["nodeSelector"] == {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]
    }
    restarted(cluster, template=template(pools=[fabric, rack]))
    assert generations(cluster, "rack") == [2]


def test_a_restart_publishes_a_higher_generation():
    cluster = cluster_of(GPUS, devicesPerSlice=2)
    assert generations(cluster) == [1, 1]
    restarted(cluster, template=template(GPUS, devicesPerSlice=2))
    assert generations(cluster) == [2, 2]
    assert generations(cluster, "node-1") == [2, 2]
    # Also of a driver on a node that was silent.
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {"koordsched.io/fail": "true"}}})
    cluster.run(1)
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {"koordsched.io/fail": None}}})
    cluster.run(1)
    assert generations(cluster) == [3, 3]
    assert generations(cluster, "node-1") == [2, 2]


def annotate(cluster, drivers, node="node-0"):
    text = None if drivers is None else drivers if isinstance(drivers, str) else json.dumps(drivers)
    cluster.patch("nodes", node, {"metadata": {"annotations": {DRIVERS: text}}})
    cluster.run(1)


def test_devices_come_and_go():
    cluster = cluster_of(GPUS, devicesPerSlice=2)
    fewer = {**GPUS, "count": 1}
    annotate(cluster, [{"name": DRIVER, "devices": [fewer]}])
    (only,) = slices(cluster, "node-0")
    assert only["spec"]["pool"] == {"name": "node-0", "generation": 2, "resourceSliceCount": 1}
    annotate(cluster, [{"name": "other.example.com", "devices": [fewer]}])
    assert [s["spec"]["driver"] for s in slices(cluster, "node-0")] == ["other.example.com"]
    annotate(cluster, None)
    assert slices(cluster, "node-0") == []
    # What has changed while no process ran.
    cluster.hollow.stop()
    annotate(cluster, [{"name": "other.example.com", "devices": [fewer]}], "node-1")
    restarted(cluster)
    assert [s["spec"]["driver"] for s in slices(cluster)] == ["other.example.com"]


def test_a_node_made_by_hand_has_drivers_too():
    cluster = cluster_of()
    drivers = json.dumps([{"name": DRIVER, "devices": [GPUS]}])
    annotations = {"koordsched.io/hollow": "true", DRIVERS: drivers}
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine", "annotations": annotations}})
    cluster.run(1)
    assert generations(cluster, "mine") == [1]
    cluster.delete("nodes", "mine")
    cluster.run(5)
    assert slices(cluster, "mine") == []


def test_a_slice_that_was_deleted_is_published_again():
    cluster = cluster_of(GPUS, devicesPerSlice=2)
    cluster.delete("resourceslices", f"node-0-{DRIVER}-1")
    cluster.run(3)
    assert generations(cluster) == [2, 2]
    cluster.run(60)
    assert generations(cluster) == [2, 2]


@pytest.mark.parametrize(
    ("drivers", "text"),
    [
        ("[", "is ignored"),
        ([{"name": DRIVER, "devices": [{"name": "A"}]}], "is ignored: slice.devices[0].name"),
        ([{"name": DRIVER, "devices": [], "ready": "soon"}], "'soon' is not a duration"),
        ([{"name": DRIVER, "devices": [GPUS]}] * 2, "two drivers have the same name and pool"),
        ([{"name": DRIVER, "devices": [GPUS, GPUS]}], "two devices have the name gpu-0"),
        ([{"name": DRIVER, "pool": "node-1", "devices": [GPUS]}], "is published by node node-1"),
        ([{"name": DRIVER, "devices": [{**GPUS, "counters": {"a": 1}}]}], "counters and partitions go together"),
        ([{"name": DRIVER, "devices": [{**GPUS, "count": 5000}]}], "count must be 1 to 4096"),
        ([{"name": DRIVER, "devices": [{**GPUS, "capacity": {"m": "much"}}]}], "quantities must match"),
    ],
)
def test_what_cannot_be_published_is_an_event(drivers, text):
    cluster = cluster_of(GPUS)
    annotate(cluster, drivers)
    (event,) = [e for e in cluster.list("events") if e["reason"] == "InvalidAnnotation"]
    assert event["message"].startswith(f"{DRIVERS} is ignored: ")
    assert text in event["message"]
    assert slices(cluster, "node-0") == []
    assert slices(cluster, "node-1")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (template({"name": "A"}), r"templates\[0\]\.drivers: slice\.devices\[0\]\.name"),
        (template({"name": "gpu", "unicorns": 1}), "unicorns"),
        (template({"name": "gpu", "spread": {"a": []}}), "at least one value is needed"),
    ],
)
def test_templates_that_cannot_be_used(content, text):
    with pytest.raises(TemplateError, match=text):
        load_templates(content)


def test_pools_that_cannot_be_used():
    pool = {"name": "a", "driver": "nic.example.com", "devices": [{"name": "nic"}]}
    for pools, text in (([pool, pool], "another one"), ([{**pool, "driver": "-"}], r"pools\[0\]: slice\.driver")):
        with pytest.raises(TemplateError, match=text):
            load_pools(template(GPUS, pools=pools))


def test_the_templates_of_the_documentation_can_be_used():
    text = (ROOT / "docs" / "hollow-nodes.md").read_text().partition("\n## Dynamic resource allocation\n")[2]
    shortest, every_key = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    cluster = Cluster(2, shortest, bind=False)
    cluster.run(1)
    assert [len(each["spec"]["devices"]) for each in slices(cluster)] == [8, 8]
    cluster = Cluster(1, every_key, bind=False)
    cluster.run(1)
    assert {each["spec"]["pool"]["name"] for each in slices(cluster)} == {"node-0-gpus", "fabric"}
    kind, pool = every_key["templates"][0]["drivers"][0], every_key["pools"][0]
    assert set(kind) | set(pool) >= {*documented(DriverLayout), *documented(PoolLayout)}
    assert set(kind["devices"][0]) == {*documented(DeviceKind)}
    assert set(kind["devices"][0]["partitions"][0]) == {*documented(Partition)}


def documented(struct):
    return [info.encode_name for info in msgspec.structs.fields(struct)]


# --- pods with claims


def pod(name, *claims):
    body = pod_template({"app": "x"})
    body["spec"]["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in claims]
    metadata = {"name": name, "namespace": "default", **body["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body["spec"]}


def allocate(cluster, name, pod_name, *devices, pool="node-0", **more):
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device, **more} for device in devices]
    cluster.patch("resourceclaims", name, {"metadata": {"finalizers": [FINALIZER]}})
    consumer = {"resource": "pods", "name": pod_name, "uid": cluster.get("pods", pod_name)["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [consumer]}
    cluster.patch("resourceclaims", name, {"status": status}, subresource="status")


def run_pod(cluster, name, *devices, node="node-0", pool="node-0", **more):
    """A pod with a claim of its name to these devices, bound to the node."""
    cluster.create(claim(name, request(count=len(devices) or 1)))
    cluster.create(pod(name, name))
    if devices:
        allocate(cluster, name, name, *devices, pool=pool, **more)
    cluster.registry.bind("default", name, None, node)
    cluster.run(5)


def phase(cluster, name):
    return cluster.get("pods", name)["status"]["phase"]


def failures(cluster):
    return [e["message"] for e in cluster.list("events") if e["reason"] == "FailedPrepareDynamicResources"]


def test_a_pod_runs_when_its_devices_are_prepared():
    cluster = cluster_of(GPUS)
    run_pod(cluster, "p", "gpu-0", "gpu-1")
    assert phase(cluster, "p") == "Running"
    assert condition(cluster.get("pods", "p"), "Ready")[0] == "True"
    assert failures(cluster) == []


def test_a_pod_waits_for_an_allocation():
    cluster = cluster_of(GPUS)
    run_pod(cluster, "p")
    assert phase(cluster, "p") == "Pending"
    assert failures(cluster) == ["Failed to prepare dynamic resources: ResourceClaim default/p is not allocated"]
    cluster.run(60)
    assert len(failures(cluster)) == 1
    allocate(cluster, "p", "p", "gpu-0")
    cluster.run(15)
    assert phase(cluster, "p") == "Running"


@pytest.mark.parametrize(
    ("device", "options", "text"),
    [
        ("gpu-9", {}, f"there is no device {DRIVER}/node-0/gpu-9"),
        ("gpu-0", {"pool": "node-1"}, f"device {DRIVER}/node-1/gpu-0 is on node node-1"),
    ],
)
def test_devices_that_the_node_does_not_have(device, options, text):
    cluster = cluster_of(GPUS)
    run_pod(cluster, "p", device, **options)
    assert phase(cluster, "p") == "Pending"
    assert failures(cluster) == [f"Failed to prepare dynamic resources: ResourceClaim default/p: {text}"]


def test_a_device_that_was_allocated_twice():
    cluster = cluster_of(GPUS)
    run_pod(cluster, "a", "gpu-0")
    run_pod(cluster, "b", "gpu-0")
    assert (phase(cluster, "a"), phase(cluster, "b")) == ("Running", "Pending")
    text = f"Failed to prepare dynamic resources: device {DRIVER}/node-0/gpu-0 is in use by another claim"
    assert failures(cluster) == [text]
    # It is free when the pod has ended.
    cluster.delete("pods", "a")
    cluster.run(20)
    assert phase(cluster, "b") == "Running"
    assert cluster.get("resourceclaims", "a")["status"] == {}


def test_admin_access_takes_nothing():
    cluster = cluster_of(GPUS)
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    cluster.patch("namespaces", "default", label)
    run_pod(cluster, "a", "gpu-0", adminAccess=True)
    run_pod(cluster, "b", "gpu-0")
    assert (phase(cluster, "a"), phase(cluster, "b")) == ("Running", "Running")


def test_counters_and_capacity_that_were_given_out_twice():
    shared = {"name": "nic", "shared": True, "capacity": {"bandwidth": "40Gi"}}
    cluster = cluster_of({**PARTITIONED, "count": 1}, shared)
    run_pod(cluster, "a", "gpu-0-1g-0")
    run_pod(cluster, "b", "gpu-0")
    uid = "22222222-2222-4222-8222-22222222222"
    for number, name in enumerate("cde"):
        run_pod(cluster, name, "nic-0", shareID=f"{uid}{number}", consumedCapacity={"bandwidth": "15Gi"})
    assert [phase(cluster, name) for name in "abcde"] == ["Running", "Pending", "Running", "Running", "Pending"]
    assert failures(cluster) == [
        f"Failed to prepare dynamic resources: counter set {DRIVER}/node-0/gpu-0 does not have enough memory for gpu-0",
        f"Failed to prepare dynamic resources: device {DRIVER}/node-0/nic-0 does not have enough bandwidth",
    ]


def test_pods_that_share_a_claim():
    cluster = cluster_of(GPUS)
    run_pod(cluster, "a", "gpu-0")
    cluster.create(pod("b", "a"))
    cluster.registry.bind("default", "b", None, "node-0")
    cluster.run(15)
    assert phase(cluster, "b") == "Running"
    cluster.delete("pods", "a")
    cluster.run(5)
    run_pod(cluster, "c", "gpu-0")
    assert phase(cluster, "c") == "Pending"


def test_pods_keep_their_devices_over_a_restart():
    cluster = cluster_of(GPUS)
    run_pod(cluster, "a", "gpu-0")
    restarted(cluster, template=template(GPUS))
    assert phase(cluster, "a") == "Running"
    run_pod(cluster, "b", "gpu-0")
    assert phase(cluster, "b") == "Pending"


def test_an_extended_resource_that_is_claimed_is_not_of_the_node():
    cluster = cluster_of(GPUS)
    for name in ("claimed", "not"):
        made = pod(name)
        made["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
        cluster.create(made)
    cluster.create(claim("special"))
    allocate(cluster, "special", "claimed", "gpu-0")
    mapping = {"containerName": "app", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "special", "requestMappings": [mapping]}}
    cluster.patch("pods", "claimed", {"status": status}, subresource="status")
    for name in ("claimed", "not"):
        cluster.registry.bind("default", name, None, "node-0")
    cluster.run(5)
    assert phase(cluster, "claimed") == "Running"
    # Nothing on the node offers it.
    assert cluster.get("pods", "not")["status"]["reason"] == "OutOfexample.com/gpu"
    run_pod(cluster, "other", "gpu-0")
    assert phase(cluster, "other") == "Pending"
    cluster.delete("pods", "claimed")
    cluster.run(20)
    assert phase(cluster, "other") == "Running"


# --- binding conditions

FABRIC = {
    "name": "gpu",
    "count": 2,
    "bindsToNode": True,
    "bindingConditions": ["example.com/attached"],
    "bindingFailureConditions": ["example.com/failed"],
}
BOUND = {"bindingConditions": ["example.com/attached"], "bindingFailureConditions": ["example.com/failed"]}


def conditions(cluster, name="p"):
    devices = cluster.get("resourceclaims", name)["status"].get("devices", [])
    return {d["device"]: [(c["type"], c["status"], c["reason"]) for c in d["conditions"]] for d in devices}


def with_claim(cluster, annotation=None):
    made = claim("p", request(count=2))
    if annotation is not None:
        made["metadata"]["annotations"] = {CONDITIONS: annotation}
    cluster.create(made)
    cluster.create(pod("p", "p"))
    allocate(cluster, "p", "p", "gpu-0", "gpu-1", **BOUND)


def test_devices_become_ready():
    cluster = cluster_of(FABRIC, ready="5s")
    device = slices(cluster)[0]["spec"]["devices"][0]
    assert (device["bindsToNode"], device["bindingConditions"]) == (True, ["example.com/attached"])
    with_claim(cluster)
    cluster.run(4)
    assert conditions(cluster) == {}
    cluster.run(2)
    ready = [("example.com/attached", "True", "DeviceReady")]
    assert conditions(cluster) == {"gpu-0": ready, "gpu-1": ready}
    before = cluster.registry.store.rv
    cluster.run(30)
    assert not [r for r in cluster.registry.scan(cluster.resource("resourceclaims")) if r.rv > before]
    # Another allocation begins anew.
    cluster.patch("resourceclaims", "p", {"status": {"allocation": None, "reservedFor": None}}, subresource="status")
    assert conditions(cluster) == {}
    allocate(cluster, "p", "p", "gpu-1", **BOUND)
    cluster.run(6)
    assert conditions(cluster) == {"gpu-1": ready}


@pytest.mark.parametrize("ready", ["", "5s"])
def test_devices_fail_on_command(ready):
    cluster = cluster_of(FABRIC, ready=ready)
    with_claim(cluster, "fail")
    cluster.run(1)
    assert conditions(cluster)["gpu-1"] == [("example.com/failed", "True", "DeviceFailed")]


def test_devices_that_never_become_ready():
    for ready, annotation in (("", None), ("5s", "never")):
        cluster = cluster_of(FABRIC, ready=ready)
        with_claim(cluster, annotation)
        cluster.run(600)
        assert conditions(cluster) == {}


def test_a_time_that_is_none():
    cluster = cluster_of(FABRIC)
    with_claim(cluster, "soon")
    cluster.run(10)
    (event,) = [e for e in cluster.list("events") if e["reason"] == "InvalidAnnotation"]
    assert event["message"] == f"{CONDITIONS} is ignored: 'soon' is not a duration such as 30s or 1m30s"

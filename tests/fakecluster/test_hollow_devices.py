"""The devices that hollow nodes report, what nodes offer because of them, failures, and what pods are refused."""

import json
import re
from collections import Counter
from random import Random

import pytest
import yaml
from msgspec.structs import fields

from koordsched.fakecluster import snapshot
from koordsched.fakecluster.hollow.devicelayout import DeviceGroup, DeviceLayout
from koordsched.fakecluster.hollow.templates import TemplateError, load_templates
from tests.fakecluster.devices import (
    CORE,
    DEFINITION,
    DEVICE_ALLOCATED,
    FAIL_DEVICES,
    MEMORY,
    RATIO,
    ROOT,
    DeviceCluster,
    gpus,
    nics,
    pod,
    shares,
    template,
)

DEVICES, FAIL, HOLLOW = "koordsched.io/devices", "koordsched.io/fail", "koordsched.io/hollow"
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
WHOLE, SHARED, RDMA = "koordinator.sh/gpu", "koordinator.sh/gpu.shared", "koordinator.sh/rdma"
LABEL = "node.koordinator.sh/gpu-"


# -- templates

BAD = [
    (template(gpus(4), gpus(2, firstMinor=3)), "gpu 3 is in more than one group - at `$.templates[0].devices`"),
    (template(gpus(200)), "gpu 199: there can be no minors above 63 - at `$.templates[0].devices.groups[0]`"),
    (template(nics(1, firstMinor=64)), "rdma 64: there can be no minors above 63"),
    (template({"type": "tpu", "count": 1}), "Invalid enum value 'tpu' - at `$.templates[0].devices.groups[0].type`"),
    (template(gpus(0)), "count must be at least 1, firstMinor at least 0"),
    (template(gpus(1, firstMinor=-1)), "count must be at least 1, firstMinor at least 0"),
    (template({"type": "gpu"}), "memory is needed of GPUs that state no resources, and of nothing else"),
    (template(nics(memory="8Gi")), "memory is needed of GPUs that state no resources, and of nothing else"),
    (template(gpus(resources={CORE: 100})), "memory is needed of GPUs that state no resources, and of nothing else"),
    (template(gpus(memory="much")), "koordinator.sh/gpu-memory: quantity 'much' must match"),
    (template({"type": "gpu", "resources": {CORE: "-1"}}), "koordinator.sh/gpu-core: '-1' must not be negative"),
    (template(gpus(virtualFunctions=2)), "virtualFunctions: only devices of type rdma have them"),
    (template(nics(virtualFunctions=255)), "virtualFunctions must be 0 to 254"),
    (template(gpus(numaNodes=[0])), "numaNodes and pcie go together"),
    (template(gpus(numaNodes=[0], pcie=["0", "1", "2"])), "2 devices, 3 pcie, 1 numaNodes are too few"),
    (template(gpus(numaNodes=[0, 1], pcie=["0"])), "2 devices, 1 pcie, 2 numaNodes are too few"),
    (template(gpus(numaNodes=[0], pcie=["0", "0"])), "pcie: names must not be empty or come twice"),
    (template(gpus(numaNodes=[-2], pcie=["0"])), "numaNodes must be -1 to 127"),
    (template(gpus(numaNodes=[0], pcie=[0])), "got `int` - at `$.templates[0].devices.groups[0].pcie[0]`"),
    (
        template(gpus(numaNodes=[0], pcie=["0"]), nics(numaNodes=[1], pcie=["0"])),
        "PCIe switch '0' is on the NUMA nodes 0 and 1",
    ),
    (template(gpus(), partitions=[{"size": 0}]), "size must be at least 1"),
    (template(gpus(), partitions=[{"size": 4}]), "partitions: 2 GPUs are too few for partitions of 4"),
    (template(gpus(), partitions=[{"size": 2, "minors": [[0, 2]]}]), "partitions: there is no gpu 2"),
    (template(gpus(), partitions=[{"size": 2, "minors": [[0]]}]), "partitions: [0] are not 2 GPUs"),
    (template(gpus(), partitions=[{"size": 2, "minors": [[1, 1]]}]), "partitions: [1, 1] are not 2 GPUs"),
    (template(gpus(), partitions=[{"size": 1, "ringBusBandwidth": "x"}]), "ringBusBandwidth: quantity 'x' must match"),
    (template(gpus(), partitionPolicy="Maybe"), "Invalid enum value 'Maybe'"),
    (template(gpus(), model="A 100"), "labels: Invalid value: \"A 100\""),
    (template(gpus(labels={"a b": "c"})), "labels: Invalid value: \"a b\""),
    (template(gpus(), minors=3), "Object contains unknown field `minors`"),
    (template(gpus(count="8")), "Expected `int`, got `str` - at `$.templates[0].devices.groups[0].count`"),
]  # fmt: skip


@pytest.mark.parametrize("content, message", BAD)
def test_bad_templates_say_what_is_wrong(content, message):
    with pytest.raises(TemplateError) as caught:
        load_templates(content)
    assert message in str(caught.value)


def test_the_templates_of_the_documentation_can_be_used():
    text = (
        (ROOT / "docs" / "hollow-nodes.md")
        .read_text()
        .partition("\n## GPUs and other devices\n")[2]
        .partition("\n## ")[0]
    )
    shortest, every_key = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    assert len(DeviceCluster(None, template=shortest).entries()) == 2
    cluster = DeviceCluster(template={"templates": [{"nodeName": "node-${index}", "capacity": {}, **every_key}]})
    assert (len(cluster.entries()), cluster.offered()[MEMORY]) == (13, "640Gi")
    assert every_key["devices"].keys() == {each.encode_name for each in fields(DeviceLayout)}
    keys = set().union(*every_key["devices"]["groups"])
    assert keys == {each.encode_name for each in fields(DeviceGroup)}


EXAMPLES = [
    # template -> devices of each node
    ("gpu-h800", {"h800-0": {"gpu": 8, "rdma": 8}}),
    ("gpu-a100", {"a100-0": {"gpu": 8, "rdma": 4}}),
    ("gpu-small", {"small-0": {"gpu": 2}, "fpga-0": {"gpu": 2, "fpga": 1}, "npu-0": {"gpu": 8}}),
]


@pytest.mark.parametrize("name, expected", EXAMPLES)
def test_examples(name, expected):
    path = ROOT / "config" / "examples" / "node-templates" / f"{name}.yaml"
    cluster = DeviceCluster(len(expected), template=path)
    assert {node: dict(Counter(kind for kind, _ in cluster.entries(node))) for node in expected} == expected
    assert all(cluster.offered(node)[MEMORY] for node in expected)


def test_the_pods_of_the_example_fit_their_nodes():
    """Each alone, on a node of the kind that it asks for: by the sum of what the node offers."""
    folder = ROOT / "config" / "examples" / "devices"
    for path in sorted(folder.glob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text()):
            if obj.get("kind") != "Pod":
                continue
            cluster = DeviceCluster(None, template=folder / "node-template.yaml")
            model = obj["spec"].pop("nodeSelector", {}).get("node.koordinator.sh/gpu-model", "H800")
            (node,) = (
                each["metadata"]["name"]
                for each in cluster.list("nodes")
                if each["metadata"]["labels"]["node.koordinator.sh/gpu-model"] == model
            )
            obj["spec"]["nodeName"] = node
            cluster.create(obj)
            cluster.run(2)
            assert cluster.get("pods", obj["metadata"]["name"])["status"]["phase"] == "Running"


# -- reports


def test_a_device_is_what_koordlet_reports():
    """Type, id, minor, health, resources, topology with an unknown socket, virtual functions without number."""
    cluster = DeviceCluster(
        template=template(
            gpus(4, "80Gi", numaNodes=[0, 1], pcie=["0", "1"]),
            nics(2, firstMinor=1, numaNodes=[0, 1], pcie=["0", "1"], virtualFunctions=2),
            model="A100-SXM4-80GB",
            driverVersion="550.54.15",
        )
    )
    device, node = cluster.device(), cluster.get("nodes", "node-0")
    (owner,) = device["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", node["metadata"]["uid"], True)
    assert device["metadata"]["labels"] == {
        f"{LABEL}vendor": "nvidia",
        f"{LABEL}model": "A100-SXM4-80GB",
        f"{LABEL}driver-version": "550.54.15",
    }
    entries = cluster.entries()
    assert list(entries) == [*(("gpu", minor) for minor in range(4)), ("rdma", 1), ("rdma", 2)]
    assert {key: entry["topology"]["pcieID"] for key, entry in entries.items()} == {
        ("gpu", 0): "0",
        ("gpu", 1): "0",
        ("gpu", 2): "1",
        ("gpu", 3): "1",
        ("rdma", 1): "0",
        ("rdma", 2): "1",
    }
    ids = [entry["id"] for entry in entries.values()]
    assert len(set(ids)) == 6
    assert all(each.startswith("GPU-") for each in ids[:4])
    assert entries["gpu", 3] == {
        "type": "gpu",
        "id": ids[3],
        "minor": 3,
        "health": True,
        "resources": {CORE: "100", MEMORY: "80Gi", RATIO: "100"},
        "topology": {"socketID": -1, "nodeID": 1, "pcieID": "1", "busID": "0000:13:00.0"},
    }
    assert entries["rdma", 1] == {
        "type": "rdma",
        "id": "0000:51:00.0",
        "minor": 1,
        "health": True,
        "resources": {RDMA: "100"},
        "topology": {"socketID": -1, "nodeID": 0, "pcieID": "0", "busID": "0000:51:00.0"},
        "vfGroups": [{"vfs": [{"minor": -1, "busID": "0000:51:00.2"}, {"minor": -1, "busID": "0000:51:00.3"}]}],
    }


def test_addresses_of_all_functions_differ():
    cluster = DeviceCluster(template=template(gpus(64), nics(64, virtualFunctions=254), {"type": "fpga", "count": 64}))
    addresses = [
        vf["busID"] for entry in cluster.entries().values() for vf in entry.get("vfGroups", [{"vfs": []}])[0]["vfs"]
    ]
    assert len(set(addresses)) == 64 * 254
    assert addresses[253] == "0000:50:1f.7"


def test_ids_of_gpus_belong_to_their_node_and_stay():
    content = template(gpus(2), nics(1))
    first, again = (DeviceCluster(2, template=content, seed=seed) for seed in (1, 2))
    ids = {node: [entry["id"] for entry in first.entries(node).values()] for node in ("node-0", "node-1")}
    assert set(ids["node-0"][:2]).isdisjoint(ids["node-1"])
    assert ids == {node: [entry["id"] for entry in again.entries(node).values()] for node in ids}


def test_devices_without_a_place_have_no_topology():
    cluster = DeviceCluster(template=template(gpus(1), nics(1, numaNodes=[-1], pcie=["p"])))
    entries = cluster.entries()
    assert "topology" not in entries["gpu", 0]
    assert entries["rdma", 0]["topology"]["nodeID"] == -1


PLACES = [
    # devices, NUMA nodes, PCIe switches -> (NUMA node, switch) of each
    (4, [0, 1], ["a", "b", "c", "d"], [(0, "a"), (0, "b"), (1, "c"), (1, "d")]),
    (4, [0], ["a", "b"], [(0, "a"), (0, "a"), (0, "b"), (0, "b")]),
    (5, [0, 1], ["a", "b"], [(0, "a"), (0, "a"), (0, "a"), (1, "b"), (1, "b")]),
    (3, [0, 1], ["a", "b", "c"], [(0, "a"), (0, "b"), (1, "c")]),
    (2, [3, 2], ["b", "a"], [(3, "b"), (2, "a")]),
]


@pytest.mark.parametrize("count, nodes, switches, expected", PLACES)
def test_devices_are_spread_over_switches_and_these_over_numa_nodes(count, nodes, switches, expected):
    cluster = DeviceCluster(template=template(gpus(count, numaNodes=nodes, pcie=switches)))
    places = [entry["topology"] for entry in cluster.entries().values()]
    assert [(place["nodeID"], place["pcieID"]) for place in places] == expected


def test_partitions():
    """Consecutive GPUs unless stated; the policy is a label that only nodes with partitions have."""
    partitions = [
        {"size": 2, "minors": [[0, 3], [1, 2]], "gpuLinkType": "PIX", "allocationScore": 5},
        {"size": 4, "ringBusBandwidth": "400Gi"},
        {"size": 2},
    ]
    cluster = DeviceCluster(template=template(gpus(4), partitions=partitions, partitionPolicy="Honor"))
    metadata = cluster.device()["metadata"]
    assert metadata["labels"][f"{LABEL}partition-policy"] == "Honor"
    plain = {"gpuLinkType": "NVLink", "allocationScore": 1}
    assert json.loads(metadata["annotations"][PARTITIONS]) == {
        "2": [
            {"minors": [0, 3], "gpuLinkType": "PIX", "allocationScore": 5},
            {"minors": [1, 2], "gpuLinkType": "PIX", "allocationScore": 5},
            {"minors": [0, 1], **plain},
            {"minors": [2, 3], **plain},
        ],
        "4": [{"minors": [0, 1, 2, 3], **plain, "ringBusBandwidth": "400Gi"}],
    }
    without = DeviceCluster(template=template(gpus(4), partitionPolicy="Honor")).device()["metadata"]
    assert f"{LABEL}partition-policy" not in without["labels"]
    assert "annotations" not in without


def test_labels_of_devices_and_of_the_device():
    cluster = DeviceCluster(
        template=template(gpus(1), nics(1, labels={"type": "fakeW"}), labels={"site": "north"}, vendor="")
    )
    assert cluster.entries()["rdma", 0]["labels"] == {"type": "fakeW"}
    assert cluster.device()["metadata"]["labels"] == {"site": "north"}


def test_a_node_without_gpus_says_nothing_of_a_vendor():
    cluster = DeviceCluster(template=template(nics(1), model="A100"))
    assert "labels" not in cluster.device()["metadata"]
    assert not [key for key in cluster.get("nodes", "node-0")["metadata"]["labels"] if key.startswith(LABEL)]


def test_nodes_without_devices_do_not_report():
    cluster = DeviceCluster(2)
    assert not cluster.list("devices")


def test_reports_can_be_left_out():
    cluster = DeviceCluster(template=template(gpus(2)), hollow={"device_reports": False})
    assert (cluster.writes, cluster.offered()) == ([], {})
    # What the node has it knows all the same.
    assert cluster.place("p", shares(2))["reason"] == "UnexpectedAdmissionError"


def test_the_definition_comes_and_goes():
    cluster = DeviceCluster(template=template(gpus(2)), defined=False)
    cluster.run(10)
    assert cluster.offered() == {}
    cluster.define()
    cluster.run(4)
    assert (cluster.offered()[WHOLE], len(cluster.writes)) == ("200", 1)
    cluster.delete("customresourcedefinitions", DEFINITION["metadata"]["name"])
    cluster.run(4)
    cluster.define()
    cluster.run(4)
    assert len(cluster.entries()) == 2


def test_nothing_is_written_while_nothing_changes():
    cluster = DeviceCluster(3, template=template(gpus(8), nics(8)))
    before = [cluster.get("nodes", f"node-{i}")["status"]["allocatable"] for i in range(3)]
    assert len(cluster.writes) == 3
    cluster.run(1000)
    assert len(cluster.writes) == 3
    assert [cluster.get("nodes", f"node-{i}")["status"]["allocatable"] for i in range(3)] == before


def test_nodes_do_not_report_at_the_same_moment():
    cluster = DeviceCluster(20, template=template(gpus(1)))
    assert len({time for time, _, _ in cluster.writes}) > 10


def test_what_others_write_stays_and_what_is_wrong_is_set_right():
    cluster = DeviceCluster(template=template(gpus(2), model="T4"))
    planned = "node.koordinator.sh/secondary-device-well-planned"
    changed = {"labels": {planned: "true", f"{LABEL}model": "L4"}, "annotations": {"a": "b"}}
    cluster.patch("devices", "node-0", {"metadata": changed, "spec": {"devices": [{"type": "gpu", "health": True}]}})
    cluster.run(4)
    metadata = cluster.device()["metadata"]
    assert (metadata["labels"][planned], metadata["labels"][f"{LABEL}model"]) == ("true", "T4")
    assert (metadata["annotations"], metadata["generation"]) == ({"a": "b"}, 3)
    assert list(cluster.entries()) == [("gpu", 0), ("gpu", 1)]


def test_what_others_write_is_no_reason_to_write():
    cluster = DeviceCluster(template=template(gpus(2)))
    cluster.patch("devices", "node-0", {"metadata": {"labels": {"a": "b"}}})
    cluster.run(10)
    assert len(cluster.writes) == 2


def test_labels_that_no_longer_hold_go():
    cluster = DeviceCluster(template=template(gpus(2), model="T4", partitions=[{"size": 2}]))
    plain = json.dumps({"groups": [gpus(2)]})
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {DEVICES: plain}}})
    cluster.run(4)
    metadata = cluster.device()["metadata"]
    assert (metadata["labels"], "annotations" in metadata) == ({f"{LABEL}vendor": "nvidia"}, False)


def test_a_node_that_says_no_longer_what_it_has_leaves_the_report_to_others(caplog):
    cluster = DeviceCluster(template=template(gpus(2)))
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {DEVICES: None}}})
    cluster.run(4)
    assert len(cluster.entries()) == 2
    cluster.patch("devices", "node-0", {"spec": {"devices": []}})
    cluster.run(10)
    assert (cluster.entries(), cluster.offered(), caplog.records) == ({}, {}, [])


def test_a_device_that_is_deleted_comes_back():
    cluster = DeviceCluster(template=template(gpus(2)))
    cluster.delete("devices", "node-0")
    cluster.run(0.1)
    assert cluster.offered() == {}
    cluster.run(4)
    assert (len(cluster.entries()), cluster.offered()[WHOLE]) == (2, "200")


def test_a_node_takes_its_device_along():
    cluster = DeviceCluster(2, template=template(gpus(2)))
    cluster.delete("nodes", "node-0")
    cluster.run(60)
    assert [each["metadata"]["name"] for each in cluster.list("devices")] == ["node-1"]
    assert len(cluster.writes) == 2


def test_nodes_made_by_hand_state_devices_in_an_annotation():
    cluster = DeviceCluster(0)
    layout = json.dumps({"groups": [gpus(2)]})
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "mine", "annotations": {HOLLOW: "true", DEVICES: layout}},
            "status": {"capacity": {"cpu": "4", "pods": "10"}},
        }
    )
    cluster.run(4)
    assert (len(cluster.entries("mine")), cluster.offered("mine")[WHOLE]) == (2, "200")
    more = json.dumps({"groups": [gpus(3)]})
    cluster.patch("nodes", "mine", {"metadata": {"annotations": {DEVICES: more}}})
    cluster.run(4)
    assert cluster.offered("mine")[WHOLE] == "300"


BAD_LAYOUTS = ["", "no JSON", "[" * 100_000, '{"groups": 3}', '{"groups": [{"type": "tpu"}]}', "x" * 70_000, "null"]


@pytest.mark.parametrize("text", BAD_LAYOUTS)
def test_annotations_that_cannot_be_read_are_events(text):
    cluster = DeviceCluster(template=template(gpus(2)))
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {DEVICES: text}}})
    cluster.run(4)
    ((_, name, message),) = cluster.said("InvalidAnnotation")
    assert name == "node-0"
    assert message.startswith(f"{DEVICES} is ignored: ")
    # What was reported before stands.
    assert len(cluster.entries()) == 2
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {DEVICES: json.dumps({"groups": [gpus(1)]})}}})
    cluster.run(4)
    assert len(cluster.entries()) == 1


# -- what nodes offer


def test_deviceshare_case_36_healthy_gpus_and_nics_make_up_what_a_node_offers():
    three = template(gpus(3), nics(2))
    cluster = DeviceCluster(template=three)
    cluster.fail("gpu/1")
    of_gpus = {WHOLE: "200", CORE: "200", RATIO: "200", MEMORY: "16Gi"}
    assert cluster.offered() == {**of_gpus, RDMA: "200"}
    huawei = DeviceCluster(template={"templates": [{**three["templates"][0], "devices": {
        **three["templates"][0]["devices"], "vendor": "huawei"}}]})  # fmt: skip
    huawei.fail("gpu/1")
    assert huawei.offered() == {CORE: "200", RATIO: "200", MEMORY: "16Gi", RDMA: "200"}


def test_labels_of_the_node():
    cluster = DeviceCluster(template=template(gpus(1), model="H800", driverVersion="550", labels={"site": "north"}))
    labels = cluster.get("nodes", "node-0")["metadata"]["labels"]
    assert {key: value for key, value in labels.items() if key.startswith(LABEL) or key == "site"} == {
        f"{LABEL}vendor": "nvidia",
        f"{LABEL}model": "H800",
        f"{LABEL}driver-version": "550",
    }


def test_npus_are_gpus_with_other_resources():
    npu = {"huawei.com/npu-core": 8, "huawei.com/npu-cpu": 7, "huawei.com/npu-dvpp": 100, MEMORY: "24Gi", RATIO: 100}
    group = {"type": "gpu", "count": 8, "resources": {**npu, "example.com/other": 1}}
    cluster = DeviceCluster(template=template(group, vendor="huawei", model="Ascend-310P"))
    assert cluster.entries()["gpu", 7]["resources"]["huawei.com/npu-cpu"] == "7"
    assert cluster.offered() == {
        "huawei.com/npu-core": "64",
        "huawei.com/npu-cpu": "56",
        "huawei.com/npu-dvpp": "800",
        MEMORY: "192Gi",
        RATIO: "800",
    }


def test_fpgas_and_shared_gpus():
    cluster = DeviceCluster(template=template({"type": "fpga", "count": 3}, gpus(2)), hollow={"gpu_shared": True})
    cluster.fail("fpga/0,gpu/0")
    assert cluster.offered() == {
        "koordinator.sh/fpga": "200",
        WHOLE: "100",
        CORE: "100",
        RATIO: "100",
        MEMORY: "8Gi",
        SHARED: "100",
    }


def test_a_node_without_healthy_devices_offers_none():
    cluster = DeviceCluster(template=template(gpus(2), nics(2), {"type": "fpga"}, model="T4"))
    cluster.fail("gpu/0,gpu/1,rdma/0,rdma/1,fpga/0")
    assert cluster.offered() == {}
    # It is known what they are, as before.
    assert cluster.get("nodes", "node-0")["metadata"]["labels"][f"{LABEL}model"] == "T4"
    cluster.fail(None)
    assert cluster.offered()[WHOLE] == "200"


def test_devices_that_others_report_count_as_well():
    """Also ones that make no sense: what is no quantity is nothing."""
    cluster = DeviceCluster(1, template=None)
    entries = [
        {"type": "gpu", "minor": 0, "health": True, "resources": {CORE: 100, MEMORY: "8000", RATIO: "100"}},
        {"type": "gpu", "health": True, "resources": {CORE: "1e2"}},
        {"type": "gpu", "minor": 2, "resources": {CORE: "100"}},
        {"type": "tpu", "minor": 0, "health": True, "resources": {CORE: "100"}},
        {"health": True},
    ]
    cluster.create(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": "node-0"},
            "spec": {"devices": entries},
        }
    )
    cluster.run(1)
    assert cluster.offered() == {WHOLE: "200", CORE: "200", MEMORY: "8k", RATIO: "100"}
    cluster.delete("devices", "node-0")
    cluster.run(1)
    assert cluster.offered() == {}


def test_nodes_with_kubelets_of_their_own_are_left_alone():
    cluster = DeviceCluster(0)
    cluster.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "real"}, "status": {"capacity": {"cpu": 1}}}
    )
    cluster.create({"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "metadata": {"name": "real"},
                    "spec": {"devices": [{"type": "rdma", "minor": 0, "health": True}]}})  # fmt: skip
    cluster.run(10)
    assert cluster.offered("real") == {}


def test_a_node_whose_gpus_never_worked_has_no_labels():
    content = template(gpus(1), model="T4")
    content["templates"][0]["annotations"] = {FAIL_DEVICES: "gpu/0"}
    cluster = DeviceCluster(template=content, hollow={"gpu_shared": True})
    assert cluster.offered() == {}
    assert f"{LABEL}model" not in cluster.get("nodes", "node-0")["metadata"]["labels"]
    cluster.fail(None)
    assert cluster.get("nodes", "node-0")["metadata"]["labels"][f"{LABEL}model"] == "T4"


def test_a_device_of_no_node_harms_nobody():
    cluster = DeviceCluster(1, template=None)
    for spec in ({}, {"devices": [{"type": "gpu", "minor": 0, "health": True}]}):
        cluster.create({"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device",
                        "metadata": {"generateName": "stray-"}, "spec": spec})  # fmt: skip
    cluster.run(10)
    assert cluster.offered() == {}


def test_what_a_node_offers_is_set_right():
    cluster = DeviceCluster(template=template(gpus(2)))
    for field in ("capacity", "allocatable"):
        cluster.patch("nodes", "node-0", {"status": {field: {WHOLE: None, CORE: "900"}}}, subresource="status")
    cluster.run(1)
    assert (cluster.offered()[WHOLE], cluster.offered()[CORE]) == ("200", "200")


# -- failures


def test_a_gpu_fails_and_heals():
    cluster = DeviceCluster(template=template(gpus(2, "16Gi")))
    cluster.fail("gpu/1:Xid79")
    assert [entry["health"] for entry in cluster.entries().values()] == [True, False]
    (condition,) = cluster.entries()["gpu", 1]["conditions"]
    since = condition.pop("lastTransitionTime")
    assert condition == {
        "type": "Healthy",
        "status": "False",
        "reason": "Xid79",
        "message": f"failed on command: annotation {FAIL_DEVICES}",
    }
    assert "conditions" not in cluster.entries()["gpu", 0]
    # What it has is still known.
    assert cluster.entries()["gpu", 1]["resources"][MEMORY] == "16Gi"
    assert cluster.offered()[MEMORY] == "16Gi"
    cluster.run(600)
    assert cluster.entries()["gpu", 1]["conditions"][0]["lastTransitionTime"] == since
    cluster.fail(None)
    assert all(entry["health"] for entry in cluster.entries().values())
    (condition,) = cluster.entries()["gpu", 1]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "DeviceHealthy")
    assert condition["lastTransitionTime"] > since
    assert cluster.offered()[MEMORY] == "32Gi"


def test_events_say_which_device_has_failed_and_who_has_it():
    cluster = DeviceCluster(template=template(gpus(2)))
    cluster.place("half", shares(0, core="50", memory="4Gi", ratio="50"))
    cluster.place("both", shares(0, 1, core="50", memory="4Gi", ratio="50"))
    cluster.place("none")
    ids = [entry["id"] for entry in cluster.entries().values()]
    cluster.fail("gpu/1:Xid79")
    problem = f"is unhealthy: Xid79, failed on command: annotation {FAIL_DEVICES}"
    failed = [
        ("Node", "node-0", f"gpu 1 ({ids[1]}) {problem}"),
        ("Pod", "both", f"gpu 1 ({ids[1]}), which the pod was given, {problem}"),
    ]
    assert cluster.said("DeviceUnhealthy") == failed
    # Once, not with every look at the node, and not when another one fails.
    cluster.run(600)
    cluster.fail("gpu/1:Xid79,gpu/0")
    said = cluster.said("DeviceUnhealthy")
    assert len(said) == 5
    assert [name for _, name, _ in said if name != "node-0"] == ["both", "both", "half"]
    cluster.fail("gpu/0")
    assert cluster.said("DeviceHealthy") == [
        ("Node", "node-0", f"gpu 1 ({ids[1]}) is healthy again"),
        ("Pod", "both", f"gpu 1 ({ids[1]}), which the pod was given, is healthy again"),
    ]
    # The pods go on running: the kubelet leaves evicting them to other components.
    assert [cluster.get("pods", name)["status"]["phase"] for name in ("half", "both")] == ["Running"] * 2


def test_a_node_whose_devices_failed_before_it_reported_says_so():
    content = template(gpus(2))
    content["templates"][0]["annotations"] = {FAIL_DEVICES: "gpu/0"}
    cluster = DeviceCluster(template=content)
    assert [name for _, name, _ in cluster.said("DeviceUnhealthy")] == ["node-0"]
    assert cluster.offered()[WHOLE] == "100"


BAD_COMMANDS = [
    ("gpu/2", "there is no gpu 2"),
    ("rdma/0", "there is no rdma 0"),
    ("gpu", "'gpu' is not a device such as gpu/3 or gpu/3:Xid79"),
    ("gpu/0,", "'' is not a device"),
    ("gpu/-1", "'gpu/-1' is not a device"),
    ("gpu/٣", "'gpu/٣' is not a device"),
    ("gpu/0:", "'gpu/0:' is not a device"),
    ("gpu/0: a b", "'gpu/0: a b' is not a device"),
    ("gpu/9999999999", "is not a device"),
    ("gpu/0," * 20_000, "longer than 65536 characters"),
]


@pytest.mark.parametrize("text, problem", BAD_COMMANDS)
def test_commands_that_make_no_sense_are_events(text, problem):
    cluster = DeviceCluster(template=template(gpus(2)))
    cluster.fail(text)
    ((_, name, message),) = cluster.said("InvalidAnnotation")
    assert name == "node-0"
    assert message.startswith(f"{FAIL_DEVICES} is ignored: ")
    assert problem in message
    assert all(entry["health"] for entry in cluster.entries().values())
    cluster.fail(" gpu/0 , gpu/1 ")
    assert not any(entry["health"] for entry in cluster.entries().values())


def test_a_silent_node_reports_when_it_is_back():
    cluster = DeviceCluster(template=template(gpus(2)))
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {FAIL: "true"}}})
    cluster.fail("gpu/0")
    cluster.run(60)
    assert all(entry["health"] for entry in cluster.entries().values())
    assert not cluster.said("DeviceUnhealthy")
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {FAIL: None}}})
    cluster.run(4)
    assert not cluster.entries()["gpu", 0]["health"]
    assert len(cluster.said("DeviceUnhealthy")) == 1


# -- what pods are refused

HALF = {"core": "50", "memory": "4Gi", "ratio": "50"}
REFUSED = [
    # others, the pod -> why not
    ([], shares(2), "there is no gpu 2"),
    ([], shares(0, kind="fpga"), "there is no fpga 0"),
    ([], {"tpu": [{"minor": 0}]}, "there is no tpu 0"),
    ([], shares(1), "gpu 1 is unhealthy: Unknown"),
    ([shares(0)], shares(0, **HALF), f"gpu 0 does not have enough {CORE}, requested: 50, used: 100, capacity: 100"),
    (
        [shares(0, core="60", memory="1Gi", ratio="12")],
        shares(0, **HALF),
        f"gpu 0 does not have enough {CORE}, requested: 50, used: 60, capacity: 100",
    ),
    (
        [shares(0, core="10", memory="6Gi", ratio="75")],
        shares(0, core="10", memory="4Gi", ratio="50"),
        f"gpu 0 does not have enough {MEMORY}, requested: 4294967296, used: 6442450944, capacity: 8589934592",
    ),
    (
        [shares(0, core="10", memory="1Gi", ratio="75")],
        shares(0, core="10", memory="1Gi", ratio="50"),
        f"gpu 0 does not have enough {RATIO}, requested: 50, used: 75, capacity: 100",
    ),
    ([], shares(0, core="101"), f"gpu 0 does not have enough {CORE}, requested: 101, used: 0, capacity: 100"),
    # The same GPU twice.
    ([], shares(0, 0, core="60"), f"gpu 0 does not have enough {CORE}, requested: 120, used: 0, capacity: 100"),
    (
        [shares(0, core="99", kind="rdma")],
        shares(0, core="2", kind="rdma"),
        "rdma 0 does not have enough koordinator.sh/rdma, requested: 2, used: 99, capacity: 100",
    ),
    (
        [shares(0, core="1", kind="rdma", extension={"vfs": [{"minor": -1, "busID": "0000:50:00.2"}]})],
        shares(0, core="1", kind="rdma", extension={"vfs": [{"busID": "0000:50:00.2"}]}),
        "virtual function 0000:50:00.2 of rdma 0 belongs to default/other-0",
    ),
    (
        [],
        shares(0, core="1", kind="rdma", extension={"vfs": [{"busID": "0000:50:00.4"}]}),
        "rdma 0 has no virtual function 0000:50:00.4",
    ),
    ([], "{", f"{DEVICE_ALLOCATED}: Input data was truncated"),
    ([], "[]", f"{DEVICE_ALLOCATED}: Expected `object`, got `array`"),
    ([], '{"gpu": [{"minor": "0"}]}', f"{DEVICE_ALLOCATED}: Expected `int`, got `str`"),
    ([], '{"gpu": [{"minor": 0, "resources": {"a": "b"}}]}', f"{DEVICE_ALLOCATED}: quantity 'b' must match"),
    ([], shares(0, core="-1"), f"{DEVICE_ALLOCATED}: {CORE}: '-1' must not be negative"),
]


@pytest.mark.parametrize("others, allocated, problem", REFUSED)
def test_pods_that_cannot_have_their_devices_are_refused(others, allocated, problem):
    content = template(gpus(2), nics(1, virtualFunctions=2))
    cluster = DeviceCluster(template=content)
    cluster.fail("gpu/1")
    for number, other in enumerate(others):
        assert cluster.place(f"other-{number}", other)["phase"] == "Running"
    status = cluster.place("p", allocated)
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert status["message"].startswith(f"Pod was rejected: Allocate failed due to {problem}")
    assert status["message"].endswith(", which is unexpected")
    # What a refused pod was given others can have, and those that were there stay.
    assert cluster.place("later", shares(0, core="1", memory="1Mi", ratio="0"))["phase"] == (
        "Running" if "used: 100" not in problem else "Failed"
    )
    assert all(cluster.get("pods", f"other-{number}")["status"]["phase"] == "Running" for number in range(len(others)))


ACCEPTED = [
    ([], shares(0, 1)),
    ([shares(0, **HALF)], shares(0, **HALF)),
    ([], None),
    ([], "null"),
    ([], "{}"),
    ([], {"gpu": None}),
    ([], {"gpu": [{"minor": 0, "resources": None, "extension": None}]}),
    ([], {"gpu": [{"minor": 0, "resources": {"example.com/other": "7"}, "id": "x"}]}),
    ([shares(0, core="1", kind="rdma", extension={"vfs": [{"busID": "0000:50:00.2"}]})],
     shares(0, core="1", kind="rdma", extension={"vfs": [{"busID": "0000:50:00.3"}]})),
]  # fmt: skip


@pytest.mark.parametrize("others, allocated", ACCEPTED)
def test_pods_that_can_have_their_devices_run(others, allocated):
    cluster = DeviceCluster(template=template(gpus(2), nics(1, virtualFunctions=2)))
    for number, other in enumerate(others):
        assert cluster.place(f"other-{number}", other)["phase"] == "Running"
    assert cluster.place("p", allocated)["phase"] == "Running"


def test_shares_of_memory_that_were_rounded_down_to_percents_fit():
    """Pods of 10, 10 and 4 of 24 GiB count as 41, 41 and 16 %: there is room for 2 % more, but not for 3 %."""
    cluster = DeviceCluster(template=template(gpus(1, "24Gi")))
    for name, memory, ratio in (("a", "10Gi", "41"), ("b", "10Gi", "41"), ("c", "4Gi", "16")):
        assert cluster.place(name, shares(0, core="1", memory=memory, ratio=ratio))["phase"] == "Running"
    two = shares(0, core="1", memory=str(24 * 2**30 * 2 // 100), ratio="2")
    assert cluster.place("d", two)["phase"] == "Running"
    cluster.delete("pods", "d")
    cluster.run(10)
    five = shares(0, core="1", memory=str(24 * 2**30 * 5 // 100), ratio="2")
    assert cluster.place("e", five)["phase"] == "Failed"


def test_devices_are_given_back():
    """By pods that end, that are deleted, and that were refused for other reasons."""
    cluster = DeviceCluster(template=template(gpus(1)))
    short = pod("short", shares(0), restartPolicy="Never")
    short["metadata"]["annotations"]["koordsched.io/run-duration"] = "10s"
    cluster.create(short)
    cluster.run(2)
    assert cluster.place("early", shares(0))["phase"] == "Failed"
    cluster.run(10)
    assert cluster.get("pods", "short")["status"]["phase"] == "Succeeded"
    assert cluster.place("second", shares(0))["phase"] == "Running"
    cluster.delete("pods", "second")
    cluster.run(0.5)
    # It is stopping, and has its GPU until it has.
    assert cluster.place("third", shares(0))["phase"] == "Failed"
    cluster.run(10)
    huge = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "999"}}}]}
    assert cluster.place("huge", shares(0), **huge)["reason"] == "OutOfcpu"
    assert cluster.place("fourth", shares(0))["phase"] == "Running"


def test_a_node_that_says_nothing_of_devices_refuses_nothing_because_of_them():
    cluster = DeviceCluster(1, template=None)
    assert cluster.place("p", shares(7))["phase"] == "Running"
    # From when it does, pods that are there count.
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {DEVICES: json.dumps({"groups": [gpus(8)]})}}})
    cluster.run(4)
    assert cluster.place("q", shares(7))["phase"] == "Failed"
    assert cluster.place("r", shares(6))["phase"] == "Running"


def test_more_than_the_node_offers_is_refused_as_any_resource():
    cluster = DeviceCluster(template=template(gpus(2)))
    cluster.fail("gpu/1")
    resources = {"requests": {CORE: "200"}, "limits": {CORE: "200"}}
    status = cluster.place("p", containers=[{"name": "c", "image": "i", "resources": resources}])
    assert status["reason"] == f"OutOf{CORE}"


def test_restarts_forget_nothing(tmp_path):
    """A cluster that starts from another's state: pods hold their devices, and nothing is announced again."""
    content = template(gpus(2))
    cluster = DeviceCluster(template=content)
    cluster.place("p", shares(0))
    cluster.fail("gpu/0:Xid79")
    snapshot.dump(cluster.registry, tmp_path)
    again = DeviceCluster(0, defined=False)
    snapshot.load(again.registry, tmp_path)
    before = len(again.said("DeviceUnhealthy"))
    again.run(10)
    assert len(again.said("DeviceUnhealthy")) == before
    assert again.entries() == cluster.entries()
    assert again.place("q", shares(0))["message"].count("gpu 0 is unhealthy: Xid79")
    again.fail(None)
    assert again.place("r", shares(0))["message"].count("used: 100")
    assert again.place("s", shares(1))["phase"] == "Running"


def test_random_pods_never_hold_more_than_there_is():
    """Next to sums over the pods that run: accepted is what fits, and nothing else."""
    rng = Random(5)
    cluster = DeviceCluster(template=template(gpus(3)))
    names, accepted, refused = [], 0, 0
    for number in range(120):
        if names and rng.random() < 0.4:
            cluster.delete("pods", names.pop(rng.randrange(len(names))))
            cluster.run(5)
        minors = rng.sample(range(3), rng.choice((1, 1, 1, 2)))
        ratio = rng.choice((20, 40, 60, 100))
        running = [json.loads(cluster.get("pods", name)["metadata"]["annotations"][DEVICE_ALLOCATED]) for name in names]
        used = {
            minor: sum(int(e["resources"][RATIO]) for each in running for e in each["gpu"] if e["minor"] == minor)
            for minor in minors
        }
        fits = all(used[minor] + ratio <= 100 for minor in minors)
        memory = str(8 * 2**30 * ratio // 100)
        status = cluster.place(f"p-{number}", shares(*minors, core=str(ratio), memory=memory, ratio=str(ratio)))
        assert status["phase"] == ("Running" if fits else "Failed"), (used, ratio)
        accepted, refused = accepted + fits, refused + (not fits)
        if fits:
            names.append(f"p-{number}")
    assert min(accepted, refused) > 20

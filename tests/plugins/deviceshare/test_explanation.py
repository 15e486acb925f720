"""The numbers behind what DeviceShare says of a node, and what would help, as `koordsched explain` shows them."""

import json

import pytest

from koordsched.plugins.deviceshare import reasons
from koordsched.scheduling.advice import advise
from tests.cli.clusters import run
from tests.plugins.deviceshare.machines import (
    GIB,
    bound,
    device,
    fpga,
    g8,
    gpu,
    h8,
    m2,
    nic,
    node,
    pod,
    used,
    used_nic,
)
from tests.plugins.deviceshare.naive.books import MODEL, TABLE, VENDOR
from tests.plugins.deviceshare.naive.request import ALLOCATED, RATIO
from tests.plugins.deviceshare.world import DEVICES, World, configuration, key, profile

JOINT = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
SCHEDULING_HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
ISOLATION = "koordinator.sh/gpu-isolation-provider"
TABLES = {"2": [{"minors": [0, 1], "ringBusBandwidth": "200Gi"}, {"minors": [2, 3], "allocationScore": 2}]}
WHOLE = "gpu-core 100, gpu-memory-ratio 100"


def explained(objects, wanted, **args):
    """(feasible, lines, changes that would help) of node `n`."""
    world = World(*objects, args=args, numa=False)
    explanation = world.explain(wanted)
    (said,) = explanation.nodes
    advice = advise(world.profile, world.cluster, world.offline.pending[key(wanted)], explanation)
    changes = [change.text for remedy in advice.remedies for change in remedy.changes]
    return said.feasible, said.details.get(DEVICES, []), changes


def fpgas(count, **more):
    return [node(), device(*map(fpga, range(count)), **more)]


def test_pods_without_such_wishes_are_told_nothing():
    assert explained(m2(), pod()) == (True, [], [])


def test_a_node_that_would_take_it():
    line = "gpu: wants 1 with gpu-core 50, gpu-memory-ratio 50 free; 1 of 2 have that"
    objects = [*m2(), used(0, memory="8Gi")]
    short = "gpu 0: gpu-core 0, gpu-memory-ratio 0 left"
    assert explained(objects, pod(core=50, ratio=50)) == (True, [line, short], [])


def test_a_node_without_a_device():
    text = "the node has no Device object: the kubelet allocates devices"
    assert explained([node()], pod(gpu=100)) == (True, [text], [])


def test_too_little_is_left():
    objects = [*m2(), used(0, memory="8Gi", share=30), used(1, memory="8Gi", share=60)]
    assert explained(objects, pod(shared=2, ratio=120, core=40)) == (
        False,
        [
            "gpu: wants 2 with gpu-core 20, gpu-memory-ratio 60 free; 1 of 2 have that",
            "gpu 1: gpu-memory-ratio 40 left",
        ],
        ["1 more gpu device with gpu-core 20, gpu-memory-ratio 60 free"],
    )
    _, _, changes = explained([*m2(), used(0, 1, memory="8Gi")], pod(gpu=200))
    assert changes == [f"2 more gpu devices with {WHOLE} free"]


def test_when_all_are_taken_none_of_them_is_called_unhealthy():
    objects = [*h8(policy="Honor"), used(*range(8))]
    feasible, lines, changes = explained(objects, pod(gpu=400))
    assert (feasible, changes) == (False, ["a partition without GPUs that are in use or unhealthy"])
    assert lines[0] == f"gpu: wants 4 with {WHOLE} free; 0 of 8 have that"
    assert lines[1:9] == [f"gpu {n}: nothing left for this pod" for n in range(8)]
    assert lines[9:] == ["partition 0,1,2,3: 0,1,2,3 in use", "partition 4,5,6,7: 4,5,6,7 in use"]


def test_what_the_node_has_not_even_when_it_is_empty():
    feasible, lines, changes = explained(m2(), pod(memory=12 * GIB))
    assert not feasible
    assert lines == [
        "gpu: wants 1 with gpu-memory 12Gi free; 0 of 2 have that",
        "gpu 0: gpu-memory 8Gi left",
        "gpu 1: gpu-memory 8Gi left",
    ]
    assert changes == ["a node with 1 gpu device of gpu-memory 12Gi (this one has 0)"]
    assert explained(m2(), pod(gpu=300))[2] == [f"a node with 3 gpu devices of {WHOLE} (this one has 2)"]
    assert explained(m2(), pod(fpga=100))[2] == ["a node with fpga devices"]


def test_many_devices_are_counted():
    taken = bound(pod(), "other", fpga=[(n, {"fpga": 100}) for n in range(11)])
    _, lines, _ = explained([*fpgas(12), taken], pod(fpga=200))
    assert len(lines) == 10
    assert (lines[1], lines[-1]) == ("fpga 0: fpga 0 left", "and 3 more devices")


def test_unhealthy_devices_and_those_that_a_hint_leaves_out():
    fast = {"type": "fast"}
    objects = [node(), device(nic(0, labels=fast), nic(1), {**nic(2, labels=fast), "health": False})]
    hints = {"rdma": {"selector": {"matchLabels": fast}}}
    feasible, lines, changes = explained([*objects, used_nic(0)], pod(rdma=50, hints=hints))
    head = "rdma: wants 1 with rdma 50 free; 0 of 3 have that; not healthy: 2; not selected by the hint: 1"
    assert (feasible, lines, changes) == (
        False,
        [head, "rdma 0: rdma 0 left"],
        ["1 more rdma device with rdma 50 free"],
    )
    hints["rdma"]["allocateStrategy"] = "ApplyForAll"
    _, lines, changes = explained(objects, pod(rdma=50, hints=hints))
    assert lines[0].startswith("rdma: wants every one with rdma 50 free; 1 of 3 have that; not healthy: 2")


def test_virtual_functions():
    held = {"minor": 0, "resources": {"koordinator.sh/rdma": "1"}, "extension": {"vfs": [{"busID": "0000:10:00.2"}]}}
    holder = bound(pod(rdma=1), "holder")
    holder["metadata"]["annotations"][ALLOCATED] = json.dumps({"rdma": [held]})
    hints = {"rdma": {"vfSelector": {}}}
    feasible, lines, changes = explained([node(), device(nic(0, functions=1)), holder], pod(rdma=1, hints=hints))
    assert (feasible, changes) == (False, ["1 more rdma device with rdma 1 free"])
    assert lines == ["rdma: wants 1 with rdma 1 free; 0 of 1 have that", "rdma 0: no virtual function left"]
    _, _, changes = explained([node(), device(nic(0))], pod(rdma=1, hints=hints))
    assert changes == ["a node whose rdma devices have virtual functions"]


def test_partitions():
    report = device(
        *(gpu(n, place=(str(n), 0), health=n != 3) for n in range(4)), annotations={TABLE: json.dumps(TABLES)}
    )
    spec = {"ringBusBandwidth": "400Gi", "allocatePolicy": "Restricted"}
    feasible, lines, changes = explained([node(), report, used(0)], pod(gpu=200, partition=spec))
    assert (feasible, changes) == (False, ["a partition without GPUs that are in use or unhealthy"])
    assert lines[-2:] == [
        "partition 0,1: 0 in use, bandwidth 200Gi, not 400Gi",
        "partition 2,3: 3 not healthy, bandwidth unknown, not 400Gi, ignored: its allocationScore is not the lowest",
    ]
    _, lines, changes = explained([node(), report], pod(gpu=300, partition={}))
    assert lines[-1] == "no partitions of 3 GPUs"
    assert changes == ["a number of GPUs for which there are partitions"]
    _, _, changes = explained(m2(), pod(gpu=200, partition={}))
    assert changes == ["a partition table: the annotation gpu-partitions of the Device"]


def test_scopes():
    hints = {"gpu": {"requiredTopologyScope": "PCIe"}}
    feasible, lines, changes = explained([*g8(), used(0, 2, 4)], pod(gpu=300, hints=hints))
    assert (feasible, changes) == (False, ["the GPUs free within a PCIe switch"])
    assert lines[-5:] == [
        "all within a PCIe switch:",
        "gpu 0,1: 1 of them",
        "gpu 2,3: 1 of them",
        "gpu 4,5: 1 of them",
        "gpu 6,7: 2 of them",
    ]
    assert explained(m2(), pod(gpu=200, hints=hints))[2] == ["a Device that reports the topology of all GPUs"]
    assert explained(g8(), pod(shared=2, ratio=20, hints=hints))[2] == [
        "a part of one GPU requested, or no required topology scope"
    ]


def test_switches_of_joint_allocations():
    feasible, lines, changes = explained([*g8(nics=(1, 2)), used(0), used_nic(1)], pod(gpu=100, rdma=100, joint=JOINT))
    assert (feasible, changes) == (False, ["free devices of all types on the same PCIe switches"])
    assert lines[-4:] == [
        "PCIe switch 0: 1 gpu, 0 rdma",
        "PCIe switch 1: 2 gpu, 1 rdma",
        "PCIe switch 2: 2 gpu, 0 rdma",
        "PCIe switch 3: 2 gpu, 0 rdma",
    ]


def test_labels_and_templates():
    half = pod(core=50, ratio=50, labels={ISOLATION: "HAMi-core"})
    text = "the label koordinator.sh/gpu-isolation-provider of the pod on the node"
    assert explained(m2(), half, improvedAllocation=True)[2] == [text]
    labelled = [node(labels={MODEL: "M2", VENDOR: "nvidia"}), device(gpu(0))]
    _, _, changes = explained(
        labelled, pod(core=50, ratio=50), gpuShareUnsupportedModels=[{"vendor": "nvidia", "model": "M2"}]
    )
    assert changes == ["a request for whole GPUs, or a node whose GPUs may be shared"]


def test_designated_devices():
    listed = {"gpu": [{"minor": 1, "resources": {RATIO: "50"}}]}
    hint = {SCHEDULING_HINT: json.dumps({"extensions": {DEVICES: {}}}), ALLOCATED: json.dumps(listed)}
    feasible, lines, _ = explained([*m2(), used(1, memory="8Gi")], pod(ratio=50, annotations=hint))
    assert not feasible
    assert lines[0] == "a scheduling hint designates gpu 1"


def test_switches_for_itself():
    cards = [nic(n, place=(str(n // 2), 0)) for n in range(2)]
    hints = {"rdma": {"exclusivePolicy": "PCIeLevel"}}
    feasible, lines, _ = explained(
        [node(), device(*cards), used_nic(0)], pod(rdma=1, hints=hints), improvedAllocation=True
    )
    assert not feasible
    assert lines[1:] == ["rdma 0: nothing left for this pod", "rdma 1: nothing left for this pod"]


def test_nodes_in_the_same_state_are_explained_once(monkeypatch):
    machines = [thing for n in range(20) for thing in m2(f"n{n:02}")]
    busy = [used(0, node=f"n{n:02}", memory="8Gi", share=10 * (n % 3)) for n in range(20) if n % 3]
    world = World(*machines, *busy, numa=False)
    explainer, asked = world.plugin._explainer, []
    monkeypatch.setattr(
        explainer, "explain", lambda *of: asked.append(of[1]) or type(explainer).explain(explainer, *of)
    )
    explanation = world.explain(pod(gpu=200))
    assert len(asked) == 3
    lines = [node.details[DEVICES][1:] for node in explanation.nodes]
    left = [
        [f"gpu 0: gpu-core {100 - share}, gpu-memory-ratio {100 - share} left"] if share else []
        for share in (0, 10, 20)
    ]
    assert lines == [left[n % 3] for n in range(20)]


@pytest.mark.parametrize("refusal", [each for each in vars(reasons).values() if isinstance(each, reasons.Refusal)])
def test_every_refusal_has_a_remedy_of_its_own(refusal):
    """In the words of the node, not of the text that says what is wrong."""
    world = World(*m2())
    shape = world.pod(pod(gpu=100)).shape
    said = world.plugin._explainer.remedy(shape, world.row(), refusal.texts)
    assert said not in ("", "devices that the plugin can use", *refusal.texts)


@pytest.mark.parametrize("wanted", [pod(memory=12 * GIB), pod(gpu=300)])
def test_the_table_shows_them(wanted, tmp_path):
    objects = [*m2(), wanted]
    (tmp_path / "cluster.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    (tmp_path / "config.yaml").write_text(json.dumps(configuration(profile(numa=False))))
    files = "-f", str(tmp_path / "cluster.yaml"), "--config", str(tmp_path / "config.yaml")
    shown = run("explain", "p", *files).stdout
    assert "n, DeviceShare:\n  gpu: wants " in shown
    assert "a node with " in shown

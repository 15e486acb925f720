"""The acceptance cases of deviceshare spec 7, without reservations and the companions' (30, 31, 36, 37)."""

import json

import pytest

from tests.plugins.deviceshare.implementation import DEVICES, NUMA, TIME, Gone, Said
from tests.plugins.deviceshare.implementations import IMPLEMENTATIONS
from tests.plugins.deviceshare.machines import (
    G8_BUSES,
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
from tests.plugins.deviceshare.naive.books import MODEL, NODE, VENDOR
from tests.plugins.deviceshare.naive.request import (
    CORE,
    MEMORY,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    PARTITION,
    RATIO,
    RDMA,
    UAU,
    U,
)

LEAST = {"type": "LeastAllocated", "resources": [{"name": name, "weight": 1} for name in (RATIO, MEMORY, RDMA)]}
MOST = {**LEAST, "type": "MostAllocated"}
JOINT = {"deviceTypes": ["gpu", "rdma"]}
SAME_PCIE = {**JOINT, "requiredScope": "SamePCIe"}
ANY_FUNCTION = {"rdma": {"vfSelector": {}}}


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda each: each.__name__)
def ask(request):
    """An implementation with a few shorter questions."""
    return Ask(request.param())


class Ask:
    """Questions about one pod, on the node `n` where one is meant."""

    def __init__(self, implementation):
        self.decide, self.victims = implementation.decide, implementation.victims

    def early(self, wanted, objects=None, **more):
        """(code, reasons) of PreFilter."""
        said = self.decide(objects or m2(), wanted, **more).early
        return said.code, said.reasons

    def said(self, objects, wanted, **more):
        """(code, reasons) of the node's Filter; a pod that passes is refused by no one afterwards."""
        decision = self.decide(objects, wanted, **more)
        assert decision.early.passed, decision.early
        said = decision.verdicts["n"]
        if said.passed:
            assert decision.place("n").said.passed
        return said.code, said.reasons

    def place(self, objects, wanted, **more):
        """What the pod gets on the node."""
        decision = self.decide(objects, wanted, **more)
        assert decision.early.passed, decision.early
        assert decision.verdicts["n"].passed, decision.verdicts
        placed = decision.place("n")
        assert placed.said.passed, placed.said
        return placed

    def gpus(self, objects, wanted, **more):
        """The minors of the GPUs that the pod gets."""
        return self.place(objects, wanted, **more).minors["gpu"]

    def both(self, objects, wanted, **more):
        """The minors of GPUs and NICs."""
        minors = self.place(objects, wanted, **more).minors
        return minors["gpu"], minors["rdma"]

    def raw(self, objects, wanted, kind="LeastAllocated", **more):
        """The node's score before it is normalised."""
        strategy = {"type": kind, "resources": [{"name": name, "weight": 1} for name in (RATIO, MEMORY, RDMA)]}
        return self.decide(objects, wanted, args={"scoringStrategy": strategy}, **more).raw["n"]


def invalid(*names):
    return UAU, (f"invalid resource device requests: [{' '.join(names)}]",)


PASSES = "Success", ()


def test_deviceshare_case_01_units(ask):
    assert ask.early(pod(gpu=101)) == (UAU, ("invalid resource unit koordinator.sh/gpu: 101",))
    assert ask.early(pod(fpga=101)) == (UAU, ("invalid resource unit koordinator.sh/fpga: 101",))
    assert ask.early(pod(rdma=201)) == (UAU, ("invalid resource unit koordinator.sh/rdma: 201",))
    assert ask.early(pod(gpu=200)) == ask.early(pod(rdma=50)) == PASSES


def test_deviceshare_case_02_names_that_do_not_go_together(ask):
    assert ask.early(pod(core=100)) == invalid(CORE)
    assert ask.early(pod(ratio=101)) == invalid(RATIO)
    assert ask.early(pod(nvidia=1, gpu=100)) == invalid("koordinator.sh/gpu", "nvidia.com/gpu")
    assert ask.early(pod(nvidia=1, core=100)) == invalid(CORE, "nvidia.com/gpu")


def test_deviceshare_case_03_names_of_vendors(ask):
    for vendor in ("dcu", "amd", "nvidia"):
        placed = ask.place(g8(), pod(**{vendor: 2}))
        assert [entry["resources"] for entry in placed.devices["gpu"]] == [
            {CORE: 100, RATIO: 100, MEMORY: 80 * GIB}
        ] * 2


def test_deviceshare_case_04_several_shared_gpus(ask):
    entries = ask.place(g8(), pod(shared=2, core=100, ratio=100)).devices["gpu"]
    assert [entry["resources"] for entry in entries] == [{CORE: 50, RATIO: 50, MEMORY: 40 * GIB}] * 2
    entries = ask.place(g8(), pod(shared=2, ratio=200)).devices["gpu"]
    assert [(entry["minor"], entry["resources"]) for entry in entries] == [
        (minor, {RATIO: 100, MEMORY: 80 * GIB}) for minor in (0, 1)
    ]
    (entry,) = ask.place(g8(), pod(memory=1024, core=100)).devices["gpu"]
    assert entry["resources"] == {CORE: 100, MEMORY: 1024, RATIO: 0}


def test_deviceshare_case_05_more_core_than_a_gpu_has(ask):
    wanted = pod(core=200, memory="64Gi")
    assert ask.early(wanted) == PASSES
    assert ask.said(g8(), wanted) == (U, ("Insufficient GPU Devices",))
    assert ask.said(m2(), wanted) == (U, ("Insufficient gpu devices",))


def test_deviceshare_case_06_npus(ask):
    npus = [gpu(minor, **{NPU_CORE: "20", RATIO: "100", MEMORY: "64Gi"}) for minor in range(4)]
    entries = ask.place([node(), device(*npus)], pod(npu_core=40, ratio=200)).devices["gpu"]
    assert [entry["resources"] for entry in entries] == [{NPU_CORE: 20, RATIO: 100, MEMORY: 64 * GIB}] * 2
    assert ask.early(pod(npu_core=40, memory="128Gi")) == invalid(NPU_CORE, MEMORY)
    shared = {"npu_core": 1, "npu_cpu": 1, "memory": "3Gi"}
    assert ask.early(pod(shared=2, **shared)) == invalid(NPU_CORE, NPU_CPU, MEMORY, "koordinator.sh/gpu.shared")
    del shared["npu_cpu"]
    assert ask.early(pod(shared=1, **shared)) == invalid(NPU_CORE, MEMORY, "koordinator.sh/gpu.shared")


@pytest.mark.parametrize(
    ("size", "wanted", "memory", "ratio"),
    [("32Gi", {"core": 50, "ratio": 50}, 16 * GIB, 50), ("24Gi", {"memory": "3Gi"}, 3 * GIB, 12)],
)
def test_deviceshare_case_07_memory_is_completed(ask, size, wanted, memory, ratio):
    (entry,) = ask.place([node(), device(gpu(0, size))], pod(**wanted)).devices["gpu"]
    assert (entry["resources"][MEMORY], entry["resources"][RATIO]) == (memory, ratio)


def test_deviceshare_case_08_nics_by_hint(ask):
    cards = [nic(n, labels={"type": "fakeW" if n else "other"}) for n in range(5)]
    objects = [node(), device(*cards)]

    def hinted(amount, **hint):
        return pod(rdma=amount, hints={"rdma": hint})

    def taken(wanted):
        return [(entry["minor"], entry["resources"][RDMA]) for entry in ask.place(objects, wanted).devices["rdma"]]

    def labelled(text):
        return {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"type": text}}}

    assert taken(hinted(1, **labelled("fakeW"))) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert ask.said(objects, hinted(1, **labelled("no"))) == (UAU, ("Insufficient rdma devices",))
    as_count = {"allocateStrategy": "RequestsAsCount"}
    assert taken(hinted(4, **as_count)) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert taken(hinted(4, **as_count, exclusivePolicy="DeviceLevel")) == [(0, 100), (1, 100), (2, 100), (3, 100)]
    assert taken(hinted(300, **as_count)) == [(0, 100), (1, 100), (2, 100)]


@pytest.mark.parametrize(
    ("count", "minors"), [(1, [4]), (2, [6, 7]), (3, [4, 6, 7]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4])]
)
def test_deviceshare_case_09_whole_gpus_are_packed(ask, count, minors):
    assert ask.gpus([*g8(), used(5)], pod(nvidia=count)) == minors
    assert ask.said([*g8(), used(5)], pod(nvidia=8)) == (U, ("Insufficient GPU Devices",))


def test_deviceshare_case_10_required_scope(ask):
    objects = [*g8(), used(5)]

    def scoped(scope, count):
        return pod(nvidia=count, hints={"gpu": {"requiredTopologyScope": scope}})

    assert ask.gpus(objects, scoped("PCIe", 2)) == [6, 7]
    assert ask.gpus(objects, scoped("NUMANode", 4)) == [0, 1, 2, 3]
    insufficient = U, ("Insufficient Topology Scoped GPU Devices",)
    assert ask.said(objects, scoped("PCIe", 3)) == ask.said(objects, scoped("Device", 1)) == insufficient


@pytest.mark.parametrize(("strategy", "minors"), [(LEAST, [4]), (MOST, [5])])
def test_deviceshare_case_11_which_gpu_of_a_pcie(ask, strategy, minors):
    objects = [*g8(), used(5, share=25)]
    assert ask.gpus(objects, pod(gpu=50), args={"scoringStrategy": strategy}) == minors


@pytest.mark.parametrize(("count", "minors"), [(1, [5]), (2, [6, 7]), (4, [0, 1, 2, 3])])
def test_deviceshare_case_12_an_honoured_table(ask, count, minors):
    objects = [*h8(policy="Honor"), used(4)]
    assert ask.gpus(objects, pod(nvidia=count)) == minors
    assert ask.said(objects, pod(nvidia=3)) == (UAU, ("node(s) Unsupported number of GPU requests",))


def test_deviceshare_case_13_a_preferred_table(ask):
    assert ask.gpus([*h8(policy="Prefer"), used(2, 3)], pod(nvidia=3)) == [4, 5, 6]
    insufficient = U, ("Insufficient Partitioned GPU Devices",)
    assert ask.said([*h8(policy="Honor"), used(0, 5)], pod(nvidia=4)) == insufficient
    assert ask.gpus([*h8(policy="Prefer"), used(0, 5)], pod(nvidia=4)) == [1, 2, 3, 4]


def test_deviceshare_case_14_no_table(ask):
    objects = h8(model="A100")
    assert ask.said(objects, pod(nvidia=2, partition={})) == (UAU, ("node(s) missing GPU Partition Table",))
    assert ask.said(objects, pod(shared=2, core=100, ratio=100, partition={})) == PASSES


def test_deviceshare_case_15_bandwidth(ask):
    insufficient = U, ("Insufficient Partitioned GPU Devices",)
    assert ask.said(h8(), pod(nvidia=2, partition={"ringBusBandwidth": "200Gi"})) == insufficient
    assert ask.gpus(h8(), pod(nvidia=2, partition={})) == [0, 1]


@pytest.mark.parametrize(
    ("count", "gpus", "nics"),
    [(1, [0], [1]), (3, [0, 1, 2], [1, 2]), (5, [0, 1, 2, 3, 4], [1, 2, 3]), (8, list(range(8)), [1, 2, 3, 4])],
)
def test_deviceshare_case_16_joint_with_virtual_functions(ask, count, gpus, nics):
    placed = ask.place(g8(), pod(nvidia=count, rdma=1, joint=JOINT, hints=ANY_FUNCTION))
    assert placed.minors == {"gpu": gpus, "rdma": nics}
    functions = [entry["extension"]["vfs"] for entry in placed.devices["rdma"]]
    assert functions == [[{"minor": -1, "busID": f"{G8_BUSES[n - 1]}.2"}] for n in nics]


def test_deviceshare_case_17_joint_by_partition(ask):
    placed = ask.place([*h8(), used(4)], pod(nvidia=2, rdma=1, joint=JOINT))
    assert placed.minors == {"gpu": [6, 7], "rdma": [7, 8]}
    assert [entry["resources"] for entry in placed.devices["rdma"]] == [{RDMA: 1}] * 2


def test_deviceshare_case_18_joint_beside_a_full_nic(ask):
    objects = [*g8(), used(0), used_nic(1)]
    assert ask.both(objects, pod(nvidia=1, rdma=1, joint=JOINT)) == ([1], [2])
    violation = U, ("node(s) Device Joint-Allocate rules violation",)
    assert ask.said(objects, pod(nvidia=1, rdma=1, joint=SAME_PCIE)) == violation
    assert ask.both(objects, pod(nvidia=2, rdma=1, joint=SAME_PCIE)) == ([2, 3], [2])


def test_deviceshare_case_19_joint_with_one_nic(ask):
    objects = g8(nics=[1])
    assert ask.both(objects, pod(nvidia=4, rdma=1, joint=JOINT)) == ([0, 1, 2, 3], [1])
    assert ask.said(objects, pod(nvidia=4, rdma=1, joint=SAME_PCIE)) == (U, ("Insufficient rdma devices",))


@pytest.mark.parametrize(
    ("parts", "order"), [({}, [1, 5, 2, 6, 0, 3, 4, 7]), ({5: 10, 6: 50}, [6, 1, 5, 2, 0, 3, 4, 7])]
)
def test_deviceshare_case_20_preferred_pcies_take_turns(ask, parts, order):
    pcies = {1: "0", 2: "0", 5: "1", 6: "1"}
    cards = [nic(n, (pcies.get(n, "9"), 0)) for n in range(8)]
    objects = [node(), device(gpu(0, place=("0", 0)), gpu(1, place=("1", 0)), *cards)]
    objects += [used_nic(n, amount) for n, amount in parts.items()]
    hints = {"rdma": {"allocateStrategy": "RequestsAsCount"}}
    wanted = pod(nvidia=2, rdma=8, joint=JOINT, hints=hints)
    assert ask.both(objects, wanted, args={"scoringStrategy": MOST}) == ([0, 1], order)


@pytest.mark.parametrize(("strategy", "minors"), [(LEAST, [2]), (MOST, [1])])
def test_deviceshare_case_21_which_nic(ask, strategy, minors):
    objects = [*g8(), used_nic(1, 1)]
    assert ask.place(objects, pod(rdma=1), args={"scoringStrategy": strategy}).minors == {"rdma": minors}


def test_deviceshare_case_22_node_scores(ask):
    one = [node(), device(gpu(0, "16Gi"))]
    two = [node(), device(gpu(0, "16Gi"), gpu(1, "16Gi"))]
    assert ask.raw(one, pod(core=100, ratio=100)) == 50
    assert ask.raw(two, pod(core=50, ratio=50)) == 87
    for kind in ("LeastAllocated", "MostAllocated"):
        assert ask.raw([*one, used(0, share=25, memory="16Gi")], pod(core=50, ratio=50), kind) == 50


def test_deviceshare_case_23_scores_do_not_count_gpus(ask):
    for count in (1, 4):
        assert ask.raw(g8(), pod(nvidia=count)) == 93
        assert ask.raw(g8(), pod(nvidia=count), "MostAllocated") == 6


def test_deviceshare_case_24_scores_of_two_types(ask):
    entries = [gpu(n, "16Gi") for n in range(10)] + [nic(n) for n in range(10)]
    objects = [node(), device(*entries), used(0, share=25, memory="16Gi"), used_nic(0, 50)]
    wanted = pod(ratio=50, rdma=25)
    assert ask.raw(objects, wanted) == 94 + 92
    full = [node("m"), device(gpu(0, "16Gi"), nic(0), name="m"), used(0, node="m", share=50, memory="16Gi")]
    decision = ask.decide([*objects, *full], wanted)
    assert decision.raw == {"n": 186, "m": 25 + 75}
    assert decision.scores == {"n": 100, "m": 100 * 100 // 186}
    none = ask.decide([node("a"), node("b")], wanted)
    assert none.raw == none.scores == {"a": 0, "b": 0}


def test_deviceshare_case_25_hints(ask):
    """As the refusal of a pod whose CPUs need both NUMA nodes shows them."""
    both, memory = "cpu prefer [11] among [11]", "memory prefer [11] among [11]"

    def unaligned(objects, wanted):
        (said,) = ask.decide(objects, wanted).verdicts.values()
        assert (said.plugin, said.code) == (NUMA, U)
        return said.reasons

    idle = g8(numa_policy="Restricted")
    assert unaligned(idle, pod(nvidia=1, rdma=2, cpu=40)) == (
        f"Unaligned NUMA Hint cause {both} & gpu prefer [01 10] among [01 10 11] & {memory}"
        " & rdma prefer [01 10] among [01 10 11]",
    )
    assert unaligned([*idle, used(0)], pod(nvidia=4, cpu=40)) == (
        f"Unaligned NUMA Hint cause {both} & gpu prefer [10] among [10 11] & {memory}",
    )
    assert ask.gpus([*idle, used(0)], pod(nvidia=2)) == [2, 3]
    assert ask.gpus([*idle, used(0)], pod(nvidia=4)) == [4, 5, 6, 7]


def test_deviceshare_case_26_no_hints(ask):
    idle = g8(numa_policy="Restricted")
    for wanted, text in ((pod(nvidia=17), "NUMA Scoped Devices"), (pod(fpga=50), "fpga devices")):
        (said,) = ask.decide(idle, wanted).verdicts.values()
        assert said.reasons == (f"Insufficient {text}",)  # the spec names neither plugin nor code


def test_deviceshare_case_27_a_node_without_a_device_object(ask):
    assert ask.place([node()], pod(nvidia=1)).devices is None
    seen = bound(pod(nvidia=1), "seen", gpu=[(0, {"core": 100, "ratio": 100})])
    assert ask.said([node(), seen], pod(nvidia=1)) == (U, ("Insufficient gpu devices",))
    assert ask.said([node(), seen], pod(rdma=1)) == (UAU, ("Insufficient rdma devices",))


def test_deviceshare_case_28_a_device_object_is_gone_for_a_while(ask):
    objects = m2()
    holder = used(0, memory="8Gi")
    away = [*objects, holder, Gone(objects[-1])]
    assert ask.said(away, pod(gpu=100)) == (U, ("Insufficient gpu devices",))
    assert ask.gpus([*away, objects[-1]], pod(gpu=100)) == [1]


def test_deviceshare_case_29_what_pods_hold_is_read_back(ask):
    holder = used(0, share=50, memory="8Gi")
    objects = [*m2(), used(1, memory="8Gi")]
    assert ask.gpus([*objects, holder], pod(core=50, memory="4Gi")) == [0]
    for wanted in (pod(gpu=51), pod(memory=4 * GIB + 1)):
        assert ask.said([*objects, holder], wanted) == (U, ("Insufficient gpu devices",))
    ended = [*objects, holder, {**holder, "status": {"phase": "Succeeded"}}]
    assert ask.gpus(ended, pod(core=100, memory="8Gi")) == [0]


def test_deviceshare_case_32_preemption(ask):
    objects = [*m2(), used(0, 1, memory="8Gi")]
    assert ask.said(objects, pod(gpu=50)) == (U, ("Insufficient gpu devices",))
    assert ask.victims(objects, pod(gpu=50)) == ["used-n-0-1"]
    assert ask.victims(objects, pod(gpu=50, priority=0)) == []


def test_deviceshare_case_33_what_is_written(ask):
    placed = ask.place(g8(), pod(nvidia=1, rdma=1, joint=JOINT))
    assert placed.devices == {
        "gpu": [{"minor": 0, "resources": {CORE: 100, RATIO: 100, MEMORY: 80 * GIB}, "id": "GPU-0"}],
        "rdma": [{"minor": 1, "resources": {RDMA: 1}, "id": "0000:1f:00.0"}],
    }
    assert (placed.annotations, placed.labels) == ({}, {})


def adapted(ask, vendor, wanted, *gpus, model="M", objects=()):
    labels = {VENDOR: vendor, MODEL: model}
    known = [*objects, node(labels=labels), device(*gpus, labels=labels)]
    return ask.place(known, wanted, gates=["DevicePluginAdaption"]).annotations


def test_deviceshare_case_34_annotations_for_device_plugins(ask):
    stamped = {"scheduling.koordinator.sh/bind-timestamp": TIME, "scheduling.koordinator.sh/gpu-minors": "0"}
    share = pod(core=5, memory="1Gi")
    assert adapted(ask, "cambricon", share, gpu(0, "16Gi")) == {
        **stamped,
        "CAMBRICON_DSMLU_ASSIGHED": "false",
        "CAMBRICON_DSMLU_PROFILE": "0_5_4",
    }
    assert adapted(ask, "metax", share, gpu(0, "16Gi")) == {
        **stamped,
        "metax-tech.com/gpu-devices-allocated": '[[{"uuid":"GPU-0","compute":5,"vRam":1024}]]',
    }
    assert adapted(ask, "huawei", pod(nvidia=2), gpu(0), gpu(1), model="Ascend-310P3-300I-DUO") == {
        **stamped,
        "scheduling.koordinator.sh/gpu-minors": "0,1",
        "predicate-time": TIME,
        "huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1",
    }
    npu = gpu(0, **{NPU_CORE: "8", NPU_CPU: "7", MEMORY: "24Gi", RATIO: "100"})
    wanted = pod(shared=1, npu_core=2, npu_cpu=2, memory="6Gi")
    assert adapted(ask, "huawei", wanted, npu, model="Ascend-310P", objects=[templates()]) == {
        **stamped,
        "predicate-time": TIME,
        "huawei.com/npu-core": "0-vir02",
    }


def templates():
    """Templates of one model."""
    listed = {
        "vir01": {MEMORY: "3Gi", NPU_CORE: "1", NPU_CPU: "1", NPU_DVPP: "12"},
        "vir02": {MEMORY: "6Gi", NPU_CORE: "2", NPU_CPU: "2"},
        "vir04": {MEMORY: "12Gi", NPU_CORE: "4", NPU_CPU: "4", NPU_DVPP: "50"},
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "koordinator-system", "name": "gpu-shared-resource-templates"},
        "data": {"data.yaml": json.dumps({"huawei-Ascend-310P": listed})},
    }


def test_deviceshare_case_35_virtual_npus(ask):
    resources = {NPU_CORE: "8", NPU_CPU: "7", NPU_DVPP: "100", MEMORY: "24Gi", RATIO: "100"}
    npus = device(*(gpu(minor, **resources) for minor in range(8)))
    labelled = node(labels={VENDOR: "huawei", MODEL: "Ascend-310P"})
    vir04 = {"npu_core": 4, "npu_cpu": 4, "npu_dvpp": 50, "memory": 12 * GIB, "ratio": 50}
    holder = bound(pod(shared=1), "holder", gpu=[(0, vir04)])
    wanted = pod(shared=1, memory="3Gi", npu_core=1, npu_cpu=1, npu_dvpp=12)
    packed = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": MEMORY, "weight": 1}]}}
    (entry,) = ask.place([templates(), labelled, npus, holder], wanted, args=packed).devices["gpu"]
    assert entry == {
        "minor": 0,
        "resources": {MEMORY: 3 * GIB, NPU_CORE: 1, NPU_CPU: 1, NPU_DVPP: 12, RATIO: 12},
        "id": "GPU-0",
        "extension": {"gpuSharedResourceTemplate": "vir01"},
    }
    no_template = UAU, ("no matched GPU shared resource template",)
    assert ask.said([templates(), node(), npus, holder], wanted) == no_template
    assert ask.early(pod(shared=1, memory="4Gi", npu_core=1, npu_cpu=1), [templates(), labelled, npus]) == no_template


# Further verdicts of spec 3, and the examples of 3.10.


def test_deviceshare_fractions_in_memory_form_are_truncated(ask):
    objects = [node(), device(gpu(0, "24Gi"))]
    for at, (memory, ratio) in enumerate([(10, 41), (10, 41), (4, 16)]):
        (entry,) = ask.place(objects, pod(memory=f"{memory}Gi")).devices["gpu"]
        assert entry["resources"] == {MEMORY: memory * GIB, RATIO: ratio}
        objects.append(bound(pod(), f"part-{at}", gpu=[(0, {"memory": memory * GIB, "ratio": ratio})]))
    (entry,) = ask.place(objects, pod(ratio=2)).devices["gpu"]
    assert entry["resources"] == {RATIO: 2, MEMORY: 24 * GIB * 2 // 100}
    assert ask.said(objects, pod(ratio=3)) == (U, ("Insufficient gpu devices",))


def test_deviceshare_isolation_provider(ask):
    label = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
    objects = [node(labels=label), device(gpu(0))]
    assert ask.said(objects, pod(ratio=50, labels=label)) == PASSES
    (said,) = ask.decide(m2(), pod(ratio=50, labels=label)).verdicts.values()
    assert said == Said(DEVICES, "Error", ("GPUIsolationProviderHAMICore not found on the node",))
    assert ask.said(m2(), pod(ratio=100, labels=label)) == PASSES


def test_deviceshare_models_that_cannot_be_shared(ask):
    args = {"gpuShareUnsupportedModels": [{"vendor": "huawei", "model": "DUO"}]}
    objects = [node(labels={VENDOR: "huawei", MODEL: "DUO"}), device(gpu(0))]
    text = 'model "DUO" of vendor "huawei" does not support GPU Share'
    assert ask.said(objects, pod(ratio=50), args=args) == (UAU, (text,))
    assert ask.said(objects, pod(ratio=100), args=args) == PASSES


def test_deviceshare_secondary_devices_that_are_well_planned(ask):
    gpus, _, full = [gpu(0, place=("0", 0))], [nic(1, ("0", 0))], used_nic(1)
    labels = {f"{NODE}secondary-device-well-planned": "true"}
    wanted = pod(nvidia=1, rdma=1, joint=JOINT)
    planned = [node(), device(*gpus, nic(1, ("0", 0)), labels=labels)]
    assert ask.both(planned, wanted) == ([0], [1])
    decision = ask.decide([*planned, full], wanted)
    assert decision.verdicts["n"].passed
    assert decision.place("n").said == Said(DEVICES, U, ("Insufficient rdma devices",))
    assert decision.raw == {"n": 50}  # of the GPU alone
    listed = bound(pod(nvidia=1), "designated", gpu=[(0, {"core": 100, "ratio": 100})])["metadata"]["annotations"]
    hint = {"internal.scheduling.koordinator.sh/scheduling-hint": json.dumps({"extensions": {"DeviceShare": {}}})}
    decision = ask.decide([*planned, full], pod(nvidia=1, rdma=1, joint=JOINT, annotations={**listed, **hint}))
    assert decision.verdicts["n"].passed
    assert decision.place("n").said == Said(DEVICES, U, ("Insufficient rdma devices",))


def test_deviceshare_designated_devices(ask):
    hint = {"internal.scheduling.koordinator.sh/scheduling-hint": json.dumps({"extensions": {"DeviceShare": {}}})}
    listed = bound(pod(nvidia=1), "designated", gpu=[(5, {"core": 100, "ratio": 100})])["metadata"]["annotations"]
    assert ask.gpus(g8(), pod(nvidia=1, annotations={**listed, **hint})) == [5]
    assert ask.gpus(g8(), pod(nvidia=1, annotations=listed)) == [0]
    insufficient = U, ("Insufficient GPU Devices",)
    assert ask.said([*g8(), used(5)], pod(nvidia=1, annotations={**listed, **hint})) == insufficient


def test_deviceshare_broken_annotations(ask):
    for key, name in (("device-allocate-hint", "DeviceAllocateHint"), ("device-joint-allocate", "DeviceJointAllocate")):
        code, (text,) = ask.early(pod(nvidia=1, annotations={f"scheduling.koordinator.sh/{key}": "[]"}))
        assert (code, text.partition(", err: ")[0]) == (UAU, f"invalid {name} annotation")
    code, (text,) = ask.early(pod(nvidia=1, annotations={PARTITION: "{"}))
    assert (code, text.partition(", err: ")[0]) == (UAU, "invalid GPUPartitionSpec annotation")
    code, _ = ask.early(pod(annotations={"scheduling.koordinator.sh/device-allocated": "nope"}))
    assert code == UAU


def test_deviceshare_fpgas(ask):
    objects = [node(), device(fpga(0), fpga(1))]
    assert ask.place(objects, pod(fpga=200)).minors == {"fpga": [0, 1]}
    assert ask.said(objects, pod(fpga=300)) == (U, ("Insufficient fpga devices",))
    assert ask.said(objects, pod(rdma=1)) == (UAU, ("Insufficient rdma devices",))


def test_deviceshare_cpu_and_gpus_on_one_numa_node(ask):
    """Spec 3.10: where CPUs fit on NUMA node 1 only, GPUs are taken there."""
    objects = [*g8(numa_policy="Restricted"), used(0)]
    zone = {"node": 0, "resources": {"cpu": "30", "memory": "1Gi"}}
    status = {"scheduling.koordinator.sh/resource-status": json.dumps({"numaNodeResources": [zone]})}
    busy = {**pod("busy", annotations=status, cpu=30), "status": {"phase": "Running"}}
    busy["spec"]["nodeName"] = "n"
    assert ask.gpus(objects, pod(nvidia=2, cpu=8)) == [2, 3]
    assert ask.gpus([*objects, busy], pod(nvidia=2, cpu=8)) == [4, 5]

"""The naive model on the worked picks of nodenumaresource spec 3.5 and the acceptance cases of its section 7."""

import json

import pytest

from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.plugins.nodenumaresource.naive import ERROR, HINT, SKIP, SUCCESS, UAU, Attempt, Naive, U, digits
from tests.plugins.nodenumaresource.naivemachine import NODE, SCHEDULING, Machine, format_cpus, parse_cpus
from tests.plugins.nodenumaresource.naivepick import Pick, take_preferring

GIB = 1 << 30
T1, T2, T3 = detail(2, 1, 4), detail(2, 1, 4, apart=True), detail(2, 2, 4)
T26 = detail(2, 1, 26)
Z2 = [("52", "128Gi"), ("52", "128Gi")]
MOST = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]}
NOT_ENOUGH = "not enough cpus available to satisfy request"


def picked(cpus, taken, n, bind, strategy, level="", pod_level="", max_references=1):
    machine = Machine(node(), topology(cpus))
    machine.max_references = max_references
    used = dict.fromkeys(parse_cpus(taken), (1, level))
    return Pick(machine, set(machine.cpus) - set(used), used, n, bind, pod_level, strategy).run()


@pytest.mark.parametrize(
    ("cpus", "taken", "n", "bind", "strategies", "expected"),
    [
        (T1, "", 4, "FullPCPUs", "LM", [0, 1, 2, 3]),
        (T1, "", 4, "SpreadByPCPUs", "LM", [0, 2, 4, 6]),
        (T1, "", 10, "FullPCPUs", "LM", [*range(10)]),
        (T1, "", 10, "SpreadByPCPUs", "LM", [0, 2, 4, 6, 8, 10, 12, 14, 1, 3]),
        (T1, "0", 4, "FullPCPUs", "L", [8, 9, 10, 11]),
        (T1, "0", 4, "FullPCPUs", "M", [2, 3, 4, 5]),
        (T1, "0", 4, "SpreadByPCPUs", "L", [8, 10, 12, 14]),
        (T1, "0", 4, "SpreadByPCPUs", "M", [1, 2, 4, 6]),
        (T1, "0,2", 6, "SpreadByPCPUs", "L", [8, 10, 12, 14, 9, 11]),
        (T1, "0,2", 6, "SpreadByPCPUs", "M", [1, 3, 4, 6, 5, 7]),
        (T1, "0,2", 6, "FullPCPUs", "M", [8, 9, 10, 11, 12, 13]),
        (T1, "0-3", 10, "FullPCPUs", "L", [8, 9, 10, 11, 12, 13, 14, 15, 4, 5]),
        (T1, "0,2,4,6,8,10,12,14", 4, "FullPCPUs", "LM", [1, 3, 5, 7]),
        (T1, "0,2,4,6,8,10,12", 4, "FullPCPUs", "M", [14, 15, 9, 11]),
        (T2, "", 4, "FullPCPUs", "L", [0, 8, 1, 9]),
        (T2, "", 4, "SpreadByPCPUs", "L", [0, 1, 2, 3]),
        (T2, "0-1", 6, "SpreadByPCPUs", "M", [2, 3, 8, 9, 10, 11]),
        (T2, "0-1", 6, "SpreadByPCPUs", "L", [4, 5, 6, 7, 12, 13]),
        (T3, "0-5,16-23", 6, "FullPCPUs", "M", [24, 25, 26, 27, 28, 29]),
        (T3, "0-5,16-23", 6, "FullPCPUs", "L", [8, 9, 10, 11, 12, 13]),
        (T3, "0-5,16-23", 12, "FullPCPUs", "LM", [*range(6, 16), 24, 25]),
        (T3, "0-1,8-9,16-17,24-25", 16, "FullPCPUs", "L", [*range(2, 8), *range(10, 16), *range(18, 22)]),
        (T3, "0-1,8-9,16-17,24-25", 16, "SpreadByPCPUs", "L",
         [2, 4, 6, 10, 12, 14, 18, 20, 22, 26, 28, 30, 3, 5, 7, 11]),
    ],
)  # fmt: skip
def test_worked_picks(cpus, taken, n, bind, strategies, expected):
    names = {"L": "LeastAllocated", "M": "MostAllocated"}
    for strategy in strategies:
        assert picked(cpus, taken, n, bind, names[strategy]) == expected


@pytest.mark.parametrize(
    ("taken", "level", "pod_level", "bind", "strategy", "expected"),
    [
        ("0,2", "PCPULevel", "PCPULevel", "SpreadByPCPUs", "MostAllocated", [8, 10, 12, 14]),
        ("0,2,8,10", "PCPULevel", "PCPULevel", "SpreadByPCPUs", "LeastAllocated", [1, 3, 4, 6]),
        ("0,2", "NUMANodeLevel", "NUMANodeLevel", "FullPCPUs", "MostAllocated", [8, 9, 10, 11]),
        ("0,2", "PCPULevel", "None", "SpreadByPCPUs", "MostAllocated", [1, 3, 4, 6]),
    ],
)
def test_picks_of_exclusive_pods(taken, level, pod_level, bind, strategy, expected):
    assert picked(T1, taken, 4, bind, strategy, level, pod_level) == expected


def test_cpus_may_be_given_twice():
    machine = Machine(node(), topology(detail(1, 1, 4)))
    machine.max_references = 2
    used, found = {}, []
    for n in (4, 5, 4):
        free = {cpu for cpu in machine.cpus if used.get(cpu, (0, ""))[0] < 2}
        cpus = Pick(machine, free, used, n, "FullPCPUs", "", "MostAllocated").run()
        found.append(cpus)
        for cpu in cpus:
            used[cpu] = (used.get(cpu, (0, ""))[0] + 1, "")
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7, 0], [2, 3, 4, 5]]


def test_preferred_cpus_come_first():
    machine = Machine(node(), topology(T1))
    every = set(machine.cpus)
    found = take_preferring(machine, every, {5, 7, 9, 11}, {}, 6, "FullPCPUs", "", "LeastAllocated")
    assert format_cpus(found) == "0-1,5,7,9,11"
    found = take_preferring(machine, every, set(range(4, 11)), {}, 8, "FullPCPUs", "", "LeastAllocated")
    assert format_cpus(found) == "4-10,12"


# Section 7


def asked(pending, args=None):
    verdict, found = Naive(args).pre_filter(pending)
    assert found is not None, verdict
    return found


def outcome(pending, machine, args=None):
    """(code, reasons) of the filter or, where that passes, of reserving, and the Allocation."""
    model = Naive(args)
    verdict, found = model.pre_filter(pending)
    if found is None:
        return (verdict.code, *verdict.reasons), None
    verdict = model.filter(found, machine)
    allocation = None
    if verdict.passed:
        verdict, allocation = model.reserve(found, machine)
    return (verdict.code, *verdict.reasons), allocation


def refusal(pending, machine, args=None):
    result, allocation = outcome(pending, machine, args)
    assert allocation is None
    return result


def placed(pending, machine, args=None):
    result, allocation = outcome(pending, machine, args)
    assert result == (SUCCESS,)
    return allocation


def lsr(cpu="4", **more):
    return pod(cpu=cpu, **{"qos": "LSR", "memory": None, **more})


def test_1_what_pods_ask_for():
    found = asked(lsr(spec={"preferredCPUBindPolicy": "FullPCPUs"}))
    assert (found.bind, found.cpu, found.preferred, found.required) == (True, 4000, "FullPCPUs", "")
    assert asked(lsr()).preferred == "FullPCPUs"
    found = asked(lsr(spec={"requiredCPUBindPolicy": "Default"}), {"defaultCPUBindPolicy": "SpreadByPCPUs"})
    assert (found.required, found.preferred) == ("SpreadByPCPUs", "SpreadByPCPUs")


def test_2_who_is_bound():
    machine = Machine(node(), topology(T1))
    assert refusal(lsr("4500m"), machine) == (UAU, "the requested CPUs must be integer")
    assert not asked(lsr("4500m", spec={"preferredCPUBindPolicy": "test"})).bind
    assert not asked(lsr(priority=7500)).bind
    assert not asked(lsr(qos=None)).bind
    assert Naive().pre_filter(lsr(None))[0].code == SKIP
    assert (
        Naive().pre_filter({**lsr(), "metadata": {"annotations": {f"{SCHEDULING}resource-spec": "{"}}})[0].code == ERROR
    )


def test_3_a_node_for_whole_cores():
    machine = Machine(node(cpu_bind_policy="FullPCPUsOnly"), topology(T1))
    assert refusal(pod(cpu="5"), machine) == (UAU, "node(s) requested cpus not multiple cpus per core")
    assert refusal(pod(cpu="5200m"), machine) == (UAU, "the requested CPUs must be integer")
    conflict = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
    assert refusal(lsr(spec={"requiredCPUBindPolicy": "SpreadByPCPUs"}), machine) == (UAU, conflict)
    assert placed(lsr(spec={"preferredCPUBindPolicy": "SpreadByPCPUs"}), machine).cpus == {0, 1, 2, 3}
    batch = pod(cpu=None, memory=None, qos="BE", priority=5500, **{"kubernetes.io/batch-cpu": "4000"})
    assert placed(batch, machine) is None


def test_4_the_kubelets_policy_wins():
    kubelet = {"policy": "static", "options": {"full-pcpus-only": "true"}}
    annotations = {"kubelet.koordinator.sh/cpu-manager-policy": kubelet}
    machine = Machine(node(cpu_bind_policy="SpreadByPCPUs"), topology(T1, annotations=annotations))
    assert machine.bind_policy == "FullPCPUs"


def test_5_reserving():
    machine = Machine(node(), topology(T1))
    allocation = placed(lsr(), machine)
    assert Naive().written(asked(lsr()), machine, allocation) == {
        f"{SCHEDULING}resource-status": '{"cpuset":"0-3"}',
        f"{SCHEDULING}resource-spec": '{"preferredCPUBindPolicy":"FullPCPUs"}',
    }
    assert refusal(lsr("24"), machine) == (U, NOT_ENOUGH)


def test_6_strategies():
    held = [holder("h", "0-3", cpu="4")]
    for strategy, expected in (("LeastAllocated", "16-19"), ("MostAllocated", "4-7")):
        machine = Machine(node(numa_allocate_strategy=strategy), topology(detail(2, 1, 8)), held)
        assert format_cpus(placed(lsr(), machine).cpus) == expected


def test_8_reserved_cpus():
    allocs = [{"namespace": "default", "name": "g", "uid": "g", "cpuset": "0-3", "managedByKubelet": True}]
    annotations = {
        "kubelet.koordinator.sh/cpu-manager-policy": {"policy": "static", "reservedCPUs": "0-1"},
        f"{NODE}system-qos-resource": {"cpuset": "4-5"},
        f"{NODE}reservation": {"reservedCPUs": "6-7"},
        f"{NODE}pod-cpu-allocs": allocs,
    }
    zones = [("8", "64Gi"), ("8", "64Gi")]
    machine = Machine(node(), topology(T1, zones, annotations=annotations))
    assert format_cpus(machine.reserved) == "0-7"
    assert [zone["cpu"] for zone in machine.zones.values()] == [0, 8000]
    del annotations[f"{NODE}pod-cpu-allocs"]
    assert format_cpus(Machine(node(), topology(T1, zones, annotations=annotations)).reserved) == "0-1,4-7"


def two_zones(policy="SingleNUMANode", held=(), cpus=T26):
    return Machine(node(cpu="104", numa_topology_policy=policy), topology(cpus, Z2), held)


USED = [
    holder("h0", None, {0: ("4", "8Gi")}, "4", "8Gi", qos="LS"),
    holder("h1", None, {1: ("40", "8Gi")}, "40", "8Gi", qos="LS"),
]


@pytest.mark.parametrize(("kind", "numa"), [("LeastAllocated", 0), ("MostAllocated", 1)])
def test_9_single_numa_node(kind, numa):
    args = {"numaScoringStrategy": {**MOST, "type": kind}}
    assert placed(pod(), two_zones(held=USED), args).numa == {numa: {"cpu": 4000, "memory": 40 * GIB}}


def test_9_hint_scores(monkeypatch):
    rated = []
    original = Naive.rated

    def remembering(self, *given):
        rated.append(original(self, *given))
        return rated[-1]

    monkeypatch.setattr(Naive, "rated", remembering)
    for kind, expected in (("LeastAllocated", [73, 38, 65]), ("MostAllocated", [26, 60, 33])):
        rated.clear()
        args = {"numaScoringStrategy": {**MOST, "type": kind}}
        assert Naive(args).filter(asked(pod(), args), two_zones("Restricted", USED)).passed
        assert rated == expected


def test_10_more_than_one_numa_node():
    pending = pod(cpu="60")
    unaligned = "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"
    assert refusal(pending, two_zones()) == (U, unaligned)
    half = {"cpu": 30000, "memory": 20 * GIB}
    assert placed(pending, two_zones("Restricted")).numa == {0: half, 1: half}
    full = [holder("h", None, {0: ("50", "0"), 1: ("50", "0")}, "100", qos="LS")]
    small = pod(cpu="5", memory="1Gi")
    assert refusal(small, two_zones("Restricted", full)) == (U, "Unsatisfied NUMA cpu", "Unsatisfied NUMA memory")
    assert refusal(small, two_zones("BestEffort", full)) == (U, "Insufficient NUMA cpu")
    assert Naive().filter(asked(small), two_zones("BestEffort", full)).passed


def test_11_policies_of_node_and_pod():
    pending = pod(numa={"numaTopologyPolicy": "Restricted"})
    assert refusal(pending, two_zones("BestEffort")) == (UAU, "node(s) NUMA Topology policy not match")
    assert placed(pending, two_zones("")).numa == {0: {"cpu": 4000, "memory": 40 * GIB}}


@pytest.mark.parametrize(
    ("pending", "left", "shares"),
    [
        (lsr("7"), ("8", "8"), {0: 3000, 1: 4000}),
        (pod(cpu="3500m", memory=None), ("3", "3"), {0: 1750, 1: 1750}),
        (lsr("6", spec={"requiredCPUBindPolicy": "FullPCPUs"}), ("5", "5"), {0: 2000, 1: 4000}),
        (lsr("8"), ("1", "10"), {0: 1000, 1: 7000}),
        (lsr("8"), ("10", "1"), {0: 7000, 1: 1000}),
    ],
)
def test_12_splits(pending, left, shares):
    cpus = detail(2, 1, 8)
    machine = Machine(node(), topology(cpus, [(cpu, "64Gi") for cpu in left]))
    found = Attempt(Naive(), asked(pending), machine).split(
        {0, 1}, {at: {"cpu": int(left[at]) * 1000} for at in (0, 1)}
    )
    assert {numa: zone["cpu"] for numa, zone in found.items()} == shares


def test_13_whole_cores_on_both_sides():
    held = holder("h", "0-43,53-96", {0: ("48", "0"), 1: ("48", "0")}, "88")
    machine = two_zones("Restricted", [held], detail(2, 1, 26))
    pending = lsr("8", spec={"requiredCPUBindPolicy": "FullPCPUs"})
    allocation = placed(pending, machine)
    assert format_cpus(allocation.cpus) == "44-47,98-101"
    assert {numa: zone["cpu"] for numa, zone in allocation.numa.items()} == {0: 4000, 1: 4000}


def test_14_one_cpu_of_each_core():
    free = {0, 2, 4, 6, 102}
    held = holder("h", format_cpus(set(range(104)) - free), {0: ("48", "0"), 1: ("51", "0")}, "99")
    pending = lsr("4", spec={"requiredCPUBindPolicy": "SpreadByPCPUs"})
    allocation = Attempt(Naive(), asked(pending), two_zones("Restricted", [held])).allocate({0, 1})
    assert allocation.cpus == {0, 2, 4, 102}
    assert {numa: zone["cpu"] for numa, zone in allocation.numa.items()} == {0: 3000, 1: 1000}


def test_15_amplified_zones():
    zones = [("16", "64Gi")]
    held = [holder("h0", "0-3", {0: ("4", "0")}, "4"), holder("h1", None, {0: ("4", "0")}, "4", qos="LS")]
    machine = Machine(node(ratio=1.5), topology(detail(1, 1, 8), zones), held)
    assert machine.zones[0]["cpu"] == 24000
    assert machine.allocated({})[0]["cpu"] == 10000
    assert machine.available({})[0]["cpu"] == 14000


def test_15_amplified_check():
    held = [holder("h0", "0-7", cpu="8"), holder("h1", cpu="20", qos="LS")]
    machine = Machine(node(cpu="96", ratio=1.5), topology(detail(2, 1, 16)), held)
    assert Naive().filter(asked(lsr("40")), machine).passed
    assert refusal(lsr("43"), machine) == (U, "Insufficient amplified cpu")


@pytest.mark.parametrize(
    ("present", "pending", "passes"),
    [
        (holder("h", "0-31", cpu="32"), pod(cpu="32"), False),
        (holder("h", cpu="32", qos="LS"), pod(cpu="32"), True),
        (holder("h", cpu="32", qos="LS"), lsr("32"), False),
    ],
)
def test_16_amplified_check(present, pending, passes):
    machine = Machine(node(cpu="64", ratio=2), topology(detail(1, 1, 16)), [present])
    assert Naive().filter(asked(pending), machine).passed is passes


def test_17_scores():
    args = {"scoringStrategy": MOST, "numaScoringStrategy": MOST}
    one = Machine(
        node("64", "128Gi", numa_topology_policy="SingleNUMANode"), topology(detail(1, 1, 32), [("64", "128Gi")])
    )
    single = pod(cpu="21")
    assert Naive(args).score(asked(single, args), two_zones()) == 35
    assert Naive(args).score(asked(single, args), one) == 31
    assert placed(single, one, args).numa == {}
    one = Machine(node("64", "128Gi", numa_topology_policy="Restricted"), one.topology)
    both = pod(cpu="50")
    assert Naive(args).score(asked(both, args), two_zones("Restricted")) == 63
    assert Naive(args).score(asked(both, args), one) == 54


def with_status(*cpusets, policy="SingleNUMANode"):
    return two_zones(policy, [*USED, *(holder(f"s{at}", cpus) for at, cpus in enumerate(cpusets))])


def test_18_exclusive():
    numa = {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"}
    shared = Machine(node("104"), topology(detail(4, 1, 13), [("26", "64Gi")] * 4),
                     [holder("s", "0,26", cpu="2"), holder("t", "52", cpu="1")])  # fmt: skip
    assert [shared.status(at) for at in range(4)] == ["shared", "shared", "single", "idle"]
    both = with_status("0,52")
    assert [both.status(at) for at in (0, 1)] == ["shared", "shared"]
    text = "cpu prefer [01 10] among [01 10 11],memory prefer [01 10] among [01 10 11]"
    assert refusal(pod(numa=numa), both) == (U, f"Unaligned NUMA Hint cause {text}")
    four = Machine(node("104"), shared.topology, shared.pods)
    assert list(placed(pod(cpu="4", numa=numa), four).numa) == [2]


def test_21_read_back():
    held = holder("h", "0-3", cpu="4", level="PCPULevel")
    assert Machine(node(), topology(T1), [held]).cpus_in_use() == dict.fromkeys(range(4), (1, "PCPULevel"))
    failed = {**held, "status": {"phase": "Failed"}}
    assert Machine(node(), topology(T1), [failed]).cpus_in_use() == {}


def test_a_pod_without_cpu_on_a_node_for_whole_cores_that_reports_no_cpus():
    machine = Machine(node(numa_topology_policy="Restricted", cpu_bind_policy="FullPCPUsOnly"), topology(None, Z2))
    assert refusal(pod(cpu=None), machine) == (U, "node(s) Insufficient NUMA Node resources")
    assert refusal(pod(), machine) == (UAU, "node(s) invalid CPU Topology")


def test_what_pods_hold_is_forgotten_without_cpus(monkeypatch):
    objects = node("104", numa_topology_policy="SingleNUMANode"), topology(None, Z2), USED
    assert Machine(*objects).allocated({}) == {}
    monkeypatch.setattr(Machine, "counts_without_cpus", True)
    assert Machine(*objects).allocated({})[0] == {"cpu": 4000, "memory": 8 * GIB}


@pytest.mark.parametrize("text", ["{", "[]", '{"cpu": "2"}'])
def test_ratios_that_cannot_be_read(text):
    amplified = node()
    amplified["metadata"]["annotations"] = {f"{NODE}resource-amplification-ratio": text}
    machine = Machine(amplified, topology(T1))
    assert refusal(pod(), machine) == (UAU, "node(s) invalid CPU amplification ratio")
    assert Naive().filter(asked(pod(cpu=None)), machine).passed
    assert Naive().score(asked(pod(cpu=None)), machine) == 0


@pytest.mark.parametrize("text", ["{", "[]", '"text"', '{"requiredCPUBindPolicy": 5}'])
def test_specs_that_cannot_be_read(text):
    pending = lsr()
    pending["metadata"]["annotations"][f"{SCHEDULING}resource-spec"] = text
    assert Naive().pre_filter(pending)[0].code == ERROR


@pytest.mark.parametrize(
    ("reported", "policy"), [("RestrictedPodLevel", ""), ("SingleNUMANodePodLevel", "SingleNUMANode")]
)
def test_22_the_kubelets_topology_policy(reported, policy):
    assert Machine(node(), topology(T1, policies=[reported])).numa_policy == policy


def test_23_the_spec_is_completed():
    def completed(pending, machine):
        written = Naive().written(asked(pending), machine, placed(pending, machine))
        return json.loads(written.get(f"{SCHEDULING}resource-spec", "null"))

    plain, full = Machine(node(), topology(T1)), Machine(node(cpu_bind_policy="FullPCPUsOnly"), topology(T1))
    both = {"requiredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUBindPolicy": "SpreadByPCPUs"}
    assert completed(lsr(spec={**both, "preferredCPUBindPolicy": "Default"}), plain) == both
    assert completed(pod(), full) == {"requiredCPUBindPolicy": "FullPCPUs"}
    assert completed(lsr(spec={"preferredCPUBindPolicy": "SpreadByPCPUs"}), plain) is None


def test_24_designated():
    def designated(cpuset, numa=None):
        pending = lsr(status={"cpuset": cpuset, **({"numaNodeResources": numa} if numa else {})})
        pending["metadata"]["annotations"][HINT] = json.dumps({"extensions": {"NodeNUMAResource": {}}})
        return pending

    machine = Machine(node(), topology(T1, [("8", "64Gi"), ("8", "64Gi")]))
    assert refusal(designated("20-23"), machine) == (U, NOT_ENOUGH)
    allocation = placed(designated("0-3", [{"node": 0, "resources": {"cpu": "4"}}]), machine)
    assert (allocation.cpus, allocation.numa) == ({0, 1, 2, 3}, {0: {"cpu": 4000}})


@pytest.mark.parametrize(
    ("value", "text"), [(1, "01"), (2, "10"), (3, "11"), (4, "100"), (5, "0101"), (8, "1000"), (16, "10000")]
)
def test_masks_as_texts(value, text):
    assert digits({at for at in range(8) if value >> at & 1}) == text

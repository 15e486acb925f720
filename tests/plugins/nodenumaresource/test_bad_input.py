"""Reports, labels and annotations as they should not be: harm to their own node or pod, a word where users look."""

import asyncio
import json
import logging
import warnings
from functools import cache
from random import Random

import orjson
import pytest

from koordsched.plugins.nodenumaresource.kinds import NUMA_TOPOLOGY_SPEC, OF_TOPOLOGIES, RESOURCE_SPEC, RESOURCE_STATUS
from koordsched.scheduling.offline import BadObject
from tests.depth import quick_first
from tests.plugins.nodenumaresource.cpusets import ids
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.plugins.nodenumaresource.naivemachine import NODE
from tests.plugins.nodenumaresource.randomstates import HINT
from tests.plugins.nodenumaresource.running import (
    cluster,
    condition_of,
    cpus_of,
    events_about,
    put,
    remove,
    replace,
)
from tests.plugins.nodenumaresource.world import World, lsr, named, on
from tests.virtualtime import run

T1 = detail(2, 1, 4)
ZONES = [("8", "64Gi"), ("8", "64Gi")]
KUBELET = "kubelet.koordinator.sh/cpu-manager-policy"
NUMBERS = [-1, 0, 1, 2**31, 2**63, 2**70, 10**400, -(2**63), 1.5, 1e300, "1", "", "x", None, True, [], {}, [[]]]
QUANTITIES = [
    *("-5", "1e30", "-1e30", "10Ei", "1e999999999", "9" * 300, "many", "", " 1", "1e-30", "٣", "NaN", "Inf"),
    *(1.5, -3, 1e300, 2**70, 0),
]
CPUSETS = [
    *("0-", "-1", "3-1", "0-99999999999", "4096", "0,,1", "a", "0-3 ", "٣", "0-4095", "\0", "0" * 1_000_000, "1e3"),
    ",".join(["0"] * 500_000),
    ",".join(str(2 * cpu) for cpu in range(2048)),
]
TEXTS = [
    *("", "{", "[]", "{}", "7", '"x"', "null", "true", "[" * 100_000, '{"a":' * 50_000, "\0", "é\ud7ff", "NaN", "-0"),
    '{"detail": null}',
    '{"detail": {}}',
    '{"detail": [null]}',
    '{"detail": [[]]}',
    '{"detail": [{}]}',
    '{"detail": [{}, {}]}',
    '{"policy": 5}',
    '{"policy": "static", "options": []}',
    '{"policy": "static", "options": {"full-pcpus-only": true}}',
    '{"reservedCPUs": 5}',
    '{"cpuset": ["0"]}',
    '{"cpuset": "0-3", "cpusetExclusive": "no"}',
    '[{"uid": 5, "cpuset": "0-1", "managedByKubelet": true}]',
    '[{"uid": "u", "cpuset": 7, "managedByKubelet": true}]',
    '[{"uid": "u", "cpuset": "9-1", "managedByKubelet": true}]',
    '{"cpu": -1}',
    '{"cpu": 1e308}',
    '{"cpu": 1e400}',
    '{"cpu": NaN}',
    '{"cpu": Infinity}',
    '{"cpu": "1.5"}',
    '{"cpu": null}',
    '{"cpu": 1000}',
    '{"cpu": 0, "memory": 999.999}',
    '{"": 2, "é": 3}',
]


def report(**changes):
    """A good report but for some annotations, by their keys."""
    made = topology(T1, ZONES)
    made["metadata"]["annotations"].update(changes.get("annotations", {}))
    return {**made, **{key: value for key, value in changes.items() if key != "annotations"}}


def cpus(entries):
    """A report with these CPUs."""
    return report(annotations={f"{NODE}cpu-topology": json.dumps({"detail": entries})})


def zone(name="node-0", kind="Node", resources=({"name": "cpu", "allocatable": "8"},)):
    return {"name": name, "type": kind, "resources": list(resources)}


def hostile_reports():
    """(id, report)."""
    for key in OF_TOPOLOGIES:
        for at, text in enumerate(TEXTS):
            yield f"{key.rpartition('/')[2]}-{at}", report(annotations={key: text})
    for at, text in enumerate(CPUSETS):
        for key, value in (
            (KUBELET, {"policy": "static", "reservedCPUs": text}),
            (f"{NODE}reservation", {"reservedCPUs": text}),
            (f"{NODE}system-qos-resource", {"cpuset": text}),
            (f"{NODE}pod-cpu-allocs", [{"uid": "u", "cpuset": text, "managedByKubelet": True}]),
        ):
            yield f"cpuset-{key.rpartition('/')[2]}-{at}", report(annotations={key: json.dumps(value)})
    for key in ("id", "core", "socket", "node"):
        for at, number in enumerate(NUMBERS):
            yield f"{key}-{at}", cpus([{**T1[0], key: number}, *T1[1:]])
        yield f"{key}-same", cpus([{**cpu, key: 0} for cpu in T1])
        yield f"{key}-gaps", cpus([{**cpu, key: cpu[key] * 97} for cpu in T1])
        yield f"{key}-missing", cpus([{name: n for name, n in cpu.items() if name != key} for cpu in T1])
    yield "cpus-twice", cpus([*T1, *T1])
    yield "cpus-4096", cpus(detail(2, 4, 256))
    yield "cpus-4098", cpus(detail(1, 1, 2049))
    yield "cpus-one", cpus(T1[:1])
    yield "cpus-odd", cpus(T1[:3])
    yield "cpus-alone", cpus([{"id": cpu, "core": cpu, "socket": cpu, "node": cpu} for cpu in range(64)])
    yield "core-on-two-nodes", cpus([{**cpu, "node": cpu["id"] % 2} for cpu in T1])
    for at, amount in enumerate([*QUANTITIES, True, {}, [], None]):
        for name in ("cpu", "memory", "hugepages-2Mi", "é\0"):
            resources = [{"name": "cpu", "allocatable": "8"}, {"name": name, "allocatable": amount}]
            yield f"zone-{name[:3]}-{at}", report(zones=[zone("node-0", resources=resources), zone("node-1")])
    for at, name in enumerate(["node-9", "node--1", "node-1000000000", "node-٣", "node-", "", "x" * 10**6, 5, None]):
        yield f"zone-name-{at}", report(zones=[zone("node-0"), zone(name)])
    for at, value in enumerate([None, [], {}, "x", 7, [None], [[]], [{}], [{"resources": None}], [{"resources": {}}]]):
        yield f"zones-{at}", report(zones=value)
        yield f"policies-{at}", report(topologyPolicies=value)
        yield f"resources-{at}", report(zones=[{"name": "node-0", "type": "Node", "resources": value}])
    yield "zones-twice", report(zones=[zone("node-0"), zone("node-0"), zone("node-1")])
    yield "zones-10000", report(zones=[zone(f"node-{at}") for at in range(10_000)])
    yield "zones-9", report(zones=[zone(f"node-{at}") for at in range(9)])
    yield "zones-gap", report(zones=[zone("node-0"), zone("node-2")])
    many = [{"name": f"example.com/r{at}", "allocatable": "1"} for at in range(10_000)]
    yield "resources-10000", report(zones=[zone("node-0", resources=many), zone("node-1")])
    same = [{"name": "cpu", "allocatable": "10Ei"}] * 5000
    yield "resources-same", report(zones=[zone("node-0", resources=same), zone("node-1")])
    huge = [{"name": name, "allocatable": "10Ei"} for name in ("cpu", "memory")]
    ratios = {f"{NODE}resource-amplification-ratio": '{"cpu": 1000, "memory": 1000}'}
    yield "zones-huge", report(zones=[zone(f"node-{at}", resources=huge) for at in range(8)], annotations=ratios)
    yield "policies-unknown", report(topologyPolicies=["x" * 10**6, "Restricted"])


REPORTS = list(hostile_reports())


def random_json(rng, depth=0):
    """Any JSON value."""
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind >= 7:
        keys = ["detail", "cpuset", "policy", "options", "reservedCPUs", "id", "core", "socket", "node", "cpu", "uid"]
        return {rng.choice([*keys, "é", ""]): random_json(rng, depth + 1) for _ in range(rng.randrange(4))}
    if kind == 6:
        return [random_json(rng, depth + 1) for _ in range(rng.randrange(4))]
    return rng.choice([*NUMBERS[:10], *QUANTITIES, *CPUSETS[:10], "static", "0-3", True, None])


def random_report(rng):
    """A report in which some things are anything."""
    made = report()
    annotations = made["metadata"]["annotations"]
    for key in OF_TOPOLOGIES:
        kind = rng.random()
        if kind < 0.3:
            annotations[key] = json.dumps(random_json(rng))
        elif kind < 0.35:
            text = annotations.get(key, '{"policy": "static", "reservedCPUs": "0-3"}')
            at = rng.randrange(len(text))
            annotations[key] = text[:at] + rng.choice(["", "x", "9", '"', "]", "\0"]) + text[at + rng.randrange(3) :]
    if rng.random() < 0.4:
        entries = [{key: value for key, value in cpu.items() if rng.random() < 0.97} for cpu in T1]
        for _ in range(rng.randrange(3)):
            rng.choice(entries)[rng.choice(["id", "core", "socket", "node"])] = rng.choice(NUMBERS)
        annotations[f"{NODE}cpu-topology"] = json.dumps({"detail": entries})
    if rng.random() < 0.4:
        made["zones"] = [
            zone(
                rng.choice([f"node-{at}", f"node-{at}", f"node-{rng.randrange(12)}", "é"]),
                rng.choice(["Node", "Node", "Socket"]),
                [{"name": rng.choice(["cpu", "memory", "x"]), "allocatable": rng.choice(QUANTITIES)} for _ in range(3)],
            )
            for at in range(rng.randrange(10))
        ]
    if rng.random() < 0.2:
        made[rng.choice(["zones", "topologyPolicies"])] = random_json(rng)
    return made


RANDOM_REPORTS = 320


ASKING = [
    lsr("a"),
    lsr("b", cpu="12"),
    lsr("c", spec={"requiredCPUBindPolicy": "FullPCPUs"}),
    lsr("d", numa={"numaTopologyPolicy": "SingleNUMANode"}),
    lsr("e", cpu="10", numa={"numaTopologyPolicy": "Restricted"}, spec={"requiredCPUBindPolicy": "SpreadByPCPUs"}),
    pod("f", cpu="3", memory="20Gi", numa={"numaTopologyPolicy": "BestEffort"}),
    pod("g", numa={"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"}),
    pod("h", cpu=None, memory="1Gi", **{"hugepages-2Mi": "2Mi"}),
]


def answers(world, asking=ASKING):
    """Node name -> all that may be asked about it."""
    readings = world.readings()
    found = {name: [readings[name]] for name in readings}
    for thing in asking:
        verdicts, scores = world.verdicts(thing), world.scores(thing)
        for name, said in found.items():
            assert 0 <= scores[name] <= 100, (scores, thing)
            placed = world.place(thing, name) if verdicts[name] == ("Success",) else None
            said.append((verdicts[name], scores[name], placed))
    assert world.readings() == readings, "to ask changes nothing"
    return found


GOOD = named(node(), "m2"), named(topology(T1, ZONES), "m2"), on(holder("held2", "0-3", {0: ("4", "1Gi")}, "4"), "m2")


def fresh(*things):
    """Two nodes; m2 is as it should be."""
    return World(node(), *GOOD, holder("held", "0-3", {0: ("4", "1Gi")}, "4"), *things)


@cache
def expected():
    """What is said of the good node, and of the bad one when it is good."""
    return answers(fresh())["m2"], answers(fresh(report()), ASKING[:1])


def taken_in(world, thing):
    """What is said of an object that cannot be read at all, None of one that can."""
    try:
        world.put(thing)
    except BadObject as error:
        return str(error)
    return None


def same_with(thing):
    """A hostile report harms its node alone, and no longer than until the next one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world = fresh()
        complaint = taken_in(world, thing)
        assert complaint is None or complaint.startswith("NodeResourceTopology m1: ")
        found = answers(world)
        assert found["m2"] == expected()[0]
        assert all(said[0][0] != "Error" for said in found["m1"][1:]), "a filter says what is wrong with the node"
        assert {name for name, _ in world.said} <= {"m1"}
        assert len(world.said) <= 1
        assert all(len(text) <= 1024 for _, text in world.said)
        world.put(report())
        assert answers(world, ASKING[:1]) == expected()[1], "what is right again counts again"


SHUFFLED = Random(7).sample(REPORTS, len(REPORTS))


@pytest.mark.parametrize("at", quick_first(range(len(REPORTS)), 33), ids=lambda at: SHUFFLED[at][0])
def test_hostile_reports(at):
    same_with(SHUFFLED[at][1])


@pytest.mark.parametrize("part", quick_first(range(8), 1))
def test_random_reports(part):
    for seed in range(part, RANDOM_REPORTS, 8):
        same_with(random_report(Random(f"report-{seed}")))


# --- what is said about it ------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["node first", "report first"])
def test_a_bad_report_is_told_on_the_node(order):
    things = [node(), cpus([{"id": 9000}])]
    world = World(*(things if order == "node first" else reversed(things)))
    problem = f"annotation {NODE}cpu-topology: CPU topology: id 9000 of a CPU is not within 0..4095"
    assert world.said == [("m1", f"NodeResourceTopology: {problem}")]
    world.put(node(cpu="32"))
    world.put(cpus([{"id": 9000}]))
    assert len(world.said) == 1, "once"
    world.put(cpus([{"id": 9001}]))
    assert len(world.said) == 2


def test_cpus_of_the_kubelet_that_cannot_be_read_are_told():
    """Else pods might get CPUs that the kubelet gave to others, and no user would know why."""
    allocs = [{"uid": str(at), "cpuset": text, "managedByKubelet": True} for at, text in enumerate(["9-1", "0-1"])]
    world = World(node(), report(annotations={f"{NODE}pod-cpu-allocs": json.dumps(allocs)}))
    assert world.free() == "2-15", "the others count"
    problem = f"annotation {NODE}pod-cpu-allocs: cpuset '9-1': the range '9-1' ends before it starts"
    assert world.said == [("m1", f"NodeResourceTopology: {problem}")]


# --- labels and annotations of nodes ------------------------------------------------------------------

RATIO = f"{NODE}resource-amplification-ratio"


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_hostile_ratios_of_a_node(text):
    bad = node()
    bad["metadata"]["annotations"][RATIO] = text
    world = fresh(report())
    world.put(bad)
    found = answers(world)
    assert found["m2"] == expected()[0]
    refused = {said[0] for said in found["m1"][1:-1]}
    if world.said:
        assert refused == {("UnschedulableAndUnresolvable", "node(s) invalid CPU amplification ratio")}
        assert RATIO in world.said[0][1]
    world.put(node())
    assert answers(world, ASKING[:1]) == expected()[1]


@pytest.mark.parametrize(
    "text", ["", "x", "None", "none", "Restricted ", "é\0", "x" * 100_000, "[]", "SingleNUMANodePodLevel"]
)
def test_hostile_labels_of_a_node(text):
    world = fresh(report())
    for label in ("numa_topology_policy", "cpu_bind_policy", "numa_allocate_strategy"):
        world.put(node(**{label: text}))
        found = answers(world)
        assert found["m2"] == expected()[0]
        assert found["m1"][1][0] == ("Success",), "as without the label"
    said = [message for _, message in world.said]
    odd = [label for label in ("numa-topology-policy", "cpu-bind-policy") if text not in ("", "None")]
    assert len(said) == len(odd)
    assert all(label in message and len(message) < 200 for label, message in zip(odd, said, strict=True))
    world.put(node())
    assert answers(world, ASKING[:1]) == expected()[1]


# --- annotations of pods ---------------------------------------------------------------------------------

SPECS = [
    *TEXTS,
    *(json.dumps({key: value}) for key in ("requiredCPUBindPolicy", "preferredCPUBindPolicy") for value in NUMBERS),
    *(json.dumps({"preferredCPUExclusivePolicy": value}) for value in NUMBERS),
    *(json.dumps({key: "x" * 10**6}) for key in ("requiredCPUBindPolicy", "numaTopologyPolicy")),
    *(json.dumps({key: value}) for key in ("numaTopologyPolicy", "singleNUMANodeExclusive") for value in NUMBERS),
]


@pytest.mark.parametrize("key", [RESOURCE_SPEC, NUMA_TOPOLOGY_SPEC])
def test_hostile_specs_of_a_pod(key):
    world = fresh(report())
    before = world.readings()
    for text in SPECS:
        thing = lsr("hostile")
        thing["metadata"]["annotations"] = {key: text}
        said = world.early(thing)
        assert said == ("Success",) or (said[0] == "Error" and said[1].startswith(f"annotation {key}: ")), text[:80]
        assert len(said[-1]) < 1024
        if said == ("Success",):
            world.verdicts(thing)
            world.scores(thing)
            world.outcome(thing)
            world.outcome(thing, "m2")
        bound = on(thing, "m1")
        world.put(bound)
        answers(world, ASKING[:2])
        world.remove(bound)
    assert world.readings() == before


def status(cpuset=None, numa=None, **more):
    """The text of resource-status; `numa`: [(NUMA node, {resource: amount})]."""
    found = {**({} if cpuset is None else {"cpuset": cpuset}), **more}
    if numa is not None:
        found["numaNodeResources"] = [{"node": at, "resources": amounts} for at, amounts in numa]
    return json.dumps(found)


HUGE = {"cpu": "10Ei", "memory": "10Ei"}
STATUSES = [
    *TEXTS,
    *(status(text) for text in CPUSETS),
    *(status("0-3", [(at, {"cpu": "1"})]) for at in [*NUMBERS, 10**9, 8]),
    *(status("0-3", [(0, {"cpu": amount, "memory": amount})]) for amount in [*QUANTITIES, *NUMBERS]),
    *(status(numa=value) for value in ([(0, None)], [(0, []),], [])),
    *(json.dumps({"numaNodeResources": value}) for value in NUMBERS),
    status("4000-4095"),
    status("0-4095", [(at, HUGE) for at in range(8)]),
    status("0-3", [(0, HUGE)] * 5000),
    status("0-3", [(7, {"cpu": "4"})]),
    status("0-3", [(0, {f"example.com/{at}": "1" for at in range(20)})]),
]  # fmt: skip


def bound(name, text):
    """A pod on m1 with that resource-status."""
    thing = on(lsr(name, cpu="1"), "m1")
    thing["metadata"]["annotations"] = {RESOURCE_STATUS: text}
    return thing


def world_with_complaints():
    """A world, and what is said of pods whose annotations cannot be read."""
    complaints = []
    world = fresh(report())
    world.cluster.pod_facts.on_malformed = lambda meta, problem: complaints.append((meta.name, problem))
    return world, complaints


def test_hostile_statuses_of_bound_pods():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world, complaints = world_with_complaints()
        before = world.readings()
        for at, text in enumerate(STATUSES):
            world.put(bound(f"s{at}", text))
            found = answers(world, ASKING[:5])
            assert found["m2"][:6] == expected()[0][:6], text[:80]
            world.put(report())
            world.remove(bound(f"s{at}", text))
            assert world.readings() == before, text[:80]
    assert all(problem.startswith(f"annotation {RESOURCE_STATUS}: ") for _, problem in complaints)
    assert len({name for name, _ in complaints}) > 60


def test_hostile_designations():
    """A pod that names its CPUs itself: it is refused, or it gets what is free and what it asks for."""
    world, _ = world_with_complaints()
    world.put(named(node(cpu="16", numa_topology_policy="SingleNUMANode"), "m3"))
    world.put(named(report(), "m3"))
    before = world.readings()
    texts = [*STATUSES, *(status("0-3", [(at, {"cpu": "4"})]) for at in range(8)), status("0-15"), status("12-15")]
    hint = '{"extensions": {"NodeNUMAResource": {}}}'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in texts:
            thing = lsr("hostile")
            thing["metadata"]["annotations"] = {RESOURCE_STATUS: text, HINT: hint}
            said = world.early(thing)
            assert len(said[-1]) < 1024
            if said != ("Success",):
                assert said[0] == "UnschedulableAndUnresolvable", text[:80]
                assert RESOURCE_STATUS in said[1]
                continue
            world.scores(thing)
            for name in world.verdicts(thing):
                said, written = world.outcome(thing, name)
                cpus = ids(written.get("resource-status", {}).get("cpuset", ""))
                assert said[0] == "Success" or not written
                assert len(cpus) in (0, 4)
                assert not cpus & ids(world.held(name))
    assert world.readings() == before


def test_all_hostile_statuses_at_once():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world, _ = world_with_complaints()
        before = world.readings()
        things = [bound(f"s{at}", text) for at, text in enumerate(STATUSES)]
        for thing in things:
            world.put(thing)
        found = answers(world)
        assert found["m2"] == expected()[0]
        assert world.free() == "", "CPUs 0 to 4095 are held"
        assert world.refusal(lsr()) == ("Unschedulable", "not enough cpus available to satisfy request")
        world.put(node(cpu="128"))
        world.remove(report())
        world.put(report())
        for thing in things:
            world.remove(thing)
        world.put(node())
        assert world.readings() == before


@pytest.mark.parametrize("amounts", [HUGE, {"cpu": str(2**50), "memory": str(2**52)}])
def test_many_absurd_amounts_fill_a_numa_node_and_never_free_it(amounts):
    """A few thousand pods: their sum is beyond what 64 bits hold."""
    world = World(node(numa_topology_policy="SingleNUMANode"), report(), *GOOD)
    things = [bound(f"s{at}", status(numa=[(0, amounts)])) for at in range(2100)]
    for at, thing in enumerate(things):
        world.put(thing)
        if at % 300 == 299:
            assert list(world.numa(pod())) == [1], at
    assert world.zones()[0]["cpu"][2] == "0"
    for thing in things:
        world.remove(thing)
    assert world.zones()[0]["cpu"] == ("8", "0", "8")


def test_pods_that_share_a_cpu():
    """It is free when the last of them has gone, in whatever order they go."""
    rng = Random(3)
    world = World(node(), report())
    held = {f"s{at}": rng.sample(range(16), rng.randint(1, 4)) for at in range(200)}
    for name, some in held.items():
        world.put(bound(name, status(",".join(map(str, some)))))
    for name in rng.sample(list(held), len(held)):
        world.remove(bound(name, "{}"))
        del held[name]
        taken = {cpu for some in held.values() for cpu in some}
        assert world.columns.free(0, world.columns.layout(0)) == sum(1 << cpu for cpu in range(16) if cpu not in taken)


def test_names_that_users_invent_take_no_room_from_what_agents_report():
    """There are only so many kinds of resources of NUMA nodes. The pods are seen first."""
    invented = [bound(f"s{at}", status(numa=[(0, {f"example.com/{at}": "1"})])) for at in range(100)]
    batch = "kubernetes.io/batch-cpu"
    zones = [zone(f"node-{at}", resources=[{"name": batch, "allocatable": "4000"}]) for at in range(2)]
    holding = on(pod("h", cpu=None, memory=None, qos="BE", priority=5500, **{batch: "3000"}), "m1")
    holding["metadata"]["annotations"] = {RESOURCE_STATUS: status(numa=[(0, {batch: "3000"})])}
    world = World(node(numa_topology_policy="SingleNUMANode"), *invented, report(zones=zones), holding)
    wanted = pod("wanted", cpu=None, memory=None, qos="BE", priority=5500, **{batch: "2000"})
    assert world.numa(wanted) == {1: {batch: "2k"}}
    assert "example.com/0" in world.columns.resources


def random_status(rng):
    if rng.random() < 0.4:
        return json.dumps(random_json(rng))
    amounts = {rng.choice(["cpu", "memory", "x"]): rng.choice(QUANTITIES) for _ in range(2)}
    numa = [(rng.choice([0, 1, 2, 7, 8, -1, 10**9]), amounts) for _ in range(rng.randrange(3))]
    return status(rng.choice([*CPUSETS[:11], "0-3", "2", "14-20"]), numa)


def test_random_statuses():
    """Pods come, change and go; at the end nothing of them is left."""
    rng = Random("statuses")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world, _ = world_with_complaints()
        before, there = world.readings(), set()
        for at in range(330):
            name = f"s{rng.randrange(12)}"
            if rng.random() < 0.3:
                world.remove(bound(name, "{}"))
                there.discard(name)
            else:
                world.put(bound(name, random_status(rng)))
                there.add(name)
            if rng.random() < 0.1:
                taken_in(world, random_report(rng))
            if at % 10 == 0:
                assert answers(world, ASKING[:4])["m2"][:5] == expected()[0][:5]
        for name in there:
            world.remove(bound(name, "{}"))
        world.put(report())
        assert world.readings() == before


# --- on the real scheduler --------------------------------------------------------------------------------


def test_users_see_what_is_wrong():
    """On the node, on the pod that waits, and on the bound pod."""

    async def scenario():
        labelled = named(node(numa_topology_policy="Sometimes"), "m2")
        broken = named(node(), "m3")
        broken["metadata"]["annotations"][RATIO] = "{"
        held = bound("held", status(numa=[(10**9, {"cpu": "1"})]))
        things = node(), labelled, broken, cpus([{"id": 9000}]), held
        async with cluster(*things) as (embedded, _):
            put(embedded, lsr())
            unreadable = lsr("unreadable")
            unreadable["metadata"]["annotations"] = {RESOURCE_SPEC: '{"preferredCPUBindPolicy": 5}'}
            put(embedded, unreadable)
            await asyncio.sleep(15)
            nodes = [events_about(embedded, "Node", name, "InvalidNodeTopology") for name in ("m1", "m2", "m3")]
            pods = condition_of(embedded, "p"), condition_of(embedded, "unreadable")
            return nodes, pods, events_about(embedded, "Pod", "held", "InvalidAnnotation")

    nodes, (waiting, unreadable), held = run(scenario())
    assert [len(notes) for notes in nodes] == [1, 1, 1]
    assert "cpu-topology: CPU topology: id 9000" in nodes[0][0]
    assert "no policy 'Sometimes'" in nodes[1][0]
    assert RATIO in nodes[2][0]
    assert waiting[0] == "Unschedulable"
    assert "2 node(s) invalid CPU Topology" in waiting[1]
    assert "1 node(s) invalid CPU amplification ratio" in waiting[1]
    assert unreadable[0] == "SchedulerError"
    assert f"annotation {RESOURCE_SPEC}: Expected `str`, got `int` - at `$.preferredCPUBindPolicy`" in unreadable[1]
    assert len(held) == 1
    assert f"annotation {RESOURCE_STATUS}: invalid NUMA node 1000000000: at most 8 are supported" in held[0]


def test_reports_that_flip_do_not_flood():
    async def scenario():
        async with cluster(node(), report()) as (embedded, _):
            for at in range(300):
                replace(embedded, cpus([{"id": 9000}]) if at % 2 else report())
                await asyncio.sleep(3)
            bad = events_about(embedded, "Node", "m1", "InvalidNodeTopology")
            replace(embedded, report())
            await asyncio.sleep(1)
            put(embedded, lsr())
            await asyncio.sleep(2)
            return len(bad), cpus_of(embedded, "p")

    assert run(scenario()) == (1, "0-3")


def test_reports_that_are_bad_in_another_way_each_time_do_not_flood():
    async def scenario():
        async with cluster(node(), report()) as (embedded, _):
            for at in range(300):
                replace(embedded, cpus([{"id": 9000 + at}]))
                await asyncio.sleep(3)
            return len(events_about(embedded, "Node", "m1", "InvalidNodeTopology"))

    assert run(scenario()) <= 3


def storable(thing):
    """Whether an API server stores it: numbers beyond 64 bits it does not take."""
    try:
        return bool(orjson.dumps(thing))
    except TypeError:
        return False


def test_hostile_objects_on_the_real_scheduler(caplog):
    """Past the validation of the API server: every pod gets its CPUs, at the latest when a pod that claims to hold all
    of the chosen node's is gone; nothing is logged as a failure.
    """

    async def scenario():
        created = []
        async with cluster(node(), *GOOD[:2]) as (embedded, _):
            reports = [thing for _, thing in SHUFFLED if storable(thing)]
            for number, thing in enumerate(reports[::6]):
                embedded.insert(thing)
                held = bound(f"held{number}", STATUSES[number % len(STATUSES)])
                put(embedded, held)
                if number % 8 == 0:
                    created.append(f"p{number}")
                    put(embedded, lsr(created[-1], cpu="1", memory="1Gi"))
                await asyncio.sleep(1)
                remove(embedded, thing)
                remove(embedded, held)
            await asyncio.sleep(30)
            return sum(cpus_of(embedded, name) is not None for name in created), len(created)

    with caplog.at_level(logging.WARNING):
        placed, created = run(scenario())
    assert placed == created > 8
    assert not [record for record in caplog.records if record.exc_info]

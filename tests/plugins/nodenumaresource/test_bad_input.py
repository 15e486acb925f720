"""Reports, labels and annotations as they should not be: harm to their own node or pod, a word where users look."""

import json
import warnings
from functools import cache
from random import Random

import pytest

from koordsched.plugins.nodenumaresource.kinds import OF_TOPOLOGIES
from koordsched.scheduling.offline import BadObject
from tests.depth import quick_first
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.plugins.nodenumaresource.naivemachine import NODE
from tests.plugins.nodenumaresource.world import World, lsr, named, on

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


@pytest.mark.parametrize("at", quick_first(range(len(REPORTS)), 130), ids=lambda at: SHUFFLED[at][0])
def test_hostile_reports(at):
    same_with(SHUFFLED[at][1])


@pytest.mark.parametrize("part", quick_first(range(8), 2))
def test_random_reports(part):
    for seed in range(part, RANDOM_REPORTS, 8):
        same_with(random_report(Random(f"report-{seed}")))

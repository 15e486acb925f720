"""`koordsched numa [NODE]` on files: the tables for people, and the answers for programs."""

import json
from textwrap import dedent

import pytest

from tests.cli.clusters import run, run_json
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology

MANAGER = "kubelet.koordinator.sh/cpu-manager-policy"
RESERVED = {MANAGER: {"policy": "none", "reservedCPUs": "15"}}
SMALL = (
    node(cpu="16", memory="128Gi", cpu_bind_policy="FullPCPUsOnly", numa_topology_policy="SingleNUMANode"),
    topology(detail(2, 1, 4), [("8", "64Gi")] * 2, annotations=RESERVED),
)
"""Two sockets, each a NUMA node of 4 cores: core k has the CPUs 2k and 2k+1; CPU 15 is reserved."""
A = holder("a", "0-3", {0: ("4", "8Gi")}, cpu="4", memory="8Gi", level="PCPULevel")
B = holder("b", "4", {0: ("1", "8Gi")}, cpu="1", memory="8Gi")
SHARES = holder("shares", None, {1: ("2500m", "8Gi")}, cpu="2500m", memory="8Gi", qos="LS")


@pytest.fixture
def file(tmp_path):
    """Writes objects to a file, as a server has them; returns its name."""

    def written(*things):
        for thing in things:
            if thing["kind"] == "Pod":
                thing["metadata"]["uid"] = f"uid-{thing['metadata']['name']}"
                thing["status"] = {"phase": "Running" if thing["spec"].get("nodeName") else "Pending"}
        path = tmp_path / "cluster.yaml"
        path.write_text("\n---\n".join(map(json.dumps, things)))
        return str(path)

    return written


def named(name, thing):
    """The node, report or pod as one of another node."""
    if thing["kind"] == "Pod":
        return {**thing, "spec": {**thing["spec"], "nodeName": name}}
    return {**thing, "metadata": {**thing["metadata"], "name": name}}


def shown(*arguments):
    """What the command prints, without the blanks that end lines."""
    result = run("numa", *arguments)
    assert result.exit_code == 0, result.stderr
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())


def test_a_small_machine(file):
    assert shown("m1", "-f", file(*SMALL, A, B, SHARES)) == dedent(
        """\
        Node m1: 2 sockets, 2 NUMA nodes, 8 cores, 16 CPUs
        10 CPUs free, with 4 whole cores; 5 held by pods, 1 reserved
        bind policy FullPCPUs, NUMA topology policy SingleNUMANode, allocate strategy LeastAllocated

        NUMA NODE  SOCKET  CPUS  FREE CPUS  FREE CORES  RESOURCE   HAS  GIVEN  LEFT
                0       0  0-7   5-7               1/4  cpu          8      5     3
                                                        memory    64Gi   16Gi  48Gi
                1       1  8-15  8-14              3/4  cpu          7    2.5   4.5
                                                        memory    64Gi    8Gi  56Gi

        SOCKET  NUMA NODE  CORES  CPUS  STATE     PODS
             0          0  0-1    0-3   held      default/a (PCPULevel)
                           2      4     held      default/b
                                  5     free
                           3      6-7   free
             1          1  4-6    8-13  free
                           7      14    free
                                  15    reserved

        POD             CPUS  BIND POLICY  EXCLUSIVE  GIVEN BY NUMA NODES
        default/a       0-3   -            PCPULevel  0: cpu 4, memory 8Gi
        default/b       4     -            -          0: cpu 1, memory 8Gi
        default/shares  -     -            -          1: cpu 2.5, memory 8Gi
        """
    )


def test_all_nodes(file):
    conflicting = [named("m2", thing) for thing in (node(), topology(detail(1, 2, 2)), holder("c", "0-3"))]
    things = [*SMALL, A, *conflicting, named("m2", holder("d", "3-4")), named("m3", node(numa_topology_policy="Odd"))]
    assert shown("-f", file(*things)) == dedent(
        """\
        NODE  REPORT   BIND POLICY  NUMA POLICY     FREE CPUS  FREE CORES  CPU LEFT BY NUMA NODE
        m1    valid    FullPCPUs    SingleNUMANode      11/16         5/8  4/8 7/7
        m2    valid    -            -                     3/8         1/4  -                      1 CPU in CONFLICT
        m3    invalid  -            -                       -           -  -
        m3: node: label node.koordinator.sh/numa-topology-policy: no policy 'Odd', so none applies
        """
    )
    code, answer = run_json("numa", "-f", file(*things))
    assert code == 0
    assert [(each["node"], each["conflicts"]) for each in answer["nodes"]] == [("m1", 0), ("m2", 1), ("m3", 0)]
    assert answer["nodes"][0] == {
        "node": "m1",
        "report": "valid",
        "bindPolicy": "FullPCPUs",
        "numaTopologyPolicy": "SingleNUMANode",
        "cpus": 16,
        "freeCpus": 11,
        "cores": 8,
        "freeCores": 5,
        "conflicts": 0,
        "numaNodes": [{"numaNode": 0, "has": 8000, "left": 4000}, {"numaNode": 1, "has": 7000, "left": 7000}],
        "problems": [],
    }


def test_json(file):
    code, answer = run_json("numa", "m1", "-f", file(*SMALL, A, B, SHARES))
    assert code == 0
    assert {key: answer[key] for key in ("node", "report", "allocateStrategy", "conflicts", "problems")} == {
        "node": "m1",
        "report": "valid",
        "allocateStrategy": "LeastAllocated",
        "conflicts": [],
        "problems": [],
    }
    assert answer["numaNodes"][1] == {
        "numaNode": 1,
        "sockets": [1],
        "cpus": "8-15",
        "free": "8-14",
        "held": "",
        "reserved": "15",
        "cores": 4,
        "freeCores": 3,
        "resources": [
            {"resource": "cpu", "has": 7000, "given": 2500, "left": 4500},
            {"resource": "memory", "has": 64 << 30, "given": 8 << 30, "left": 56 << 30},
        ],
    }
    assert len(answer["cores"]) == 8
    assert answer["cores"][2] == {
        "socket": 0,
        "numaNode": 0,
        "core": 2,
        "cpus": [
            {"cpu": 4, "state": "held", "reserved": False, "pods": ["default/b"]},
            {"cpu": 5, "state": "free", "reserved": False, "pods": []},
        ],
    }
    assert answer["cores"][7]["cpus"][1] == {"cpu": 15, "state": "reserved", "reserved": True, "pods": []}
    assert answer["pods"][0] == {
        "pod": "default/a",
        "cpus": "0-3",
        "bindPolicy": "",
        "exclusivePolicy": "PCPULevel",
        "numaNodes": [{"numaNode": 0, "amounts": {"cpu": 4000, "memory": 8 << 30}}],
    }


def test_conflicts(file):
    both = holder("both", "2-4"), holder("odd", "14-15,40")
    text = shown("m1", "-f", file(*SMALL, A, *both)).splitlines()
    assert text[1] == "9 CPUs free, with 4 whole cores; 7 held by pods, 0 reserved"
    assert text[3:6] == [
        "CONFLICT: CPUs 2-3 are held by default/a and default/both",
        "Problem: default/odd holds CPUs that are reserved: 15",
        "Problem: default/odd holds CPUs that are not reported: 40",
    ]
    rows = [line.split(maxsplit=2) for line in text]
    assert ["1", "2-3", "CONFLICT        default/a (PCPULevel) and default/both"] in rows
    assert ["7", "14", "held            default/odd"] in rows
    assert ["15", "held,", "reserved  default/odd"] in rows
    _, answer = run_json("numa", "m1", "-f", file(*SMALL, A, *both))
    assert answer["conflicts"] == [{"cpus": "2-3", "pods": ["default/a", "default/both"]}]
    assert answer["cores"][1]["cpus"][0]["state"] == "conflict"


def test_a_cpu_that_three_pods_hold(file):
    _, answer = run_json("numa", "m1", "-f", file(*SMALL, *(holder(name, "2") for name in "abc")))
    said = {"cpu": 2, "state": "conflict", "reserved": False, "pods": ["default/a", "default/b", "default/c"]}
    assert answer["cores"][1]["cpus"][0] == said


def test_an_unknown_node(file):
    result = run("numa", "m9", "-f", file(*SMALL))
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "error: there is no node m9\n")
    result = run("numa", "m9", "-f", file(*SMALL, named("m9", SMALL[1])))
    assert result.stderr == "error: there is no node m9, only a NodeResourceTopology of that name\n"


def test_an_empty_name(file):
    result = run("numa", "", "-f", file(*SMALL))
    assert result.exit_code == 2
    assert "NODE is empty" in result.stderr


def test_a_bind_policy_that_does_not_exist(file):
    answers = [run_json("numa", "m1", "-f", file(node(cpu_bind_policy=of)))[1] for of in ("FullPCPUs", "None", "")]
    label = "node.koordinator.sh/cpu-bind-policy"
    problems = [f"node: label {label}: no policy 'FullPCPUs', so none applies"], [], []
    assert [(each["report"], each["bindPolicy"]) for each in answers] == [("invalid", ""), ("none", ""), ("none", "")]
    assert [each["problems"] for each in answers] == list(problems)


def test_a_node_without_a_report(file):
    assert shown("m1", "-f", file(node())) == (
        "Node m1: no NodeResourceTopology\n"
        "bind policy none, NUMA topology policy none, allocate strategy LeastAllocated\n"
    )
    text = shown("m1", "-f", file(node(), A, holder("b", "3"))).splitlines()
    assert text[0] == "Node m1: no NodeResourceTopology"
    assert text[2:4] == [
        "CONFLICT: CPU 3 is held by default/a and default/b",
        "Problem: there is no NodeResourceTopology, though the node has a policy, or its pods have exclusive CPUs",
    ]
    assert text[-1].split() == ["default/b", "3", "-", "-", "-"]


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("{", "NodeResourceTopology: annotation node.koordinator.sh/cpu-topology: "),
        (json.dumps({"detail": [{"id": 9999}]}), "NodeResourceTopology: annotation node.koordinator.sh/cpu-topology: "),
        ("", "NodeResourceTopology: it reports no CPUs"),
    ],
)
def test_a_report_that_cannot_be_used(file, annotation, problem):
    report = topology(None, [("8", "64Gi")])
    report["metadata"]["annotations"] = {"node.koordinator.sh/cpu-topology": annotation}
    text = shown("m1", "-f", file(node(), report, A)).splitlines()
    assert text[0] == "Node m1: its CPUs are not known"
    assert text[2].startswith(f"Problem: {problem}")
    assert [line.split() for line in text if line.split()[-3:] == ["8", "4", "4"]] == [
        ["0", "-", "-", "-", "-", "cpu", "8", "4", "4"]
    ]


def test_amplified(file):
    machine = node(cpu="24", ratio=1.5), topology(detail(1, 1, 8), [("16", "64Gi")])
    text = shown("m1", "-f", file(*machine, holder("own", "0-3", {0: ("4", "1Gi")}))).splitlines()
    assert text[2].endswith("allocate strategy LeastAllocated, cpu amplified 1.5 times")
    assert text[5].split()[-4:] == ["cpu", "24", "6", "18"]


def test_a_large_machine_stays_readable(file):
    """208 CPUs of which each pod holds as many of another NUMA node: lines do not grow with CPUs."""
    machine = node(cpu="208"), topology(detail(2, 2, 26, apart=True), [("52", "256Gi")] * 4)
    pods = [holder(f"p{n}", f"{26 * n}-{26 * n + 11},{26 * n + 104}-{26 * n + 115}", cpu="24") for n in range(4)]
    spread = holder("spread", ",".join(str(26 * n + core) for n in range(4) for core in range(12, 26, 2)))
    lines = shown("m1", "-f", file(*machine, *pods, spread)).splitlines()
    assert len(lines) < 45
    assert max(map(len, lines)) <= 140
    at = next(number for number, line in enumerate(lines) if line.startswith("SOCKET"))
    assert [line.split() for line in lines[at + 1 : at + 5]] == [
        ["0", "0", "0-11", "0-11,104-115", "held", "default/p0"],
        ["12,14,16,18,20,22,24", "12,14,16,18,20,22,24", "held", "default/spread"],
        ["116,118,120,122,124,126,128", "free"],
        ["13,15,17,19,21,23,25", "13,15,17,19,21,23,25,117,119,121,123,125,127,129", "free"],
    ]


def test_cores_of_several_sockets_may_have_the_same_number(file):
    cpus = [{"id": cpu, "core": cpu % 4 // 2, "socket": cpu // 4, "node": cpu // 4} for cpu in range(8)]
    text = shown("m1", "-f", file(node(), topology(cpus)))
    assert "2 sockets, 2 NUMA nodes, 4 cores, 8 CPUs" in text
    assert [line.split() for line in text.splitlines()[-2:]] == [
        ["0", "0", "0-1", "0-3", "free"],
        ["1", "1", "0-1", "4-7", "free"],
    ]


def test_the_plugin_has_to_be_enabled(file, tmp_path):
    (tmp_path / "config.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    configuration = str(tmp_path / "config.yaml")
    result = run("numa", "m1", "-f", file(*SMALL, pod()), "--config", configuration)
    assert result.exit_code == 1
    assert result.stderr == f"error: {configuration}: no profile enables NodeNUMAResource\n"

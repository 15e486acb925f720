"""The numbers behind what NodeNUMAResource says of a node, as `koordsched explain` shows them."""

import json

import pytest
import yaml

from koordsched.plugins.nodenumaresource.explanation import amount_text
from tests.cli.clusters import run, run_json
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology

PLUGIN = "NodeNUMAResource"
MACHINE = detail(2, 1, 4)
"""Two sockets, each a NUMA node of 4 cores: core k has the CPUs 2k and 2k+1."""
ZONES = [("8", "64Gi")] * 2


@pytest.fixture
def explain(tmp_path):
    """What is said of node m1 to the pod `p`: (feasible, lines, changes that would help)."""
    names = ("PrioritySort", PLUGIN, "DefaultBinder")
    plugins = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}}
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**head, "profiles": [{"plugins": plugins}]}))

    def explained(*things):
        for thing in things:
            if thing["kind"] == "Pod":  # as a server has it
                thing["metadata"]["uid"] = f"uid-{thing['metadata']['name']}"
                thing["status"] = {"phase": "Running" if thing["spec"].get("nodeName") else "Pending"}
        file, configuration = tmp_path / "cluster.yaml", str(tmp_path / "config.yaml")
        file.write_text("\n---\n".join(map(json.dumps, things)))
        _, answer = run_json("explain", "p", "-f", str(file), "--config", configuration)
        (said,) = answer["nodes"]
        changes = [change["text"] for remedy in answer["advice"]["remedies"] for change in remedy["changes"]]
        return said["feasible"], said["details"].get(PLUGIN, []), changes

    return explained


def lsr(**more):
    """A pod that gets CPUs of its own."""
    return pod(qos="LSR", **more)


def taken(of_first, of_second, memory=("1Gi", "1Gi")):
    """A pod that was given so much CPU of each NUMA node, and memory."""
    return holder("other", None, {0: (of_first, memory[0]), 1: (of_second, memory[1])}, cpu="1", memory="1Gi")


T = topology(MACHINE, ZONES)
SINGLE, RESTRICTED = ({"numa_topology_policy": policy} for policy in ("SingleNUMANode", "Restricted"))
FULL = {"cpu_bind_policy": "FullPCPUsOnly"}
ENOUGH_MEMORY = "enough memory: needs 40Gi, 64Gi of 64Gi left"
UNKNOWN_CPUS = "the CPUs of the node are unknown"
SAY_CPUS = "a NodeResourceTopology that reports the CPUs of the node"


def test_pods_without_such_wishes_are_told_nothing(explain):
    assert explain(node(), T, pod()) == (True, [], [])


@pytest.mark.parametrize(
    ("labels", "holds", "wanted", "lines", "change"),
    [
        (
            FULL,
            "0,2,4,6,8,10",
            pod(cpu="6"),
            ["bind policy: FullPCPUs, required, of the node", "exclusive CPUs: needs 6; 10 of 16 free, 2 whole cores"],
            "1 more whole core free",
        ),
        (
            FULL,
            "0",
            pod(cpu="20"),
            [
                "bind policy: FullPCPUs, required, of the node",
                "exclusive CPUs: needs 20; 15 of 16 free, 7 whole cores",
            ],
            "a node with 10 whole cores for pods (this one has 8)",
        ),
        (
            FULL,
            "0",
            lsr(cpu="5", spec={"requiredCPUBindPolicy": "FullPCPUs"}),
            [
                "bind policy: FullPCPUs, required, of pod and node",
                "exclusive CPUs: needs 5; 15 of 16 free, 7 whole cores",
                "5 CPUs cannot be whole cores: a core has 2",
            ],
            "a request for a multiple of 2 CPUs, the size of a core there",
        ),
        (
            FULL,
            "0",
            pod(cpu="1500m"),
            [
                "bind policy: FullPCPUs, required, of the node",
                "pods get exclusive whole CPUs there; this one requests 1.5",
            ],
            "a request for whole CPUs",
        ),
        (
            FULL,
            "0",
            lsr(spec={"requiredCPUBindPolicy": "SpreadByPCPUs"}),
            [
                "bind policy of the node: FullPCPUs; required by the pod: SpreadByPCPUs",
                "exclusive CPUs: needs 4; 15 of 16 free, 7 whole cores; a free CPU on 8 cores",
            ],
            "a node without a bind policy, or with SpreadByPCPUs (this one has FullPCPUs)",
        ),
        (
            {},
            "0-11",
            lsr(spec={"requiredCPUBindPolicy": "SpreadByPCPUs"}),
            [
                "bind policy: SpreadByPCPUs, required, of the pod",
                "exclusive CPUs: needs 4; 4 of 16 free, 2 whole cores; a free CPU on 2 cores",
            ],
            "a free CPU on 2 more cores",
        ),
    ],
)
def test_cpus_of_their_own(explain, labels, holds, wanted, lines, change):
    assert explain(node(**labels), T, holder("other", holds, cpu="1"), wanted) == (False, lines, [change])


def test_what_the_filter_does_not_see_is_said(explain):
    feasible, lines, _ = explain(node(), T, holder("other", "0-12", cpu="13"), lsr())
    assert feasible
    assert lines == [
        "bind policy: FullPCPUs, preferred",
        "exclusive CPUs: needs 4; 3 of 16 free, 1 whole core",
        "Filter accepts the node, but Reserve would reject it: too little is free",
    ]
    best_effort = node(numa_topology_policy="BestEffort")
    feasible, lines, _ = explain(best_effort, T, taken("6", "6"), pod(cpu="5", memory="1Gi"))
    assert feasible
    assert lines[-2:] == [
        "together: too little cpu: needs 5, 4 of 16 left; enough memory: needs 1Gi, 126Gi of 128Gi left",
        "Filter accepts the node, but Reserve would reject it: too little is free",
    ]


def test_what_is_not_known(explain):
    assert explain(node(), lsr()) == (False, ["bind policy: FullPCPUs, preferred", UNKNOWN_CPUS], [SAY_CPUS])
    broken = topology(None, ZONES)
    broken["metadata"]["annotations"] = {"node.koordinator.sh/cpu-topology": "{"}
    feasible, lines, changes = explain(node(), broken, lsr())
    assert (feasible, changes) == (False, [SAY_CPUS])
    assert lines[0].startswith("NodeResourceTopology: annotation node.koordinator.sh/cpu-topology: ")
    assert explain(node(**SINGLE), topology(MACHINE), pod()) == (
        False,
        ["NUMA topology policy: SingleNUMANode, of the node", "the resources of its NUMA nodes are unknown"],
        ["a NodeResourceTopology that reports the resources of the NUMA nodes"],
    )
    feasible, lines, changes = explain(node(**SINGLE, **FULL), topology(None, ZONES), pod(cpu=None))
    assert (feasible, changes) == (False, [SAY_CPUS])
    assert UNKNOWN_CPUS in lines


@pytest.mark.parametrize(
    ("own", "said", "change"),
    [
        ("Restricted", "Restricted", "a node with NUMA topology policy Restricted (this one has SingleNUMANode)"),
        (
            "Odd",
            "one that does not exist",
            "a NUMA topology policy that exists in the pod's annotation scheduling.koordinator.sh/numa-topology-spec",
        ),
    ],
)
def test_policies_that_differ(explain, own, said, change):
    line = f"NUMA topology policy of the node: SingleNUMANode; of the pod: {said}"
    assert explain(node(**SINGLE), T, pod(numa={"numaTopologyPolicy": own})) == (False, [line], [change])


def test_a_numa_node_that_would_be_used(explain):
    assert explain(node(**SINGLE), T, taken("5", "0"), pod()) == (
        True,
        [
            "NUMA topology policy: SingleNUMANode, of the node",
            "NUMA node 0: too little cpu: needs 4, 3 of 8 left; enough memory: needs 40Gi, 63Gi of 64Gi left",
            "NUMA node 1: enough cpu: needs 4, 8 of 8 left; enough memory: needs 40Gi, 63Gi of 64Gi left",
            "it would use NUMA node 1",
        ],
        [],
    )


def test_numa_nodes_that_a_restricted_pod_would_use(explain):
    feasible, lines, _ = explain(node(**RESTRICTED), T, pod(cpu="10"))
    assert (feasible, lines[-1]) == (True, "it would use NUMA nodes 0 and 1")


def test_what_single_numa_nodes_lack(explain):
    assert explain(node(**SINGLE), T, taken("5", "1", ("1Gi", "40Gi")), pod()) == (
        False,
        [
            "NUMA topology policy: SingleNUMANode, of the node",
            "NUMA node 0: too little cpu: needs 4, 3 of 8 left; enough memory: needs 40Gi, 63Gi of 64Gi left",
            "NUMA node 1: too little memory: needs 40Gi, 24Gi of 64Gi left; enough cpu: needs 4, 7 of 8 left",
            "SingleNUMANode rejects the node: no single NUMA node has enough",
        ],
        ["1 more cpu free on NUMA node 0"],
    )
    _, lines, changes = explain(node(**SINGLE), T, pod(cpu="10"))
    assert lines[1] == f"NUMA node 0: too little cpu: needs 10, 8 of 8 left; {ENOUGH_MEMORY}"
    assert changes == ["a node with 10 cpu and 40Gi memory on one NUMA node (this one is smaller)"]
    # What is left to the last byte is enough.
    _, _, changes = explain(node(**SINGLE), T, taken("5", "6", ("24Gi", "24Gi")), pod())
    assert changes == ["1 more cpu free on NUMA node 0"]


def test_what_numa_nodes_lack_together(explain):
    assert explain(
        node(**RESTRICTED, **FULL), T, holder("other", "0,2,4", {0: ("3", "1Gi")}, cpu="3"), pod("p", "12")
    ) == (
        False,
        [
            "NUMA topology policy: Restricted, of the node",
            "bind policy: FullPCPUs, required, of the node",
            "exclusive CPUs: needs 12; 13 of 16 free, 5 whole cores",
            "NUMA node 0: cpu 2 of 8 left, memory 63Gi of 64Gi left",
            "NUMA node 1: cpu 8 of 8 left, memory 64Gi of 64Gi left",
            "together: too little cpu: needs 12, 10 of 16 left; enough memory: needs 40Gi, 127Gi of 128Gi left",
            "(the CPU left on NUMA nodes is limited to what is free as whole cores)",
            "Restricted rejects the node: even all NUMA nodes together have too little",
        ],
        ["2 more cpu free on its NUMA nodes"],
    )


def test_hints_that_a_policy_refuses(explain):
    """Of CPU 3.5 and 5 are left; upstream splits the 8 CPUs of a pod's own so that they do not come out even."""
    feasible, lines, changes = explain(node(**RESTRICTED), T, taken("4500m", "3"), lsr(cpu="8", memory="1Gi"))
    assert (feasible, changes) == (False, ["everything it requests free on the same NUMA nodes"])
    assert lines[-2:] == [
        "hints for cpu and memory: none",
        "Restricted rejects the node: no set of NUMA nodes serves cpu and memory",
    ]


def test_pods_that_exclude_each_other(explain):
    several = holder("other", "0-1,8-9", {0: ("2", "1Gi"), 1: ("2", "1Gi")}, cpu="4")
    feasible, lines, changes = explain(
        node(), T, several, pod(memory="1Gi", numa={"numaTopologyPolicy": "SingleNUMANode"})
    )
    assert (feasible, changes) == (
        False,
        ["enough free on NUMA nodes that no pod with CPUs on several NUMA nodes uses"],
    )
    excluded = "pods with CPUs on several NUMA nodes exclude a pod on this one alone"
    assert lines == [
        "NUMA topology policy: SingleNUMANode, of the pod",
        f"NUMA node 0: enough cpu: needs 4, 6 of 8 left; enough memory: needs 1Gi, 63Gi of 64Gi left; {excluded}",
        f"NUMA node 1: enough cpu: needs 4, 6 of 8 left; enough memory: needs 1Gi, 63Gi of 64Gi left; {excluded}",
        "hints for cpu and memory: NUMA nodes 0, 1, 0+1",
        "SingleNUMANode rejects them because of the pods that use these NUMA nodes",
    ]


def test_amplified_cpu(explain):
    machine = node(cpu="96", ratio=1.5), topology(detail(2, 1, 16), [("32", "128Gi")] * 2)
    others = holder("own", "0-7", cpu="8"), holder("shared", cpu="20", qos="LS")
    assert explain(*machine, *others, lsr(cpu="43", memory="1Gi")) == (
        False,
        [
            "bind policy: FullPCPUs, preferred",
            "amplified cpu: needs 64.5, 64 of 96 left (8 exclusive CPUs, counted 1.5 times)",
            "exclusive CPUs: needs 43; 56 of 64 free, 28 whole cores",
        ],
        ["0.5 more cpu free"],
    )
    assert explain(*machine, lsr(cpu="65", memory="1Gi"))[2] == ["a node with 97.5 cpu (this one has 96)"]
    ratio = "node.koordinator.sh/resource-amplification-ratio"
    feasible, lines, changes = explain(node(ratio="much"), T, pod())
    assert (feasible, changes) == (False, [f"the node's annotation {ratio} corrected"])
    assert lines[0].startswith(f"annotation {ratio}: ")


def test_amplified_cpu_that_exclusive_pods_alone_use(explain):
    machine = node(cpu="96", ratio=1.5), topology(detail(2, 1, 16), [("32", "128Gi")] * 2)
    _, lines, _ = explain(*machine, holder("own", "0-7", cpu="8"), lsr(memory="1Gi"))
    assert lines[1] == "amplified cpu: needs 6, 84 of 96 left (8 exclusive CPUs, counted 1.5 times)"


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("memory", 3 << 29, "1.5Gi"),
        ("hugepages-2Mi", 1 << 30, "1Gi"),
        ("example.com/card", 12, "12"),
    ],
)
def test_how_amounts_are_shown(resource, amount, text):
    assert amount_text(resource, amount) == text


def test_cpus_that_a_scheduling_hint_designates(explain):
    hinted = lsr(status={"cpuset": "4-7"})
    hint = {"extensions": {"NodeNUMAResource": {}}, "preferredNodeNames": ["m1"]}
    hinted["metadata"]["annotations"]["scheduling.koordinator.sh/scheduling-hint"] = json.dumps(hint)
    assert explain(node(), T, holder("other", "4", cpu="1"), hinted) == (
        False,
        [
            "bind policy: FullPCPUs, preferred",
            "a scheduling hint designates CPUs: 4-7",
            "of these are not free: 4",
            "exclusive CPUs: needs 4; 15 of 16 free, 7 whole cores",
        ],
        ["the designated CPUs free: 4"],
    )


def test_the_table_shows_them(explain, tmp_path):
    explain(node(**FULL), T, holder("other", "0-9", cpu="10"), pod(cpu="8"))
    file, configuration = str(tmp_path / "cluster.yaml"), str(tmp_path / "config.yaml")
    shown = run("explain", "p", "-f", file, "--config", configuration).stdout
    assert "m1, NodeNUMAResource:\n  bind policy: FullPCPUs, required, of the node\n  exclusive CPUs: needs 8" in shown
    assert "1 more whole core free" in shown

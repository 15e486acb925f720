"""What hollow nodes report of their insides, and the CPUs that their kubelets give to pods."""

import json
import re
from itertools import pairwise
from random import Random

import pytest
import yaml

from koordsched.fakecluster import snapshot
from koordsched.fakecluster.hollow.cpulayout import CpuLayout, cpus_of, take_cpus
from koordsched.fakecluster.hollow.cpuset import format_cpuset, parse_cpuset
from koordsched.fakecluster.hollow.templates import TemplateError, load_templates
from tests.fakecluster.topologies import DEFINITION, RESOURCE_STATUS, ROOT, STATIC, TopologyCluster, pod, template

FAIL, TOPOLOGY = "koordsched.io/fail", "koordsched.io/topology"
RESERVATION, SYSTEM = "node.koordinator.sh/reservation", "node.koordinator.sh/system-qos-resource"
RATIO, RAW = "node.koordinator.sh/resource-amplification-ratio", "node.koordinator.sh/raw-allocatable"


# -- CPU sets and layouts

SETS = [("", set()), ("3", {3}), ("0-2", {0, 1, 2}), ("7,0-2,4-5", {0, 1, 2, 4, 5, 7}), ("8191", {8191})]


@pytest.mark.parametrize("text, cpus", SETS)
def test_cpu_sets(text, cpus):
    assert parse_cpuset(text) == cpus
    assert parse_cpuset(format_cpuset(cpus)) == cpus


@pytest.mark.parametrize(
    "text", ["a", "-1", "3-1", "0-", "0,,1", "0-99999999999", "8192", " 1", "1,", None, 4, "٣", "0-1-2", "1" * 70_000]
)
def test_texts_that_are_no_cpu_sets(text):
    with pytest.raises(ValueError, match="a CPU set such as"):
        parse_cpuset(text)


LAYOUTS = [
    # sockets, NUMA nodes per socket, cores, threads, numbering -> (CPU, core, socket, NUMA node) of some CPUs
    ((2, 1, 4, 2, "consecutive"), [(0, 0, 0, 0), (1, 0, 0, 0), (7, 3, 0, 0), (8, 4, 1, 1), (15, 7, 1, 1)]),
    ((2, 1, 4, 2, "linux"), [(0, 0, 0, 0), (1, 1, 0, 0), (3, 3, 0, 0), (4, 4, 1, 1), (8, 0, 0, 0), (15, 7, 1, 1)]),
    ((2, 2, 4, 2, "consecutive"), [(8, 4, 0, 1), (16, 8, 1, 2), (31, 15, 1, 3)]),
    ((1, 1, 3, 1, "linux"), [(0, 0, 0, 0), (2, 2, 0, 0)]),
]


@pytest.mark.parametrize("numbers, expected", LAYOUTS)
def test_layouts(numbers, expected):
    sockets, nodes, cores, threads, numbering = numbers
    layout = CpuLayout(cores, sockets, nodes, threads, numbering)
    found = cpus_of(layout)
    assert [cpu.id for cpu in found] == list(range(sockets * nodes * cores * threads)) == list(range(layout.count))
    assert [found[cpu] for cpu, *_ in expected] == expected
    assert len({cpu.core for cpu in found}) == sockets * nodes * cores


TAKEN = [
    # free, count -> taken, of 4 cores {0,1} ... {6,7}
    ("0-7", 2, "0-1"),
    ("0-7", 3, "0-2"),
    ("1-7", 2, "2-3"),
    # What is left of a core in use comes before a whole core, for a single CPU.
    ("1-7", 1, "1"),
    ("1-7", 3, "1-3"),
    ("1,3,6-7", 4, "1,3,6-7"),
    ("1,3,5", 2, "1,3"),
    ("0-7", 0, ""),
    ("2-3", 3, None),
]


@pytest.mark.parametrize("free, count, taken", TAKEN)
def test_whole_cores_are_taken_first(free, count, taken):
    found = take_cpus(CpuLayout(4, numbering="consecutive"), parse_cpuset(free), count)
    assert (found if found is None else format_cpuset(found)) == taken


# -- templates

BAD = [
    (template({"coresPerNumaNode": 0}), "numbers of CPUs must be at least 1 - at `$.templates[0].cpus`"),
    (template({"coresPerNumaNode": 9000}), "18000 CPUs are more than 8192"),
    (template({}), "missing required field `coresPerNumaNode`"),
    (template({"coresPerNumaNode": 1, "numbering": "odd"}), "Invalid enum value 'odd'"),
    (template(kubelet={"cpuManagerPolicy": "static"}), "reservedSystemCPUs: the static policy needs at least one"),
    (template(kubelet={"reservedSystemCPUs": "x"}), "reservedSystemCPUs: 'x' is not a CPU set such as 0-3,8"),
    (template(kubelet={"reservedSystemCPUs": "14-17"}), "kubelet.reservedSystemCPUs: there is no CPU 16-17"),
    (template(kubelet={"topologyManagerPolicy": "strict"}), "Invalid enum value 'strict'"),
    (
        {"templates": [{"capacity": {"cpu": 1}, "kubelet": {"topologyManagerPolicy": "none"}}]},
        "kubelet: needs cpus - at `$.templates[0]`",
    ),
]


@pytest.mark.parametrize("content, message", BAD)
def test_bad_templates_say_what_is_wrong(content, message):
    with pytest.raises(TemplateError) as caught:
        load_templates(content)
    assert message in str(caught.value)


def test_the_templates_of_the_documentation_can_be_used():
    text = (
        (ROOT / "docs" / "hollow-nodes.md").read_text().partition("\n## CPUs and NUMA nodes\n")[2].partition("\n## ")[0]
    )
    shortest, every_key = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    (template,) = load_templates(shortest)
    assert template.topology().cpus.count == 16
    (template,) = load_templates({"templates": [{"capacity": {}, **every_key}]})
    assert (template.topology().cpus.count, template.topology().kubelet.static) == (208, True)


AMOUNTS = [
    # capacity, allocatable, reserved -> capacity, allocatable of CPU
    ({}, {}, "", "16", "16"),
    ({}, {}, "0-2", "16", "13"),
    ({"cpu": 12}, {}, "0-2", "12", "9"),
    ({"cpu": 2}, {}, "0-2", "2", "0"),
    ({}, {"cpu": "15500m"}, "0-2", "16", "15500m"),
]


@pytest.mark.parametrize("capacity, allocatable, reserved, most, left", AMOUNTS)
def test_the_cpu_of_a_node_follows_from_its_cpus(capacity, allocatable, reserved, most, left):
    content = template(kubelet={"reservedSystemCPUs": reserved}, allocatable=allocatable)
    content["templates"][0]["capacity"] |= capacity
    status = TopologyCluster(template=content).get("nodes", "node-0")["status"]
    assert (status["capacity"]["cpu"], status["allocatable"]["cpu"]) == (most, left)


# -- the report


def test_a_report_is_what_koordlet_writes():
    kubelet = {
        **STATIC,
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
    }
    cluster = TopologyCluster(template=template({"sockets": 2, "coresPerNumaNode": 1}, kubelet, "10Gi"))
    cluster.run(4)
    report, node = cluster.topology(), cluster.get("nodes", "node-0")
    assert (report["apiVersion"], report["kind"]) == ("topology.node.k8s.io/v1alpha1", "NodeResourceTopology")
    assert report["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Koordinator"}
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": node["metadata"]["uid"]}
    assert report["metadata"]["ownerReferences"] == [{**owner, "controller": True, "blockOwnerDeletion": True}]
    assert report["metadata"]["annotations"] == {
        "node.koordinator.sh/cpu-topology": '{"detail":[{"id":0,"core":0,"socket":0,"node":0},'
        '{"id":1,"core":1,"socket":1,"node":1},{"id":2,"core":0,"socket":0,"node":0},'
        '{"id":3,"core":1,"socket":1,"node":1}]}',
        "kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static","options":{"full-pcpus-only":"true"},'
        '"reservedCPUs":"0-1"}',
        "node.koordinator.sh/pod-cpu-allocs": "null",
        "node.koordinator.sh/reservation": "{}",
        "node.koordinator.sh/system-qos-resource": "null",
        "node.koordinator.sh/cpu-shared-pools": '[{"socket":0,"node":0,"cpuset":"0,2"},'
        '{"socket":1,"node":1,"cpuset":"1,3"}]',
        "node.koordinator.sh/be-cpu-shared-pools": '[{"socket":0,"node":0,"cpuset":"0,2"},'
        '{"socket":1,"node":1,"cpuset":"1,3"}]',
    }
    assert report["topologyPolicies"] == ["SingleNUMANodePodLevel"]
    amounts = {"cpu": "2", "hugepages-1Gi": "0", "hugepages-2Mi": "0", "memory": "5Gi"}
    resources = [
        {"name": name, "capacity": text, "allocatable": text, "available": text} for name, text in amounts.items()
    ]
    assert report["zones"] == [{"name": f"node-{n}", "type": "Node", "resources": resources} for n in (0, 1)]


POLICIES = [
    ({}, "None"),
    ({"topologyManagerPolicy": "none", "topologyManagerScope": "pod"}, "None"),
    ({"topologyManagerPolicy": "best-effort"}, "BestEffortContainerLevel"),
    ({"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}, "RestrictedPodLevel"),
    ({"topologyManagerPolicy": "single-numa-node"}, "SingleNUMANodeContainerLevel"),
]


@pytest.mark.parametrize("kubelet, policy", POLICIES)
def test_policies_of_the_topology_manager(kubelet, policy):
    cluster = TopologyCluster(template=template(kubelet=kubelet))
    cluster.run(4)
    assert cluster.topology()["topologyPolicies"] == [policy]
    assert cluster.said("cpu-manager-policy") == {"policy": "none"}


def zone(cluster, number=0):
    return {each["name"]: each for each in cluster.topology()["zones"][number]["resources"]}


def test_memory_is_split_and_huge_pages_are_none_of_it():
    content = template(memory="66Gi")
    content["templates"][0]["capacity"] |= {"hugepages-1Gi": "2Gi", "hugepages-2Mi": "20Mi"}
    cluster = TopologyCluster(template=content)
    cluster.run(4)
    found = {name: each["allocatable"] for name, each in zone(cluster, 1).items()}
    assert found == {"cpu": "8", "memory": "32758Mi", "hugepages-1Gi": "1Gi", "hugepages-2Mi": "10Mi"}


def test_what_the_node_keeps_is_taken_off_its_numa_nodes_if_the_label_says_so():
    label = "node.koordinator.sh/enable-numa-reservation"
    content = template(kubelet={"reservedSystemCPUs": "0-2"}, memory="64Gi", allocatable={"memory": "60Gi"})
    cluster = TopologyCluster(template=content)
    cluster.run(4)
    assert zone(cluster)["cpu"]["allocatable"] == "8"
    cluster.patch("nodes", "node-0", {"metadata": {"labels": {label: "true"}}})
    cluster.run(4)
    assert cluster.topology()["metadata"]["labels"][label] == "true"
    cpu, memory = zone(cluster)["cpu"], zone(cluster)["memory"]
    assert (cpu["capacity"], cpu["allocatable"], cpu["available"]) == ("8", "6500m", "6500m")
    assert (memory["capacity"], memory["allocatable"]) == ("32Gi", "30Gi")


def test_annotations_of_the_node_are_passed_on():
    cluster = TopologyCluster(template=template(annotations={RESERVATION: '{"reservedCPUs": "3,2,1"}'}))
    cluster.run(4)
    assert cluster.said("reservation") == {"reservedCPUs": "1-3"}
    assert cluster.pools() == cluster.pools("be-cpu-shared-pools") == {0: "0,4-7", 1: "8-15"}
    cluster.annotate("nodes", "node-0", {SYSTEM: '{"cpuset": "8-15"}'})
    cluster.run(4)
    assert cluster.said("system-qos-resource") == {"cpuset": "8-15"}
    assert cluster.pools() == cluster.pools("be-cpu-shared-pools") == {0: "0,4-7", 1: ""}
    cluster.annotate("nodes", "node-0", {SYSTEM: '{"cpuset": "8-15", "cpusetExclusive": false}', RESERVATION: None})
    cluster.run(4)
    assert cluster.said("reservation") == {}
    assert cluster.pools() == {0: "0-7", 1: "8-15"}


NUMBERS = [("2", "0-1"), ("2500m", "0-2"), ("0", ""), ("17", "")]


@pytest.mark.parametrize("cpu, cpus", NUMBERS)
def test_a_mere_number_of_reserved_cpus_is_the_lowest_cores(cpu, cpus):
    text = json.dumps({"resources": {"cpu": cpu, "memory": "1Gi"}, "applyPolicy": "ReservedCPUsOnly"})
    cluster = TopologyCluster(template=template(annotations={RESERVATION: text}))
    cluster.run(4)
    expected = {**json.loads(text), **({"reservedCPUs": cpus} if cpus else {})}
    assert cluster.said("reservation") == expected


# -- shared pools


def test_pools_are_what_bound_pods_leave():
    cluster = TopologyCluster(template=template())
    cluster.create(pod("lsr", cpuset="0-3", qos="LSR"))
    cluster.create(pod("lse", cpuset="4-5,8", qos="LSE"))
    cluster.create(pod("ls", qos="LS"))
    cluster.run(4)
    assert cluster.pools() == {0: "6-7", 1: "9-15"}
    assert cluster.pools("be-cpu-shared-pools") == {0: "0-3,6-7", 1: "9-15"}
    cluster.create(pod("rest", cpuset="6-7", qos="LSR"))
    cluster.delete("pods", "lse")
    cluster.run(8)
    assert cluster.pools() == {0: "4-5", 1: "8-15"}
    cluster.create(pod("more", cpuset="4-5", qos="LSR"))
    cluster.run(4)
    # A NUMA node without shared CPUs is left out.
    assert cluster.pools() == {1: "8-15"}


def test_pods_that_have_ended_hold_no_cpus():
    cluster = TopologyCluster(template=template())
    made = pod("job", cpuset="0-7", qos="LSR", restartPolicy="Never")
    made["metadata"]["annotations"]["koordsched.io/run-duration"] = "30s"
    cluster.create(made)
    cluster.run(10)
    assert cluster.pools() == {1: "8-15"}
    cluster.run(30)
    assert cluster.get("pods", "job")["status"]["phase"] == "Succeeded"
    assert cluster.pools() == {0: "0-7", 1: "8-15"}


@pytest.mark.parametrize("seed", range(4))
def test_pools_and_allocations_as_worked_out_naively(seed):
    rng = Random(seed)
    annotations = {RESERVATION: '{"reservedCPUs": "2-3"}', SYSTEM: '{"cpuset": "30-31"}'}
    layout = {"sockets": 2, "numaNodesPerSocket": 2, "coresPerNumaNode": 4}
    cluster = TopologyCluster(template=template(layout, STATIC, annotations=annotations))
    pods, before, most = {}, {}, 0
    for number in range(80):
        if rng.random() < 0.6:
            bound = rng.sample(range(32), rng.randrange(1, 5)) if rng.random() < 0.4 else None
            name, qos = f"p{number}", rng.choice([None, "LSE", "LSR", "LS", "BE"])
            text = None if bound is None else format_cpuset(bound)
            made = pod(name, rng.choice(["1", "2", "500m"]), limits=rng.random() < 0.7, cpuset=text, qos=qos)
            pods[name] = made, set(bound or ()), qos
            cluster.create(made)
        elif pods:
            cluster.delete("pods", rng.choice(sorted(pods)), grace_period_seconds=0)
        cluster.run(5)
        alive = {each["metadata"]["name"] for each in cluster.pods() if each["status"]["phase"] == "Running"}
        pods = {name: each for name, each in pods.items() if name in alive}
        pinned = {name: parse_cpuset(text) for name, text in cluster.pinned().items()}
        # By the kubelet: whole CPUs of Guaranteed pods that koordlet does not take care of, as many as they request.
        expected = {
            name: int(resources["requests"]["cpu"])
            for name, (made, bound, qos) in pods.items()
            for resources in [made["spec"]["containers"][0]["resources"]]
            if "limits" in resources
            and not bound
            and qos not in ("LS", "BE")
            and resources["requests"]["cpu"] != "500m"
        }
        assert {name: len(cpus) for name, cpus in pinned.items()} == expected
        assert sum(map(len, pinned.values())) == len(set().union({0, 1}, *pinned.values())) - 2
        assert all(cpus == before[name] for name, cpus in pinned.items() if name in before)
        before, most = pinned, max(most, len(pinned))
        shared = set(range(32)).difference(*pinned.values())
        for kind, classes in (("cpu-shared-pools", {None, "LSE", "LSR", "LS", "BE"}), ("be-cpu-shared-pools", {"LSE"})):
            held = set().union(*(bound for _, bound, qos in pods.values() if qos in classes))
            found = {cpu for text in cluster.pools(kind).values() for cpu in parse_cpuset(text)}
            assert found == shared - held - {2, 3, 30, 31}
    assert most > 3


# -- the kubelet's CPU manager

PINNED = [
    # pod -> the CPUs that it gets; 0 and 1 are reserved
    (pod("p", "2"), "2-3"),
    (pod("p", "3"), "2-4"),
    (pod("p", "2", qos="LSR"), "2-3"),
    (pod("p", "2", limits=False), None),
    (pod("p", "1500m"), None),
    (pod("p", "2", qos="LS"), None),
    (pod("p", "2", qos="BE"), None),
    (pod("p", "2", cpuset="4-5", qos="LSR"), None),
    (pod("p", "2", cpuset="4-5"), None),
    (pod("p", "2", cpuset=""), "2-3"),
]


@pytest.mark.parametrize("made, cpus", PINNED)
def test_the_static_policy_gives_cpus_to_pods_that_are_guaranteed(made, cpus):
    cluster = TopologyCluster(template=template(kubelet=STATIC))
    cluster.create(made)
    cluster.run(4)
    assert cluster.pinned() == ({"p": cpus} if cpus else {})
    if cpus:
        left = parse_cpuset("0-7") - parse_cpuset(cpus)
        assert cluster.pools()[0] == cluster.pools("be-cpu-shared-pools")[0] == format_cpuset(left)
    cluster.delete("pods", "p", grace_period_seconds=0)
    cluster.run(4)
    assert cluster.pinned() == {}
    assert cluster.pools() == {0: "0-7", 1: "8-15"}


def test_each_container_counts():
    def container(name, cpu, **fields):
        amounts = {"cpu": cpu, "memory": "1Gi"}
        return {"name": name, "image": "i", "resources": {"requests": amounts, "limits": amounts}, **fields}

    cluster = TopologyCluster(template=template(kubelet=STATIC))
    made = pod("p")
    made["spec"]["containers"] = [container("a", "2"), container("b", "500m"), container("c", "1")]
    made["spec"]["initContainers"] = [container("side", "1", restartPolicy="Always"), container("first", "5")]
    cluster.create(made)
    cluster.run(4)
    # Five for the first one, of which the others use four later on.
    assert cluster.pinned() == {"p": "2-6"}


def test_without_the_static_policy_no_pod_gets_cpus():
    cluster = TopologyCluster(template=template())
    cluster.create(pod("p"))
    cluster.run(4)
    assert cluster.said("pod-cpu-allocs") is None
    assert cluster.pools() == {0: "0-7", 1: "8-15"}


def test_the_kubelet_keeps_off_bound_cpus_while_it_can():
    cluster = TopologyCluster(template=template(kubelet=STATIC))
    cluster.create(pod("bound", "4", cpuset="2-5", qos="LSR"))
    cluster.create(pod("a", "2"))
    cluster.create(pod("b", "8"))
    cluster.run(4)
    assert cluster.pinned() == {"a": "6-7", "b": "8-15"}
    # Bound to more CPUs than it requests, some of them the kubelet's: what is given stays.
    cluster.annotate("pods", "bound", {RESOURCE_STATUS: '{"cpuset": "2-7,10-13"}'})
    cluster.delete("pods", "b", grace_period_seconds=0)
    cluster.run(4)
    cluster.create(pod("c", "8"))
    cluster.run(4)
    # The four CPUs that are neither given nor bound are too few.
    assert cluster.pinned() == {"a": "6-7", "c": "2-5,8-11"}


def test_a_pod_that_the_scheduler_binds_later_is_no_longer_the_kubelets():
    cluster = TopologyCluster(template=template(kubelet=STATIC))
    cluster.create(pod("p"))
    cluster.run(4)
    assert cluster.pinned() == {"p": "2-3"}
    cluster.annotate("pods", "p", {RESOURCE_STATUS: '{"cpuset": "8-9"}'})
    cluster.run(4)
    assert cluster.pinned() == {}
    assert cluster.pools() == {0: "0-7", 1: "10-15"}


def test_pods_that_do_not_fit_get_no_cpus():
    cluster = TopologyCluster(template=template(kubelet=STATIC))
    cluster.create(pod("a", "10"))
    cluster.create(pod("b", "10"))
    cluster.run(8)
    assert cluster.get("pods", "b")["status"]["reason"] == "OutOfcpu"
    assert cluster.pinned() == {"a": "2-11"}


def test_full_cores_only():
    options = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    cluster = TopologyCluster(template=template(kubelet={**STATIC, **options}))
    cluster.create(pod("odd", "3"))
    cluster.create(pod("even", "4"))
    cluster.create(pod("shared", "1", limits=False))
    cluster.run(8)
    phases = {each["metadata"]["name"]: each["status"]["phase"] for each in cluster.pods()}
    assert phases == {"odd": "Failed", "even": "Running", "shared": "Running"}
    status = cluster.get("pods", "odd")["status"]
    assert status["reason"] == "SMTAlignmentError"
    assert status["message"] == (
        "Pod was rejected: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    )
    assert cluster.pinned() == {"even": "2-5"}


# -- when


def test_a_report_is_written_when_something_changed_and_no_more_often_than_every_three_seconds():
    cluster = TopologyCluster(nodes=3, template=template())
    cluster.run(60)
    assert sorted(name for _, name, _ in cluster.writes) == ["node-0", "node-1", "node-2"]
    # A pod that has no CPUs of its own changes nothing; neither do heartbeats.
    cluster.create(pod("ls", limits=False))
    cluster.run(600)
    assert len(cluster.writes) == 3
    for number in range(16):
        cluster.create(pod(f"p{number}", "100m", cpuset=str(number), qos="LSR"))
        cluster.run(1)
    cluster.run(4)
    times = [at for at, name, _ in cluster.writes if name == "node-0"][1:]
    assert 5 <= len(times) <= 7
    assert all(later - at > 2.9 for at, later in pairwise(times))
    assert [name for _, name, _ in cluster.writes].count("node-1") == 1


def test_the_nodes_do_not_write_all_at_once():
    cluster = TopologyCluster(nodes=100, defined=False, template=template())
    cluster.run(10)
    cluster.define()
    cluster.run(4)
    assert len(cluster.writes) == 100
    tenths = [int(at * 10) for at, _, _ in cluster.writes]
    assert max(map(tenths.count, tenths)) <= 8


def test_what_others_write_stays():
    cluster = TopologyCluster(template=template())
    cluster.run(4)
    zones = cluster.topology()["zones"]
    batch = {"name": "kubernetes.io/batch-cpu", "capacity": "3k", "allocatable": "3k", "available": "3k"}
    zones[0]["resources"].append(batch)
    zones[0]["costs"] = [{"name": "node-1", "value": 21}]
    patch = {"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}, "zones": zones}
    cluster.patch("noderesourcetopologies", "node-0", patch)
    cluster.create(pod("p", cpuset="0-1", qos="LSR"))
    cluster.run(4)
    report = cluster.topology()
    assert cluster.pools() == {0: "2-7", 1: "8-15"}
    assert (report["metadata"]["annotations"]["a"], report["metadata"]["labels"]["c"]) == ("b", "d")
    assert batch in report["zones"][0]["resources"]
    assert report["zones"][0]["costs"] == zones[0]["costs"]


def test_what_is_changed_by_hand_is_set_right_again():
    cluster = TopologyCluster(template=template())
    cluster.run(4)
    right = cluster.topology()
    wrong = {"metadata": {"annotations": {"node.koordinator.sh/cpu-topology": "x"}}, "zones": []}
    cluster.patch("noderesourcetopologies", "node-0", wrong)
    cluster.run(4)
    assert cluster.topology()["zones"] == right["zones"]
    assert cluster.topology()["metadata"]["annotations"] == right["metadata"]["annotations"]
    count = len(cluster.writes)
    cluster.run(60)
    assert len(cluster.writes) == count
    cluster.delete("noderesourcetopologies", "node-0")
    cluster.run(4)
    assert cluster.topology()["zones"] == right["zones"]


def test_a_silent_node_does_not_report():
    cluster = TopologyCluster(template=template(kubelet=STATIC))
    cluster.run(4)
    cluster.annotate("nodes", "node-0", {FAIL: "true"})
    cluster.create(pod("p", tolerations=[{"operator": "Exists"}]))
    cluster.run(60)
    assert cluster.pinned() == {}
    cluster.annotate("nodes", "node-0", {FAIL: None})
    cluster.run(4)
    assert cluster.pinned() == {"p": "2-3"}


def test_reports_go_with_their_nodes():
    cluster = TopologyCluster(nodes=2, template=template())
    cluster.run(4)
    cluster.delete("nodes", "node-0")
    cluster.run(60)
    assert [each["metadata"]["name"] for each in cluster.list("noderesourcetopologies")] == ["node-1"]


def test_a_node_that_comes_back_reports_anew():
    cluster = TopologyCluster(template=template(kubelet=STATIC))
    cluster.create(pod("p", tolerations=[{"operator": "Exists"}]))
    cluster.run(4)
    node = cluster.get("nodes", "node-0")
    cluster.delete("nodes", "node-0")
    metadata = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
    again = cluster.create({**node, "metadata": metadata})
    cluster.run(10)
    (owner,) = cluster.topology()["metadata"]["ownerReferences"]
    assert owner["uid"] == again["metadata"]["uid"] != node["metadata"]["uid"]
    assert cluster.pinned() == {"p": "2-3"}


def test_the_definition_may_come_late_and_go():
    cluster = TopologyCluster(template=template(kubelet=STATIC), defined=False)
    cluster.create(pod("p"))
    cluster.create(pod("bound", cpuset="4-5", qos="LSR"))
    cluster.run(60)
    cluster.define()
    cluster.run(4)
    assert cluster.pinned() == {"p": "2-3"}
    assert cluster.pools() == {0: "0-1,6-7", 1: "8-15"}
    cluster.delete("customresourcedefinitions", DEFINITION["metadata"]["name"])
    cluster.delete("pods", "p", grace_period_seconds=0)
    cluster.run(60)
    cluster.define()
    cluster.run(4)
    assert cluster.pinned() == {}


def test_reports_can_be_switched_off():
    cluster = TopologyCluster(template=template(), hollow={"topology_reports": False})
    cluster.run(60)
    assert cluster.list("noderesourcetopologies") == []


def test_nodes_without_cpus_do_not_report():
    cluster = TopologyCluster()
    cluster.run(60)
    assert cluster.list("noderesourcetopologies") == []


# -- nodes from elsewhere


def test_nodes_made_by_hand_report_what_their_annotation_says():
    cluster = TopologyCluster(nodes=0)
    metadata = {"name": "mine", "annotations": {"koordsched.io/hollow": "true"}}
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    cluster.create(pod("p", cpuset="1", node="mine"))
    cluster.run(10)
    assert cluster.list("noderesourcetopologies") == []
    cluster.annotate("nodes", "mine", {TOPOLOGY: '{"cpus": {"coresPerNumaNode": 2}}'})
    cluster.run(4)
    assert cluster.pools(node="mine") == {0: "0,2-3"}
    cluster.annotate("nodes", "mine", {TOPOLOGY: '{"cpus": {"coresPerNumaNode": 4, "threadsPerCore": 1}}'})
    cluster.run(4)
    assert [each["core"] for each in cluster.said("cpu-topology", "mine")["detail"]] == [0, 1, 2, 3]
    # Without the annotation there is no agent, and what it wrote stays.
    cluster.annotate("nodes", "mine", {TOPOLOGY: None})
    cluster.delete("pods", "p", grace_period_seconds=0)
    cluster.run(10)
    assert cluster.pools(node="mine") == {0: "0,2-3"}


def test_pods_keep_their_cpus_when_a_cluster_is_loaded(tmp_path):
    cluster = TopologyCluster(template=template(kubelet=STATIC))
    for name in ("a", "b", "c"):
        cluster.create(pod(name))
    cluster.run(4)
    cluster.delete("pods", "a", grace_period_seconds=0)
    cluster.run(4)
    assert cluster.pinned() == {"b": "4-5", "c": "6-7"}
    snapshot.dump(cluster.registry, tmp_path)
    later = TopologyCluster(nodes=0, defined=False)
    snapshot.load(later.registry, tmp_path)
    later.create(pod("d"))
    later.run(8)
    assert later.pinned() == {"b": "4-5", "c": "6-7", "d": "2-3"}


@pytest.mark.parametrize(
    "text", ["x", "{}", "[1]", '[{"uid": 3}]', '[{"cpuset": "x"}]', "[" * 5000, '[{"uid": "", "cpuset": "9-12"}]']
)
def test_what_a_report_said_before_may_be_anything(text):
    cluster = TopologyCluster(template=template(kubelet=STATIC))
    wrong = {"node.koordinator.sh/pod-cpu-allocs": text}
    zones = {"topologyPolicies": [], "zones": []}
    metadata = {"name": "node-0", "annotations": wrong}
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
    cluster.create({**kind, "metadata": metadata, **zones})
    cluster.create(pod("p"))
    cluster.run(4)
    assert cluster.pinned() == {"p": "2-3"}


# -- bad input

WRONG = [
    (TOPOLOGY, "x"),
    (TOPOLOGY, '{"cpus": 3}'),
    (TOPOLOGY, '{"cpus": {"coresPerNumaNode": 99999999999999999999}}'),
    (TOPOLOGY, '{"cpus": {"coresPerNumaNode": 2}, "kubelet": {"reservedSystemCPUs": "4"}}'),
    (TOPOLOGY, "[" * 10_000),
    (RESERVATION, "x"),
    (RESERVATION, '{"reservedCPUs": "0-999999999999"}'),
    (RESERVATION, '{"resources": {"cpu": "x"}}'),
    (RESERVATION, '{"resources": {"cpu": {}}}'),
    (RESERVATION, '{"resources": ' + "[" * 5000),
    (SYSTEM, '{"cpuset": "a"}'),
    (SYSTEM, "[]"),
]


@pytest.mark.parametrize("annotation, text", WRONG)
def test_annotations_of_nodes_that_cannot_be_read(annotation, text):
    cluster = TopologyCluster(template=template())
    cluster.run(4)
    before = cluster.topology()["metadata"]["annotations"]
    cluster.annotate("nodes", "node-0", {annotation: text})
    cluster.run(10)
    (complaint,) = cluster.complaints()
    assert complaint.startswith(f"{annotation} is ignored: ")
    assert cluster.topology()["metadata"]["annotations"] == before


@pytest.mark.parametrize("text", ["x", "[]", '{"cpuset": 3}', '{"cpuset": "3-1"}', '{"a": ' + "[" * 5000])
def test_annotations_of_pods_that_cannot_be_read(text):
    cluster = TopologyCluster(template=template())
    made = pod("p", qos="LSR")
    made["metadata"]["annotations"][RESOURCE_STATUS] = text
    cluster.create(made)
    cluster.create(pod("good", cpuset="0-1", qos="LSR"))
    cluster.run(10)
    (complaint,) = cluster.complaints()
    assert complaint.startswith(f"{RESOURCE_STATUS} is ignored: ")
    assert cluster.pools() == {0: "2-7", 1: "8-15"}


NULLS = [
    (RESERVATION, "null"),
    (RESERVATION, '{"resources": null, "reservedCPUs": null, "applyPolicy": null}'),
    (SYSTEM, "null"),
    (SYSTEM, '{"cpuset": null, "cpusetExclusive": null}'),
]


@pytest.mark.parametrize("annotation, text", NULLS)
def test_null_is_an_absent_field(annotation, text):
    cluster = TopologyCluster(template=template(annotations={annotation: text}))
    cluster.run(4)
    assert cluster.complaints() == []
    assert cluster.said("reservation") == {}
    assert not cluster.said("system-qos-resource")
    assert cluster.pools() == {0: "0-7", 1: "8-15"}


@pytest.mark.parametrize("text", ["null", '{"cpuset": null}', "{}", '{"numaNodeResources": [{"node": 0}]}'])
def test_pods_without_cpus_of_their_own(text):
    cluster = TopologyCluster(template=template())
    made = pod("p")
    made["metadata"]["annotations"][RESOURCE_STATUS] = text
    cluster.create(made)
    cluster.run(10)
    assert cluster.complaints() == []
    assert cluster.pools() == {0: "0-7", 1: "8-15"}


# -- amplification


def allocatable(cluster):
    node = cluster.get("nodes", "node-0")
    amounts = node["status"]["allocatable"]
    return amounts["cpu"], amounts["memory"], json.loads(node["metadata"]["annotations"].get(RAW, "null"))


def test_amplified_nodes_offer_more_than_they_have():
    cluster = TopologyCluster(template=template(kubelet=STATIC, annotations={RATIO: '{"cpu": 1.5, "memory": 1}'}))
    raw = {"cpu": "14", "memory": "64Gi"}
    assert allocatable(cluster) == ("21", "64Gi", raw)
    cluster.run(4)
    # What there is is not amplified.
    assert zone(cluster)["cpu"]["allocatable"] == "8"
    cluster.create(pod("big", "20", limits=False))
    cluster.run(4)
    assert cluster.get("pods", "big")["status"]["phase"] == "Running"
    cluster.annotate("nodes", "node-0", {RATIO: '{"cpu": 1.23, "memory": 2}'})
    cluster.run(4)
    assert allocatable(cluster) == ("17220m", "128Gi", raw)
    cluster.annotate("nodes", "node-0", {RATIO: None})
    cluster.run(4)
    assert allocatable(cluster) == ("14", "64Gi", None)


@pytest.mark.parametrize("text", ["x", "[]", '{"cpu": "a"}', '{"cpu": -1}', '{"cpu": 1e300}', '{"a": ' + "[" * 5000])
def test_ratios_that_cannot_be_read(text):
    cluster = TopologyCluster(template=template(annotations={RATIO: text}))
    cluster.run(4)
    assert allocatable(cluster) == ("16", "64Gi", None)
    (complaint,) = cluster.complaints()
    assert complaint.startswith(f"{RATIO} is ignored: ")

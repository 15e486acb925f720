"""The file of workloads, and what is made of it."""

import msgspec
import orjson
import pytest

from bench import manifests
from bench.engine.measuring import cost_of, preemptions
from bench.engine.state import Engine
from bench.workloads import Pods, Variable, WorkloadError, load

CATALOG = load()

UPSTREAM = {
    # name: (nodes, init pods, measured pods)
    "SchedulingBasic": (5000, 1000, 10000),
    "SchedulingBasic50k": (5000, 5000, 50000),
    "SchedulingDaemonset": (15001, 0, 30000),
    "SchedulingNodeAffinity": (5000, 5000, 10000),
    "SchedulingPodAntiAffinity": (5000, 1000, 2000),
    "SchedulingPodMatchingAntiAffinity": (5000, 1000, 5000),
    "SchedulingPodAffinity": (5000, 5000, 5000),
    "SchedulingPreferredPodAffinity": (5000, 5000, 5000),
    "SchedulingPreferredPodAntiAffinity": (5000, 5000, 5000),
    "MixedSchedulingBasePod": (5000, 10000, 5000),
    "SchedulingRequiredPodAntiAffinityWithNSSelector": (6000, 4000, 2000),
    "SchedulingPreferredAntiAffinityWithNSSelector": (6000, 4000, 2000),
    "SchedulingRequiredPodAffinityWithNSSelector": (6000, 4000, 2000),
    "SchedulingPreferredAffinityWithNSSelector": (6000, 4000, 2000),
    "TopologySpreading": (5000, 5000, 5000),
    "PreferredTopologySpreading": (5000, 5000, 5000),
    "PreemptionBasic": (1000, 4000, 1000),
    "PreemptionAsync": (5000, 20000, 5000),
    "Unschedulable": (5000, 20000, 10000),
    "SchedulingWithMixedChurn": (5000, 0, 10000),
    "SchedulingWhileGated": (1, 20000, 20000),
    "SchedulingWithExtendedResource": (5000, 0, 5000),
    "SchedulingDeletedPodsWithFinalizers": (5000, 0, 5000),
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_upstreams_parameters(name):
    workload = CATALOG.workload(name)
    assert (workload.node_count, sum(g.total for g in workload.init), workload.measure.total) == UPSTREAM[name]


@pytest.mark.parametrize("name", [n for n in CATALOG.workloads if not n.startswith("Preemption")])
def test_every_workload_can_be_placed(name):
    """Also small: the pods of each fit on its nodes, with what is there before."""
    assert (cost := cost_of(CATALOG, name, nodes=400, pods=40)).placed == cost.pods


def test_preemption_evicts_three_pods_for_each():
    result = preemptions(CATALOG, decisions=20)
    assert (result.nodes, result.decisions, result.victims) == (1000, 20, 60)


@pytest.mark.parametrize("name", CATALOG.pods)
def test_measured_pods_have_the_size_of_real_ones(name):
    pod = manifests.pod(CATALOG.pods[name], "measured-1", "default", 1, "bench")
    assert 4_500 < len(orjson.dumps(pod)) < 6_500
    assert pod["metadata"]["labels"].items() >= manifests.MARK.items()
    assert b"${" not in orjson.dumps(pod)


@pytest.mark.parametrize(
    "variable, values",
    [
        (Variable(), [0, 1, 2, 3, 4]),
        (Variable(every=2), [0, 0, 1, 1, 2]),
        (Variable(modulo=3), [0, 1, 2, 0, 1]),
        (Variable(first=400, every=2, modulo=2), [400, 400, 401, 401, 400]),
    ],
)
def test_variables(variable, values):
    assert [variable.at(index) for index in range(5)] == values


def test_distinct_shapes_are_distinct():
    engine = Engine(CATALOG, CATALOG.workload("DistinctShapes").scaled(nodes=1))
    shapes = {pod.shape for pod in engine.pods(Pods(kind="distinct-shape", count=2500))}
    assert len(shapes) == 2000


def test_replicas_belong_to_a_service_each():
    workload = CATALOG.workload("DeploymentReplicas")
    services = {m["metadata"]["name"]: m["spec"]["selector"] for m in manifests.objects_of(workload.objects)}
    pods = manifests.pods_of(CATALOG, workload.measure, "p", "bench", full_size=False)
    counts: dict[str, int] = {}
    for pod in pods:
        app = pod["metadata"]["labels"]["app"]
        assert services[app] == {"app": app}
        counts[app] = counts.get(app, 0) + 1
    assert len(counts) == 500
    assert set(counts.values()) == {20}


@pytest.mark.parametrize(("pods", "per_namespace"), [(20, 1), (30, 2), (10000, 500)])
def test_scaling_shares_measured_pods_out_among_their_namespaces(pods, per_namespace):
    assert CATALOG.workload("Quotas").scaled(pods=pods).measure.count == per_namespace


@pytest.mark.parametrize("name", ["SchedulingNodeAffinity", "SchedulingDeletedPodsWithFinalizers"])
def test_scaling_keeps_pods_per_node(name):
    scaled = CATALOG.workload(name).scaled(nodes=500, pods=7)
    (there,) = [*scaled.init, *scaled.pending]
    assert (scaled.node_count, there.count, scaled.measure.count) == (500, 500, 7)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("pods: {}\nnodes: {}\nworkloads: {W: {nodes: [], measure: {kind: x, count: 1}}}", "there is no kind 'x'"),
        ("pods: {}\nnodes: {}\nworkloads: {W: {nods: []}}", "nods"),
        ("pods: [", "expected"),
        (
            "pods: {x: {spec: {}}}\nnodes: {}\n"
            "workloads: {W: {nodes: [], measure: {kind: x, count: 1}, definitions: [nothing.yaml]}}",
            "W: there is no .*nothing.yaml",
        ),
    ],
)
def test_a_bad_file_is_explained(tmp_path, text, problem):
    path = tmp_path / "workloads.yaml"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=problem):
        load(path)


def test_unknown_workload_names_the_known_ones():
    with pytest.raises(WorkloadError, match=r"no workload 'X'.*SchedulingBasic"):
        CATALOG.workload("X")


def test_catalog_survives_a_round_trip():
    assert msgspec.convert(msgspec.to_builtins(CATALOG), type(CATALOG)) == CATALOG

"""Section 7 of the default-plugins specification, the cases of plugins that look at one node at a time."""

import numpy as np
import pytest

from koordsched.config.plugin_args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from tests.plugins.harness import Bench, explain, normalized, totals, weighted
from tests.plugins.objects import container, node, node_affinity, pod, requests, term

PREFER = "PreferNoSchedule"

T4 = [
    node("a1", "4", "10000Mi", labels={"zone": "z1", "disk": "ssd"}, images={"img:1": 500, "big:latest": 2000}),
    node("a2", "4", "10000Mi", labels={"zone": "z1"}, taints=[("k", PREFER), ("k2", PREFER)], images={"img:1": 500}),
    node("b1", "10", "20000Mi", labels={"zone": "z2", "disk": "hdd"}, taints=[("k", PREFER)]),
    pod("e1", container(cpu="500m", memory="500Mi"), on="a1", labels={"app": "x"}),
    pod("e2", container(cpu="1", memory="3000Mi"), on="a1", labels={"app": "x"}),
    pod("e3", container(cpu="2", memory="1000Mi"), on="a2", labels={"app": "x"}),
    pod("e4", container(cpu="1", memory="2000Mi"), on="b1", labels={"app": "y"}),
]
NODES_T4 = ("a1", "a2", "b1")


def of_t4(*values):
    return dict(zip(NODES_T4, values, strict=True))


def test_default_plugins_case_01_mixed_scores():
    found = explain(T4, pod("p", container(cpu="1", memory="1000Mi")))
    assert weighted(found, "TaintToleration") == of_t4(300, 0, 150)
    assert weighted(found, "NodeResourcesFit") == of_t4(46, 52, 82)
    assert weighted(found, "NodeResourcesBalancedAllocation") == of_t4(71, 71, 73)
    assert weighted(found, "ImageLocality") == of_t4(31, 31, 0)
    assert weighted(found, "DynamicResources") == of_t4(0, 0, 0)
    assert totals(found) == of_t4(448, 154, 305)
    assert found.any_of == ["a1"]


def test_default_plugins_case_02_preferred_node_affinity():
    affinity = node_affinity(preferred=[(10, term(("disk", "In", "ssd"))), (4, term(("disk", "Exists")))])
    found = explain(T4, pod("p", container(cpu="1", memory="1000Mi"), affinity=affinity))
    assert weighted(found, "NodeAffinity") == of_t4(200, 0, 56)
    assert totals(found) == of_t4(648, 154, 361)


def test_default_plugins_case_05_toleration():
    wanted = pod("p", container(cpu="1", memory="1000Mi"), tolerations=[{"key": "k", "operator": "Exists"}])
    found = explain(T4, wanted)
    assert weighted(found, "TaintToleration") == of_t4(300, 0, 300)
    assert (totals(found)["b1"], totals(found)["a1"]) == (455, 448)
    assert found.any_of == ["b1"]


FIT, BALANCED, IMAGES = "NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality"


@pytest.mark.parametrize(
    "wanted, expected",
    [
        pytest.param(
            pod("p", container("big", "a", cpu="1", memory="1000Mi"), container("img:1", "b")),
            {FIT: (44, 50, 81), IMAGES: (49, 15, 0)},
            id="test_default_plugins_case_06_container_without_requests",
        ),
        pytest.param(
            pod(
                "p",
                container(name="a"),
                container(name="b"),
                resources=requests(cpu="2", memory="4000Mi"),
            ),
            {FIT: (59, 65, 88), BALANCED: (72, 72, 75)},
            id="test_default_plugins_case_07_pod_level_resources",
        ),
        pytest.param(
            pod("p", container(cpu="1")),
            {FIT: (50, 56, 84), BALANCED: (69, 68, 72)},
            id="test_default_plugins_case_08_no_memory_request",
        ),
        pytest.param(
            pod(
                "p",
                container(cpu="500m", memory="500Mi"),
                initContainers=[
                    container(name="i1", cpu="1500m", memory="100Mi"),
                    container(name="s", restart_policy="Always", cpu="200m", memory="300Mi"),
                    container(name="i2", cpu="1", memory="2000Mi"),
                ],
            ),
            {FIT: (33, 39, 76), BALANCED: (71, 71, 74)},
            id="test_default_plugins_case_09_init_containers_and_sidecar",
        ),
    ],
)
def test_default_plugins_scores_on_t4(wanted, expected):
    found = explain(T4, wanted)
    assert {plugin: weighted(found, plugin) for plugin in expected} == {
        plugin: of_t4(*values) for plugin, values in expected.items()
    }


@pytest.mark.parametrize(
    "amounts, fit, balanced",
    [
        ({"cpu": "1", "memory": "1Gi"}, 81, 71),
        ({"cpu": "2", "memory": "2Gi"}, 62, 68),
        ({"cpu": "2", "memory": "4Gi"}, 50, 75),
        ({}, None, None),
    ],
)
def test_default_plugins_case_10_empty_node(amounts, fit, balanced):
    bench = Bench(node("n", "4", "8Gi"))
    wanted = pod("p", container(**amounts))
    assert bench.score(bench.plugin(BALANCED), wanted) == (None if balanced is None else {"n": balanced})
    if fit is not None:
        assert bench.score(bench.plugin(FIT), wanted) == {"n": fit}


@pytest.mark.parametrize(
    "capacity, used, wanted, expected",
    [
        ((4000, 10000), (0, 0), (3000, 5000), 68),
        ((6000, 10000), (0, 0), (3000, 5000), 75),
        ((10000, 20000), (3000, 0), (3000, 5000), 73),
        ((10000, 20000), (3000, 5000), (3000, 5000), 74),
        ((10000, 50000), (3000, 5000), (3000, 5000), 70),
        ((3000, 5000), (3000, 0), (0, 5000), 100),
        ((3000, 5000), (0, 0), (0, 5000), 50),
    ],
)
def test_default_plugins_case_11_balanced_allocation(capacity, used, wanted, expected):
    bench = Bench(
        node("n", f"{capacity[0]}m", capacity[1]),
        pod("e", container(cpu=f"{used[0]}m", memory=used[1]), on="n"),
    )
    plugin = bench.plugin(BALANCED)
    assert bench.score(plugin, pod("p", container(cpu=f"{wanted[0]}m", memory=wanted[1]))) == {"n": expected}


T7 = [
    node("g1", "8", "16000Mi", gpu=4),
    node("g2", "8", "16000Mi"),
    node("g3", "16", "8000Mi", gpu=8),
    pod("e1", container(cpu="2", memory="2000Mi"), on="g1"),
    pod("e2", container(cpu="3", memory="8000Mi"), on="g2"),
    pod("e3", container(cpu="1", memory="1000Mi", gpu=2), on="g3"),
]


def strategy(kind, weights, shape=None):
    return NodeResourcesFitArgs(
        scoring_strategy=ScoringStrategy(
            type=kind,
            resources=tuple(ResourceSpec(name, weight) for name, weight in weights.items()),
            requested_to_capacity_ratio=None
            if shape is None
            else RequestedToCapacityRatioParam(tuple(UtilizationShapePoint(u, s) for u, s in shape)),
        )
    )


def test_default_plugins_case_12_most_allocated_with_a_scalar():
    bench = Bench(*T7)
    plugin = bench.plugin(FIT, strategy("MostAllocated", {"cpu": 3, "memory": 1, "ex.com/gpu": 5}))
    plain = pod("p", container(cpu="1", memory="1000Mi"))
    assert bench.score(plugin, plain) == {"g1": 32, "g2": 51, "g3": 15}
    with_gpu = pod("p", container(cpu="1", memory="1000Mi", gpu=1))
    scores = bench.score(plugin, with_gpu)
    assert (scores["g1"], scores["g3"]) == (28, 27)
    assert bench.filter(plugin, with_gpu) == {
        "g1": None,
        "g2": ("UnschedulableAndUnresolvable", "Insufficient ex.com/gpu"),
        "g3": None,
    }


def test_default_plugins_case_13_requested_to_capacity_ratio():
    bench = Bench(*T7)
    shape = [(0, 0), (50, 10), (100, 2)]
    plugin = bench.plugin(FIT, strategy("RequestedToCapacityRatio", {"cpu": 1, "memory": 1}, shape))
    assert bench.score(plugin, pod("p", container(cpu="1", memory="1000Mi"))) == {"g1": 55, "g2": 96, "g3": 37}


@pytest.mark.parametrize(
    "kind, weights, expected",
    [
        ("LeastAllocated", {"cpu": 1, "memory": 2}, (41, 50)),
        ("MostAllocated", {"cpu": 1, "memory": 1}, (62, 50)),
    ],
)
def test_default_plugins_case_14_weights(kind, weights, expected):
    bench = Bench(node("n4", "4000m", 10000), node("n6", "6000m", 10000))
    plugin = bench.plugin(FIT, strategy(kind, weights))
    scores = bench.score(plugin, pod("p", container(cpu="3000m", memory=5000)))
    assert scores == {"n4": expected[0], "n6": expected[1]}


@pytest.mark.parametrize("kind", ["MostAllocated", "RequestedToCapacityRatio"])
def test_the_only_one_of_a_resource_that_a_node_has_counts(kind):
    bench = Bench(node("one", gpu=1), node("two", gpu=2), node("none"))
    plugin = bench.plugin(FIT, strategy(kind, {"ex.com/gpu": 1}, [(0, 0), (100, 10)]))
    assert bench.score(plugin, pod("p", container(gpu=1))) == {"one": 100, "two": 50, "none": 0}


def test_one_resource_of_the_least_weight():
    bench = Bench(node("n", "4"), node("m", "2"))
    plugin = bench.plugin(FIT, strategy("LeastAllocated", {"cpu": 1}))
    assert bench.score(plugin, pod("p", container(cpu="1"))) == {"n": 75, "m": 50}


@pytest.mark.parametrize(
    ("weights", "nodes", "expected"),
    [
        ({"cpu": 1, "memory": 1}, ["a", "b"], (50 + 25) // 2),
        ({"cpu": 3, "memory": 1}, ["a", "b"], (3 * 50 + 25) // 4),
        ({"cpu": 1, "memory": 1}, ["b"], 0),
        ({"cpu": 1}, ["full", "a"], 100),
        ({"cpu": 1, "ex.com/gpu": 5}, ["a", "b"], 50),
        ({"ex.com/gpu": 5}, ["a", "b"], 0),
        ({"cpu": 1}, [], 0),
    ],
)
def test_a_placement_scores_by_what_its_nodes_together_have_and_use(weights, nodes, expected):
    bench = Bench(node("a", "4", "8Gi"), node("b", "4", "8Gi"), node("full", "1", "8Gi"))
    bench.add(pod("e", container(cpu="4", memory="4Gi"), on="a"))
    bench.add(pod("f", container(cpu="5", memory="1Gi"), on="full"))
    plugin = bench.plugin(FIT, strategy("LeastAllocated", weights))
    rows = np.array([bench.cluster.table.row_of[name] for name in nodes], dtype=np.intp)
    assert plugin.score_placement(None, rows) == expected


@pytest.mark.parametrize(
    "taints, expected",
    [((2, 2, 0), (0, 0, 100)), ((0, 0, 0), (100, 100, 100))],
)
def test_default_plugins_case_15_taints_normalised(taints, expected):
    nodes = [node(f"n{i}", taints=[(f"k{j}", PREFER) for j in range(count)]) for i, count in enumerate(taints)]
    found = explain(nodes, pod("p"))
    assert tuple(normalized(found, "TaintToleration").values()) == expected


@pytest.mark.parametrize("raw, expected", [((80, 20, 100), (80, 20, 100)), ((0, 0, 0), (0, 0, 0))])
def test_default_plugins_case_15_node_affinity_normalised(raw, expected):
    nodes = [node(f"n{i}") for i in range(3)]
    preferred = [
        (weight, term(("kubernetes.io/hostname", "In", f"n{i}"))) for i, weight in enumerate(raw) if weight
    ] or [(7, term(("nowhere", "Exists")))]
    found = explain(nodes, pod("p", affinity=node_affinity(preferred=preferred)))
    assert tuple(normalized(found, "NodeAffinity").values()) == expected


def images_on(*by_node):
    return [node(f"n{i}", images=images) for i, images in enumerate(by_node, 1)]


@pytest.mark.parametrize(
    "nodes, wanted, expected",
    [
        pytest.param(
            images_on({"a:1": 40, "b:1": 300}, {}),
            pod("p", container("a:1", "a"), container("b:1", "b")),
            {"n1": 7, "n2": 0},
            id="two images on one of two nodes",
        ),
        pytest.param(
            images_on({"c:1": 4000}, {}),
            pod("p", container("c:1", "a"), container("none:1", "b")),
            {"n1": 100, "n2": 0},
            id="one huge image, two nodes",
        ),
        pytest.param(
            images_on({"c:1": 4000}, {}, {}),
            pod("p", container("c:1", "a"), container("none:1", "b")),
            {"n1": 66, "n2": 0, "n3": 0},
            id="one huge image, three nodes",
        ),
        pytest.param(
            images_on({"a:1": 300, "b:1": 600, "c:1": 900}, {"b:1": 600, "c:1": 900}, {}),
            pod("p", container("a:1", "a"), container("b:1", "b"), container("c:1", "c")),
            {"n1": 36, "n2": 32, "n3": 0},
            id="three images",
        ),
    ],
)
def test_default_plugins_case_16_images(nodes, wanted, expected):
    bench = Bench(*nodes)
    assert bench.score(bench.plugin(IMAGES), wanted) == expected


def test_default_plugins_case_17_image_volume_and_init_container():
    bench = Bench(*images_on({"v:1": 300}, {}))
    plugin = bench.plugin(IMAGES)
    as_volume = pod("p", container("none:1"), volumes=[{"name": "v", "image": {"reference": "v:1"}}])
    assert bench.score(plugin, as_volume) == {"n1": 12, "n2": 0}
    as_init = pod("p", container("none:1"), initContainers=[container("v:1", "i")])
    assert bench.score(plugin, as_init) == {"n1": 6, "n2": 0}


def test_default_plugins_case_26_host_ports_text():
    nodes = [node("n1", labels={"role": "edge"}), node("n2"), node("n3")]
    taken = pod("e", container(ports=[8080]), on="n1")
    found = explain([*nodes, taken], pod("p", container(ports=[8080]), nodeSelector={"role": "edge"}))
    assert found.message.startswith(
        "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, "
        "2 node(s) didn't match Pod's node affinity/selector."
    )


PORTS_TAKEN = ("Unschedulable", "node(s) didn't have free ports for the requested pod ports")


@pytest.mark.parametrize(
    "taken, wanted, verdict",
    [
        (("127.0.0.1", "TCP", 8080), ("10.0.0.1", "TCP", 8080), None),
        (("127.0.0.1", "TCP", 8080), ("0.0.0.0", "TCP", 8080), PORTS_TAKEN),
        (("0.0.0.0", "TCP", 8080), ("10.0.0.1", "TCP", 8080), PORTS_TAKEN),
        (("", "", 8080), ("10.0.0.1", "TCP", 8080), PORTS_TAKEN),
        (("0.0.0.0", "TCP", 8080), ("0.0.0.0", "UDP", 8080), None),
        (("10.0.0.1", "UDP", 8080), ("10.0.0.1", "UDP", 8080), PORTS_TAKEN),
        (("10.0.0.1", "UDP", 8080), ("10.0.0.1", "UDP", 8081), None),
    ],
)
def test_default_plugins_case_26_host_ports_conflict(taken, wanted, verdict):
    bench = Bench(node("n1"), node("n2"), pod("e", container(ports=[taken]), on="n1"))
    found = bench.filter(bench.plugin("NodePorts"), pod("p", container(ports=[wanted])))
    assert found == {"n1": verdict, "n2": None}


def test_default_plugins_case_27_named_node_too_small():
    affinity = node_affinity(required=[term(fields=[("metadata.name", "In", "n1")])])
    found = explain([node("n1"), node("n2"), node("n3")], pod("p", container(cpu="64"), affinity=affinity))
    assert found.message.startswith(
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_default_plugins_case_28_unknown_extended_resource():
    nodes = [node("n1"), node("n2"), node("n3")]
    wanted = pod("p", container(gpu=1))
    found = explain(nodes, wanted)
    assert found.message.startswith("0/3 nodes are available: 3 Insufficient ex.com/gpu.")
    ignoring = {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": ["ex.com"]}}]}
    assert explain(nodes, wanted, ignoring).any_of == ["n1", "n2", "n3"]


def test_balanced_allocation_over_three_resources_leaves_out_what_is_missing():
    bench = Bench(node("n1", "4", "8Gi", gpu=4), node("n2", "4", "8Gi"))
    three = NodeResourcesBalancedAllocationArgs(
        resources=(ResourceSpec("cpu", 1), ResourceSpec("memory", 1), ResourceSpec("ex.com/gpu", 1))
    )
    scores = bench.score(bench.plugin(BALANCED, three), pod("p", container(cpu="1", memory="4Gi", gpu=1)))
    # n1: 1/4, 1/2, 1/4: standard deviation 0.1178, balance 88; n2: 1/4, 1/2: 0.125, balance 87.
    assert scores == {"n1": 50 + (50 + 88 - 100) // 2, "n2": 50 + (50 + 87 - 100) // 2}


def test_an_image_that_one_node_is_left_with_has_the_size_that_it_reports_next():
    """Also if it reports nothing new: what was first seen is forgotten with the last node that has the image."""
    bench = Bench(*[node(name, images={"big:latest": size}) for name, size in (("a", 500), ("b", 700), ("c", 900))])
    plugin, wanted = bench.plugin(IMAGES), pod("p", container("big"))
    of = lambda size, spread: 100 * (int(size * spread) - 23) // (1000 - 23)  # noqa: E731
    assert bench.score(plugin, wanted) == dict.fromkeys("abc", of(500, 1))
    bench.add(node("b", images={"big:latest": 700}))
    bench.cluster.remove_node("a")
    assert bench.score(plugin, wanted) == dict.fromkeys("bc", of(500, 1))
    bench.add(node("c"))
    assert bench.score(plugin, wanted) == {"b": of(500, 1 / 2), "c": 0}
    bench.add(node("b", images={"big:latest": 700}))
    assert bench.score(plugin, wanted) == {"b": of(700, 1 / 2), "c": 0}

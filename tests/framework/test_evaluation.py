"""What is kept per shape and refreshed row by row equals an evaluation from scratch."""

import random

import numpy as np
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.changelog import Facet
from koordsched.cluster.shape import SHAPE_BYTES
from koordsched.framework.evaluation import INFEASIBLE, Evaluations
from koordsched.framework.interface import ShapeFilter, ShapeScore
from koordsched.framework.status import NO_NODE
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, node_affinity, pod, term

ZONE = "topology.kubernetes.io/zone"


def random_node(rng, name):
    return node(
        name,
        cpu=rng.choice(("2", "4", "8")),
        memory=rng.choice(("4Gi", "8Gi")),
        labels={ZONE: rng.choice("abc"), **({"disk": "ssd"} if rng.random() < 0.5 else {})},
        taints=rng.choice(((), (), (("k", "NoSchedule"),), (("k", "PreferNoSchedule"),), (("j", "PreferNoSchedule"),))),
        unschedulable=rng.random() < 0.1,
        images=rng.choice(({}, {"img:1": 500}, {"img:1": 500, "img:2": 300})),
        **rng.choice(({}, {"gpu": "4"})),
    )


def shapes():
    ssd, zone_a = term(("disk", "In", "ssd")), term((ZONE, "In", "a"))
    return [
        pod("plain", container(cpu="500m", memory="1Gi")),
        pod("best-effort", container()),
        pod("gpu", container(cpu="1", gpu="1")),
        pod("picky", container(cpu="1"), affinity=node_affinity([ssd], [(10, zone_a)])),
        pod("wishful", container(cpu="200m"), affinity=node_affinity(preferred=[(10, ssd), (3, zone_a)])),
        pod("tolerant", container(cpu="1"), tolerations=[{"operator": "Exists"}]),
        pod("port", container(cpu="100m", ports=(8080,))),
        pod("two", container("img:2", cpu="100m"), container("img:1", name="d", cpu="100m")),
    ]


def change_something(rng, cluster, names, counter):
    kind = rng.random()
    table = cluster.table
    if kind < 0.15 or not table.count:
        name = rng.choice(names)
        cluster.upsert_node(convert(random_node(rng, name), core.Node))
    elif kind < 0.22:
        cluster.remove_node(rng.choice(sorted(table.row_of)))
    elif kind < 0.75 or not cluster.assigned:
        on = rng.choice(sorted(table.row_of))
        thing = pod(f"w{counter}", container(cpu=rng.choice(("100m", "1")), ports=rng.choice(((), (8080,)))), on=on)
        cluster.set_pod(cluster.pods.build(convert(thing, core.Pod)))
    else:
        cluster.remove_pod(rng.choice(sorted(cluster.assigned)))


def assert_same(kept, fresh):
    alive = fresh.codes != NO_NODE
    assert np.array_equal(kept.codes, fresh.codes)
    assert np.array_equal(kept.totals, fresh.totals)
    assert kept.feasible == fresh.feasible == int(np.count_nonzero(fresh.totals != INFEASIBLE))
    assert not np.any((kept.totals != INFEASIBLE) & ~alive)


def bytes_taken(evaluation):
    """By the shape, and by the arrays, room for all rows to be listed as the best ones included."""
    rows = np.arange(len(evaluation.codes), dtype=np.int32)
    arrays = (rows, evaluation.codes, evaluation.totals, *evaluation.raw_among(rows))
    return evaluation.shape.nbytes + sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


@pytest.mark.parametrize("seed", range(12))
def test_kept_evaluations_equal_fresh_ones(seed):
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(rng.choice((6, 30, 90)))]
    offline = scheduler([random_node(rng, name) for name in names[: len(names) // 2]] + shapes())
    profile = offline.profiles["default-scheduler"]
    waiting = list(offline.pending.values())
    for step in range(120):
        for i in range(rng.choice((1, 1, 1, 3, 9, 40))):
            change_something(rng, offline.cluster, names, step * 100 + i)
        for asked in rng.sample(waiting, rng.randint(1, len(waiting))):
            kept = profile.evaluations.of(asked.shape)
            again = Evaluations(profile.chains, offline.cluster.table, profile.handle.reasons)
            assert_same(kept, again.of(asked.shape))
            assert kept.nbytes == bytes_taken(kept)


def config_with(**enabled):
    """Of a profile that, by extension point, has these plugins alone, and those that each needs."""
    enabled |= {"queueSort": [{"name": "PrioritySort"}], "bind": [{"name": "DefaultBinder"}]}
    points = {point: {"enabled": plugins} for point, plugins in enabled.items()}
    return {"plugins": {"multiPoint": {"disabled": [{"name": "*"}]}, **points}}


@pytest.mark.parametrize("weight", [1, 100, 20_000, 20_000_000])
def test_totals_of_any_weights_have_room(weight):
    score = [{"name": "NodeResourcesBalancedAllocation", "weight": weight}]
    offline = scheduler([node("a"), pod("p", container(cpu="1", memory="1Gi"))], config_with(score=score))
    profile = offline.profiles["default-scheduler"]
    evaluation = profile.evaluations.of(offline.pending["default/p"].shape)
    assert evaluation.totals.tolist()[0] % weight == 0
    assert 0 < evaluation.totals.tolist()[0] // weight <= 100


def test_only_the_dirty_row_is_asked_again():
    offline = scheduler([node(f"n{i}") for i in range(50)] + [pod("p", container(cpu="1"))])
    profile = offline.profiles["default-scheduler"]
    shape = offline.pending["default/p"].shape
    first = profile.evaluations.of(shape)
    asked = []
    fit = profile.plugins["NodeResourcesFit"]
    original = fit.filter_rows
    fit.filter_rows = lambda s, table, rows: asked.append(rows) or original(s, table, rows)
    row = offline.cluster.table.row_of["n7"]
    offline.place("default/p", "n7")
    assert profile.evaluations.of(shape) is first
    assert asked == [slice(row, row + 1)]
    assert profile.evaluations.of(shape) is first
    assert len(asked) == 1


def test_a_change_asks_only_the_plugins_that_read_it():
    offline = scheduler([node("n0"), node("n1"), pod("p", container(cpu="1"))])
    profile = offline.profiles["default-scheduler"]
    shape = offline.pending["default/p"].shape
    before = profile.evaluations.of(shape).totals.copy()
    for plugin in profile.plugins.values():
        if isinstance(plugin, ShapeFilter | ShapeScore) and not plugin.facets & Facet.RESOURCES:
            plugin.filter_rows = plugin.score_rows = None  # asking it would fail
    offline.place("default/p", "n0")
    after = profile.evaluations.of(shape).totals
    assert after[0] < before[0]
    assert after[1] == before[1]


def test_a_heartbeat_or_a_foreign_facet_asks_no_plugin():
    offline = scheduler([node("n0"), node("n1"), pod("p", container(cpu="1"))])
    profile = offline.profiles["default-scheduler"]
    shape = offline.pending["default/p"].shape
    profile.evaluations.of(shape)
    for plugin in profile.plugins.values():
        if hasattr(plugin, "filter_rows"):
            plugin.filter_rows = None  # asking it would fail
    serial = offline.cluster.table.log.serial
    offline.cluster.upsert_node(convert(node("n0"), core.Node))
    assert offline.cluster.table.log.serial == serial
    annotated = node("n0")
    annotated["metadata"]["annotations"] = {"a": "b"}
    offline.cluster.upsert_node(convert(annotated, core.Node))
    assert offline.cluster.table.log.serial > serial
    profile.evaluations.of(shape)


def test_pods_on_many_nodes_ask_no_plugin_where_none_reads_resources():
    reads_taints = [{"name": "TaintToleration"}]
    names = [f"n{i}" for i in range(50)]
    offline = scheduler([*map(node, names), pod("p")], config_with(filter=reads_taints, score=reads_taints))
    profile = offline.profiles["default-scheduler"]
    shape = offline.pending["default/p"].shape
    before = profile.evaluations.of(shape).totals.tolist()
    plugin = profile.plugins["TaintToleration"]
    plugin.filter_rows = plugin.score_rows = None  # asking it would fail
    for name in names[:8]:
        offline.add(pod(f"on-{name}", container(cpu="1"), on=name))
    assert profile.evaluations.of(shape).totals.tolist() == before


def test_the_budget_drops_the_least_recently_used():
    offline = scheduler([node(f"n{i}") for i in range(10)] + shapes())
    profile = offline.profiles["default-scheduler"]
    waiting = [p.shape for p in offline.pending.values()]
    one = Evaluations(profile.chains, offline.cluster.table, profile.handle.reasons)
    size = max(one.of(shape).nbytes for shape in waiting)
    assert size > SHAPE_BYTES  # on few nodes, shapes take more than their arrays
    small = Evaluations(profile.chains, offline.cluster.table, profile.handle.reasons, budget=3 * size)
    for shape in waiting:
        small.of(shape)
    assert 0 < len(small) <= 4
    last = small.of(waiting[-1])
    assert small.of(waiting[-1]) is last


@pytest.mark.parametrize("after", [{ZONE: "a"}, {ZONE: "b"}, {"disk": "ssd"}, {ZONE: "a", "disk": "ssd", "more": ""}])
def test_scores_are_normalized_anew_when_the_best_node_gets_worse(after):
    best, good, other = ({ZONE: "a", "disk": "ssd"}, {ZONE: "a"}, {ZONE: "b"})
    wanted = pod(
        "p", affinity=node_affinity(preferred=[(10, term(("disk", "In", "ssd"))), (3, term((ZONE, "In", "a")))])
    )
    offline = scheduler([node("best", labels=best), node("good", labels=good), node("other", labels=other), wanted])
    profile = offline.profiles["default-scheduler"]
    shape = offline.pending["default/p"].shape
    profile.evaluations.of(shape)
    offline.add(node("best", labels=after))
    kept = profile.evaluations.of(shape)
    assert_same(kept, Evaluations(profile.chains, offline.cluster.table, profile.handle.reasons).of(shape))

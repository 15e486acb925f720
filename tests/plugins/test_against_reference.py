"""Every plugin, and the profile as a whole, decides as the naive reference on random cluster states."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordsched.framework.interface import Cycle, Filter, NodeFilter, NodeScore, PreFilter, PreFilterResult, Score
from koordsched.framework.scoring import decide
from koordsched.framework.status import Code
from tests.parity.records import before_post_filter
from tests.plugins.harness import Bench, same_scores, scheduler
from tests.reference.evaluation import evaluate, fit_error
from tests.reference.plugins import REGISTRY
from tests.reference.profile import profiles_of
from tests.reference.randomstate import RandomState
from tests.reference.status import SKIP, Status
from tests.reference.world import World

ARGS = [
    {},
    {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}, {"name": "ex.com/gpu"}]}},
    {
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "cpu"}, {"name": "memory", "weight": 2}, {"name": "ephemeral-storage", "weight": 5}],
            "requestedToCapacityRatio": {
                "shape": [
                    {"utilization": 10, "score": 0},
                    {"utilization": 45, "score": 9},
                    {"utilization": 80, "score": 2},
                ]
            },
        }
    },
    {
        "ignoredResources": ["ex.com/gpu"],
        "scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "ephemeral-storage", "weight": 4}]},
    },
]
BALANCED = [{}, {"resources": [{"name": n, "weight": 1} for n in ("cpu", "memory", "ephemeral-storage", "ex.com/gpu")]}]
ADDED = [
    {},
    {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 30,
                    "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
                }
            ],
        }
    },
]


SPREAD = [
    {},
    {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
        ],
    },
    {"defaultingType": "List"},
]
AFFINITY = [
    {},
    {"hardPodAffinityWeight": 0},
    {"hardPodAffinityWeight": 77},
    {"ignorePreferredTermsOfExistingPods": True},
]


def random_config(rng):
    """The JSON of a profile with random arguments."""
    chosen = {
        "NodeResourcesFit": rng.choice(ARGS),
        "NodeResourcesBalancedAllocation": rng.choice(BALANCED),
        "NodeAffinity": rng.choice(ADDED),
        "PodTopologySpread": rng.choice(SPREAD),
        "InterPodAffinity": rng.choice(AFFINITY),
    }
    return {"pluginConfig": [{"name": name, "args": args} for name, args in chosen.items() if args]}


def reference_args(config, name):
    """The JSON of one plugin's arguments."""
    return next((entry["args"] for entry in config["pluginConfig"] if entry["name"] == name), {})


seeds = st.integers(min_value=0, max_value=2**32 - 1)
unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@unhurried
@given(seed=seeds)
def test_each_plugin_answers_as_the_reference(seed):
    rng = Random(seed)
    state = RandomState(rng)
    config = random_config(rng)
    objects = state.cluster(rng.randint(1, 8), 12)
    wanted = state.pod("p")
    world = World(objects)
    bench = Bench(*objects)
    reference = profiles_of({"profiles": [config]})["default-scheduler"].plugins
    for name, naive in reference.items():
        plugin = bench.plugin(name, bench.typed_args(name, reference_args(config, name)))
        skipped = False
        if hasattr(naive, "pre_filter") and hasattr(plugin, "pre_filter_shape"):
            skipped = same_pre_filter(plugin.pre_filter_shape(bench.pod(wanted).shape), naive.pre_filter(wanted, world))
        if hasattr(naive, "filter") and isinstance(plugin, (NodeFilter, Filter)) and not skipped:
            verdicts = {node["metadata"]["name"]: naive.filter(wanted, node, world) for node in world.nodes}
            expected = {node: v and (v.code, *v.reasons) for node, v in verdicts.items()}
            if isinstance(plugin, PreFilter) and naive.pre_filter(wanted, world) is SKIP:
                expected = None
            assert bench.filter(plugin, wanted) == expected, name
        if isinstance(plugin, Score):
            nodes = rng.sample(world.nodes, rng.randint(1, len(world.nodes)))
            same_scores(bench, plugin, naive, wanted, world, nodes)
        if isinstance(plugin, NodeScore):
            skips = hasattr(naive, "pre_score") and naive.pre_score(wanted, world, world.nodes) is SKIP
            raw = {n["metadata"]["name"]: naive.score(wanted, n, world, world.nodes) for n in world.nodes}
            assert bench.score(plugin, wanted) == (None if skips else raw), name


def same_pre_filter(answer, naive):
    """Compares; returns whether both skip."""
    if isinstance(answer, PreFilterResult):
        assert set(answer.node_names) == naive
    elif answer.code is Code.SKIP:
        assert naive is SKIP
        return True
    elif answer.ok:
        assert naive is None
    else:
        assert naive == Status(answer.code.text, answer.reasons)
    return False


@unhurried
@given(seed=seeds)
def test_a_profile_decides_as_the_reference_one_pod_after_the_other(seed):
    """Twins of a few pods, so that later ones find what was computed for the first; nodes change in between."""
    rng = Random(seed)
    state = RandomState(rng)
    config = random_config(rng)
    objects = state.cluster(rng.randint(2, 8), 10)
    profile = profiles_of({"profiles": [config]})["default-scheduler"]
    world = World(objects)
    offline = scheduler(objects, config)
    kinds = [state.pod("kind") for _ in range(3)]
    # As long as a pod has the shape, what was computed for it stays.
    for i, kind in enumerate(kinds):
        offline.add(named(kind, f"first-{i}"))
    for i in range(9):
        wanted = named(rng.choice(kinds), f"p{i}")
        compare(offline, offline.add(wanted), evaluate(wanted, world, profile), world, wanted)
        if rng.random() < 0.4:
            changed = state.node(rng.choice(world.nodes)["metadata"]["name"])
            offline.add(changed)
            world.replace(changed)


def named(item, name):
    """The same pod under another name."""
    metadata = {**item["metadata"], "name": name, "uid": f"{item['metadata']['namespace']}/{name}"}
    return {**item, "metadata": metadata}


def compare(offline, added, expected, world, wanted):
    """Explanation and decision equal the reference's outcome; the pod is then placed in both."""
    key = added.key
    found = offline.explain(key)
    assert [node.name for node in found.nodes if node.feasible] == sorted(expected.feasible)
    if expected.rejected is None:
        refused = {node.name: (node.plugin, node.status, node.reasons) for node in found.nodes if not node.feasible}
        assert refused == {
            n: (plugin, status.code, status.reasons) for n, (plugin, status) in expected.filtered.items()
        }
    else:
        assert found.rejected_by == expected.rejected[0]
    assert set(found.any_of) == set(expected.any_of)
    if not expected.feasible:
        assert before_post_filter(found.message) == fit_error(expected, world)
        return
    if expected.scores is not None:
        scores = {n.name: {p: (s.raw, s.normalized, s.weighted) for p, s in n.scores.items()} for n in found.nodes}
        for plugin, by_node in expected.scores.items():
            assert {node: scores[node][plugin] for node in by_node} == by_node, plugin
        assert {n.name: n.total for n in found.nodes if n.feasible} == expected.totals
    same_decision(offline, added, expected)
    chosen = min(expected.any_of)
    offline.place(key, chosen)
    world.place(wanted, chosen)


def same_decision(offline, added, expected):
    """The way of the scheduling cycle, which scores from what it remembers, to the same node."""
    profile, table = offline.profiles["default-scheduler"], offline.cluster.table
    cycle = Cycle(added)
    verdicts = profile.filtering.filter(cycle)
    row, total = decide(cycle, table, verdicts, Random(1))
    assert table.names[row] in expected.any_of
    assert total == (None if expected.totals is None else max(expected.totals.values()))


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_the_reference_knows_only_plugins_that_exist(name):
    assert Bench().plugin(name).name == name

"""Scores of NodeResourcesFitPlus: the cases of the specification, what a pod counts, arguments that make no sense."""

import asyncio

import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import AllocationResult
from koordsched.config import ConfigError
from koordsched.config.advice import warnings
from koordsched.plugins import CATALOG
from tests.cli.clusters import run as command
from tests.cli.clusters import write
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.dynamicresources.extended.objects import allocation, device_class, resource_slice
from tests.plugins.dynamicresources.extended.test_device_counts import Counted
from tests.plugins.harness import Bench, explain, normalized, resolved
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

NAME = "NodeResourcesFitPlus"
CARD = "nvidia.com/gpu"
CARDS_PACKED = {
    CARD: {"type": "MostAllocated", "weight": 2},
    "cpu": {"type": "LeastAllocated", "weight": 1},
    "memory": {"type": "LeastAllocated", "weight": 1},
}
CPU_SPREAD = {"cpu": {"type": "LeastAllocated", "weight": 1}}


def profile(resources, *points):
    """A profile with the plugin at these points."""
    enabled = {point: {"enabled": [{"name": NAME}]} for point in points or ("preScore", "score")}
    return {"plugins": enabled, "pluginConfig": [{"name": NAME, "args": {"resources": resources}}]}


def scores(resources, wanted, *objects):
    """Node name -> score."""
    bench = Bench(*objects)
    return bench.score(bench.plugin(NAME, bench.typed_args(NAME, {"resources": resources})), wanted)


def big(name, **more):
    return node(name, "96", "512Gi", **{CARD: "8"}, **more)


def test_loadaware_case_a1_cards_are_packed_and_the_rest_is_spread():
    there = pod("there", container(cpu="16", memory="32Gi", **{CARD: "4"}), on="node1")
    wanted = pod("p", container(cpu="16", memory="32Gi", **{CARD: "2"}))
    assert scores(CARDS_PACKED, wanted, big("node1"), big("node2"), there) == {"node1": 75, "node2": 56}
    explanation = explain([big("node1"), big("node2"), there], wanted, profile(CARDS_PACKED))
    assert normalized(explanation, NAME) == {"node1": 75, "node2": 56}


@pytest.mark.parametrize(
    ("init", "millis"),
    [
        ([("1", True), ("5", False)], 5000),
        ([("1", True)], 3000),
        ([("5", False), ("1", True)], 6000),
        ([("2500m", False)], 2500),
        ([], 2000),
    ],
)
def test_loadaware_case_a2_init_containers_in_the_order_of_their_declaration(init, millis):
    made = [container(cpu=cpu, restart_policy="Always" if sidecar else None) for cpu, sidecar in init]
    wanted = pod("p", container(cpu="2"), initContainers=made)
    assert scores(CPU_SPREAD, wanted, node("n", "10")) == {"n": 100 - millis // 100}


def test_what_a_container_does_not_say_counts_and_what_it_says_is_zero_does_not():
    both = {"cpu": {"type": "MostAllocated", "weight": 1}, "memory": {"type": "MostAllocated", "weight": 1}}
    silent = pod("p", container(cpu="1", memory="1Gi"), container(name="other"))
    assert scores(both, silent, node("n", "2", "2Gi")) == {"n": (55 + 59) // 2}
    explicit = pod("p", container(cpu="1", memory="1Gi"), container(name="other", cpu="0", memory="0"))
    assert scores(both, explicit, node("n", "2", "2Gi")) == {"n": 50}


def test_overhead_counts_in_its_own_unit():
    wanted = pod("p", container(cpu="1"), overhead={"cpu": "500m"})
    assert scores(CPU_SPREAD, wanted, node("n", "10")) == {"n": 85}


def test_pods_on_the_node_count_with_what_they_do_not_say():
    there = pod("there", container(), on="n")
    assert scores(CPU_SPREAD, pod("p", container(cpu="1")), node("n", "10"), there) == {"n": 89}


def test_nothing_that_is_configured_is_requested():
    only_cards = {CARD: {"type": "MostAllocated", "weight": 2}}
    assert scores(only_cards, pod("p", container(cpu="1")), node("n"), big("m")) == {"n": 100, "m": 100}
    assert scores({}, pod("p", container(cpu="1")), node("n")) == {"n": 100}
    weightless = {"cpu": {"type": "LeastAllocated", "weight": 0}}
    assert scores(weightless, pod("p", container(cpu="1")), node("n")) == {"n": 100}


@pytest.mark.parametrize("kind", ["", "RequestedToCapacityRatio", "leastallocated"])
def test_an_unknown_type_scores_nothing_and_weighs(kind):
    resources = {"cpu": {"type": kind, "weight": 3}, "memory": {"type": "LeastAllocated", "weight": 1}}
    wanted = pod("p", container(cpu="1", memory="4Gi"))
    assert scores(resources, wanted, node("n")) == {"n": 50 // 4}
    assert warnings(resolved({"profiles": [profile(resources)]}), CATALOG) == [
        f'profiles[0].pluginConfig[0].args.resources[cpu].type: "{kind}" scores 0 on every node: '
        "it is not LeastAllocated or MostAllocated"
    ]


@pytest.mark.parametrize("kind", ["LeastAllocated", "MostAllocated"])
def test_a_node_without_the_resource_scores_nothing_for_it(kind):
    resources = {CARD: {"type": kind, "weight": 1}}
    wanted = pod("p", container(**{CARD: "1"}))
    assert scores(resources, wanted, node("n"), node("m", **{CARD: "0"})) == {"n": 0, "m": 0}


@pytest.mark.parametrize(("kind", "score"), [("LeastAllocated", 0), ("MostAllocated", 100)])
def test_the_last_card_of_a_node_beside_nodes_without_cards(kind, score):
    resources = {CARD: {"type": kind, "weight": 1}}
    wanted = pod("p", container(**{CARD: "1"}))
    assert scores(resources, wanted, node("n", **{CARD: "1"}), node("m")) == {"n": score, "m": 0}


def test_what_no_node_has_scores_nothing_and_what_is_no_resource_of_a_vendor_is_not_asked():
    least = {"type": "LeastAllocated", "weight": 1}
    assert scores({CARD: least}, pod("p", container(**{CARD: "1"})), node("n"), node("m")) == {"n": 0, "m": 0}
    assert scores({"neither": least}, pod("p", container(neither="1")), node("n", neither="4")) == {"n": 100}


@pytest.mark.parametrize("quantity", ["9" * 200, "9223372036854775807", "1e40", "-9"])
def test_absurd_amounts_stay_in_bounds(quantity):
    resources = {name: {"type": kind, "weight": 1 << 51} for name, kind in (("cpu", "MostAllocated"), (CARD, "Least"))}
    resources["memory"] = {"type": "LeastAllocated", "weight": 1 << 52}
    wanted = pod("p", container(cpu="1", memory=quantity, **{CARD: quantity}))
    there = [pod(f"there{i}", container(cpu="1", memory=quantity), on="n") for i in range(3)]
    found = scores(resources, wanted, node("n", "1", quantity, **{CARD: quantity}), node("m"), *there)
    assert all(0 <= score <= 100 for score in found.values())


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ({"cpu": -1}, "resources[cpu].weight: Invalid value: -1: must not be negative"),
        (
            {"memory": -2, "cpu": -1},
            "[resources[cpu].weight: Invalid value: -1: must not be negative, "
            "resources[memory].weight: Invalid value: -2: must not be negative]",
        ),
        (
            {"cpu": 1 << 53, "memory": 1},
            "resources: Invalid value: 9007199254740993: weights must add up to at most 9007199254740992",
        ),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, complaint):
    given = {name: {"type": "LeastAllocated", "weight": weight} for name, weight in weights.items()}
    with pytest.raises(ConfigError) as refused:
        resolved({"profiles": [profile(given)]})
    assert str(refused.value).endswith(f'initializing plugin "{NAME}": {complaint}')


@pytest.mark.parametrize("weights", [{"cpu": 0}, {"cpu": (1 << 53) - 1, "memory": 1}])
def test_weights_at_their_limits(weights):
    given = {name: {"type": "LeastAllocated", "weight": weight} for name, weight in weights.items()}
    assert resolved({"profiles": [profile(given)]}).profiles[0].args[NAME].resources.keys() == weights.keys()


@pytest.mark.parametrize(
    ("resources", "complaint"),
    [
        ([], "cannot unmarshal array into Go struct field NodeResourcesFitPlusArgs.resources of type map[string]v1"),
        ({"cpu": 1}, "of type v1.ResourcesType"),
        ({"cpu": {"weight": "many"}}, "cannot unmarshal string"),
        ({"cpu": {"wait": 1}}, 'unknown field "resources.cpu.wait"'),
    ],
)
def test_arguments_of_another_form_are_refused(resources, complaint):
    with pytest.raises(ConfigError, match=r".*") as refused:
        resolved({"profiles": [profile(resources)]})
    assert complaint in str(refused.value)


def test_null_is_a_resource_without_type_and_weight():
    assert scores({"cpu": None}, pod("p", container(cpu="1")), node("n")) == {"n": 100}


def test_without_its_pre_score_pods_that_several_nodes_fit_fail(tmp_path):
    config = {"profiles": [profile(CPU_SPREAD, "score")]}
    advice = f'profiles[0]: plugin "{NAME}" is enabled at score but not at preScore: pods that fit several nodes fail'
    assert warnings(resolved(config), CATALOG) == [advice]
    assert warnings(resolved({"profiles": [profile(CPU_SPREAD)]}), CATALOG) == []

    nodes = [node("alder", "1"), node("beech", "4")]
    failed = (
        f'running Score plugins: plugin "{NAME}" failed with: get state node "alder" from PreScore: '
        f'error reading "PreScore{NAME}" from cycleState: not found'
    )
    explanation = explain(nodes, pod("p", container(cpu="1")), config)
    assert (explanation.any_of, explanation.reason, explanation.message) == ([], "SchedulerError", failed)
    assert [node.feasible for node in explanation.nodes] == [True, True]
    file = write(tmp_path / "config.yaml", {**DEFAULT_CONFIG, **config})
    objects = write(tmp_path / "objects.yaml", *nodes, pod("p", container(cpu="1")))
    shown = command("explain", "default/p", "--config", file, "-f", objects)
    assert (shown.exit_code, f"SchedulerError: {failed}\n" in shown.stdout) == (0, True)
    assert "taken without scoring" not in shown.stdout

    async def main():
        embedded = Embedded()
        for thing in nodes:
            embedded.insert(thing)
        async with scheduler_on(embedded, {**DEFAULT_CONFIG, **config}):
            embedded.insert(pod("small", container(cpu="1")))
            embedded.insert(pod("large", container(cpu="2")))
            await asyncio.sleep(1)
            assert embedded.get("Pod", "large")["spec"]["nodeName"] == "beech"
            (condition,) = embedded.get("Pod", "small")["status"]["conditions"]
            assert condition["reason"] == "SchedulerError"
            assert condition["message"] == failed

    run(main())


def test_devices_that_serve_a_resource_count_where_nodes_have_none_of_it():
    """As in NodeResourcesFit (dra spec 4): a node without the resource and without such devices scores 0 for it."""
    packed = {CARD: {"type": "MostAllocated", "weight": 1}}
    counted = Counted(
        node("device-plugin", **{CARD: "4"}),
        node("dra"),
        node("none"),
        device_class("a", CARD),
        resource_slice("s", ["d0", "d1", "d2", "d3"], nodeName="dra"),
        tracked=(CARD,),
    )
    counted.counts.allocated(convert(allocation("d0"), AllocationResult))
    plugin = counted.bench.plugin(NAME, counted.bench.typed_args(NAME, {"resources": packed}))
    wanted = pod("p", container(**{CARD: "2"}))
    assert counted.bench.score(plugin, wanted) == {"device-plugin": 50, "dra": 75, "none": 0}

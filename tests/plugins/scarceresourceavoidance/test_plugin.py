"""Scores of ScarceResourceAvoidance: the case of the specification, what nodes offer, and how that changes."""

import pytest

from koordsched.config.advice import warnings
from koordsched.plugins import CATALOG
from tests.plugins.harness import Bench, resolved, scheduler
from tests.plugins.objects import container, node, pod

NAME = "ScarceResourceAvoidance"
CARD = "nvidia.com/gpu"
PLAIN = pod("p", container(cpu="1", memory="1Gi"))


def plugin(bench, *scarce):
    return bench.plugin(NAME, bench.typed_args(NAME, {"resources": list(scarce)}))


def scores(wanted, *objects, scarce=(CARD,)):
    """Node name -> score."""
    bench = Bench(*objects)
    return bench.score(plugin(bench, *scarce), wanted)


def test_loadaware_case_b1_half_of_what_the_pod_leaves_unused_is_scarce():
    found = scores(PLAIN, node("cards", **{CARD: "8", "example.com/xx": "1"}), node("plain"))
    assert found == {"cards": 50, "plain": 100}


@pytest.mark.parametrize(
    ("wanted", "offered", "scarce", "score"),
    [
        (PLAIN, {CARD: "8"}, (CARD,), 0),
        (PLAIN, {CARD: "0"}, (CARD,), 100),
        (PLAIN, {CARD: "8"}, (), 100),
        (PLAIN, {CARD: "8"}, ("example.com/other",), 100),
        (pod("p", container(cpu="1")), {CARD: "8"}, (CARD,), 50),
        (pod("p", container(cpu="1", memory="0")), {CARD: "8"}, (CARD,), 50),
        (pod("p", container()), {CARD: "8"}, (CARD,), 66),
        (pod("p", container()), {CARD: "8"}, (CARD, "cpu", "memory"), 0),
        (pod("p", container(cpu="1", memory="1Gi", **{CARD: "1"})), {CARD: "8"}, (CARD,), 100),
        (pod("p", container(), resources={"requests": {"cpu": "1", "memory": "1Gi"}}), {CARD: "8"}, (CARD,), 0),
        (pod("p", container(cpu="1"), overhead={"memory": "1Mi"}), {CARD: "8"}, (CARD,), 0),
        (PLAIN, {CARD: "8", "ephemeral-storage": "1Gi"}, (CARD,), 50),
        (PLAIN, {CARD: "8", "hugepages-2Mi": "0", "hugepages-1Gi": "1Gi"}, (CARD,), 50),
        (PLAIN, {CARD: "8", "attachable-volumes-csi-x": "9", "kubernetes.io/batch-cpu": "1"}, (CARD,), 66),
        (PLAIN, {CARD: "8", "neither": "1", "requests.example.com/x": "1", "example.com/ x": "1"}, (CARD,), 0),
        (PLAIN, {CARD: "8", "example.com/x": "many", "example.com/y": "-1"}, (CARD,), 0),
        (PLAIN, {CARD: "1m"}, (CARD,), 0),
        (PLAIN, {CARD: "1n"}, (CARD,), 0),
    ],
)
def test_what_a_node_offers_and_a_pod_leaves_unused(wanted, offered, scarce, score):
    assert (
        scores(wanted, node("n", **offered), node("all-scarce", **{"example.com/z": "1"}), scarce=scarce)["n"] == score
    )


def test_nodes_that_change_come_and_go():
    bench = Bench(node("a"), node("b", **{CARD: "1"}))
    avoiding = plugin(bench, CARD)
    like_it = bench.pod(PLAIN)  # so that what is known of such pods is kept
    assert bench.score(avoiding, PLAIN) == {"a": 100, "b": 0}
    bench.add(node("a", **{CARD: "1", "example.com/x": "1"}))
    bench.add(node("b"))
    assert bench.score(avoiding, PLAIN) == {"a": 50, "b": 100}
    bench.cluster.remove_node("a")
    bench.add(node("c", **{CARD: "1", "example.com/x": "1", "example.com/y": "2"}))
    assert bench.score(avoiding, PLAIN) == {"b": 100, "c": 66}
    assert like_it.shape is bench.pod(PLAIN).shape


def test_the_scheduler_leaves_cards_to_those_who_need_them():
    enabled = {"enabled": [{"name": NAME, "weight": 10}]}
    profile = {
        "plugins": {"preScore": {"enabled": [{"name": NAME}]}, "score": enabled},
        "pluginConfig": [{"name": NAME, "args": {"resources": [CARD]}}],
    }
    assert warnings(resolved({"profiles": [profile]}), CATALOG) == []
    offline = scheduler([node("cards", "64", "64Gi", **{CARD: "8"}), node("plain")], profile)
    for i in range(3):
        offline.add(pod(f"p{i}", container(cpu="1", memory="1Gi")))
        assert offline.schedule(f"default/p{i}").node == "plain"
    offline.add(pod("four", container(cpu="2", memory="1Gi")))
    assert offline.schedule("default/four").node == "cards"


def test_profiles_share_what_is_known_of_nodes():
    bench = Bench(node("n", **{CARD: "1"}))
    one, other = plugin(bench, CARD), plugin(bench)
    assert (bench.score(one, PLAIN), bench.score(other, PLAIN)) == ({"n": 0}, {"n": 100})
    assert one._offered is other._offered

"""The plugins and the naive models say the same about random states: verdicts, scores, devices, victims."""

import pytest

from tests.depth import quick_first
from tests.plugins.deviceshare.implementation import NaiveImplementation
from tests.plugins.deviceshare.naive.request import JSON_ERROR
from tests.plugins.deviceshare.randomstates import random_events, random_state
from tests.plugins.deviceshare.realplugin import RealImplementation
from tests.plugins.deviceshare.test_naive_random import of_node

NAIVE, REAL = NaiveImplementation(), RealImplementation()


NOT_ALIGNED = ("Unaligned NUMA Hint", "Unsatisfied NUMA")


def comparable(said):
    """A status without what JSON libraries say, and without which NUMA nodes are said to be no choice.

    Upstream names NUMA nodes that only the Device reports, too (docs/deviations.md).
    """
    reasons = {reason.partition(", err: ")[0] for reason in said.reasons}
    reasons = {NOT_ALIGNED[0] if reason.startswith(NOT_ALIGNED) else reason for reason in reasons}
    return said.plugin, said.code, None if JSON_ERROR in reasons else reasons


def same_status(ours, expected, where):
    ours, expected = comparable(ours), comparable(expected)
    if expected[2] is None:
        ours = (*ours[:2], None)
    assert ours == expected, where


def same_decisions(state, events):
    for pod in state.pending:
        name = pod["metadata"]["name"]
        expected = NAIVE.decide(events, pod, state.args, gates=state.gates)
        ours = REAL.decide(events, pod, state.args, gates=state.gates)
        same_status(ours.early, expected.early, name)
        assert set(ours.verdicts) == set(expected.verdicts)
        for node, said in expected.verdicts.items():
            where = f"{name} on {node}"
            same_status(ours.verdicts[node], said, where)
            if not said.passed:
                continue
            if not expected.asked.skip and node in expected.raw:
                assert ours.raw[node] == expected.raw[node], where
            placed, given = ours.place(node), expected.place(node)
            same_status(placed.said, given.said, where)
            if given.said.passed:
                assert placed.devices == given.devices, where
                assert (placed.numa, placed.annotations, placed.labels) == (given.numa, given.annotations, given.labels)
        if expected.scores and not expected.asked.skip:
            assert ours.scores == expected.scores, name


@pytest.mark.parametrize("seed", quick_first(range(400), 7))
def test_the_same_as_the_naive_model(seed):
    state = random_state(seed)
    same_decisions(state, state.objects)


@pytest.mark.parametrize("seed", quick_first(range(150), 2))
def test_the_same_on_odd_nodes(seed):
    state = random_state(f"odd{seed}", odd=True)
    same_decisions(state, state.objects)


@pytest.mark.parametrize("seed", quick_first(range(150), 3))
def test_the_same_after_objects_came_changed_and_went(seed):
    same_decisions(*random_events(seed))


@pytest.mark.parametrize("seed", quick_first(range(100), 2))
def test_the_same_victims(seed):
    state = random_state(seed)
    for pod in state.pending:
        for node in (thing for thing in state.objects if thing["kind"] == "Node"):
            name = node["metadata"]["name"]
            objects = of_node(state.objects, name)
            expected = NAIVE.victims(objects, pod, state.args)
            assert sorted(REAL.victims(objects, pod, state.args)) == sorted(expected), (
                f"{pod['metadata']['name']} {name}"
            )


@pytest.mark.parametrize("seed", quick_first(range(1000, 1300), 4))
def test_the_same_verdicts_with_improved_allocation(seed):
    """Which of several places together is taken is not the model's to say: it looks whether there is any."""
    state = random_state(seed)
    args = {**state.args, "improvedAllocation": True}
    for pod in state.pending:
        name = pod["metadata"]["name"]
        expected = NAIVE.decide(state.objects, pod, args, gates=state.gates)
        ours = REAL.decide(state.objects, pod, args, gates=state.gates)
        same_status(ours.early, expected.early, name)
        for node, said in expected.verdicts.items():
            where = f"{name} on {node}"
            same_status(ours.verdicts[node], said, where)
            if said.passed:
                same_status(ours.place(node).said, expected.place(node).said, where)

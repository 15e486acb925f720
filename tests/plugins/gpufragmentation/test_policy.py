"""Scores and GPUs as the naive policy has them, on random nodes; and what must hold whatever the nodes."""

from random import Random

import numpy as np
import pytest

from koordsched.plugins.gpufragmentation.fleet import Demand, Fleet, Task
from koordsched.plugins.gpufragmentation.fleet import slots as room_for
from koordsched.plugins.gpufragmentation.policy import gains, order
from koordsched.plugins.gpufragmentation.values import solve
from koordsched.plugins.gpufragmentation.worth import worth
from tests.depth import quick_first
from tests.plugins.gpufragmentation import naive
from tests.plugins.gpufragmentation.naive import Class, Node

MINORS, KINDS = 4, 3
SEEDS = quick_first(range(60), 15)


def random_nodes(rng):
    return [
        Node(
            rng.choice((0, -500, rng.randrange(64_000))),
            tuple(rng.choice((0, 100, 100, rng.randint(0, 100))) for _ in range(MINORS)),
            rng.randrange(KINDS),
        )
        for _ in range(rng.randint(1, 12))
    ]


def random_classes(rng):
    found = {}
    for _ in range(rng.randint(0, 8)):
        number = rng.choice((1, 1, 1, 2, 4, 8))
        share = 100 if number > 2 else rng.choice((100, rng.randint(1, 100)))
        allowed = tuple(rng.random() < 0.7 for _ in range(KINDS))
        cpu = rng.choice((0, 1000 * rng.randint(1, 40)))
        found[cpu, number, share, allowed] = Class(cpu, number, share, allowed, rng.randint(1, 50))
    return list(found.values())


def fleet_of(nodes):
    return Fleet(
        np.array([node.cpu for node in nodes]),
        np.array([node.gpus for node in nodes]),
        np.array([node.kind for node in nodes]),
    )


def demand_of(classes):
    return Demand(
        np.array([each.cpu for each in classes], dtype=np.int64),
        np.array([each.number for each in classes], dtype=np.int64),
        np.array([each.share for each in classes], dtype=np.int64),
        np.array([each.allowed for each in classes], dtype=np.bool_).reshape(-1, KINDS),
        np.array([each.tasks for each in classes], dtype=np.int64),
    )


def solved(nodes, classes, balance):
    counts = np.zeros(101)
    for each in classes:
        counts[each.share] += each.tasks * each.number
    expected = naive.Values(nodes, classes, worth(counts).tolist(), balance)
    return expected, solve(fleet_of(nodes), demand_of(classes), balance)


def random_task(rng):
    number = rng.choice((0, 1, 1, 1, 2, 4))
    share = 0 if not number else 100 if number > 2 else rng.choice((100, rng.randint(1, 100)))
    return Task(rng.choice((0, 500, 1000 * rng.randint(1, 32))), number, share)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_score_and_every_gpu_is_that_of_the_naive_policy(seed):
    rng = Random(seed)
    nodes, classes = random_nodes(rng), random_classes(rng)
    expected, values = solved(nodes, classes, rng.choice((0.0, 12.5)))
    judged = 0
    for _ in range(10):
        later = random_nodes(rng)
        task = random_task(rng)
        found = gains(values, fleet_of(later), task).tolist()
        for node, gain in zip(later, found, strict=True):
            best = expected.best(node, *task)
            if best is None:
                continue
            judged += 1
            placed = fleet_of([Node(node.cpu - task.cpu, node.gpus, node.kind)])
            chosen = order(values, placed, task._replace(cpu=0)).tolist()[: task.number]
            assert gain == pytest.approx(expected.gain(node, task.cpu, chosen, task.share), abs=1e-9)
            singles = [expected.gain(node, task.cpu, (minor,), task.share) for minor in chosen]
            assert singles == pytest.approx(best, abs=1e-9)
    assert judged


@pytest.mark.parametrize("seed", SEEDS)
def test_room_is_counted_as_the_naive_policy_counts(seed):
    rng = Random(seed)
    nodes, classes = random_nodes(rng), random_classes(rng)
    found = room_for(fleet_of(nodes), demand_of(classes)).tolist()
    assert found == [sum(naive.slots(node, each) for node in nodes) for each in classes]


@pytest.mark.parametrize("seed", SEEDS)
def test_which_gpu_is_which_does_not_matter(seed):
    rng = Random(seed)
    nodes, classes = random_nodes(rng), random_classes(rng)
    _, values = solved(nodes, classes, 8.0)
    task = random_task(rng)
    shuffled = [Node(node.cpu, tuple(rng.sample(node.gpus, k=MINORS)), node.kind) for node in nodes]
    there = [naive.Values([], [], [0.0] * 101, 0.0).best(node, *task) is not None for node in nodes]
    assert gains(values, fleet_of(nodes), task)[there] == pytest.approx(gains(values, fleet_of(shuffled), task)[there])


EVERYWHERE = (True,) * KINDS


def test_a_part_goes_where_it_leaves_nothing():
    classes = [Class(0, 1, 81, EVERYWHERE, 10), Class(0, 1, 47, EVERYWHERE, 20)]
    nodes = [Node(10_000, (100, 0, 0, 0), 0), Node(10_000, (53, 0, 0, 0), 0), Node(10_000, (47, 0, 0, 0), 0)]
    _, values = solved(nodes, classes, 0.0)
    found = gains(values, fleet_of(nodes), Task(0, 1, 47)).tolist()
    assert found[0] < found[1] < found[2] + 1e-9
    assert order(values, fleet_of([Node(0, (100, 53, 20, 47), 0)]), Task(0, 1, 47)).tolist()[0] in (1, 3)


def test_a_model_that_others_need_is_left_to_them():
    picky = Class(0, 1, 100, (True, False, False), 10)
    classes = [picky, Class(0, 1, 100, EVERYWHERE, 50)]
    nodes = [Node(10_000, (100,) * MINORS, 0), *[Node(10_000, (100,) * MINORS, 1)] * 5]
    _, values = solved(nodes, classes, 0.0)
    found = gains(values, fleet_of(nodes), Task(0, 1, 100)).tolist()
    assert found[0] < found[1]


@pytest.mark.parametrize("empty, filled", [(1, True), (200, False)])
def test_nodes_in_use_are_filled_first_while_room_for_large_tasks_is_short(empty, filled):
    classes = [Class(0, MINORS, 100, EVERYWHERE, 1), Class(0, 1, 100, EVERYWHERE, 100)]
    used, fresh = Node(10_000, (100, 0, 0, 0), 0), Node(10_000, (100,) * MINORS, 0)
    nodes = [used, *[fresh] * empty]
    _, values = solved(nodes, classes, 0.0)
    in_use, whole = gains(values, fleet_of([used, fresh]), Task(0, 1, 100)).tolist()
    # A whole node is worth more to fragmentation, too, by at most this weight.
    assert (in_use - whole > 0.05 * MINORS) is filled


@pytest.mark.parametrize(
    "cpu, better",
    [(4_000, "little CPU"), (30_000, "much CPU")],
)
def test_tasks_go_where_their_cpu_is_in_balance(cpu, better):
    nodes = {"little CPU": Node(40_000, (100,) * MINORS, 0), "much CPU": Node(200_000, (100,) * MINORS, 0)}
    _, values = solved(list(nodes.values()), [], 16.0)
    found = dict(zip(nodes, gains(values, fleet_of(list(nodes.values())), Task(cpu, 1, 100)).tolist(), strict=True))
    assert max(found, key=found.get) == better


def test_without_gpus_and_without_demand_only_balance_counts():
    nodes = [Node(10_000, (0,) * MINORS, 2), Node(20_000, (0,) * MINORS, 2)]
    _, values = solved(nodes, [], 16.0)
    assert gains(values, fleet_of(nodes), Task(1_000, 0, 0)) == pytest.approx([0.96e-3] * 2)

"""The scheduler and a naive reference bind as many pods of each of some small random gangs."""

import asyncio
import copy
import json
from random import Random

import pytest

from tests.depth import quick_first
from tests.plugins.coscheduling.naive import NaiveGang, NaivePod, bound_in_the_end
from tests.plugins.coscheduling.placing import Gangs, scheduling
from tests.virtualtime import run

POLICIES = ("once-satisfied", "only-waiting", "waiting-and-running")


def drawn(seed):
    """Gangs by name, in nodes of their own or with room enough for one of two, and the room of each node."""
    draw = Random(seed)
    gangs, room = {}, {}
    count = draw.randint(1, 4)
    for number in range(count):
        name = f"g{number}"
        gangs[name] = NaiveGang(
            name,
            draw.choice((None, 0, 1, 2, 2, 3, 3, 4)),
            draw.choice(POLICIES),
        )
    # Whole groups agree on who belongs to them; a few gangs are named that do not exist.
    names = list(gangs)
    while names:
        together = tuple(sorted(names.pop() for _ in range(min(len(names), draw.choice((1, 1, 2))))))
        extra = ("absent",) if draw.random() < 0.1 else ()
        node = f"n{len(room)}"
        room[node] = draw.randint(2, 10)
        for name in together:
            gangs[name].groups = (*together, *extra) if len(together) > 1 or extra else ()
            # Of one size: which of several have a place does not depend on the order then.
            for number in range(draw.randint(1, 5)):
                size = 1
                fits = draw.random() < 0.9
                pod = NaivePod(f"{name}-{number}", name, size if fits else 50, node, draw.choice((0, 0, 5)))
                pod.gated = draw.random() < 0.08
                gangs[name].pods.append(pod)
            if draw.random() < 0.3:
                gangs[name].pods.append(NaivePod(f"{name}-b", name, 1, node, bound=True))
    return gangs, room


async def decided(gangs, room, seed):
    cluster = Gangs(nodes=())
    for node, cpu in room.items():
        cluster.node(node, str(cpu))
        # Pods are held on their node by its label.
        cluster.patch("Node", node, {"metadata": {"labels": {"only": node}}})
    for gang in gangs.values():
        if gang.minimum is not None:
            groups = {"groups": json.dumps([f"default/{name}" for name in gang.groups])} if gang.groups else {}
            cluster.group(gang.minimum, gang.name, match_policy=gang.policy, **groups)
        for pod in gang.pods:
            more = {"gates": ("wait",)} if pod.gated else {}
            cluster.pod(
                pod.name,
                gang.name,
                cpu=str(pod.cpu),
                node=pod.node if pod.bound else "",
                priority=pod.priority,
                nodeSelector={"only": pod.node},
                **more,
            )
    async with scheduling(cluster, seed=seed) as running:
        await asyncio.sleep(120)
        assert not running.work.done()
        assert not running.scheduler.cluster.in_transaction
        return cluster.bound(), {name: cluster.message(name) or cluster.notice(name) for name in cluster.waiting()}


def by_group(counts, gangs):
    """Group -> the sum over its gangs."""
    sums = {}
    for name, gang in gangs.items():
        sums[gang.members()] = sums.get(gang.members(), 0) + counts[name]
    return sums


@pytest.mark.parametrize("seed", quick_first(range(400), 12))
def test_as_many_pods_are_bound(seed):
    gangs, room = drawn(seed)
    bound, messages = run(decided(copy.deepcopy(gangs), room, seed))
    expected = copy.deepcopy(gangs)
    expected_counts = bound_in_the_end(expected, room)
    counts = {name: sum(pod.name in bound for pod in gang.pods) for name, gang in gangs.items()}
    # Which gang of a satisfied group gets the last place is up to the order of the queue.
    assert by_group(counts, gangs) == by_group(expected_counts, gangs)
    for gang in expected.values():
        for pod in gang.pods:
            if pod.name in bound or pod.gated:
                continue
            text = messages[pod.name]
            if gang.minimum is None:
                assert "gang has not init" in text
            else:
                assert text, f"{pod.name} does not show why it waits"

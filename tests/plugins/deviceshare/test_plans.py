"""Gangs of GPU pods, planned whole: as if one was placed after the other, and taken back without a trace."""

from random import Random

import pytest

from koordsched.engine.transaction import Transaction
from tests.engine.plans import Plan
from tests.engine.state import everything
from tests.plugins.deviceshare.machines import g8, pod
from tests.plugins.deviceshare.world import World

NODES = [f"n{number}" for number in range(4)]


def members(count, share):
    return [pod(f"m{number}", core=share, ratio=share) for number in range(count)]


def world(*waiting):
    return World(*(thing for name in NODES for thing in g8(name)), *waiting)


def planned(started, *, keep):
    """(what Plan placed, what each pod got) of all pods that wait."""
    offline = started.offline
    pods = list(offline.pending.values())
    with Transaction(started.cluster, offline.nominator) as transaction:
        plan = Plan(started.cluster, transaction, Random(1))
        placed = list(plan.place_all(started.profile, pods))
        given = [(pod.node, started.given(pod)) for pod in pods]
        if keep:
            transaction.commit()
    return placed, given


@pytest.mark.parametrize("count, share", [(64, 50), (12, 200), (4, 800)])
def test_a_gang_that_just_fits(count, share):
    started = world(*members(count, share))
    placed, given = planned(started, keep=True)
    assert all(placed)
    holders = {}
    for on, devices in given:
        for minor in devices["gpu"]:
            holders[on, minor] = holders.get((on, minor), 0) + min(share, 100)
    assert max(holders.values()) <= 100
    assert sum(holders.values()) == count * share


def test_one_more_than_fits_is_refused():
    placed, _ = planned(world(*members(33, 100)), keep=True)
    assert placed == [True] * 32 + [False]


def test_taken_back_without_a_trace():
    started = world(*members(5, 800))
    planned(started, keep=False)  # plugins that are asked for the first time add columns
    before, books = everything(started.offline), started.books()
    planned(started, keep=False)
    assert everything(started.offline) == before
    assert started.books() == books

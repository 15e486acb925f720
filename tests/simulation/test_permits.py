"""The Permit plugin of the simulation allows the waiting pods that it is to allow."""

import asyncio
from random import Random
from types import SimpleNamespace

import pytest

from koordsched.framework.status import Code
from tests.simulation.permits import Gatekeeper
from tests.virtualtime import run


class Waiting:
    """A pod that waits."""

    def __init__(self):
        self.allowed = []

    def allow(self, plugin):
        self.allowed.append(plugin)


def gatekeeper():
    table = SimpleNamespace(names=["n"], on_node=lambda hook: None, on_removal=lambda hook: None)
    found = Gatekeeper(None, SimpleNamespace(rng=Random(1), cluster=SimpleNamespace(table=table)))
    found.waiting = {}
    return found


def made_wait(gate, pod):
    """Asks about the pod until it is to wait."""
    while gate.permit(None, pod, 0)[0].code is not Code.WAIT:
        pass


@pytest.mark.parametrize("placing", [0.0, 2.0, 7.0])
def test_a_pod_whose_gang_takes_long_to_be_placed_is_let_go_when_it_waits(placing):
    async def scenario():
        gate, pod, waiting = gatekeeper(), SimpleNamespace(uid="p"), Waiting()
        made_wait(gate, pod)
        await asyncio.sleep(placing)
        gate.waiting["p"] = waiting
        await asyncio.sleep(10)
        assert waiting.allowed == [gate.name]
        assert gate.let_go == {"p"}

    run(scenario())


def test_a_pod_that_was_asked_about_again_is_let_go_once():
    async def scenario():
        gate, pod, waiting = gatekeeper(), SimpleNamespace(uid="p"), Waiting()
        for _ in range(3):
            made_wait(gate, pod)
        await asyncio.sleep(2)
        gate.waiting["p"] = waiting
        await asyncio.sleep(10)
        assert waiting.allowed == [gate.name]

    run(scenario())

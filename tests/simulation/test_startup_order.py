"""Whatever order the first lists arrive in, and however long each takes: nothing is decided before all were handled."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from tests.depth import quick_first
from tests.simulation import configuration
from tests.simulation.loop import SimulationLoop
from tests.simulation.network import Network
from tests.simulation.reckoning import belief
from tests.simulation.replica import Process
from tests.simulation.simulation import Simulation


class SlowLists(Network):
    """Every page takes its own time, from nothing to minutes; now and then one has to be asked for again."""

    async def __call__(self, call, proceed):
        if call.method == "GET" and call.query.get("watch") != "1":
            await asyncio.sleep(self.rng.choice([0, 0.01, 1, 50]) * self.rng.random())
            if self.rng.random() < 0.1:
                return 500, {}, b"{}"
        return await proceed()


class _Started(Simulation):
    """A cluster at rest, without weather: seeds decide what is in it."""

    async def observe(self, name, network):
        """A scheduler that acts if the network is slow; what it believed when it made its first decision."""
        slow = network is SlowLists
        process = Process(name, self, 0.0, observes=not slow)
        process.network = network(name, self.plan, self.trace, self.server.state_at, self.invariants.fail)
        decided = asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)  # the scheduler is made in the first step of the process
        cycle, watches = process.scheduler.cycle, process.scheduler.watches
        schedule_one = cycle.schedule_one

        def first(queued):
            if not decided.done():
                assert watches.missing() == []
                decided.set_result(belief(process.scheduler))
            return schedule_one(queued)

        cycle.schedule_one = first
        if slow:
            seen = await decided
        else:
            await process.synced.wait()
            seen = belief(process.scheduler)
        process.terminate()
        await asyncio.wait([process.main])
        return seen


async def beliefs(seed):
    run = _Started(seed, 100)
    # One replica without election, nor extenders, which would be asked first.
    features = tuple(feature for feature in run.plan.features if feature != "extenders")
    pages = Random(seed).choice([1, 2, 500])
    run.plan = replace(run.plan, elects=False, replicas=1, page_size=pages, features=features)
    run.users.settle_in()
    await asyncio.sleep(10)  # volumes are provisioned
    for _ in range(10):
        run.users._foreign_pod()
    run.server.insert(run.users._pod(("web", {"cpu": "1m"}, [], {}, [])))
    expected = await run.observe("rebuild", Network)
    return expected, await run.observe("slow", SlowLists)


@pytest.fixture
def reports_that_stay(monkeypatch):
    """Lists take up to half an hour; what is known at their end does not depend on how old reports have become."""
    args = configuration.load_args
    monkeypatch.setattr(configuration, "load_args", lambda plan: args(plan) | {"nodeMetricExpirationSeconds": 86_400})


@pytest.mark.usefixtures("reports_that_stay")
@pytest.mark.parametrize("first", quick_first(range(0, 60, 10), 1))
def test_the_first_decision_rests_on_everything(first):
    for seed in range(first, first + 10):
        with asyncio.Runner(loop_factory=SimulationLoop) as runner:
            expected, seen = runner.run(beliefs(seed))
        assert seen == expected, f"seed {seed}"

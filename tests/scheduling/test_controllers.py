"""Controllers of plugins: when they run, and what becomes of one that fails."""

import asyncio
import json
import logging
from random import Random

from koordsched import config
from koordsched.client.lanes import Lanes
from koordsched.observability.metrics import Metrics
from koordsched.plugins import CATALOG, CONTROLLERS, IN_TREE, KINDS
from koordsched.scheduling.controllers import AGAIN
from koordsched.scheduling.scheduler import Scheduler
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import node, pod
from tests.virtualtime import run


def profile(name, **args):
    enabled = {"enabled": [{"name": "ElasticQuota"}]}
    return {
        "schedulerName": name,
        "plugins": {"preFilter": enabled},
        "pluginConfig": [{"name": "ElasticQuota", "args": args}],
    }


class Recording:
    """A controller that notes when it runs; `failures` of its runs end with an error."""

    def __init__(self, failures=0):
        self.failures = failures
        self.built = []
        self.started = []
        self.running = False

    def __call__(self, plugin, args, handle):
        self.built.append((plugin, args))
        return self

    async def run(self):
        self.started.append(asyncio.get_running_loop().time())
        self.running = True
        try:
            if self.failures:
                self.failures -= 1
                raise RuntimeError("broken")
            await asyncio.Event().wait()
        finally:
            self.running = False


def test_they_run_for_enabled_plugins_and_end_with_the_scheduler():
    async def main():
        embedded = Embedded()
        wanted, unwanted = Recording(), Recording()
        controllers = {"NodeResourcesFit": wanted, "ElasticQuota": unwanted}
        async with scheduler_on(embedded, controllers=controllers) as running:
            await asyncio.sleep(1)
            assert wanted.running
            ((plugin, args),) = wanted.built
            assert plugin is running.scheduler.profiles["default-scheduler"].plugins["NodeResourcesFit"]
            assert args.scoring_strategy.type == "LeastAllocated"
        assert not wanted.running
        assert unwanted.built == []

    run(main())


def test_one_that_fails_starts_again_and_scheduling_goes_on(caplog):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        broken = Recording(failures=2)
        async with scheduler_on(embedded, controllers={"NodeResourcesFit": broken}):
            await asyncio.sleep(1)
            embedded.insert(pod("p"))
            await asyncio.sleep(1)
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"
            await asyncio.sleep(3 * AGAIN)
            assert broken.running
        first, second, third = broken.started
        assert (second - first, third - second) == (AGAIN, AGAIN)

    run(main())
    assert sum("NodeResourcesFit" in record.message and record.exc_info is not None for record in caplog.records) == 2


def scheduler_of(embedded, profiles):
    """A scheduler that was not started."""
    text = json.dumps({**DEFAULT_CONFIG, "profiles": profiles})
    resolved = config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)
    transport = embedded.transport()
    return Scheduler(
        resolved,
        IN_TREE,
        transport=transport,
        lanes=Lanes(transport, embedded.clock, Random(1)),
        clock=embedded.clock,
        rng=Random(1),
        metrics=Metrics(process_metrics=False),
        hostname="test",
        controllers=CONTROLLERS,
    )


def test_a_standby_writes_nothing():
    async def main():
        embedded = Embedded()
        scheduler = scheduler_of(embedded, [profile("default-scheduler")])
        scheduler.start()
        await scheduler.wait_synced()
        await asyncio.sleep(30)
        assert [stats.submitted for stats in scheduler._lanes.stats.values()] == [0, 0, 0, 0, 0]
        await scheduler.stop()

    run(main())


def test_everything_they_watch_can_be_dumped_and_read_back():
    async def main():
        scheduler = scheduler_of(Embedded(), [profile("default-scheduler")])
        known = set(KINDS.values())
        assert {store.kind for store in scheduler.cluster.objects.wanted()} <= known

    run(main())


def test_profiles_with_other_arguments_are_told(caplog):
    async def main():
        profiles = [profile("one"), profile("two"), profile("three", monitorAllQuotas=True)]
        with caplog.at_level(logging.WARNING):
            scheduler_of(Embedded(), profiles)

    run(main())
    said = [record.getMessage() for record in caplog.records if "first profile" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("profile three: the controller of ElasticQuota")

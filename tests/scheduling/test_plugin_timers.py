"""Timers of plugins, and deadlines of rows: looked at once a second, in a step that replays repeat."""

import asyncio
import logging
from random import Random

import numpy as np

from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.framework.interface import Permit, ShapeFilter
from koordsched.framework.status import SUCCESS, Code
from koordsched.queue.hints import HintRegistration
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.extraplugins import catalog_with, registry_with, resolved_with
from tests.journal.recording import Recorded, repeat
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

RIPE = ClusterEvent(EventResource("example.com/Ripe"), ActionType.UPDATE)
AFTER = "example.com/ripe-after"


class Ripening(ShapeFilter, Permit):
    """Refuses nodes until some seconds after they came, unless they say nothing about it."""

    name = "Ripening"
    facets = 0

    def __init__(self, args, handle):
        self.handle, self.table = handle, handle.cluster.table
        self.facets = self.table.add_facet()
        self.until = self.table.column(np.float64)
        self.code = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, "not ripe")
        self.deadlines = handle.deadlines(self.facets, self.due)
        self.asked, self.ripe, self.called = 0, [], []
        self.table.on_node(self.node_changed)

    def node_changed(self, row, node):
        after = node.metadata.labels.get(AFTER)
        self.until.data[row] = 0.0
        if after is not None:
            self.until.data[row] = self.handle.clock.monotonic() + float(after)
            self.deadlines.set(row, self.until.data[row])

    def due(self, rows):
        self.ripe.append([self.table.names[row] for row in rows])
        self.until.data[rows] = 0.0
        self.handle.cluster.announce(RIPE)

    def events_to_register(self):
        return [HintRegistration(self.name, RIPE)]

    def filter_rows(self, shape, table, rows):
        self.asked += 1
        return np.where(self.until.data[rows] > 0, self.code, 0).astype(np.int32)

    def permit(self, cycle, pod, row):
        self.handle.timers.at(self.handle.clock.monotonic() + 5, lambda: self.called.append(pod.name))
        return SUCCESS, 0.0


def plugin_of(running):
    scheduler = getattr(running, "scheduler", running)
    return scheduler.profiles["default-scheduler"].plugins["Ripening"]


def ripening(name, after=None, **more):
    thing = node(name, **more)
    if after is not None:
        thing["metadata"]["labels"][AFTER] = str(after)
    return thing


def node_of(embedded, name):
    return embedded.get("Pod", name)["spec"].get("nodeName")


def test_a_timer_comes_once_in_the_first_look_and_a_cancelled_one_never():
    async def main():
        embedded = Embedded()
        async with scheduler_on(embedded) as running:
            timers, now = running.scheduler.timers, embedded.clock.monotonic
            start, called = now(), []
            await asyncio.sleep(0.25)

            def at(seconds, name):
                return timers.at(start + seconds, lambda: called.append((name, now() - start)))

            at(2.5, "late")
            at(1.0, "early")
            at(0.0, "overdue")
            at(1.5, "cancelled").cancel()
            third = at(3.0, "third")
            timers.at(start + 2.9, third.cancel)
            await asyncio.sleep(3600)
            assert called == [("overdue", 1.0), ("early", 1.0), ("late", 3.0)]

    run(main())


def test_callbacks_that_fail_harm_no_other(caplog):
    async def main():
        embedded = Embedded()
        async with scheduler_on(embedded, plugins=[Ripening]) as running:
            timers, called = running.scheduler.timers, []
            table = running.scheduler.cluster.table
            timers.deadlines(table, 0, lambda rows: 1 / 0).set(0, 0.0)
            timers.at(0.0, lambda: 1 / 0)
            timers.at(0.0, lambda: called.append("timer"))
            embedded.insert(ripening("alder", 0))
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(3)
            assert called == ["timer"]
            assert plugin_of(running).ripe == [["alder"]]
            assert node_of(embedded, "p") == "alder"

    with caplog.at_level(logging.ERROR):
        run(main())
    failures = [record for record in caplog.records if record.message == "a timer of a plugin failed"]
    assert [record.exc_info[0] for record in failures] == [ZeroDivisionError] * 2


def test_a_deadline_changes_the_cached_verdict_and_wakes_a_pod():
    async def main():
        embedded = Embedded()
        embedded.insert(ripening("alder", 20))
        async with scheduler_on(embedded, plugins=[Ripening]) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(19)
            plugin = plugin_of(running)
            assert (running.attempts["default/p"], plugin.asked, plugin.ripe) == (1, 1, [])
            await asyncio.sleep(3)
            assert plugin.ripe == [["alder"]]
            assert node_of(embedded, "p") == "alder"
            assert (running.attempts["default/p"], plugin.asked) == (2, 2)
            await asyncio.sleep(60)
            assert (plugin.ripe, len(plugin.deadlines)) == ([["alder"]], 0)

    run(main())


def test_a_deadline_is_replaced_and_cleared():
    async def main():
        embedded = Embedded()
        for name in ("alder", "beech"):
            embedded.insert(ripening(name, 5))
        async with scheduler_on(embedded, plugins=[Ripening]) as running:
            plugin, rows = plugin_of(running), running.scheduler.cluster.table.row_of
            plugin.deadlines.set(rows["alder"], embedded.clock.monotonic() + 30)
            plugin.deadlines.clear(rows["beech"])
            await asyncio.sleep(20)
            assert plugin.ripe == []
            await asyncio.sleep(20)
            assert plugin.ripe == [["alder"]]

    run(main())


def test_a_row_that_is_used_again_inherits_no_deadline():
    async def main():
        embedded = Embedded()
        embedded.insert(ripening("alder", 10))
        async with scheduler_on(embedded, plugins=[Ripening]) as running:
            table, plugin = running.scheduler.cluster.table, plugin_of(running)
            row = table.row_of["alder"]
            embedded.registry.delete(embedded.resource("Node"), None, "alder", grace_period_seconds=0)
            await asyncio.sleep(1)
            embedded.insert(ripening("beech"))
            await asyncio.sleep(1)
            assert table.row_of == {"beech": row}
            serial = table.log.serial
            await asyncio.sleep(30)
            assert (plugin.ripe, table.log.serial) == ([], serial)

    run(main())


def test_what_is_due_has_happened_when_files_are_read():
    objects = [ripening("unripe", 1), ripening("ripe", 0), pod("p")]
    scheduler = OfflineScheduler(
        resolved_with(DEFAULT_CONFIG, [Ripening]),
        registry_with([Ripening]),
        objects,
        clock=StoppedClock(),
        rng=Random(1),
    )
    assert plugin_of(scheduler).ripe == [["ripe"]]
    assert [each.name for each in scheduler.explain("default/p").nodes if each.feasible] == ["ripe"]


def test_a_replay_repeats_them():
    async def main():
        embedded = Embedded()
        recorded = Recorded(embedded, plugins=[Ripening])
        async with recorded.running():
            for i, name in enumerate(("alder", "beech", "cedar")):
                embedded.insert(ripening(name, 4 + 5 * i, cpu="2"))
            for i in range(6):
                embedded.insert(pod(f"p{i}", container(cpu="1")))
                await asyncio.sleep(2.5)
            await asyncio.sleep(20)
        return recorded

    recorded = run(main())
    live = plugin_of(recorded.scheduler)
    assert live.ripe == [["alder"], ["beech"], ["cedar"]]
    assert sorted(live.called) == [f"p{i}" for i in range(6)]
    assert recorded.journal.problems == []
    repetition, replay = repeat(recorded.journal.records(), None, registry_with([Ripening]), catalog_with([Ripening]))
    assert repetition.divergence is None
    assert repetition.tally.placed == 6
    again = plugin_of(replay.replayed.scheduler)
    assert (again.ripe, again.called) == (live.ripe, live.called)

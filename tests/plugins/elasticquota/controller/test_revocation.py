"""Who is evicted from a quota that uses more than it may, and when (elasticquota spec 3.15, section 7 case 18)."""

import asyncio
from types import SimpleNamespace

import pytest

from koordsched.plugins.elasticquota import kinds as api
from koordsched.plugins.elasticquota.arithmetic.amounts import add_to
from koordsched.plugins.elasticquota.controller.revocation import OveruseMonitor, Revocation, picked
from tests.plugins.elasticquota.controller.books import Ledger, Reporter, Writes
from tests.virtualtime import VirtualClock, run

NANO = 10**9


def member(name, priority, cpu=None, memory=None, started=None, *, keep=False, deleting=False, assigned=True):
    pod = SimpleNamespace(name=name, key=f"default/{name}", priority=priority, start_time=started, deleting=deleting)
    counted = {name: amount * NANO for name, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    return SimpleNamespace(pod=pod, counted=counted, non_preemptible=keep, assigned=assigned)


CASE_18 = [member("p1", 10, 20), member("p2", 9, 10, 1), member("p3", 8, 20), member("p4", 7, 40)]


@pytest.mark.parametrize(
    ("members", "runtime", "own", "expected"),
    [
        (CASE_18, {"cpu": 50, "memory": 0}, (), ["p2", "p4"]),
        (CASE_18, {"cpu": -1}, (), ["p4", "p3", "p2", "p1"]),
        (CASE_18, {"cpu": 90}, (), []),
        (CASE_18, {"cpu": 89}, (), ["p4"]),
        # What is not named is not bounded.
        (CASE_18, {"gpu": 0}, (), []),
        # p4 runs this scheduler; p2 can stay after all.
        (CASE_18, {"cpu": 50}, ("p4",), ["p1", "p3"]),
        ([member("a", 1, 4, keep=True), member("b", 2, 4)], {"cpu": 4}, (), ["b"]),
        # Even without b it is too much; then everybody who may go goes.
        ([member("a", 1, 4, keep=True), member("b", 2, 4)], {"cpu": 3}, (), ["b"]),
        # Of equal priority those go first that started last; one that has not started yet before all others.
        (
            [member("a", 1, 1, started="2030-01-01T00:00:01Z"), member("b", 1, 1, started="2030-01-01T00:00:02Z")],
            {"cpu": 1},
            (),
            ["b"],
        ),
        ([member("a", 1, 1, started="2030-01-01T00:00:01Z"), member("b", 1, 1)], {"cpu": 1}, (), ["b"]),
        # One that is on its way out already makes the room that is needed.
        ([member("a", 9, 2, deleting=True), member("b", 1, 2)], {"cpu": 2}, (), []),
        ([member("a", 9, 2, deleting=True), member("b", 1, 2)], {"cpu": 1}, (), ["b"]),
        # One that leaves, and requests nothing of a resource, leaves nothing of it in use.
        ([member("a", 9, 2, 0, deleting=True), member("b", 1, 2, 0)], {"cpu": 2, "memory": 0}, (), []),
        # Pods without a node use nothing.
        ([member("a", 1, 2, assigned=False), member("b", 2, 2)], {"cpu": 2}, (), []),
        # Every resource counts in both walks: giving back b's memory must not forget cpu.
        (
            [member("a", 3, 4, 4), member("b", 2, 0, 2), member("c", 1, 4, 0)],
            {"cpu": 4, "memory": 6},
            (),
            ["c"],
        ),
    ],
)
def test_whom(members, runtime, own, expected):
    used = {}
    for one in members:
        if one.assigned:
            add_to(used, one.counted)
    names = {one.pod.name: one.pod for one in members}
    spared = [names[name] for name in own]
    bounds = {name: amount * NANO for name, amount in runtime.items()}
    assert [one.pod.name for one in picked(members, used, bounds, spared)] == expected


def overused(**extra):
    """A quota that may use 5 and uses 8, two pods of 4."""
    ledger = Ledger([{"cpu": "5"}], **extra)
    ledger.quota("q", {"cpu": 20})
    ledger.pod("a", "q", {"cpu": 4}, priority=2)
    ledger.pod("b", "q", {"cpu": 4}, priority=1)
    return ledger


def test_elasticquota_case_18_not_before_the_delay():
    ledger = overused()
    monitor = OveruseMonitor(ledger.books, 120.0)
    assert [monitor.due(t) for t in (0, 1, 119, 120)] == [[], [], [], []]
    assert [quota.name for quota in monitor.due(121)] == ["q"]
    # It is due again only when as much time has passed once more.
    assert monitor.due(122) == []
    assert monitor.due(241) == []
    assert [quota.name for quota in monitor.due(242)] == ["q"]


def test_elasticquota_case_18_a_moment_of_peace_begins_anew():
    ledger = overused()
    monitor = OveruseMonitor(ledger.books, 120.0)
    assert monitor.due(0) == []
    ledger.node("n1", {"cpu": "5"})
    assert monitor.due(119) == []
    ledger.cluster.remove_node("n1")
    assert monitor.due(121) == []
    assert [quota.name for quota in monitor.due(240)] == ["q"]


@pytest.mark.parametrize("name", [api.DEFAULT_QUOTA, api.SYSTEM_QUOTA])
def test_built_in_quotas_have_no_runtime_to_exceed(name):
    ledger = Ledger([{"cpu": "1"}])
    ledger.quota(name, {"cpu": 2})
    ledger.pod("a", name, {"cpu": 5})
    monitor = OveruseMonitor(ledger.books, 1.0)
    assert monitor.due(0) == monitor.due(100) == []


def revocation(ledger, writes, reporter, own=()):
    clock = VirtualClock(asyncio.get_running_loop())
    return Revocation(ledger.books, writes, reporter, clock, own, delay=10.0, interval=1.0)


def test_evictions_and_what_is_said():
    async def main():
        ledger, writes, reporter = overused(), Writes(), Reporter()
        task = asyncio.create_task(revocation(ledger, writes, reporter).run())
        await asyncio.sleep(10.5)
        assert writes.evicted == []
        await asyncio.sleep(1)
        assert writes.evicted == ["b"]
        text = "evicted: quota q uses more cpu than it may: used cpu:8, runtime cpu:5"
        assert reporter.events == [("b", "QuotaRevoked", text)]
        task.cancel()

    run(main())


def test_what_a_budget_refuses_is_tried_again():
    async def main():
        ledger, writes, reporter = overused(), Writes(), Reporter()
        writes.refused = {"b"}
        task = asyncio.create_task(revocation(ledger, writes, reporter).run())
        await asyncio.sleep(12)
        assert writes.evicted == reporter.events == []
        writes.refused = set()
        await asyncio.sleep(11)
        assert writes.evicted == ["b"]
        task.cancel()

    run(main())


def test_what_stops_evicts_no_more():
    """A replica that does not lead any more leaves the rest to the one that does."""

    async def main():
        ledger, reporter = overused(), Reporter()
        ledger.pod("c", "q", {"cpu": 4}, priority=0)
        writes = SlowWrites()
        task = asyncio.create_task(revocation(ledger, writes, reporter).run())
        await asyncio.sleep(14)
        assert writes.evicted == ["b"]
        task.cancel()
        await asyncio.sleep(60)
        assert writes.evicted == ["b"]

    run(main())


class SlowWrites(Writes):
    """Each takes two seconds."""

    async def evict(self, pod):
        await asyncio.sleep(2)
        await super().evict(pod)

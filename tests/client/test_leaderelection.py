import asyncio
import random

import pytest

from koordsched.client.errors import Ambiguous, NotSent
from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.leaderelection import ElectionConfig, Elector
from tests.client.apifake import FakeApi, reply
from tests.virtualtime import WALL_EPOCH, VirtualClock, run

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
KEY = ("kube-system", "kube-scheduler")


class Replica:
    """One elector with its own clock and its own, breakable way to the server."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.cut_off = ""
        self.latency = 0.0
        self.history = []
        self.leaders = []
        self.elector = Elector(
            ElectionConfig(identity=name),
            InMemoryTransport(world.api.handler, fault=self._fault),
            self.clock,
            random.Random(name),
            on_started=lambda: self._note("started"),
            on_stopped=lambda: self._note("stopped"),
            on_new_leader=self.leaders.append,
            may_release=self._may_release,
        )
        self.writes_under_way = False
        self.task = asyncio.create_task(self.elector.run())

    def _note(self, what):
        self.history.append(what)
        self.world.log.append((round(asyncio.get_running_loop().time() - self.world.began, 3), self.name, what))

    async def _may_release(self):
        return not self.writes_under_way

    async def _fault(self, call, proceed):
        if self.latency:
            await asyncio.sleep(self.latency)
        if self.cut_off == "refused":
            raise NotSent("partition")
        if self.cut_off == "blackhole":
            await asyncio.sleep(3600)
        if self.cut_off == "answers lost":
            await proceed()
            raise Ambiguous("lost")
        if self.cut_off == "no watch" and "watch" in call.query:
            return reply(403, "Forbidden")
        status, headers, body = await proceed()
        return status, headers, body if isinstance(body, bytes) else self._watched(body)

    async def _watched(self, chunks):
        async for chunk in chunks:
            if self.cut_off:
                raise Ambiguous("partition")
            yield chunk


class World:
    """Replicas around one Lease, and the check that two never lead at a time."""

    def __init__(self):
        self.api = FakeApi()
        self.log = []
        self.replicas = []
        self.began = asyncio.get_running_loop().time()
        self.watcher = asyncio.create_task(self._never_two())

    async def _never_two(self):
        while True:
            leading = [r.name for r in self.replicas if r.elector.is_leader()]
            assert len(leading) <= 1, leading
            await asyncio.sleep(0.05)

    def join(self, name):
        replica = Replica(self, name)
        self.replicas.append(replica)
        return replica

    def spec(self):
        return self.api.objects[LEASES][KEY]["spec"]

    def leader(self):
        return next((r for r in self.replicas if r.elector.is_leader()), None)

    async def until_led(self, within, by=None):
        """Waits for a leader; returns it and how many seconds that took."""
        step = 0.005
        for tick in range(int(within / step) + 1):
            if self.leader() is not None and by in (None, self.leader()):
                return self.leader(), tick * step
            await asyncio.sleep(step)
        raise TimeoutError(f"no leader within {within} s")

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, *_):
        for task in [self.watcher, *[r.task for r in self.replicas]]:
            task.cancel()
        results = await asyncio.gather(self.watcher, return_exceptions=True)
        await asyncio.gather(*[r.task for r in self.replicas], return_exceptions=True)
        if kind is None:
            assert isinstance(results[0], asyncio.CancelledError), results[0]


def crash(replica):
    """Ends a process between two steps: nothing of it runs any more, so nothing is released."""
    replica.cut_off = "refused"
    replica.task.cancel()


def test_the_first_replica_creates_the_lease_and_renews_it():
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            spec = world.spec()
            assert spec["holderIdentity"] == "a"
            assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (15, 0)
            assert spec["acquireTime"] == spec["renewTime"] == "2030-01-01T00:00:00.000000Z"
            await asyncio.sleep(21)
            renewed = world.spec()
            assert renewed["acquireTime"] == spec["acquireTime"]
            assert renewed["renewTime"].startswith("2030-01-01T00:00:20.0")
            assert a.leaders == ["a"]
            assert a.elector.deadline() == pytest.approx(a.clock.boottime() - 1 + 10, abs=0.1)
            world.api.requests.clear()
            await asyncio.sleep(20)
            assert [method for method, *_ in world.api.requests] == ["PUT"] * 10, "a leader renews without reading"

    run(main())


@pytest.mark.parametrize("late", [0.5, 2.0])
def test_the_lease_counts_from_the_request_not_from_its_late_answer(late):
    """Others count from when they see it, which may be before the answer is here."""

    async def main():
        async with World() as world:
            clock, handler, sent = VirtualClock(asyncio.get_running_loop()), world.api.handler, []

            async def slowly(method, *call):
                if method == "GET":
                    return await handler(method, *call)
                sent.append(clock.boottime())
                answer = await handler(method, *call)
                await asyncio.sleep(late)
                return answer

            world.api.handler = slowly
            a = world.join("a")
            await world.until_led(10)
            for _ in range(300):
                assert any(a.elector.deadline() == pytest.approx(at + 10, abs=0.01) for at in sent)
                await asyncio.sleep(0.1)
            assert len(sent) >= 4

    run(main())


def test_a_released_lease_is_taken_at_once():
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            b = world.join("b")
            c = world.join("c")
            await asyncio.sleep(30)
            a.task.cancel()
            await asyncio.sleep(0.001)
            _, took = await world.until_led(1)
            assert took < 0.1
            assert a.history == ["started", "stopped"]
            assert world.spec()["leaseTransitions"] == 1
            assert world.spec()["leaseDurationSeconds"] == 15
            leader = world.leader()
            assert leader in (b, c)
            await asyncio.sleep(5)
            assert b.leaders == c.leaders == ["a", leader.name]

    run(main())


def test_a_lease_is_left_to_expire_while_writes_are_under_way():
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            world.join("b")
            await asyncio.sleep(30)
            a.writes_under_way = True
            a.task.cancel()
            await asyncio.sleep(0.001)
            _, took = await world.until_led(20)
            assert 10 < took < 15.5
            assert world.leader().name == "b"

    run(main())


def test_the_release_keeps_what_others_wrote_into_the_lease():
    async def main():
        async with World() as world:
            lease = {
                "metadata": {"namespace": KEY[0], "name": KEY[1], "labels": {"team": "x"}},
                "spec": {"strategy": "Old"},
            }
            world.api.put(LEASES, lease)
            a = world.join("a")
            await world.until_led(1)
            a.task.cancel()
            await asyncio.gather(a.task, return_exceptions=True)
            stored = world.api.objects[LEASES][KEY]
            assert stored["metadata"]["labels"] == {"team": "x"}
            assert stored["spec"]["strategy"] == "Old"
            assert (stored["spec"]["holderIdentity"], stored["spec"]["leaseDurationSeconds"]) == ("", 1)

    run(main())


def test_a_lease_that_another_client_changed_last_is_released_all_the_same():
    """As it reads then: an annotation, say, that `kubectl` has just set."""

    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            lease = world.api.objects[LEASES][KEY]
            world.api.put(LEASES, {**lease, "metadata": {**lease["metadata"], "annotations": {"by": "kubectl"}}})
            a.task.cancel()
            await asyncio.gather(a.task, return_exceptions=True)
            assert world.spec()["holderIdentity"] == ""
            assert world.api.objects[LEASES][KEY]["metadata"]["annotations"] == {"by": "kubectl"}

    run(main())


def test_a_lease_that_another_replica_took_meanwhile_is_not_released():
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            lease = world.api.objects[LEASES][KEY]
            world.api.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "other"}})
            a.task.cancel()
            await asyncio.gather(a.task, return_exceptions=True)
            assert world.spec()["holderIdentity"] == "other"

    run(main())


@pytest.mark.parametrize("latency", [0.0, 0.05])
def test_the_lease_of_a_crashed_leader_is_taken_when_it_expires(latency):
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            for name in "bc":
                world.join(name).latency = latency
            await asyncio.sleep(30.5)
            crash(a)
            await asyncio.sleep(0.001)
            # The last renewal was at 30 s.
            _, took = await world.until_led(20)
            assert 14.4 <= took <= 14.5 + 0.2 + 4 * latency
            assert a.history == ["started", "stopped"]

    run(main())


@pytest.mark.parametrize("partition", ["refused", "blackhole", "answers lost"])
def test_a_partitioned_leader_stops_before_another_one_starts(partition):
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            b = world.join("b")
            await asyncio.sleep(20.5)
            a.cut_off = partition
            fenced_at = a.elector.deadline()
            await asyncio.sleep(9.4)
            assert a.elector.is_leader()
            assert world.leader() is a
            await asyncio.sleep(0.2)
            assert not a.elector.is_leader()
            assert a.clock.boottime() >= fenced_at
            assert a.history == ["started", "stopped"]
            if partition == "answers lost":
                # Its renewals reach the server: the lock stays taken until the last of them expires.
                _, took = await world.until_led(30, by=b)
            else:
                _, took = await world.until_led(6, by=b)
                assert 4 < took < 5.6
            assert world.spec()["holderIdentity"] == "b"

    run(main())


def test_a_paused_leader_finds_the_fence_shut_when_it_wakes_up():
    """A machine that sleeps: boot time goes on, monotonic time and timers do not."""

    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            assert a.elector.is_leader()
            a.clock.suspended += 11
            assert not a.elector.is_leader(), "shut at the first instant, before any callback runs"
            await asyncio.sleep(3)
            assert a.history == ["started", "stopped"]
            assert a.task.done()

    run(main())


def test_a_standby_that_slept_does_not_take_a_lease_that_was_renewed_meanwhile():
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            b = world.join("b")
            await asyncio.sleep(10)
            b.clock.suspended += 1000
            await asyncio.sleep(60)
            assert world.leader() is a
            assert b.history == []

    run(main())


@pytest.mark.parametrize("offset", [-1e6, 1e6])
def test_wall_clock_steps_and_skew_change_nothing(offset):
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            b = world.join("b")
            b.clock.wall_offset = offset
            await asyncio.sleep(10)
            a.clock.wall_offset = -offset
            await asyncio.sleep(60)
            assert world.leader() is a
            crash(a)
            _, took = await world.until_led(16, by=b)
            assert took > 12
            assert b.clock.wall() - WALL_EPOCH == pytest.approx(offset, abs=100)

    run(main())


def test_without_the_right_to_watch_polling_still_finds_the_lease():
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            b = world.join("b")
            b.cut_off = "no watch"
            await asyncio.sleep(20)
            a.task.cancel()
            _, took = await world.until_led(5, by=b)
            assert took <= 2 * 2.2 + 0.1

    run(main())


def test_a_leader_whose_lease_was_taken_stops_at_once():
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            await asyncio.sleep(5)
            lease = world.api.objects[LEASES][KEY]
            spec = {**lease["spec"], "holderIdentity": "other", "renewTime": "2030-01-01T00:00:05.000000Z"}
            world.api.put(LEASES, {"metadata": {"namespace": KEY[0], "name": KEY[1]}, "spec": spec})
            await asyncio.sleep(0.1)
            assert a.history == ["started", "stopped"]
            assert a.leaders == ["a", "other"]
            assert world.spec()["holderIdentity"] == "other"

    run(main())


def test_a_deleted_lease_is_created_again_by_the_leader():
    async def main():
        async with World() as world:
            a = world.join("a")
            await world.until_led(1)
            world.join("b")
            await asyncio.sleep(5)
            world.api.remove(LEASES, *KEY)
            await asyncio.sleep(0.1)
            assert world.spec()["holderIdentity"] == "a"
            await asyncio.sleep(20)
            assert world.leader() is a
            assert a.history == ["started"]

    run(main())


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"holderIdentity": None, "leaseDurationSeconds": None, "renewTime": None},
        {"holderIdentity": "dead", "leaseDurationSeconds": 3},
        {"holderIdentity": "dead", "leaseDurationSeconds": -5},
        {"holderIdentity": "dead", "leaseDurationSeconds": 0, "renewTime": "garbage"},
    ],
)
def test_any_lease_left_behind_is_taken_in_time(spec):
    async def main():
        async with World() as world:
            world.api.put(LEASES, {"metadata": {"namespace": KEY[0], "name": KEY[1]}, "spec": spec})
            world.join("a")
            _, took = await world.until_led(20)
            expected = {None: 0, 3: 3}.get(spec.get("leaseDurationSeconds") if spec.get("holderIdentity") else None, 15)
            assert expected <= took <= expected + 0.1

    run(main())


def test_health_fails_when_the_lease_is_long_overdue():
    async def main():
        async with World() as world:
            a = world.join("a")
            b = world.join("b")
            await world.until_led(1)
            leader, other = (a, b) if world.leader() is a else (b, a)
            assert (leader.elector.check(), other.elector.check()) == (None, None)
            leader.clock.suspended += 36
            assert leader.elector.check() == "failed election to renew leadership on lease kube-scheduler"
            assert other.elector.check() is None

    run(main())


def test_hundreds_of_handovers_never_have_two_leaders():
    async def main():
        rng = random.Random(7)
        async with World() as world:
            for i in range(3):
                world.join(f"r{i}-0")
            for generation in range(1, 120):
                await asyncio.sleep(rng.uniform(0, 25))
                victim = rng.choice(world.replicas)
                kind = rng.choice(["release", "crash", "refused", "blackhole", "answers lost", "slow", "sleep"])
                if kind in ("refused", "blackhole", "answers lost"):
                    victim.cut_off = kind
                    await asyncio.sleep(rng.uniform(0, 30))
                    victim.cut_off = ""
                elif kind == "slow":
                    victim.latency = rng.uniform(0, 3)
                    await asyncio.sleep(rng.uniform(0, 30))
                    victim.latency = 0
                elif kind == "sleep":
                    victim.clock.suspended += rng.uniform(0, 40)
                elif kind == "crash":
                    crash(victim)
                else:
                    victim.task.cancel()
                for old in [r for r in world.replicas if r.task.done() or r.task.cancelling()]:
                    world.replicas.remove(old)
                    await asyncio.gather(old.task, return_exceptions=True)
                    world.join(f"{old.name[:2]}-{generation}")
            for replica in world.replicas:
                replica.cut_off, replica.latency = "", 0.0
            await world.until_led(40)
            starts = [entry for entry in world.log if entry[2] == "started"]
            assert len(starts) > 25

    run(main())


@pytest.mark.parametrize(
    ("durations", "message"),
    [
        ({"identity": ""}, "identity is empty"),
        ({"retry_period": 0}, "greater than zero"),
        ({"lease_duration": 10}, "leaseDuration must be greater than renewDeadline"),
        ({"renew_deadline": 2.4}, "renewDeadline must be greater than retryPeriod*1.2"),
    ],
)
def test_durations_that_cannot_work_are_refused(durations, message):
    with pytest.raises(ValueError, match=message.replace("*", r"\*")):
        ElectionConfig(**{"identity": "a", **durations})

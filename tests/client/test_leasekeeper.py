"""A leader whose event loop is busy keeps its lease, for a minute at most."""

import asyncio
import random
import time

import pytest

from koordsched.client.clock import SystemClock
from koordsched.client.errors import ClientError
from koordsched.client.inmemory import InMemoryTransport
from koordsched.client.leaderelection import ElectionConfig, Elector
from koordsched.client.leasekeeper import LeaseKeeper
from tests.client.apifake import FakeApi, reply
from tests.client.test_leaderelection import KEY, LEASES, World
from tests.virtualtime import run


class Kept:
    """Two replicas of which the first one leads; its keeper has a way to the server of its own."""

    async def __aenter__(self):
        self.world = World()
        self.a = self.world.join("a")
        await self.world.until_led(1)
        self.b = self.world.join("b")
        self.keeper = LeaseKeeper(self.a.elector, self.a.clock, self.open)
        self.keeping = asyncio.create_task(self.keeper.run())
        return self

    async def open(self):
        return InMemoryTransport(self.world.api.handler)

    async def __aexit__(self, kind, *_):
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)
        await self.world.__aexit__(kind)


def test_it_renews_nothing_while_the_elector_does():
    async def main():
        async with Kept() as kept:
            await asyncio.sleep(5)
            kept.world.api.requests.clear()
            await asyncio.sleep(20)
            mine = [method for method, path, *_ in kept.world.api.requests if method == "PUT"]
            assert len(mine) == 10

    run(main())


@pytest.mark.parametrize("seconds", [12, 40, 55])
def test_the_lease_is_kept_while_the_loop_is_busy(seconds):
    async def main():
        async with Kept() as kept:
            await asyncio.sleep(5)
            kept.a.cut_off = "blackhole"  # nothing of the elector comes through
            for _ in range(seconds):
                await asyncio.sleep(1)
                assert kept.a.elector.is_leader()
            kept.a.cut_off = ""
            await asyncio.sleep(60)
            assert kept.a.history == ["started"]
            assert kept.a.elector.is_leader()
            assert kept.world.spec()["leaseTransitions"] == 0

    run(main())


def test_a_loop_that_hangs_loses_the_lease():
    async def main():
        async with Kept() as kept:
            await asyncio.sleep(5)
            kept.a.cut_off = "blackhole"
            await asyncio.sleep(58)
            assert kept.a.elector.is_leader()
            await asyncio.sleep(14)
            assert not kept.a.elector.is_leader()
            leader, _ = await kept.world.until_led(10)
            assert leader is kept.b

    run(main())


def test_a_lease_that_was_taken_is_not_taken_back():
    async def main():
        async with Kept() as kept:
            await asyncio.sleep(5)
            kept.a.cut_off = "blackhole"
            lease = kept.world.api.objects[LEASES][KEY]
            spec = {**lease["spec"], "holderIdentity": "edited"}
            kept.world.api.put(LEASES, {**lease, "spec": spec})
            await asyncio.sleep(12)
            assert not kept.a.elector.is_leader()
            assert kept.world.spec()["holderIdentity"] == "edited"

    run(main())


def test_a_failing_renewal_is_tried_again():
    async def main():
        async with Kept() as kept:
            await asyncio.sleep(5)
            kept.a.cut_off = "blackhole"
            kept.world.api.refusals[kept.a.elector.path] = reply(503, "ServiceUnavailable")
            await asyncio.sleep(7)
            kept.world.api.refusals.clear()
            await asyncio.sleep(20)
            assert kept.a.elector.is_leader()

    run(main())


def test_a_server_that_hangs_holds_the_keeper_up_for_no_longer_than_the_lease_lasts():
    async def hangs(call, proceed):
        return await (asyncio.sleep(3600) if call.method == "PUT" else proceed())

    async def main():
        async with World() as world:
            replica = world.join("a")
            await world.until_led(1)
            await asyncio.sleep(5)
            replica.cut_off = "blackhole"
            await asyncio.sleep(7)
            keeper = LeaseKeeper(replica.elector, replica.clock, None)
            left = replica.elector.deadline() - replica.clock.boottime()
            with pytest.raises(ClientError):
                await asyncio.wait_for(keeper.renew(InMemoryTransport(world.api.handler, fault=hangs)), left + 0.1)
            await asyncio.sleep(0.1)
            assert not replica.elector.is_leader()

    run(main())


def test_it_ends_when_told_so():
    async def main():
        async with Kept() as kept:
            await asyncio.sleep(5)
            LeaseKeeper(kept.a.elector, kept.a.clock, kept.open).stop()  # one that was never started
            kept.keeper.stop()
            await asyncio.sleep(0.1)
            assert kept.keeping.cancelled()

    run(main())


def test_a_real_loop_that_computes_for_longer_than_the_lease_lasts():
    """With threads and real clocks: one step of the loop takes twice as long as the lease."""
    api, clock = FakeApi(), SystemClock()
    lost = []
    leads = asyncio.Event()

    async def open_transport():
        return InMemoryTransport(api.handler)

    async def main():
        config = ElectionConfig(identity="a", lease_duration=0.9, renew_deadline=0.7, retry_period=0.1)
        elector = Elector(
            config,
            InMemoryTransport(api.handler),
            clock,
            random.Random(1),
            on_started=leads.set,
            on_stopped=lambda: lost.append(True),
        )
        keeper = LeaseKeeper(elector, clock, open_transport)
        election = asyncio.create_task(elector.run())
        keeper.start()
        await leads.wait()
        until = time.monotonic() + 1.8
        while time.monotonic() < until:
            pass
        assert elector.is_leader()
        await asyncio.sleep(0.3)
        assert not lost
        keeper.stop()
        election.cancel()
        await asyncio.gather(election, return_exceptions=True)

    asyncio.run(main())

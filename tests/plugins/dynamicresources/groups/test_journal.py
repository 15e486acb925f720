"""Jobs whose members share claims are placed the same way in replays, also from a point where claims are in flight."""

import asyncio
from random import Random

import pytest

from tests.depth import quick_first
from tests.journal.recording import Recorded, replayed_from_each_segment
from tests.plugins.coscheduling.running import GANG, configuration
from tests.plugins.dynamicresources.deviceworld import GROUP, claim
from tests.plugins.dynamicresources.groups.running import DRA_GATES, DeviceCluster, books_in, entry
from tests.plugins.dynamicresources.test_journal import state_of
from tests.plugins.gangscheduling.running import GATES
from tests.virtualtime import run


def unreliable(draw):
    """Some bindings, and writes of claims, are refused; claims take their time."""

    async def fault(call, proceed):
        if "resourceclaims" in call.path and call.method == "PATCH":
            await asyncio.sleep(draw.choice((0.2, 1.5)))
        if call.method != "GET" and call.path.endswith(("/binding", "/status")) and draw.random() < 0.1:
            return 500, {"content-type": "application/json"}, b'{"kind": "Status", "code": 500, "message": "no"}'
        return await proceed()

    return fault


async def living(seed, gates):
    """Groups, and gangs of Koordinator, that share a claim and have others; some claims are the groups'."""
    draw = Random(seed)
    cluster = DeviceCluster([f"n{number}" for number in range(1, 4)], ("d0", "d1", "d2"), seed=seed)
    recorded = Recorded(
        cluster,
        configuration(),
        seed=seed,
        seconds_per_segment=1,
        gates=gates,
        fault=unreliable(Random(seed)),
    )
    recorded.sharers = 0
    async with recorded.running():
        for number in range(8):
            names, shared, native = [f"m{number}-{at}" for at in range(2)], f"c{number}", draw.random() < 0.6
            cluster.insert(claim(shared))
            if native:
                own = {"resourceClaims": [entry(shared)]} if draw.random() < 0.7 else {}
                cluster.group(2, f"g{number}", **own)
            for name in names:
                claims = [entry(shared)]
                if draw.random() < 0.4:
                    cluster.insert(claim(f"own-{name}"))
                    claims.insert(draw.randrange(2), entry(f"own-{name}"))
                gang = {f"{GANG}name": f"k{number}", f"{GANG}min-available": "2"}
                more = {"group": f"g{number}"} if native else {"group": "", "annotations": gang}
                cluster.member(name, resourceClaims=claims, **more)
            for _ in range(draw.choice((2, 6))):
                await asyncio.sleep(0.5)
                flights = books_in(recorded.scheduler).in_flight.recorded_state()
                recorded.sharers += any(entry.sharers for entry in flights)
            if draw.random() < 0.6:
                await cluster.delete(*names)
                freed = {"status": {"allocation": None, "reservedFor": None}}
                cluster.registry.patch(
                    cluster.resource("ResourceClaim", GROUP), "default", shared, freed, "merge", "status"
                )
        await asyncio.sleep(20)
    return recorded


@pytest.mark.parametrize("gates", [DRA_GATES, GATES])
@pytest.mark.parametrize("seed", quick_first(range(1, 7), 1))
def test_what_members_share_is_repeated(seed, gates):
    recorded = run(living(seed, gates))
    assert recorded.sharers > 1
    assert len(recorded.journal.segments) > 5
    for scheduler in replayed_from_each_segment(recorded.journal):
        assert state_of(scheduler) == state_of(recorded.scheduler)

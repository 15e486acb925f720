"""A journal repeats who was held back: what nodes and namespaces said is in it."""

import asyncio

from koordsched.plugins import CONTROLLERS
from tests.journal.recording import Recorded, repeat
from tests.plugins.nodecircuitbreaker.running import DEFAULT_CONFIG, template
from tests.plugins.workloadquarantine.test_over_the_api import NAME, World, bombs
from tests.virtualtime import run


def test_decisions_are_repeated():
    async def main():
        world = World(template("node", 60))
        profile = {"plugins": {"multiPoint": {"enabled": [{"name": NAME}]}}}
        recorded = Recorded(
            world.embedded,
            {**DEFAULT_CONFIG, "profiles": [profile]},
            controllers=CONTROLLERS,
            seconds_per_segment=20,
        )
        async with recorded.running():
            await asyncio.sleep(1)
            await bombs(world)
            world.of("bomb", "bomb-next")
            world.of("web", "web-next")
            await asyncio.sleep(30)
            assert world.node_of("bomb-next") is None
            await world.lift()
            await asyncio.sleep(30)
            assert world.node_of("bomb-next")
        return recorded.journal

    journal = run(main())
    repetition, replay = repeat(journal.records())
    assert repetition.divergence is None
    quarantines = replay._scheduler.scheduler.profiles["default-scheduler"].plugins[NAME].quarantines
    assert dict(quarantines.ends) == {"quarantined": 1, "acknowledged": 1, "expired": 0}
    assert len(journal.segments) > 5
    for segment in range(1, len(journal.segments)):
        assert repeat(journal.records(segment))[0].divergence is None, segment

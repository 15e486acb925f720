"""A journal repeats what breakers decided: the statuses that they went by are in it."""

import asyncio

from koordsched.journal.records import Chosen, Refused
from koordsched.plugins import CONTROLLERS
from tests.journal.recording import Recorded, repeat
from tests.plugins.nodecircuitbreaker.running import NAME, World, configuration, template
from tests.plugins.nodecircuitbreaker.test_over_the_api import ON_BAD, START_ERROR, break_it
from tests.virtualtime import run


def test_decisions_are_repeated():
    async def main():
        world = World(template("good", 9), template("bad", 1, fails="CreateContainerError"))
        args = {"coolDown": "20s", "probation": "20s"}
        recorded = Recorded(world.embedded, configuration(**args), controllers=CONTROLLERS, seconds_per_segment=10)
        async with recorded.running():
            await asyncio.sleep(1)
            await break_it(world)
            for number in range(3):
                world.pod(f"wants-{number}", "stubborn", nodeSelector=ON_BAD)
            await asyncio.sleep(30)
            await world.annotate("bad-0", **{START_ERROR: None})
            await asyncio.sleep(70)
            assert world.written("bad-0") is None
            assert {world.node_of(f"wants-{number}") for number in range(3)} == {"bad-0"}
            breakers = recorded.scheduler.profiles["default-scheduler"].plugins[NAME].breakers
        return recorded.journal, dict(breakers.transitions)

    journal, transitions = run(main())
    records = journal.records()
    assert sum(isinstance(record, Refused) for record in records) > 2
    assert sum(isinstance(record, Chosen) for record in records) == 6
    repetition, replay = repeat(records)
    assert repetition.divergence is None
    breakers = replay._scheduler.scheduler.profiles["default-scheduler"].plugins[NAME].breakers
    assert dict(breakers.transitions) == transitions == {"open": 2, "half-open": 2, "closed": 1, "held": 0}
    assert len(journal.segments) > 5
    divergences = [repeat(journal.records(segment))[0].divergence for segment in range(1, len(journal.segments))]
    # From a checkpoint within a probation on it begins anew, as with a new leader: the node is passable later.
    different = [each for each in divergences if each is not None]
    assert len(different) <= 2
    assert all("NodeCircuitBreaker" in each.repeated and "placed on bad-0" in each.recorded for each in different)

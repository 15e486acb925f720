"""A pod whose attempt took long rests for twenty times as long, while others are placed."""

import asyncio

import pytest

from koordsched.framework.interface import PreFilter, PreFilterResult
from koordsched.framework.status import Code, Status
from koordsched.scheduling.cycle import COSTLY
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import node, pod
from tests.virtualtime import run


class Slow(PreFilter):
    """Refuses pods named so; whatever happens may help them."""

    name = "Slow"

    def __init__(self, args, handle):
        self.attempts = []

    def pre_filter(self, cycle, pod):
        if pod.name != "slow":
            return PreFilterResult(None)
        self.attempts.append(asyncio.get_running_loop().time())
        return Status(Code.UNSCHEDULABLE, ("it is slow",))


@pytest.mark.parametrize(("cost", "rest"), [(COSTLY / 2, 0), (1.5, 30), (60.0, 300)])
def test_it_is_tried_again_after_its_rest(cost, rest):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, plugins=[Slow]) as running:
            plugin = running.scheduler.profiles["default-scheduler"].plugins["Slow"]
            running.scheduler.cycle.cpu_time = lambda: cost * len(plugin.attempts)
            embedded.insert(pod("slow"))
            for number in range(100):
                await asyncio.sleep(5)
                embedded.insert(pod(f"p{number}"))
                await asyncio.sleep(0.1)
                assert embedded.get("Pod", f"p{number}")["spec"]["nodeName"] == "alder"
            gaps = [later - earlier for earlier, later in zip(plugin.attempts, plugin.attempts[1:], strict=False)]
            assert rest - 1 <= min(gaps) <= rest + 6

    run(main())

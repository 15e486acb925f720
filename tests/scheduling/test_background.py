"""Work in the background ends before the scheduler does, and none is begun then."""

import asyncio

from koordsched.framework.interface import Reserve
from koordsched.framework.status import SUCCESS
from koordsched.scheduling.background import Background
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import node, pod
from tests.virtualtime import run


def test_closing_waits_for_what_is_under_way_and_begins_nothing():
    done = []

    async def work(name, seconds):
        await asyncio.sleep(seconds)
        done.append(name)

    async def main():
        background = Background()
        background.start(work("short", 1))
        background.start(work("long", 5))
        await asyncio.sleep(2)
        closing = asyncio.ensure_future(background.close())
        await asyncio.sleep(1)
        background.start(work("late", 0))
        await closing
        assert done == ["short", "long"]
        await background.close()

    run(main())


def test_what_is_abandoned_ends_and_nothing_is_begun_after_it():
    done = []

    async def work(seconds):
        await asyncio.sleep(seconds)
        done.append(seconds)

    async def main():
        background = Background()
        background.start(work(1))
        background.start(work(5))
        await asyncio.sleep(2)
        await background.abandon()
        background.start(work(0))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert done == [1]

    run(main())


class Launching(Reserve):
    """Has something done in the background for each pod."""

    name = "Launching"

    def __init__(self, args, handle):
        self.launch, self.done, self.seconds = handle.launch, [], 3

    def reserve(self, cycle, pod, row):
        self.launch(self.work(pod.name))
        return SUCCESS

    def unreserve(self, cycle, pod, row):
        pass

    async def work(self, name):
        await asyncio.sleep(self.seconds)
        self.done.append(name)


def test_what_plugins_launch_is_done_in_the_background_and_before_the_scheduler_ends():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, plugins=[Launching]) as running:
            plugin = running.scheduler.profiles["default-scheduler"].plugins["Launching"]
            embedded.insert(pod("first"))
            await asyncio.sleep(2)
            assert embedded.get("Pod", "first")["spec"]["nodeName"] == "alder"
            assert plugin.done == []
            await asyncio.sleep(2)
            assert plugin.done == ["first"]
            embedded.insert(pod("last"))
            await asyncio.sleep(1)
        assert plugin.done == ["first", "last"]

    run(main())


def test_what_plugins_launch_ends_with_the_scheduler_though_the_api_server_does_not_answer():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, plugins=[Launching]) as running:
            plugin = running.scheduler.profiles["default-scheduler"].plugins["Launching"]
            plugin.seconds = 3600
            embedded.insert(pod("first"))
            await asyncio.sleep(1)
            running.work.cancel()
            await asyncio.gather(running.work, return_exceptions=True)
            await running.scheduler.stop(within=5)
            assert not [task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == "Launching.work"]

    run(main())

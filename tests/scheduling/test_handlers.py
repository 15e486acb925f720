"""What is made of pods that the watch shows."""

import asyncio

from koordsched.api import core
from koordsched.api.decoding import convert
from tests.cluster.test_observers import Observer
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


def test_a_pod_that_is_gone_and_there_again_while_it_waits_on_permit_is_tried_again(picky):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))

        async def slow(call, proceed):
            if call.path.endswith("/status"):
                await asyncio.sleep(60)  # a write that shows would bring it back as well
            return await proceed()

        async with scheduler_on(embedded, fault=slow) as running:
            handler = running.scheduler.pod_handler
            picky[0].wait = 60.0
            embedded.insert(pod("p"))
            await asyncio.sleep(1)
            assert len(running.scheduler.waiting) == 1
            picky[0].wait = 0.0
            wire = convert(embedded.get("Pod", "p"), core.Pod)
            handler.delete(wire)
            handler.upsert(wire)
            await asyncio.sleep(5)
            assert running.attempts == {"default/p": 2}

    run(main())


def test_a_pod_of_another_scheduler_that_cannot_be_read_any_more_is_not_counted():
    async def main():
        async with scheduler_on(Embedded()) as running:
            observer = Observer()
            running.scheduler.cluster.add_observer(observer)
            handler = running.scheduler.pod_handler
            for cpu in ("1", "many"):
                handler.upsert(convert(pod("p", container(cpu=cpu), schedulerName="other"), core.Pod))
            assert observer.heard == [("seen", "uid-default-p", False), ("gone", "uid-default-p")]
            assert list(handler.known()) == []

    run(main())

"""Changes of objects, and the hints that they ask, are counted by the event that they are."""

import asyncio

from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.scheduling.test_extension_point_metrics import count, text_of
from tests.virtualtime import run

EVENTS = "scheduler_event_handling_duration_seconds"
HINTS = "scheduler_queueing_hint_execution_duration_seconds"


def test_a_pod_is_added_when_it_is_first_seen_and_again_when_it_has_its_node():
    async def main():
        embedded = Embedded()
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p"))
            await asyncio.sleep(1)  # its condition is an update
            embedded.insert(node("alder"))
            await asyncio.sleep(20)
            text = await text_of(running.scheduler.metrics)
        for event in ("UnschedulablePodAdd", "UnschedulablePodUpdate", "AssignedPodAdd"):
            assert count(text, EVENTS, event=event) == 1, event

    run(main())


def test_a_hint_is_counted_by_what_it_says_about_the_event():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p", container(), nodeSelector={"zone": "a"}))
            await asyncio.sleep(1)
            embedded.insert(node("beech", labels={"zone": "a"}))
            await asyncio.sleep(1)
            text = await text_of(running.scheduler.metrics)
        assert count(text, HINTS, plugin="NodeAffinity", event="NodeAdd", hint="Queue") == 1

    run(main())

"""Scheduling ends in the open: what keeps it from going on ends the process, and the next replica takes over."""

import asyncio
import logging

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


class Broken(Exception):
    """Something that nobody has thought of."""


def fail(*given):
    raise Broken


@pytest.mark.parametrize(
    "part",
    ["queue.timers.run", "queue.pop", "_overcommitment.tick", "watches._slices.over"],
    ids=["timers", "queue", "reports", "watches"],
)
def test_whatever_breaks_ends_scheduling_with_its_name(part):
    async def main():
        embedded = Embedded()
        async with scheduler_on(embedded) as running:
            owner = running.scheduler
            *path, last = part.split(".")
            for name in path:
                owner = getattr(owner, name)
            setattr(owner, last, fail)
            embedded.insert(pod("p"))
            with pytest.raises(ExceptionGroup) as ended:
                await asyncio.wait_for(running.work, 5)
            assert ended.group_contains(Broken)

    run(main())


def test_attempts_in_vain_hold_up_no_other_pods():
    """However short the time is after which they let other tasks run."""

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        async with scheduler_on(embedded) as running:
            running.scheduler._futile_slice = 0.0
            for i in range(20):
                embedded.insert(pod(f"large-{i}", container(cpu=str(5 + i))))
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(0.5)
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"

    run(main())


def test_after_a_pod_that_is_placed_the_next_one_is_tried_at_once():
    """In as many rounds of the event loop as if nothing had been before it."""

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        async with scheduler_on(embedded) as running:
            assigned, taken = running.scheduler.cluster.assigned, []
            for name in ("first", "second"):
                embedded.insert(pod(name))
                for rounds in range(20):
                    if f"uid-default-{name}" in assigned:
                        taken.append(rounds)
                        break
                    await asyncio.sleep(0)
            first, second = taken
            assert first == second

    run(main())


def test_it_ends_without_a_word_when_it_is_cancelled():
    async def main():
        async with scheduler_on(Embedded()) as running:
            await asyncio.sleep(3)
            running.work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running.work
            assert not [task for task in asyncio.all_tasks() if task.get_name() == "queue timers"]

    run(main())


def test_what_pods_are_to_show_is_written_before_it_ends():
    async def main():
        embedded = Embedded()

        async def slow(call, proceed):
            if call.path.endswith("/status"):
                await asyncio.sleep(2)
            return await proceed()

        async with scheduler_on(embedded, fault=slow) as running:
            embedded.insert(pod("p"))
            await asyncio.sleep(1)
            running.work.cancel()
            assert "conditions" not in embedded.get("Pod", "p")["status"]
            await running.scheduler.stop()
            (condition,) = embedded.get("Pod", "p")["status"]["conditions"]
            assert (condition["type"], condition["status"]) == ("PodScheduled", "False")

    run(main())


def test_events_are_written_before_it_ends():
    async def main():
        embedded = Embedded()

        async def slow(call, proceed):
            if call.path.endswith("/events"):
                await asyncio.sleep(2)
            return await proceed()

        async with scheduler_on(embedded, fault=slow) as running:
            embedded.insert(pod("p"))
            await asyncio.sleep(1)
            running.work.cancel()
            assert embedded.events() == []
            await running.scheduler.stop()
            (event,) = embedded.events()
            assert (event["reason"], event["regarding"]["name"]) == ("FailedScheduling", "p")

    run(main())


def test_bindings_without_an_answer_are_given_up_and_are_no_error(caplog):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))

        async def silent(call, proceed):
            if call.path.endswith("/binding"):
                await asyncio.sleep(1000)
            return await proceed()

        async with scheduler_on(embedded, fault=silent) as running:
            embedded.insert(pod("p"))
            await asyncio.sleep(1)
            running.work.cancel()
            assert running.scheduler.binding.in_flight == 1
            await running.scheduler.stop()
            assert running.scheduler.binding.in_flight == 0

    run(main())
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_no_watch_is_under_way_when_it_has_stopped():
    async def main():
        async with scheduler_on(Embedded()) as running:
            running.work.cancel()
            await asyncio.gather(running.work, return_exceptions=True)
            assert [task for task in asyncio.all_tasks() if task.get_name().startswith("reflector ")]
            await running.scheduler.stop()
            assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("reflector ")]

    run(main())

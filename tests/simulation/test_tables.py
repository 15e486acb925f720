"""The judge of the scheduler's own tables finds what does not belong there."""

import asyncio
from copy import copy

import pytest

from koordsched.scheduling.podstatus import _Record
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.simulation.conditions import LastWords
from tests.simulation.tables import wrong_tables
from tests.virtualtime import run


def _forgotten_wait(scheduler, waiting):
    scheduler.binding._idle += 1


def _forgotten_notice(scheduler, waiting):
    scheduler._notices.begin(waiting, "Plugin", "Gated", "text")


def _status_of_the_gone(scheduler, waiting):
    scheduler._status._records["gone"] = _Record()


def _counted_twice(scheduler, waiting):
    scheduler.queue.counters.rejected("default-scheduler", ["NodeResourcesFit"])


def _promise_to_an_old_version(scheduler, waiting):
    scheduler.queue.nominator.add(copy(waiting), "alder")


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda scheduler, waiting: None, []),
        (_forgotten_wait, ["waiting inside of bindings: 1"]),
        (_forgotten_notice, ["notices of waiting: ['{uid}']"]),
        (_status_of_the_gone, ["status remembered of pods that do not wait: ['gone']"]),
        (
            _counted_twice,
            [
                "unschedulable pods by plugin: {{('NodeResourcesFit', 'default-scheduler'): 2}}, "
                "counted once more {{('NodeResourcesFit', 'default-scheduler'): 1}}"
            ],
        ),
        (_promise_to_an_old_version, ["alder is promised to default/p {version}, which is not what waits"]),
    ],
)
def test_what_does_not_belong_into_a_table_is_found(spoil, expected):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="1"))
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("q", container(cpu="1")))
            embedded.insert(pod("p", container(cpu="2")))
            await asyncio.sleep(10)
            (waiting,) = running.scheduler.pending_pods()
            spoil(running.scheduler, waiting)
            found = wrong_tables(running.scheduler)
            assert found == [text.format(uid=waiting.uid, version=waiting.resource_version) for text in expected]

    run(main())


def test_a_status_that_does_not_say_what_was_said_last_is_found():
    async def main():
        embedded = Embedded()
        async with scheduler_on(embedded) as running:
            words = LastWords(running.scheduler)
            embedded.insert(pod("p", container(cpu="2")))
            await asyncio.sleep(10)
            shown = embedded.get("Pod", "p")
            assert list(words.unread([shown])) == []
            shown["status"]["conditions"] = []
            (text,) = words.unread([shown])
            assert text == (
                "the status of pod p says [], "
                "the scheduler said ('Unschedulable', 'no nodes available to schedule pods')"
            )

    run(main())

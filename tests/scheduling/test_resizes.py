"""Running pods that are resized in place: only their status says so, and it counts from the event on."""

import asyncio

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod, requests
from tests.virtualtime import run


def resize(embedded, cpu, allocated=None):
    """The kubelet says what the container of the pod `running` has by now; its spec stays."""
    stored = embedded.get("Pod", "running")
    found = {"name": "c", "resources": requests(cpu), "allocatedResources": requests(allocated or cpu)["requests"]}
    status = {**stored["status"], "phase": "Running", "containerStatuses": [found]}
    embedded.registry.replace_status(embedded.resource("Pod"), "default", "running", status)


def nodes(embedded, *names):
    return [embedded.get("Pod", name)["spec"].get("nodeName") for name in names]


@pytest.mark.parametrize("allocated", [None, "3"], ids=["in force", "allocated"])
def test_a_resize_that_only_the_status_shows_counts_and_wakes(allocated):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        embedded.insert(pod("running", container(cpu="1", name="c"), on="alder"))
        async with scheduler_on(embedded) as running:
            resize(embedded, "3" if allocated is None else "1", "3")
            await asyncio.sleep(1)
            embedded.insert(pod("second", container(cpu="2")))
            await asyncio.sleep(30)
            assert nodes(embedded, "second") == [None], "one CPU is left"
            embedded.insert(pod("third", container(cpu="1")))
            await asyncio.sleep(5)
            assert nodes(embedded, "third") == ["alder"]
            embedded.registry.delete(embedded.resource("Pod"), "default", "third", grace_period_seconds=0)
            await asyncio.sleep(30)
            attempts = running.attempts["default/second"]
            resize(embedded, "1")
            await asyncio.sleep(30)
            assert nodes(embedded, "second") == ["alder"], "by the resize alone"
            assert running.attempts["default/second"] == attempts + 1

    run(main())

"""Extension points and plugins are timed, plugins in a tenth of the cycles."""

import asyncio
from collections import Counter

import pytest

from koordsched.framework.interface import PreBind
from koordsched.framework.status import SUCCESS
from koordsched.observability.exposition import render
from koordsched.scheduling.pluginsampling import EVERY
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


async def text_of(metrics):
    return (await render(metrics, lambda: 0.0)).decode()


def count(text, name, part="count", **labels):
    """The count (or the sum) of a histogram series, None if it is not there."""
    for line in text.splitlines():
        if line.startswith(f"{name}_{part}{{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return None


def test_what_is_timed_and_how_often():
    async def main():
        embedded = Embedded()
        for name in ("alder", "birch"):
            embedded.insert(node(name, cpu="64"))
        async with scheduler_on(embedded) as running:
            for i in range(3 * EVERY):
                embedded.insert(pod(f"p{i}", container(cpu="100m")))
            embedded.insert(pod("never", container(cpu="900")))
            await asyncio.sleep(5)
            text = await text_of(running.scheduler.metrics)
        assert count(text, POINTS, extension_point="Filter", status="Success") == 3 * EVERY + 1
        assert count(text, POINTS, extension_point="Score", status="Success") == 3 * EVERY
        assert count(text, POINTS, extension_point="Bind", status="Success") == 3 * EVERY
        assert count(text, POINTS, extension_point="PostFilter", status="Unschedulable") == 1

    run(main())


class Prepares(PreBind):
    """Takes its time before a binding."""

    name = "Prepares"

    def __init__(self, args, handle):
        pass

    def events_to_register(self):
        return []

    def pre_bind_pre_flight(self, cycle, pod, node):
        return SUCCESS

    async def pre_bind(self, cycle, pod, node):
        await asyncio.sleep(3)
        return SUCCESS


def test_pre_bind_takes_as_long_as_its_plugins_and_bind_as_the_api_server():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))

        async def slow(call, proceed):
            if call.path.endswith("/binding"):
                await asyncio.sleep(2)
            return await proceed()

        async with scheduler_on(embedded, fault=slow, plugins=[Prepares]) as running:
            embedded.insert(pod("p"))
            await asyncio.sleep(10)
            text = await text_of(running.scheduler.metrics)
        assert count(text, POINTS, "sum", extension_point="PreBind", status="Success") == pytest.approx(3.0)
        assert count(text, POINTS, "sum", extension_point="Bind", status="Success") == pytest.approx(2.0)

    run(main())


POINTS = "scheduler_framework_extension_point_duration_seconds"
PLUGINS = "scheduler_plugin_execution_duration_seconds"


def test_plugins_are_timed_in_a_tenth_of_the_cycles_where_they_are_called():
    async def main():
        embedded = Embedded()
        for name in ("alder", "birch"):
            embedded.insert(node(name, cpu="64"))
        async with scheduler_on(embedded) as running:
            asked = count_calls(running.scheduler.profiles["default-scheduler"])
            # Each pod is the only change since the one before: what NodeResourcesFit says about its node is new.
            for i in range(3 * EVERY):
                embedded.insert(pod(f"p{i}", container(cpu="100m")))
            await asyncio.sleep(5)
            text = await text_of(running.scheduler.metrics)
        assert count(text, PLUGINS, plugin="NodeResourcesFit", extension_point="Filter", status="Success") == 3
        assert count(text, PLUGINS, plugin="NodeResourcesFit", extension_point="Score", status="Success") == 3
        # Kept since the first cycle, and skipped.
        assert count(text, PLUGINS, plugin="NodeAffinity", extension_point="Filter") is None
        assert count(text, PLUGINS, plugin="NodePorts", extension_point="Filter") is None
        # The first pod's two nodes at once, then a node after each placement: nothing is asked for the samples.
        assert asked == {"filter_rows": 3 * EVERY, "score_rows": 3 * EVERY}

    run(main())


def count_calls(profile):
    """Counts what NodeResourcesFit is asked from now on."""
    asked = Counter()

    class Counting(type(profile.plugins["NodeResourcesFit"])):
        def filter_rows(self, *args):
            asked["filter_rows"] += 1
            return super().filter_rows(*args)

        def score_rows(self, *args):
            asked["score_rows"] += 1
            return super().score_rows(*args)

    profile.plugins["NodeResourcesFit"].__class__ = Counting
    return asked

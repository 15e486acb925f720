"""How many nodes have a report that counts: the metrics of LoadAwareScheduling."""

import asyncio

from koordsched.cli.pluginmetrics import observe_plugins
from koordsched.fakecluster.clock import rfc3339
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.parity.koord import custom_resources, delete_object, patch_object
from tests.plugins.objects import node
from tests.virtualtime import run

ENABLED = {"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}}
CONFIG = {**DEFAULT_CONFIG, "profiles": [{"schedulerName": "default-scheduler", "plugins": ENABLED}]}


def report(embedded, name, seconds_ago=0.0):
    """A NodeMetric of that age."""
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "updateTime": rfc3339(embedded.clock.wall() - seconds_ago),
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "1"}}},
        },
    }


def exposed(metrics, name):
    """Label `state`, or "", -> value."""
    samples = [sample for metric in metrics.collect() for sample in metric.samples if sample.name == name]
    return {sample.labels.get("state", ""): sample.value for sample in samples}


def test_nodes_by_the_state_of_their_reports():
    async def main():
        embedded = Embedded()
        for thing in (*custom_resources(), node("ash"), node("elm"), node("oak")):
            embedded.insert(thing)
        async with scheduler_on(embedded, CONFIG) as running:
            metrics = running.scheduler.metrics
            observe_plugins(metrics, running.scheduler.profiles)

            def states():
                found = exposed(metrics, "koordsched_node_reports")
                return found["fresh"], found["expired"], found["none"]

            async def settled():
                await asyncio.sleep(2)
                return states()

            assert states() == (0, 0, 3)
            embedded.insert(report(embedded, "ash"))
            embedded.insert(report(embedded, "elm", 500))
            embedded.insert(report(embedded, "nowhere"))
            assert await settled() == (1, 1, 1)
            assert exposed(metrics, "koordsched_node_reports_taken_total") == {"": 3}
            await asyncio.sleep(180)
            assert states() == (0, 2, 1)
            status = {"status": {"updateTime": rfc3339(embedded.clock.wall())}}
            patch_object(embedded, {"kind": "NodeMetric", "name": "elm", "merge": status})
            assert await settled() == (1, 1, 1)
            delete_object(embedded, {"kind": "Node", "name": "elm"})
            delete_object(embedded, {"kind": "NodeMetric", "name": "ash"})
            assert await settled() == (0, 0, 2)
            embedded.insert(node("nowhere"))
            assert await settled() == (0, 1, 2)

    run(main())


def test_without_the_plugin_there_are_none():
    async def main():
        async with scheduler_on(Embedded()) as running:
            metrics = running.scheduler.metrics
            observe_plugins(metrics, running.scheduler.profiles)
            assert exposed(metrics, "koordsched_node_reports") == {}

    run(main())

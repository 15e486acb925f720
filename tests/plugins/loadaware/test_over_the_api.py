"""LoadAwareScheduling against the embedded API server, where it is not what koord-scheduler does."""

import asyncio

from koordsched.fakecluster.clock import rfc3339
from koordsched.plugins.loadaware import DECLARATION
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.parity.koord import condition_of, custom_resources, patch_object
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

ENABLED = {"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}}
CONFIG = {**DEFAULT_CONFIG, "profiles": [{"schedulerName": "default-scheduler", "plugins": ENABLED}]}


def usage(embedded, cpu, memory="1Gi"):
    """The status of a report made now."""
    resources = {"cpu": cpu, "memory": memory}
    return {"updateTime": rfc3339(embedded.clock.wall()), "nodeMetric": {"nodeUsage": {"resources": resources}}}


def metric(embedded, cpu):
    """A report about ash."""
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
    return {**kind, "metadata": {"name": "ash"}, "spec": {}, "status": usage(embedded, cpu)}


def report(embedded, *amounts):
    """The next report."""
    patch_object(embedded, {"kind": "NodeMetric", "name": "ash", "merge": {"status": usage(embedded, *amounts)}})


def world():
    """A node of 4 CPUs, and the definitions."""
    embedded = Embedded()
    for thing in (*custom_resources(), node("ash")):
        embedded.insert(thing)
    return embedded


def refusal(embedded, name):
    """The message of the pod's condition, without what preemption says."""
    return condition_of(embedded.get("Pod", name))[1].partition(". ")[0]


def test_a_report_wakes_pods_only_when_it_admits_them():
    async def main():
        embedded = world()
        embedded.insert(metric(embedded, "3"))
        async with scheduler_on(embedded, CONFIG) as running:
            embedded.insert(pod("new", container(cpu="100m")))
            await asyncio.sleep(5)
            assert refusal(embedded, "new") == "0/1 nodes are available: 1 node(s) cpu usage exceed threshold"
            tries = running.attempts["default/new"]
            for cpu in ("3500m", "2900m"):  # the second eases, but not enough
                report(embedded, cpu)
                await asyncio.sleep(5)
            assert running.attempts["default/new"] == tries
            report(embedded, "1")
            await asyncio.sleep(2)
            assert (embedded.get("Pod", "new")["spec"]["nodeName"], running.attempts["default/new"]) == (
                "ash",
                tries + 1,
            )

    run(main())


def test_expiry_is_noticed_by_itself():
    async def main():
        embedded = world()
        embedded.insert(metric(embedded, "1"))
        async with scheduler_on(embedded, CONFIG):
            await asyncio.sleep(177)
            embedded.insert(pod("in-time", container(cpu="100m")))
            await asyncio.sleep(5)
            embedded.insert(pod("late", container(cpu="100m")))
            await asyncio.sleep(2)
            assert embedded.get("Pod", "in-time")["spec"]["nodeName"] == "ash"
            assert refusal(embedded, "late") == "0/1 nodes are available: 1 node(s) nodeMetric expired"

    run(main())


def test_the_page_of_a_node_without_a_report():
    async def main():
        embedded = world()
        async with scheduler_on(embedded, CONFIG) as running:
            embedded.insert(pod("old", container(cpu="100m"), on="ash"))
            await asyncio.sleep(2)
            page = next(page for page in DECLARATION.pages if "{name}" in page.path)
            plugin = DECLARATION.plugin_in(running.scheduler.profiles)
            (shown,) = page.answer(plugin, {"name": "ash"})["pods"]
            assert shown["pod"] == {"metadata": {"namespace": "default", "name": "old"}}
            assert page.answer(plugin, {"name": "nowhere"}) == {}

    run(main())


def test_absurd_amounts_harm_their_own_node_alone():
    async def main():
        embedded = world()
        embedded.insert(node("elm"))
        embedded.insert(metric(embedded, "1"))
        async with scheduler_on(embedded, CONFIG):
            for number, (cpu, memory) in enumerate((("-5", "1Gi"), ("many", "1Gi"), ("1", "9" * 40), ("1e99", "-1"))):
                report(embedded, cpu, memory)
                for prefix, name in (("p", "ash"), ("q", "elm")):
                    selector = {"kubernetes.io/hostname": name}
                    embedded.insert(pod(f"{prefix}{number}", container(cpu="100m"), nodeSelector=selector))
                await asyncio.sleep(3)
            placed = {name: embedded.get("Pod", name)["spec"].get("nodeName") for name in ("p0", "p1", "q2", "q3")}
            assert placed == {"p0": "ash", "p1": "ash", "q2": "elm", "q3": "elm"}
            assert "1 node(s) memory usage exceed threshold" in refusal(embedded, "p2")
            assert "1 node(s) cpu usage exceed threshold" in refusal(embedded, "p3")

    run(main())

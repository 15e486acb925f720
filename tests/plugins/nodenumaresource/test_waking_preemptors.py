"""What wakes pods that wait for CPUs: room, and what could be room once less important pods have gone."""

import asyncio

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.parity.koord import custom_resources
from tests.plugins.nodenumaresource.cluster import configuration
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

SOON = 30
"""Virtual seconds; pods that nothing wakes are tried again after minutes only."""


def valid(thing, priority, **spec):
    """The pod as the API server would have it."""
    thing["spec"] |= {"priority": priority, "schedulerName": "default-scheduler", **spec}
    thing["spec"]["containers"][0]["image"] = "app"
    thing["status"] = {"phase": "Pending"}
    return thing


def where(before, after, **spec):
    """The node of an important pod that wants CPUs, after `before`, and then `after`, came about."""

    async def main():
        embedded = Embedded()
        Kubelet(embedded)
        for thing in custom_resources():
            embedded.insert(thing)
        embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        async with scheduler_on(embedded, configuration()):
            for thing in before:
                embedded.insert(thing)
            wanted = pod("p", "2", "1Gi", "LSR", spec={"requiredCPUBindPolicy": "FullPCPUs"})
            embedded.insert(valid(wanted, 100, **spec))
            await asyncio.sleep(5)
            assert "nodeName" not in embedded.get("Pod", "p")["spec"]
            after(embedded)
            await asyncio.sleep(SOON)
            return embedded.get("Pod", "p")["spec"].get("nodeName")

    return run(main())


def gone(name):
    """The pod is deleted."""
    return lambda embedded: embedded.registry.delete(embedded.resource("Pod"), "default", name, grace_period_seconds=0)


def reported(zones=(("4", "8Gi"), ("4", "8Gi"))):
    return topology(detail(1, 2, 2), zones)


def taken(name, cpuset, priority):
    """A pod that holds CPUs."""
    return valid(holder(name, cpuset, memory="1Gi"), priority)


NEVER = {"preemptionPolicy": "Never"}


@pytest.mark.parametrize(
    ("priority", "spec", "expected"),
    [(0, {}, "m1"), (0, NEVER, None), (100, {}, None)],
    ids=["in the way of a more important pod", "which never preempts", "as important"],
)
def test_a_report_wakes_pods_that_could_preempt_now(priority, spec, expected):
    before = [node("64", "64Gi"), taken("low", "0-7", priority)]
    assert where(before, lambda embedded: embedded.insert(reported()), **spec) == expected


def test_the_end_of_a_pod_wakes_pods_that_could_preempt_now():
    """Each of two pods was in the way of whole cores; only one of them can be made to leave."""
    before = [node("64", "64Gi"), reported(), taken("high", "0,2,4,6", 1000), taken("low", "1,3,5,7", 0)]
    assert where(before, gone("high")) == "m1"


def test_the_end_of_a_pod_wakes_pods_that_have_room_now():
    before = [node("64", "64Gi"), reported(), taken("high", "0-7", 1000)]
    assert where(before, gone("high")) == "m1"

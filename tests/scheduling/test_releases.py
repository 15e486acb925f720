"""The main path against servers of the last releases, with and without streamed lists, and with parts missing."""

import asyncio

import pytest

from koordsched.fakecluster.release import Release
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.plugins.volumes.objects import LOCAL, claim, volume
from tests.plugins.volumes.test_binding import finish_binding
from tests.virtualtime import run

RELEASES = range(30, 37)
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "budget", "namespace": "default"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    "status": {"disruptionsAllowed": 0},
}


def like(minor, *omitted):
    embedded = Embedded()
    embedded.registry.be_like(Release(minor))
    for resource in embedded.registry.resources():
        if resource.qualified in omitted:
            embedded.registry.withdraw(resource)
    return embedded


def condition(embedded, name):
    conditions = embedded.get("Pod", name)["status"].get("conditions", [])
    return next((c for c in conditions if c["type"] == "PodScheduled"), {})


def node_of(embedded, name):
    thing = embedded.get("Pod", name)
    return thing["spec"].get("nodeName") if thing is not None else None


async def main_path(embedded, gates=(), budgets=(BUDGET,)):
    """Placing, refusing, preempting, binding a volume: everything that writes."""
    for thing in (
        node("alder", cpu="4"),
        *budgets,
        LOCAL,
        claim("c", class_name="local"),
        volume("v", class_name="local"),
    ):
        embedded.insert(thing)
    async with scheduler_on(embedded, gates=gates) as running:
        embedded.insert(pod("low", container(cpu="3")))
        embedded.insert(pod("huge", container(cpu="40")))
        await asyncio.sleep(20)
        assert node_of(embedded, "low") == "alder"
        assert condition(embedded, "low")["status"] == "True"
        refused = condition(embedded, "huge")
        assert (refused["status"], refused["reason"]) == ("False", "Unschedulable")
        assert "0/1 nodes are available: 1 Insufficient cpu." in refused["message"]

        embedded.insert(pod("high", container(cpu="3"), priority=100))
        await asyncio.sleep(1)
        assert embedded.get("Pod", "high")["status"]["nominatedNodeName"] == "alder"
        victim = embedded.get("Pod", "low")
        assert victim["metadata"]["deletionTimestamp"]
        disrupted = next(c for c in victim["status"]["conditions"] if c["type"] == "DisruptionTarget")
        assert disrupted["reason"] == "PreemptionByScheduler"
        embedded.registry.delete(embedded.resource("Pod"), "default", "low", grace_period_seconds=0)
        await asyncio.sleep(20)
        assert node_of(embedded, "high") == "alder"

        data = {"name": "d", "persistentVolumeClaim": {"claimName": "c"}}
        embedded.insert(pod("stateful", container(cpu="1"), volumes=[data]))
        await asyncio.sleep(1)
        assert embedded.get("PersistentVolume", "v")["spec"]["claimRef"]["name"] == "c"
        finish_binding(embedded, "c", "v")
        await asyncio.sleep(20)
        assert node_of(embedded, "stateful") == "alder"
        reasons = [event["reason"] for event in embedded.events()]
        assert {"Scheduled", "FailedScheduling", "Preempted"} <= set(reasons)
        assert running.scheduler.events.dropped == {"full": 0, "rejected": 0, "unreachable": 0}
        assert all(stats.failed == 0 for stats in running.lanes.stats.values())
        return running.scheduler


@pytest.mark.parametrize("streamed", [False, True], ids=["paged lists", "streamed lists"])
@pytest.mark.parametrize("minor", RELEASES)
def test_everything_works_on_every_release(minor, streamed):
    async def main():
        embedded = like(minor)
        scheduler = await main_path(embedded, ["WatchListClient=true"] if streamed else [])
        stored = embedded.get("Pod", "huge")
        assert ("observedGeneration" in condition(embedded, "huge")) == (minor >= 33)
        assert ("generation" in stored["metadata"]) == (minor >= 33)
        watches = scheduler.watches.reflectors["/api/v1/pods"]
        assert watches.lists == 1
        # Where streams are unknown they are tried once, and then left alone.
        assert watches.failures == (1 if streamed and not Release(minor).streams_lists else 0)

    run(main())


OPTIONAL = (
    "csistoragecapacities.storage.k8s.io",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "poddisruptionbudgets.policy",
    "services",
    "replicationcontrollers",
    "replicasets.apps",
    "statefulsets.apps",
    "leases.coordination.k8s.io",
)


@pytest.mark.parametrize("resource", OPTIONAL)
def test_what_a_server_does_not_have_is_empty(resource):
    async def main():
        embedded = like(30, resource)
        budgets = () if resource == "poddisruptionbudgets.policy" else (BUDGET,)
        scheduler = await main_path(embedded, budgets=budgets)
        assert scheduler.watches.obstacles() == {}

    run(main())

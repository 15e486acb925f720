"""Pages about pools, the command that asks for them, explanations and metrics, on a running scheduler."""

import asyncio
import json

from koordsched.cli.pluginmetrics import observe_plugins
from tests.cli.clusters import run as command
from tests.embedded import Embedded, scheduler_on
from tests.plugins.dynamicresources.deviceworld import allocated, claim, claiming, device_class, slice_of
from tests.plugins.nodenumaresource.running import put, remove
from tests.plugins.objects import node
from tests.scheduling.serving import embedded_with_users, serving
from tests.virtualtime import run
from tests.waiting import until


def world(embedded):
    """`n1` has two devices; one is held."""
    for thing in (device_class(), slice_of("n1", "d0", "d1"), node("n1"), node("n2")):
        put(embedded, thing)
    put(embedded, claim("held", status=allocated("d1", users=["other"])))
    return embedded


def asked(running, *arguments):
    """`koordsched <arguments>` that asks the running scheduler."""
    return command(*arguments, "--server", running.client.server, "--token", "alice", "--insecure-skip-tls-verify")


async def test_pages_and_the_command_say_the_same():
    embedded = world(embedded_with_users())
    async with serving(embedded) as running:
        get = running.client.get
        put(embedded, claim("c"))
        put(embedded, claiming("p", "c"))
        await until(lambda: embedded.get("Pod", "p")["spec"].get("nodeName"), "the placement")
        await until(lambda: not running.scheduler.cluster.assumed, "the confirmation")

        status, text = await get("/debug/resourcepools")
        pools = json.loads(text)
        assert status == 200
        assert [(each["node"], each["devices"], each["free"], each["allocated"]) for each in pools["pools"]] == [
            ("n1", 2, 0, 2)
        ]
        status, text = await get("/debug/resourcepools/n1")
        one = json.loads(text)
        assert status == 200
        assert [
            [(use["claim"], use["pods"], use["inFlight"]) for use in each["claims"]] for each in one["poolDevices"]
        ] == [
            [("default/c", ["default/p"], False)],
            [("default/held", ["default/other"], False)],
        ]
        assert await get("/debug/resourcepools/n9") == (404, 'node "n9" not found')
        assert await get("/debug/resourcepools/n2") == (404, 'node "n2" reaches no devices of ResourceSlices')
        for path in ("/debug/resourcepools", "/debug/resourcepools/n1"):
            assert (await get(path, token=None))[0] in (401, 403)
        for arguments, expected in ((("devices",), pools), (("devices", "n1"), one)):
            said = await asyncio.to_thread(asked, running, *arguments, "-o", "json")
            assert json.loads(said.stdout) == expected

        # The rest finds no device; the scheduler says why.
        put(embedded, claim("d"))
        put(embedded, claiming("q", "d"))
        await until(lambda: running.scheduler.pending_pods(), "the pod")
        said = json.loads((await get("/debug/explain?pod=default/q&advice=true"))[1])
        details = {each["name"]: each["details"]["DynamicResources"] for each in said["nodes"]}
        assert details == {
            "n1": ["claim default/d, request r: needs 1, 0 available, 2 in use"],
            "n2": ["claim default/d, request r: needs 1, 0 available"],
        }
        assert said["advice"]["verdict"] == "waits"


async def test_a_claim_in_the_process_of_being_allocated():
    embedded = world(embedded_with_users())
    async with serving(embedded) as running:
        books = running.scheduler.profiles["default-scheduler"].plugins["DynamicResources"].books
        put(embedded, claim("c"))
        await until(lambda: books.claims.get("default", "c"), "the claim")
        found = books.claims.get("default", "held").status.allocation
        books.begin(books.claims.get("default", "c"), found, "a/b", "absent")
        put(embedded, claiming("p", "c"))
        await until(lambda: running.scheduler.pending_pods(), "the pod")
        said = json.loads((await running.client.get("/debug/explain?pod=default/p"))[1])
        assert said["refusal"]["problem"] == "resource claim default/c is in the process of being allocated"
        (state,) = said["refusal"]["claims"]
        assert (state["state"], state["devices"], state["nodes"]) == ("being allocated", ["drv/n1/d1"], "node n1")
        one = json.loads((await running.client.get("/debug/resourcepools/n1"))[1])
        assert [(use["claim"], use["inFlight"]) for use in one["poolDevices"][1]["claims"]] == [
            ("default/c", True),
            ("default/held", False),
        ]


def exposed(metrics, name):
    """Values of label tuples, those of 0 left out."""
    return {
        tuple(sorted(sample.labels.values())): sample.value
        for metric in metrics.collect()
        for sample in metric.samples
        if sample.name == name and sample.value
    }


def test_metrics_follow_changes():
    async def main():
        embedded = world(Embedded())
        async with scheduler_on(embedded) as running:
            metrics = running.scheduler.metrics
            observe_plugins(metrics, running.scheduler.profiles)

            async def settled():
                await asyncio.sleep(2)
                return (
                    exposed(metrics, "koordsched_resource_pools"),
                    exposed(metrics, "koordsched_resource_pool_devices"),
                )

            usable = {("drv", "usable"): 1}
            assert await settled() == (usable, {("drv", "free"): 1, ("allocated", "drv"): 1})
            put(embedded, claim("c"))
            put(embedded, claiming("p", "c"))
            assert await settled() == (usable, {("allocated", "drv"): 2})
            late = slice_of("n2", "d0")
            late["spec"]["pool"]["resourceSliceCount"] = 2
            put(embedded, late)
            assert await settled() == (
                {**usable, ("drv", "incomplete"): 1},
                {("allocated", "drv"): 2, ("drv", "free"): 1},
            )
            remove(embedded, slice_of("n1"))
            remove(embedded, late)
            pools, _ = await settled()
            assert pools == {}

    run(main())

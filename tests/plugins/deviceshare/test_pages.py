"""Pages about devices, the command that asks for them, and explanations, on a running scheduler."""

import asyncio
import json

from koordsched import config
from koordsched.plugins import CATALOG
from tests.cli.clusters import run as command
from tests.parity.koord import custom_resources
from tests.plugins.deviceshare.machines import GIB, bound, device, gpu, m2, node, pod
from tests.plugins.deviceshare.naive.request import ALLOCATED, CORE, MEMORY, RATIO
from tests.plugins.deviceshare.world import configuration, profile
from tests.plugins.nodenumaresource.running import put, remove
from tests.scheduling.serving import embedded_with_users, serving
from tests.waiting import until

CONFIG = configuration(profile(numa=False, name="default-scheduler"))
UPSTREAM = "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries"


def enabled():
    """A configuration with the plugin."""
    return config.load(json.dumps(CONFIG), catalog=CATALOG)


def waiting(**requests):
    """A pod that waits, of the profile that there is."""
    thing = pod("new", **requests)
    return {**thing, "spec": {**thing["spec"], "schedulerName": "default-scheduler"}}


def world():
    """`n` with two GPUs, of which `other` holds a part of one; `m` with an unhealthy one; and `plain` without any."""
    embedded = embedded_with_users()
    for thing in custom_resources():
        embedded.insert(thing)
    other = bound(pod(memory=3 * GIB), "other", gpu=[(0, {"memory": 3 * GIB, "ratio": 37})])
    for thing in (*m2(), node("m"), device(gpu(0, health=False), name="m"), node("plain"), other):
        put(embedded, thing)
    return embedded


def asked(running, *arguments):
    """`koordsched <arguments>` that asks the running scheduler."""
    return command(*arguments, "--server", running.client.server, "--token", "alice", "--insecure-skip-tls-verify")


async def test_pages_and_the_command_say_the_same(tmp_path):
    embedded = world()
    async with serving(embedded, configuration=enabled()) as running:
        get, plugin = running.client.get, running.scheduler.profiles["default-scheduler"].plugins["DeviceShare"]
        await until(lambda: len(plugin.table.row_of) == 3, "the nodes")
        put(embedded, {**waiting(gpu=100), "metadata": {**waiting()["metadata"], "labels": {"a": "b"}}})
        await until(lambda: embedded.get("Pod", "new")["spec"].get("nodeName"), "the placement")
        await until(lambda: not running.scheduler.cluster.assumed, "the confirmation")
        given = json.loads(embedded.get("Pod", "new")["metadata"]["annotations"][ALLOCATED])
        assert [(each["minor"], each["id"]) for each in given["gpu"]] == [(1, "GPU-1")]

        status, text = await get("/debug/devices")
        answer = json.loads(text)
        assert status == 200
        counts = [
            (each["node"], each["report"], [(of["free"], of["partly"], of["unhealthy"]) for of in each["types"]])
            for each in answer["nodes"]
        ]
        assert counts == [("m", "valid", [(0, 0, 1)]), ("n", "valid", [(0, 1, 0)])]
        status, text = await get("/debug/devices/n")
        one = json.loads(text)
        assert status == 200
        assert [[each["pod"] for each in device["pods"]] for device in one["devices"]] == [
            ["default/other"],
            ["default/new"],
        ]
        assert await get("/debug/devices/m9") == (404, 'node "m9" not found')
        for path in ("/debug/devices", "/debug/devices/n", UPSTREAM):
            assert (await get(path, token=None))[0] in (401, 403)

        for arguments, expected in ((("devices",), {**answer, "pools": []}), (("devices", "n"), one)):
            said = await asyncio.to_thread(asked, running, *arguments, "-o", "json")
            assert json.loads(said.stdout) == expected
        said = await asyncio.to_thread(asked, running, "devices", "n")
        held = next(line.split() for line in said.stdout.splitlines() if "default/new" in line)
        assert held[:3] == ["gpu", "1", "full"]
        for name in ("m9", "n/x", "../n"):
            said = await asyncio.to_thread(asked, running, "devices", name)
            assert (said.exit_code, said.stderr) == (1, f'error: node "{name}" not found\n')

        # A snapshot of the state says the same.
        (tmp_path / "snapshot.json").write_text((await get("/debug/snapshot"))[1])
        (tmp_path / "config.yaml").write_text(json.dumps(CONFIG))
        files = "-f", str(tmp_path / "snapshot.json"), "--config", str(tmp_path / "config.yaml")
        assert json.loads((await asyncio.to_thread(command, "devices", "n", *files, "-o", "json")).stdout) == one


async def test_the_page_of_upstream():
    embedded = world()
    async with serving(embedded, configuration=enabled()) as running:
        get, plugin = running.client.get, running.scheduler.profiles["default-scheduler"].plugins["DeviceShare"]
        await until(lambda: len(plugin.table.row_of) == 3, "the nodes")
        status, text = await get(f"{UPSTREAM}/n")
        one = json.loads(text)
        assert status == 200
        assert one == {
            "deviceTotal": {CORE: "200", MEMORY: "16Gi", RATIO: "200"},
            "deviceFree": {CORE: "200", MEMORY: "13Gi", RATIO: "163"},
            "deviceUsed": {MEMORY: "3Gi", RATIO: "37"},
            "deviceTotalDetail": {"gpu": {minor: {CORE: "100", MEMORY: "8Gi", RATIO: "100"} for minor in "01"}},
            "deviceFreeDetail": {
                "gpu": {
                    "0": {CORE: "100", MEMORY: "5Gi", RATIO: "63"},
                    "1": {CORE: "100", MEMORY: "8Gi", RATIO: "100"},
                }
            },
            "deviceUsedDetail": {"gpu": {"0": {MEMORY: "3Gi", RATIO: "37"}}},
            "allocateSet": {"gpu": {"default/other": {"0": {MEMORY: "3Gi", RATIO: "37"}}}},
        }
        every = json.loads((await get(UPSTREAM))[1])
        assert (set(every), every["n"]) == ({"m", "n"}, one)
        assert every["m"]["deviceTotalDetail"] == {"gpu": {"0": {}}}
        for name in ("plain", "m9"):
            assert await get(f"{UPSTREAM}/{name}") == (404, f"cannot find node {name}")


async def test_an_explanation_has_the_numbers():
    embedded = world()
    remove(embedded, node("plain"))
    async with serving(embedded, configuration=enabled()) as running:
        put(embedded, waiting(rdma=1, gpu=100))
        await until(lambda: running.scheduler.pending_pods(), "the pod")
        said = json.loads((await running.client.get("/debug/explain?pod=default/new&advice=true"))[1])
        details = {each["name"]: each["details"].get("DeviceShare") for each in said["nodes"] if not each["feasible"]}
        assert details["m"] == [
            "gpu: wants 1 with gpu-core 100, gpu-memory-ratio 100 free; 0 of 1 have that; not healthy: 0",
            "rdma: wants 1 with rdma 1 free; 0 of 0 have that",
        ]


async def test_a_scheduler_without_the_plugin():
    async with serving(embedded_with_users()) as running:
        for arguments in (("devices",), ("devices", "n")):
            said = await asyncio.to_thread(asked, running, *arguments)
            assert said.exit_code == 1
            assert said.stderr.endswith("no profile of this scheduler enables DeviceShare\n")

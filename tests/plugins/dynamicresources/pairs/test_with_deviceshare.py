"""DeviceShare beside DRA: a pod gets of both on one node, or of neither."""

import asyncio

from tests.parity.koord import custom_resources
from tests.plugins.deviceshare.machines import GPU, device, gpu
from tests.plugins.deviceshare.running import given
from tests.plugins.deviceshare.world import configuration, profile
from tests.plugins.dynamicresources.deviceworld import claim, claiming, device_class, refusing, slice_of, world
from tests.plugins.objects import container, node
from tests.virtualtime import run

SETTLE = 5.0
CONFIGURATION = configuration(profile(name="default-scheduler", numa=False))


def play(steps, *objects, **more):
    async def work():
        async with world(*custom_resources(), *objects, configuration=CONFIGURATION, **more) as there:
            await steps(there)

    run(work())


def both(name, *claims):
    """A pod that wants a GPU of DeviceShare and what it claims."""
    made = container(cpu="1")
    made["resources"]["requests"][GPU] = "100"
    made["resources"]["limits"] = {GPU: "100"}
    return claiming(name, *claims, containers=[made])


def columns(there):
    plugin = there.running.scheduler.profiles["default-scheduler"].plugins["DeviceShare"]
    row = there.running.scheduler.cluster.table.row_of["n2"]
    return [int(column.data[row].sum()) for column in plugin.columns.used.values()]


NODES = node("n1"), node("n2")


def test_a_pod_is_placed_where_both_are():
    async def steps(there):
        there.embedded.insert(both("p", "c"))
        await asyncio.sleep(SETTLE)
        assert (there.where("p"), given(there.embedded, "p")) == ("n2", {"gpu": [0]})
        (result,) = there.get("c")["status"]["allocation"]["devices"]["results"]
        assert (result["pool"], result["device"]) == ("n2", "d0")

    gpus = device(gpu(0), name="n1"), device(gpu(0), name="n2")
    play(steps, *NODES, device_class(), *gpus, slice_of("n2", "d0"), claim("c"))


def test_where_one_is_missing_nothing_of_the_other_is_held():
    async def steps(there):
        there.embedded.insert(both("p", "c"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") is None
        assert (there.books.in_use.pools, len(there.books.in_flight), sum(columns(there))) == ({}, 0, 0)
        assert there.of_claims() == []

    gpus = device(gpu(0), name="n1"), device(gpu(0, health=False), name="n2")
    play(steps, *NODES, device_class(), *gpus, slice_of("n2", "d0"), claim("c"))


def test_a_binding_that_fails_gives_both_back():
    async def steps(there):
        there.embedded.insert(both("p", "c"))
        await asyncio.sleep(0.5)
        assert there.where("p") is None
        assert sum(columns(there)) == 0
        assert not there.get("c")["status"].get("reservedFor")
        await asyncio.sleep(SETTLE)
        assert (there.where("p"), given(there.embedded, "p")) == ("n2", {"gpu": [0]})
        assert [each["name"] for each in there.get("c")["status"]["reservedFor"]] == ["p"]

    fault = refusing(409, "no", reason="Conflict")
    gpus = device(gpu(0), name="n2")
    play(steps, *NODES, device_class(), gpus, slice_of("n2", "d0"), claim("c"), fault=fault)

"""With elastic quotas: a pod that its quota keeps out holds no device, and one without a device uses no quota."""

import asyncio

from tests.parity.koord import custom_resources
from tests.plugins.dynamicresources.deviceworld import N1, claim, claiming, device_class, slice_of, world
from tests.plugins.elasticquota.objects import quota
from tests.plugins.elasticquota.running import replace
from tests.plugins.elasticquota.world import configuration
from tests.plugins.objects import container
from tests.virtualtime import run

QUOTA = "quota.scheduling.koordinator.sh/name"
SETTLE = 5.0


def play(steps, *objects):
    async def work():
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quotas"}}
        async with world(*custom_resources(), namespace, *objects, configuration=configuration()) as there:
            await steps(there)

    run(work())


def member(name, *claims, cpu="2"):
    return claiming(name, *claims, containers=[container(cpu=cpu)], labels={QUOTA: "team"})


def test_a_pod_that_its_quota_keeps_out_holds_no_device():
    async def steps(there):
        there.embedded.insert(member("p", "c"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") is None
        assert there.of_claims() == []
        assert (there.books.in_use.pools, len(there.books.in_flight)) == ({}, 0)
        there.embedded.insert(claiming("other", "its"))
        await asyncio.sleep(SETTLE)
        assert there.where("other") == "n1"
        replace(there.embedded, quota("team", {"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"}))
        there.embedded.insert(slice_of("n1", "d1", pool="more"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") == "n1"

    small = quota("team", {"cpu": "1", "memory": "8Gi"}, {"cpu": "1", "memory": "8Gi"})
    play(steps, N1, device_class(), slice_of("n1", "d0"), small, claim("c"), claim("its"))


def test_a_pod_without_a_device_uses_nothing_of_its_quota():
    async def steps(there):
        there.embedded.insert(member("p", "c"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") is None
        there.embedded.insert(member("q"))
        await asyncio.sleep(SETTLE)
        assert there.where("q") == "n1"
        there.embedded.insert(slice_of("n1", "d0"))
        await asyncio.sleep(SETTLE)
        assert there.where("p") is None
        assert len(there.books.in_flight) == 0
        there.embedded.registry.delete(there.embedded.resource("Pod"), "default", "q", grace_period_seconds=0)
        await asyncio.sleep(SETTLE)
        assert there.where("p") == "n1"

    team = quota("team", {"cpu": "2", "memory": "8Gi"}, {"cpu": "2", "memory": "8Gi"})
    play(steps, N1, device_class(), team, claim("c"))

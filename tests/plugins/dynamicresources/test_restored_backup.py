"""Claims after the server was restored from a backup."""

import asyncio

from tests.plugins.dynamicresources.deviceworld import N1, allocated, claim, claiming, device_class, slice_of
from tests.scheduling.test_restored_backup import scheduling
from tests.virtualtime import run

DEVICES = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
    N1,
    device_class(),
    slice_of("n1", "d0"),
)


def test_a_device_that_a_claim_had_is_free_if_the_backup_has_it_unallocated():
    async def main():
        async with scheduling(*DEVICES) as server:
            server.insert(claim(status=allocated("d0", users=["gone"])))
            await asyncio.sleep(5)
            await server.restore(*DEVICES, claim())
            server.insert(claim("c2"), claiming("q", "c2"))
            await asyncio.sleep(60)
            assert server.node_of("q") == "n1"

    run(main())

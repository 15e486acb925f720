"""Reservations after the server was restored from a backup."""

import asyncio

import pytest

from tests.plugins.objects import node
from tests.plugins.reservation.running import API, CRD, configuration
from tests.scheduling.test_restored_backup import scheduling
from tests.virtualtime import run
from tests.yamlfiles import document

CONTAINER = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}
RESERVATION = {
    "apiVersion": API,
    "kind": "Reservation",
    "metadata": {"name": "r", "uid": "uid-r"},
    "spec": {
        "template": {"spec": {"containers": [CONTAINER]}},
        "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
        "ttl": "24h",
    },
    "status": {"phase": "Pending"},
}


@pytest.mark.parametrize("blinding", ["", "/reservations/r/status"], ids=["shown", "not shown by any watch"])
def test_a_reservation_that_waits_in_the_backup_is_scheduled_again(blinding):
    async def main():
        things = (document(CRD), node("alder", cpu="4"))
        async with scheduling(*things, configuration=configuration()) as server:
            server.blinding = blinding
            server.insert(RESERVATION)
            await asyncio.sleep(5)
            assert server.embedded.get("Reservation", "r", api_version=API)["status"]["nodeName"] == "alder"
            await server.restore(*things, RESERVATION)
            await asyncio.sleep(30)
            assert server.embedded.get("Reservation", "r", api_version=API)["status"]["nodeName"] == "alder"

    run(main())

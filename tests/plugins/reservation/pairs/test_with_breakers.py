"""Reservations on nodes with circuit breakers."""

import asyncio
import json

import pytest

from koordsched.plugins.nodecircuitbreaker.record import ANNOTATION
from tests.plugins.reservation.pairs.cluster import AFFINITY, PairCluster, configuration, profile, template
from tests.plugins.reservation.running import scheduling
from tests.virtualtime import run


def with_breakers():
    """The profile also has NodeCircuitBreaker."""
    found = profile("Reservation")
    points = {"multiPoint": {"enabled": [{"name": "NodeCircuitBreaker"}]}}
    return configuration({**found, "plugins": found["plugins"] | points})


@pytest.mark.parametrize("reserved", ["9", "4"])
def test_an_owner_is_woken_when_its_node_may_be_used_again(reserved):
    """Also if the node is full but for what is reserved."""

    async def played():
        there = PairCluster(cpu="10")
        amounts = {"cpu": reserved, "memory": "1Gi"}
        async with scheduling(there, with_breakers()):
            there.reservation(template=template(amounts))
            await there.until(lambda: there.phase() == "Available")
            record = {"state": "open", "until": "2030-01-01T00:01:00Z", "openings": 1}
            there.patch("Node", "n1", {"metadata": {"annotations": {ANNOTATION: json.dumps(record)}}}, api_version="v1")
            await asyncio.sleep(1)
            there.put("owner", requests=amounts, annotations=AFFINITY)
            await there.until(lambda: there.said("owner"))
            assert "open circuit breaker" in there.said("owner")
            await asyncio.sleep(90)
            assert there.where("owner") == "n1"

    run(played())

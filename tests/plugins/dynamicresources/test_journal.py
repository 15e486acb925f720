"""Decisions about devices are the same live and in replays, from the start and from checkpoints."""

import asyncio
import json
from random import Random

import pytest

from tests.embedded import Embedded
from tests.journal.recording import Recorded, places, replayed_from_each_segment
from tests.plugins.dynamicresources.deviceworld import claim, claiming, device_class, refusing, slice_of
from tests.plugins.objects import container, node
from tests.virtualtime import run


def state_of(scheduler):
    """Where pods are, which claims have which devices, and what is in flight."""
    books = scheduler.profiles["default-scheduler"].plugins["DynamicResources"]._books
    claims = {each.metadata.name: each.status.allocation for each in books.claims}
    in_flight = {entry.claim.metadata.uid: entry.holders for entry in books.in_flight.recorded_state()}
    in_use = {pool: sorted(use.devices) for pool, use in books.in_use.pools.items() if use.devices}
    return places(scheduler), claims, in_flight, in_use


async def unreliable(call, proceed):
    """Some bindings are refused, and writes of claims take their time."""
    if "resourceclaims" in call.path and call.method == "PATCH":
        await asyncio.sleep(0.3)
    if call.path.endswith("/p3/binding") or call.path.endswith("/p7/binding"):
        return await refusing(500, "no")(call, proceed)
    return await proceed()


async def living(seed):
    embedded, draw = Embedded(seed), Random(seed)
    embedded.insert(device_class(extendedResourceName="ex.com/gpu"))
    shared = ("d2", {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}})
    for at in range(3):
        embedded.insert(node(f"n{at}"))
        embedded.insert(slice_of(f"n{at}", "d0", "d1", shared))
    recorded = Recorded(embedded, seed=seed, seconds_per_segment=4, fault=unreliable)
    async with recorded.running():
        for at in range(14):
            if draw.random() < 0.3:
                wants = container(name="m", cpu="100m", gpu="1")
                wants["resources"]["limits"] = {"ex.com/gpu": "1"}
                embedded.insert(claiming(f"p{at}", containers=[wants]))
            else:
                embedded.insert(claim(f"c{at}", count=draw.choice((1, 1, 2))))
                embedded.insert(claiming(f"p{at}", f"c{at}"))
            await asyncio.sleep(draw.choice((0.0, 0.1, 1.0, 2.0)))
            if draw.random() < 0.3:
                await embedded.call(
                    "PATCH",
                    f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c{draw.randrange(at + 1)}/status",
                    json.loads('{"status": {"allocation": null, "reservedFor": null}}'),
                    headers={"content-type": "application/merge-patch+json"},
                )
        await asyncio.sleep(20)
        placed = sum(bool(pod.node) for pod in recorded.scheduler.cluster.assigned.values())
        assert placed >= 4
        return recorded, state_of(recorded.scheduler)


@pytest.mark.parametrize("seed", range(3))
def test_replays_repeat_decisions_about_devices(seed):
    recorded, state = run(living(seed))
    assert len(recorded.journal.segments) > 2
    for scheduler in replayed_from_each_segment(recorded.journal):
        assert state_of(scheduler) == state

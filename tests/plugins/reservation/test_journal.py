"""Decisions about Reservations are the same live and in replays, from the start and from checkpoints."""

import asyncio
from random import Random

import pytest

from koordsched.plugins.reservation.kinds import RESERVATION_AFFINITY, RESERVATION_ALLOCATED
from tests.depth import quick_first
from tests.journal.recording import Recorded, replayed_from_each_segment
from tests.plugins.reservation.running import API, CONTROLLERS, ReservationCluster, configuration
from tests.virtualtime import run

POLICIES = (None, "Aligned", "Restricted")


class Busy(ReservationCluster):
    """Reservations, owners and others come and go."""

    def __init__(self, seed):
        super().__init__(("n1", "n2", "n3"), seed)
        self.draw = Random(seed)
        self.serial = 0
        self.alive = []

    def step(self):
        draw = self.draw
        self.serial += 1
        name = f"x{self.serial}"
        kind = draw.choice(("reservation", "owner", "owner", "needy", "other", "gone", "gone"))
        cpu = str(draw.randint(1, 12))
        requests = {"cpu": cpu, "memory": "1Gi"}
        if kind == "reservation":
            policy = draw.choice(POLICIES)
            self.reservation(
                name,
                requests=requests,
                allocateOnce=draw.random() < 0.5,
                ttl=draw.choice(("5s", "20s", "1h")),
                **({"allocatePolicy": policy} if policy else {}),
            )
            self.alive.append(("Reservation", name))
        elif kind == "gone":
            if self.alive:
                thing, gone = self.alive.pop(draw.randrange(len(self.alive)))
                if self.get(thing, gone, **({"api_version": API} if thing == "Reservation" else {})) is not None:
                    if thing == "Pod":
                        self.registry.delete(self.resource("Pod"), "default", gone, grace_period_seconds=0)
                    else:
                        self.delete(thing, gone, api_version=API)
        else:
            labels = {} if kind == "other" else {"app": "web"}
            annotations = {RESERVATION_AFFINITY: "{}"} if kind == "needy" else {}
            self.pod(name, requests=requests, labels=labels, annotations=annotations)
            self.alive.append(("Pod", name))


def places(scheduler):
    """Where every pod is, the Reservation that it uses, and what it counts."""
    cluster = scheduler.cluster
    return {
        pod.key: (pod.node, cluster.pod_facts.texts(pod).get(RESERVATION_ALLOCATED), pod.requests)
        for pod in cluster.assigned.values()
    }


def used(scheduler):
    table = scheduler.cluster.table
    return {name: [column.data.item(row) for column in table.requested[:2]] for name, row in table.row_of.items()}


async def living(seed):
    cluster = Busy(seed)
    recorded = Recorded(cluster, configuration(), seed=seed, seconds_per_segment=10, controllers=CONTROLLERS)
    async with recorded.running():
        recorded.used = False
        for _ in range(40):
            cluster.step()
            recorded.used |= any(text for _, text, _ in places(recorded.scheduler).values())
            await asyncio.sleep(cluster.draw.choice((0.1, 0.5, 2.0)))
        await asyncio.sleep(5)
    return recorded


@pytest.mark.parametrize("seed", quick_first([1, 2, 3, 4, 5, 6, 7, 8], 1))
def test_a_journal_is_replayed_equal(seed):
    recorded = run(living(seed))
    assert recorded.used, "pods use Reservations in it"
    for replayed in replayed_from_each_segment(recorded.journal):
        assert places(replayed) == places(recorded.scheduler)
        assert used(replayed) == used(recorded.scheduler)

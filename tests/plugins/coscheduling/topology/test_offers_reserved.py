"""How many members fit each node where they may use Reservations, or ask for GPUs."""

from copy import deepcopy

import numpy as np
import pytest

from tests.parity.fresh import fresh_seeds
from tests.plugins.coscheduling.topology.test_offers import same_as_one_by_one
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod
from tests.plugins.reservation.randomstates import POLICIES, PROFILE, Draw, configuration
from tests.plugins.reservation.realplugin import scheduler


class Reserved:
    """A random cluster with Reservations on its nodes."""

    def __init__(self, seed, devices):
        self.draw = draw = Draw(seed, devices=devices)
        self.offline = scheduler(configuration(draw.args(), devices), StoppedClock())
        self.names = [f"n{at}" for at in range(draw.rng.choice([2, 3, 4]))]
        for name in self.names:
            node = draw.node(name)
            self.offline.add(node)
            if devices:
                self.offline.add(draw.device(node))
        self.reservations = []
        policies = draw.rng.choice(POLICIES)
        for _ in range(draw.rng.choice([2, 4, 8])):
            thing = draw.reservation(self.names, policies)
            if "status" in thing:
                self.reservations.append(thing["metadata"]["name"])
                self.offline.add(thing)
        for _ in range(draw.rng.choice([0, 2, 4])):
            self.offline.add(draw.pod(draw.rng.choice(self.names), self.reservations))

    def job(self, number):
        """Pending members of one or two kinds."""
        rng = self.draw.rng
        kinds = [self.draw.pod(None, self.reservations) for _ in range(rng.choice([1, 1, 2]))]
        members = []
        for at in range(rng.choice([2, 4, 6])):
            member = deepcopy(rng.choice(kinds))
            if rng.random() < 0.5:
                for each in member["spec"]["containers"]:
                    each["resources"]["requests"] = {"cpu": "500m", "memory": "100Mi"}
            name = f"m{number}-{at}"
            member["metadata"] |= {"name": name, "uid": name}
            members.append(self.offline.add(member))
        return sorted(members, key=lambda member: member.shape.key) if rng.random() < 0.5 else members


def columns(cluster):
    """(column, what it holds)"""
    table = cluster.table
    kept = [table.pods_count, *table.requested]
    kept += [column for each in cluster.accountants if hasattr(each, "columns") for column in each.columns()]
    return [(column, column.data[: table.size].copy()) for column in kept]


@pytest.mark.parametrize("devices", [False, True])
@pytest.mark.parametrize("seed", fresh_seeds("offers of nodes with reservations", 40))
def test_same_as_one_node_after_the_other(seed, devices):
    cluster = Reserved(seed, devices)
    state = cluster.offline.cluster
    for number in range(3):
        pods = cluster.job(number)
        before = columns(state)
        same_as_one_by_one(cluster.offline, pods, np.arange(state.table.size))
        for column, then in before:
            now = column.data[: state.table.size]
            assert np.array_equal(now[..., : then.shape[-1]] if now.ndim > 1 else now, then)


RESERVED = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "r", "uid": "r"},
    "spec": {
        "template": {"spec": {"schedulerName": PROFILE, "containers": [container(cpu="6")]}},
        "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}],
        "ttl": "0s",
        "allocateOnce": False,
    },
    "status": {
        "phase": "Available",
        "nodeName": "n1",
        "allocatable": {"cpu": "6"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Available"}],
    },
}


@pytest.mark.parametrize(("app", "fit"), [("a", 4), ("b", 1)])
def test_members_use_what_is_reserved_for_them(app, fit):
    offline = scheduler(configuration(), StoppedClock())
    for thing in (node("n1", "8"), RESERVED):
        offline.add(thing)
    made = [pod(f"m{at}", container(cpu="2"), labels={"app": app}, schedulerName=PROFILE) for at in range(6)]
    assert same_as_one_by_one(offline, [offline.add(each) for each in made], np.array([0])) == [fit]

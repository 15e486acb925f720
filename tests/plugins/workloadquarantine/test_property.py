"""The same workloads are quarantined as by a naive count of all that ever happened, from a checkpoint on, too."""

import os
from math import comb
from random import Random

import pytest

from koordsched.config.duration import Duration
from koordsched.plugins.workloadquarantine.args import WorkloadQuarantineArgs
from tests.plugins.workloadquarantine.machine import Machine

SEED = int(os.environ.get("KOORDSCHED_TEST_SEED", "20300101"))


class Reference:
    """Pods that started and nodes that went down, each with its time."""

    def __init__(self, args, nodes):
        self.args = args
        self.nodes = nodes
        self.pods = []  # (started, node, owner)
        self.falls = []  # (at, node, owners that had come shortly before)
        self.held = set()

    def fell(self, now, node):
        soon = self.args.soon_after.seconds
        owners = {owner for at, on, owner in self.pods if on == node and now - at <= soon}
        self.falls.append((now, node, owners))
        for owner in sorted(owners):
            if owner not in self.held and self.is_guilty(now, owner):
                self.held.add(owner)

    def is_guilty(self, now, owner):
        window = self.args.window.seconds
        recent = [fall for fall in self.falls if now - fall[0] < window]
        hit = {node for _, node, owners in recent if owner in owners}
        if len(hit) < self.args.min_nodes:
            return False
        exposed = max(len({on for at, on, each in self.pods if each == owner and now - at <= window}), len(hit))
        fallen = len({node for _, node, _ in recent} - hit)
        q = (fallen + 1) / (max(self.nodes - exposed, fallen) + 2)
        chance = sum(comb(exposed, i) * q**i * (1 - q) ** (exposed - i) for i in range(len(hit), exposed + 1))
        return chance < self.args.significance


@pytest.mark.parametrize("number", range(40))
def test_like_a_naive_one(number):
    rng = Random(SEED + number)
    args = WorkloadQuarantineArgs(
        window=Duration.of(rng.choice((600, 1800))),
        soon_after=Duration.of(rng.choice((60, 300))),
        min_nodes=rng.choice((2, 3)),
        significance=rng.choice((0.1, 0.01, 0.001)),
        cool_down=Duration.of(10_000_000),
    )
    count = rng.choice((10, 30, 100))
    machine, reference = Machine(args), Reference(args, count)
    machine.namespace()
    machine.nodes(count)
    down, bombed = set(), 0
    for step in range(150):
        node, owner = rng.randrange(count), f"o{rng.randint(0, 3)}"
        action = rng.random()
        if action < 0.3 and rng.random() < 0.7:
            node = bombed  # one of the workloads is a bomb
        if node in down:
            continue
        if action > 0.6:
            machine.pod(f"p{step}", f"n{node}", owner)
            reference.pods.append((machine.clock.now, f"n{node}", owner))
            bombed = node if owner == "o0" else bombed
        elif action < 0.3:
            machine.node(f"n{node}", "False")
            reference.fell(machine.clock.now, f"n{node}")
            down.add(node)
        if rng.random() < 0.1:
            machine = machine.resumed()
        machine.wait()
        assert set(machine.held()) == reference.held, step
        # Whole seconds, as times of Kubernetes are.
        machine.wait(float(rng.choice((0, 1, 20, 100))))
    assert machine.held() == sorted(reference.held)

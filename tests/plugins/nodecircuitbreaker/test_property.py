"""The state machine decides the same as a naive one, whatever happens, also from a checkpoint of a journal on."""

import os
from random import Random

import pytest

from koordsched.config.duration import Duration
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs
from tests.plugins.nodecircuitbreaker.machine import Machine
from tests.plugins.nodecircuitbreaker.reference import Reference

SEED = int(os.environ.get("KOORDSCHED_TEST_SEED", "20300101"))


def random_args(rng):
    return NodeCircuitBreakerArgs(
        window=Duration.of(rng.choice((20, 60, 200))),
        failures=rng.choice((2, 3, 4)),
        distinct_owners=rng.choice((1, 2)),
        owner_nodes=rng.choice((1, 2, 3, 10)),
        quick_crash=Duration.of(5),
        cool_down=Duration.of(rng.choice((5, 20))),
        max_cool_down=Duration.of(60),
        probation=Duration.of(rng.choice((5, 20))),
        probe_timeout=Duration.of(40),
        max_open_percentage=rng.choice((10, 30, 50, 100)),
    )


@pytest.mark.parametrize("number", range(60))
def test_like_a_naive_one(number):
    rng = Random(SEED + number)
    args = random_args(rng)
    zones = {f"n{i}": "ab"[i % 2] for i in range(rng.randint(2, 9))}
    machine, reference = Machine(args), Reference(args, zones)
    for name, zone in zones.items():
        machine.node(name, zone)
    reference.now = machine.clock.now
    names, steps = list(zones), 0
    for count in range(250):
        action = rng.choice(
            ("fail", "fail", "fail", "place", "place", "runs", "probe fails", "gone", "time", "take back")
        )
        probes = sorted(reference.probes)
        if action == "fail":
            on, owner = rng.choice(names), f"o{rng.randint(0, 4)}"
            machine.fails(f"f{count}", on, owner)
            machine.wait()
            reference.fails(on, owner)
        elif action == "place":
            on = rng.choice(names)
            assert machine.place(f"p{count}", on) == reference.place(f"p{count}", on)
        elif action == "time":
            for _ in range(rng.choice((1, 3, 10, 30))):
                machine.wait(1.0)
                reference.second()
                compare(machine, reference)
                steps += 1
        elif probes:
            pod = rng.choice(probes)
            on = reference.probes[pod][0]
            if action == "runs":
                machine.runs(pod, on)
                reference.runs(pod)
            elif action == "probe fails":
                machine.fails(pod, on)
                reference.probe_fails(pod)
            elif action == "gone":
                machine.gone(pod)
                reference.gone(pod)
            elif machine.cluster.is_assumed(f"uid-default-{pod}"):
                machine.take_back(pod)
                reference.free(pod)
            machine.wait()
        if rng.random() < 0.05:
            machine = machine.resumed()
        machine.wait()
        compare(machine, reference)
    assert steps > 0


def compare(machine, reference):
    while machine.breakers._next_look is not None:
        machine.wait()
    found = {name: machine.state(name) for name in reference.zones}
    assert found == {name: reference.state(name) for name in reference.zones}
    probes = {uid.removeprefix("uid-default-") for uid in machine.breakers._probes}
    assert probes == set(reference.probes)
    for row, record in machine.breakers.records.items():
        assert record.openings == reference.nodes[machine.cluster.table.names[row]]["openings"]

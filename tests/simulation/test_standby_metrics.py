"""Only the replica that leads shows queues, from the moment it has the lease and until it has not."""

import asyncio
from dataclasses import replace

import pytest

from tests.simulation import configuration
from tests.simulation.loop import SimulationLoop
from tests.simulation.replica import Process
from tests.simulation.simulation import Simulation

PODS = 30
"""None fits."""
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "only"},
    "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "110"}},
}


def pod(name):
    resources = {"requests": {"cpu": "2"}}
    spec = {"schedulerName": configuration.PROFILE, "containers": [{"name": "c", "image": "i", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}}


def shown(process):
    """Pods by queue, as a scrape would have them now; empty while there is no such series."""
    families = process.scheduler.metrics.registry.collect()
    return {
        sample.labels["queue"]: sample.value
        for family in families
        if family.name == "scheduler_pending_pods"
        for sample in family.samples
    }


def counts(**queues):
    return dict.fromkeys(("active", "backoff", "gated", "unschedulable"), 0) | queues


async def until(happened):
    """Asks ten times per virtual second, for two minutes; what `happened` returns in the end."""
    for _ in range(1200):
        if found := happened():
            return found
        await asyncio.sleep(0.1)
    raise AssertionError("it did not happen")


async def change_of_leader(end):
    run = Simulation(3, 100)
    run.plan = replace(run.plan, elects=True, replicas=2, features=(), page_size=500)
    run.server.insert(NODE)
    for number in range(PODS):
        run.server.insert(pod(f"too-large-{number}"))
    processes = [Process(name, run, 0.0) for name in "ab"]
    leader = await until(lambda: next((p for p in processes if p.elector and p.may_write()), None))
    (standby,) = (process for process in processes if process is not leader)
    await standby.synced.wait()
    await until(lambda: shown(leader) == counts(unschedulable=PODS))
    assert standby.scheduler.queue.pending() == counts(active=PODS)
    assert shown(standby) == {}

    first = []
    started = standby.elector.on_started

    def on_started():
        first.append(shown(standby))
        started()

    standby.elector.on_started = on_started
    end(leader)
    while not standby.may_write():
        assert shown(standby) == {}
        await asyncio.sleep(0.1)
    assert first == [counts(active=PODS)]
    await until(lambda: shown(standby) == counts(unschedulable=PODS))
    asyncio.get_running_loop().resume_process(leader.name)
    assert shown(leader) == {}
    assert run.invariants.violations == []
    for process in processes:
        process.terminate()
    await asyncio.wait([process.main for process in processes])


@pytest.mark.parametrize(
    "end",
    [Process.terminate, Process.kill, lambda process: asyncio.get_running_loop().stop_process(process.name)],
    ids=["terminated", "killed", "stopped"],
)
def test_a_standby_shows_queues_when_it_takes_over(end):
    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        runner.run(change_of_leader(end))

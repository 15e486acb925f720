"""Pods that want devices and CPUs of their own, or a NUMA policy: as the naive models say, and end to end."""

import asyncio
import json
from copy import deepcopy
from random import Random

import pytest

from tests.depth import quick_first
from tests.parity.fresh import fresh_seeds
from tests.plugins.deviceshare.machines import bound, device, g8, gpu, pod, topology, used
from tests.plugins.deviceshare.naive.books import NODE
from tests.plugins.deviceshare.naive.request import ALLOCATED, SCHEDULING_HINTS
from tests.plugins.deviceshare.randomstates import random_state
from tests.plugins.deviceshare.running import cluster, given, held, put, where
from tests.plugins.deviceshare.test_against_reference import same_decisions
from tests.plugins.deviceshare.world import NUMA, World
from tests.plugins.nodenumaresource import cpusets
from tests.virtualtime import run

SCHEDULING = "scheduling.koordinator.sh/"
QOS, CLASS = "koordinator.sh/qosClass", "koordinator.sh/priority-class"
BIND_POLICIES = (None, {"requiredCPUBindPolicy": "FullPCPUs"}, {"preferredCPUBindPolicy": "SpreadByPCPUs"})
POLICIES = ("SingleNUMANode", "Restricted", "BestEffort")


def lsr(thing, cpu, bind=None):
    """The pod with CPUs of its own."""
    made = deepcopy(thing)
    made["metadata"]["labels"] |= {QOS: "LSR", CLASS: "koord-prod"}
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
    if bind:
        made["metadata"]["annotations"][f"{SCHEDULING}resource-spec"] = json.dumps(bind)
    return made


def by_policy(thing, policy, exclusive=None):
    """The pod with a NUMA policy of its own."""
    made, spec = deepcopy(thing), {"numaTopologyPolicy": policy}
    if exclusive:
        spec["singleNUMANodeExclusive"] = exclusive
    made["metadata"]["annotations"][f"{SCHEDULING}numa-topology-spec"] = json.dumps(spec)
    return made


def of_cpus(state, rng):
    """The state with pods of whom many want CPUs of their own, or to be aligned."""
    for at, thing in enumerate(state.pending):
        made = thing
        if rng.random() < 0.5:
            bind = rng.choice(
                [None, {"requiredCPUBindPolicy": "FullPCPUs"}, {"preferredCPUBindPolicy": "SpreadByPCPUs"}]
            )
            made = lsr(made, rng.choice([2, 4, 16, 34]), bind)
        if rng.random() < 0.5:
            made = by_policy(made, rng.choice(POLICIES), rng.choice([None, None, "Required", "Preferred"]))
        state.pending[at] = made
    return state


@pytest.mark.parametrize("seed", quick_first(range(100), 5))
def test_the_same_as_the_naive_models(seed):
    state = of_cpus(random_state(f"cpus-{seed}"), Random(seed))
    same_decisions(state, state.objects)


@pytest.mark.parametrize("seed", fresh_seeds("devices and CPUs", 6))
def test_the_same_as_the_naive_models_on_fresh_seeds(seed):
    state = of_cpus(random_state(f"cpus-{seed}"), Random(seed))
    same_decisions(state, state.objects)


def policy_on(where, policy, thing):
    """(the pod, labels of the node) with the policy on either."""
    return (by_policy(thing, policy), {}) if where == "pod" else (thing, {f"{NODE}numa-topology-policy": policy})


def machine(labels):
    """Two NUMA nodes of 32 CPUs with four GPUs each."""
    return [{**g8()[0], "metadata": {**g8()[0]["metadata"], "labels": labels}}, topology("n", 2), g8()[1]]


@pytest.mark.parametrize("text", ["{}", "null", '{"gpu": []}', '{"gpu": null}'])
def test_a_pod_for_which_no_device_is_designated_is_aligned_like_any_other(text):
    """Five GPUs are more than a NUMA node has."""
    designated = {ALLOCATED: text, SCHEDULING_HINTS[0]: '{"extensions":{"DeviceShare":{}}}'}
    world = World(*machine({f"{NODE}numa-topology-policy": "SingleNUMANode"}))
    (refused,) = world.verdicts(lsr(pod("p", gpu=500), 8)).values()
    assert refused[:2] == (NUMA, "Unschedulable")
    assert world.verdicts(lsr(pod("q", gpu=500, annotations=designated), 8)) == {"n": refused}
    assert world.verdicts(lsr(pod("r", gpu=400, annotations=designated), 8)) == {"n": ()}


@pytest.mark.parametrize("on", ["pod", "node"])
@pytest.mark.parametrize("policy", POLICIES)
def test_cpus_and_gpus_are_of_the_same_numa_node(policy, on):
    """The GPUs are left in the second NUMA node."""
    wanted, labels = policy_on(on, policy, lsr(pod(gpu=200), 8))

    async def scenario():
        async with cluster(*machine(labels), used(0, 1, 2)) as (embedded, running):
            put(embedded, wanted)
            await asyncio.sleep(3)
            return given(embedded, "p"), cpusets.ids_of(embedded.get("Pod", "p")), held(running)

    devices, cpus, books = run(scenario())
    assert devices == {"gpu": [4, 5]}
    assert len(cpus) == 8
    assert all(32 <= cpu < 64 for cpu in cpus)
    assert {("gpu", 4), ("gpu", 5)} <= books.keys()


@pytest.mark.parametrize("on", ["pod", "node"])
@pytest.mark.parametrize(("policy", "placed"), [("SingleNUMANode", None), ("Restricted", "n"), ("BestEffort", "n")])
def test_more_gpus_than_a_numa_node_has(policy, placed, on):
    wanted, labels = policy_on(on, policy, pod(gpu=600))

    async def scenario():
        async with cluster(*machine(labels)) as (embedded, _):
            put(embedded, wanted)
            await asyncio.sleep(3)
            return where(embedded, "p"), len((given(embedded, "p") or {}).get("gpu", ()))

    assert run(scenario()) == (placed, 6 if placed else 0)


@pytest.mark.parametrize("disabled", [False, True], ids=["aligned", "disabled"])
def test_alignment_of_devices_can_be_switched_off(disabled):
    """CPUs are left in the first NUMA node alone, GPUs in the second."""
    cpus = bound(pod(cpu="32"), "cpus")
    listed = {"numaNodeResources": [{"node": 1, "resources": {"cpu": "32"}}]}
    cpus["metadata"]["annotations"] = {f"{SCHEDULING}resource-status": json.dumps(listed)}
    args = {"disableDeviceNUMATopologyAlignment": disabled}
    labels = {f"{NODE}numa-topology-policy": "SingleNUMANode"}
    world = World(*machine(labels), cpus, used(0, 1, 2, 3), args=args)
    assert (world.verdicts(pod(gpu=100))["n"] == ()) is disabled
    if disabled:
        assert world.place(pod(gpu=100)) == {"gpu": [4]}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("numa", [True, False], ids=["with", "without"])
def test_devices_without_topology(policy, numa):
    """They are of no NUMA node that pods may be aligned to, which under BestEffort comes out in Reserve; without
    NodeNUMAResource that does not matter."""
    labels = {f"{NODE}numa-topology-policy": policy}
    world = World(machine(labels)[0], topology("n", 2), device(gpu(0), gpu(1)), numa=numa)
    refused = (NUMA, "Unschedulable", "Insufficient gpu devices")
    assert world.verdicts(pod(gpu=100)) == {"n": refused if numa and policy != "BestEffort" else ()}
    assert world.place(pod(gpu=100)) == (refused if numa else {"gpu": [0]})


@pytest.mark.parametrize("policy", ["SingleNUMANode", "Restricted"])
def test_preemption_for_gpus_and_cpus_together(policy):
    """In the first NUMA node the GPUs are held by an important pod, in the second the CPUs and a GPU by others."""
    cpus = bound(pod(), "cpus")
    listed = {"numaNodeResources": [{"node": 1, "resources": {"cpu": "30"}}], "cpuset": "32-61"}
    cpus["metadata"]["annotations"] = {f"{SCHEDULING}resource-status": json.dumps(listed)}
    cpus["metadata"]["labels"][QOS] = "LSR"
    cpus["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "30"
    cpus["spec"]["priority"] = 10
    first, second = used(0, 1, 2, 3), used(4, 5, 6, 7)
    first["spec"]["priority"], second["spec"]["priority"] = 500, 10
    world = World(*machine({f"{NODE}numa-topology-policy": policy}), cpus, first, second)
    wanted = pod("wanted", priority=100, gpu=100)
    wanted["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "16"
    assert world.verdicts(wanted)["n"] != ()
    said = world.explain(wanted)
    assert said.nominated_node == "n"
    assert sorted(said.victims) == ["default/cpus", "default/used-n-4-5-6-7"]

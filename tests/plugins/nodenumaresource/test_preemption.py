"""Preemption for CPUs and NUMA nodes: dry runs of many nodes at once find what one after the other finds."""

from copy import deepcopy
from random import Random

import numpy as np
import pytest

from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS
from koordsched.plugins.shared.preemption.search import Search
from tests.parity.fresh import fresh_seeds
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.plugins.nodenumaresource.randomstates import random_state
from tests.plugins.nodenumaresource.world import World, lsr
from tests.plugins.shared.preemption.test_search import same_as_one_by_one

T1 = detail(2, 1, 4)
ZONES = [("8", "64Gi"), ("8", "64Gi")]
LABEL = "koordinator.sh/priority-class"


class Full:
    """A random state as a scheduler has it; pods have priorities that let some preempt others."""

    def __init__(self, seed):
        self.rng = Random(f"preemption-{seed}")
        self.state = random_state(seed, nodes=6, pending=10)
        self.world = World(*self.state.nodes, *self.state.topologies, args=self.state.args)
        self.cluster, self.profile = self.world.cluster, self.world.profile
        self.search = Search(self.profile.handle)
        for at, thing in enumerate(self.state.bound):
            if thing["status"]["phase"] == "Running":
                self.world.put(self.bound(thing, at))

    def bound(self, thing, at):
        made = deepcopy(thing)
        made["spec"] |= {"schedulerName": "default-scheduler", "priority": self.rng.choice([0, 9000, 9001, 9990])}
        made["metadata"]["labels"].setdefault(LABEL, "koord-prod")
        made["status"]["startTime"] = f"2030-01-01T{at // 60:02}:{at % 60:02}:00Z"
        return made

    def pending(self, thing):
        made = deepcopy(thing)
        made["spec"] |= {"schedulerName": "default-scheduler", "priority": self.rng.choice([9001, 9995])}
        made["metadata"]["labels"][LABEL] = "koord-prod"
        self.world.put(made)
        return self.world.offline.pending.get(f"default/{made['metadata']['name']}")

    def same(self, wanted):
        """Both ways, on all nodes; returns how many candidates there are."""
        return same_as_one_by_one(self, wanted, self.world.columns.sums_decide(wanted.shape))

    def something_happens(self):
        bound = [thing for thing in self.state.bound if thing["status"]["phase"] == "Running"]
        kind = self.rng.randrange(3)
        if kind == 0 and bound:
            self.world.remove(self.rng.choice(bound))
        elif kind == 1 and bound:
            self.world.put(self.bound(self.rng.choice(bound), self.rng.randrange(600)))
        elif self.state.topologies:
            self.world.put(self.rng.choice(self.state.topologies))


def columns_of(full):
    """The plugin's columns, as far as there is anything in them."""
    return full.world.readings()


@pytest.mark.parametrize("seed", fresh_seeds("dry runs with CPUs and NUMA nodes", 20))
def test_lockstep_finds_what_one_by_one_finds(seed):
    full = Full(seed)
    for thing in full.state.pending:
        full.something_happens()
        wanted = full.pending(thing)
        before = columns_of(full)
        if full.world.plugin.compiled.request(wanted.shape).status is None:
            full.same(wanted)
        assert columns_of(full) == before


def test_cpus_and_numa_nodes_decide():
    """The test above is about something: nodes that the plugin alone refuses, and candidates for those pods."""
    refused = candidates = 0
    for seed in range(12):
        full = Full(seed)
        for thing in full.state.pending:
            wanted = full.pending(thing)
            if full.world.plugin.compiled.request(wanted.shape).status is not None:
                continue
            codes = full.profile.filtering.filter(CycleState(wanted)).codes
            reasons = [full.profile.handle.reasons[code] for code in codes.tolist() if code != PASS]
            ours = sum(
                reason.plugin == "NodeNUMAResource" and reason.code.text == "Unschedulable" for reason in reasons
            )
            refused += ours
            found = full.same(wanted) if ours else 0
            candidates += found
    assert refused > 15
    assert candidates > 5


# --- pods and their victims --------------------------------------------------------------------------------


def required(name, cpu, priority, **more):
    return lsr(name, cpu=cpu, priority=priority, spec={"requiredCPUBindPolicy": "FullPCPUs"}, **more)


def bound(thing, cpuset, start=0):
    """A pod on m1 that holds CPUs."""
    made = holder(
        thing["metadata"]["name"], cpuset, cpu=str(thing["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    )
    made["spec"]["priority"] = thing["spec"]["priority"]
    made["status"] = {"phase": "Running", "startTime": f"2030-01-01T00:{start:02}:00Z"}
    return made


def test_a_pod_preempts_for_cpus_though_there_is_room():
    """CPU is left by the sums, but not as whole cores: the pod of lowest priority whose CPUs help goes."""
    held = [
        bound(required("low", "1", 9001), "0", 1),
        bound(required("lower", "7", 9000), "2,4,6,8,10,12,14", 2),
        bound(required("high", "1", 9900), "1", 3),
    ]
    world = World(node(cpu="64"), topology(T1), *held)
    wanted = required("wanted", "8", 9800)
    assert world.refusal(wanted) == ("Unschedulable", "not enough cpus available to satisfy request")
    world.put(wanted)
    said = world.explain(wanted)
    assert (said.nominated_node, said.victims) == ("m1", ["default/lower"])


def test_no_victims_where_their_cpus_do_not_help():
    held = [bound(required("low", "2", 9000), "0-1"), bound(required("high", "14", 9900), "2-15")]
    world = World(node(cpu="64"), topology(T1), *held)
    wanted = required("wanted", "4", 9800)
    world.put(wanted)
    said = world.explain(wanted)
    assert (said.nominated_node or "", said.victims) == ("", [])


@pytest.mark.parametrize("policy", ["SingleNUMANode", "Restricted"])
def test_a_pod_preempts_for_a_numa_node(policy):
    def on_numa_node(name, at, cpu, priority):
        made = holder(name, None, {at: (cpu, "1Gi")}, cpu, "1Gi", qos="LS")
        made["spec"]["priority"] = priority
        return {**made, "status": {"phase": "Running"}}

    held = on_numa_node("a", 0, "6", 9000), on_numa_node("b", 1, "4", 9000), on_numa_node("c", 1, "2", 9900)
    world = World(node(cpu="16", numa_topology_policy=policy), topology(T1, ZONES), *held)
    wanted = pod("wanted", "6", "1Gi", priority=9500)
    world.put(wanted)
    said = world.explain(wanted)
    assert (said.nominated_node, said.victims) == ("m1", ["default/b"])


def test_a_preemptor_that_will_not_share_a_numa_node():
    """The victims are those whose CPUs lie on both NUMA nodes: what they leave by amounts alone would not tell."""
    exclusive = {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"}
    both = bound(required("both", "2", 9000), "0,8")
    other = bound(required("other", "2", 9000), "2-3")
    world = World(node(cpu="64"), topology(T1, ZONES), both, other)
    wanted = pod("wanted", "2", "1Gi", priority=9500, numa=exclusive)
    assert world.refusal(wanted)[0] == "Unschedulable"
    world.put(wanted)
    said = world.explain(wanted)
    assert (said.nominated_node, said.victims) == ("m1", ["default/both"])
    row = np.array([0])
    assert world.columns.statuses(row, 2).tolist() == [[2, 2]]

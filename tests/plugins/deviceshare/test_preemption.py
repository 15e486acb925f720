"""Preemption for devices: dry runs of many nodes at once find what one after the other finds, and the right victims."""

from copy import deepcopy
from random import Random

import pytest

from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS
from koordsched.plugins.shared.preemption.search import Search
from tests.parity.fresh import fresh_seeds
from tests.plugins.deviceshare.machines import bound, device, g8, h8, m2, nic, node, pod, used, used_nic
from tests.plugins.deviceshare.randomstates import random_state
from tests.plugins.deviceshare.world import DEVICES, NUMA, PROFILE, World
from tests.plugins.shared.preemption.test_search import same_as_one_by_one


class Full:
    """A random state as a scheduler has it; pods have priorities that let some preempt others."""

    def __init__(self, seed, *, numa=True, improved=False):
        self.rng = Random(f"preemption-{seed}")
        self.state = random_state(seed, nodes=6, pending=10)
        args = {**self.state.args, **({"improvedAllocation": True} if improved else {})}
        self.world = World(*self.state.objects, args=args, numa=numa)
        self.cluster, self.profile = self.world.cluster, self.world.profile
        self.search = Search(self.profile.handle)
        self.bound = [thing for thing in self.state.objects if thing["kind"] == "Pod"]
        for at, thing in enumerate(self.bound):
            self.world.put(self.started(thing, at))

    def started(self, thing, at):
        made = deepcopy(thing)
        made["spec"] |= {"schedulerName": PROFILE, "priority": self.rng.choice([0, 0, 5, 10])}
        made["status"] = {"phase": "Running", "startTime": f"2030-01-01T{at // 60:02}:{at % 60:02}:00Z"}
        return made

    def pending(self, thing):
        made = deepcopy(thing)
        made["spec"] |= {"schedulerName": PROFILE, "priority": self.rng.choice([5, 10, 20])}
        self.world.put(made)
        return self.world.offline.pending.get(f"default/{made['metadata']['name']}")

    def same(self, wanted):
        """Both ways, on all nodes; returns how many candidates there are."""
        plugin, numa = self.world.plugin, self.profile.plugins.get(NUMA)
        at_once = plugin.columns.sums_decide(wanted.shape)
        if numa is None or self.state.args.get("disableDeviceNUMATopologyAlignment"):
            at_once = at_once or not plugin.compiled.of(wanted.shape).types
        if numa is not None:
            at_once = at_once and numa.columns.sums_decide(wanted.shape)
        return same_as_one_by_one(self, wanted, at_once)

    def valid(self, wanted):
        """Whether the pod may be placed anywhere at all."""
        return not self.world.plugin.compiled.of(wanted.shape).problem

    def something_happens(self):
        rng, kind = self.rng, self.rng.randrange(4)
        if kind == 0:
            self.world.remove(rng.choice(self.bound))
        elif kind == 1:
            self.world.put(self.started(rng.choice(self.bound), rng.randrange(600)))
        elif kind == 2:
            thing = deepcopy(rng.choice([thing for thing in self.state.objects if thing["kind"] == "Device"]))
            for entry in thing["spec"]["devices"]:
                entry["health"] = rng.random() < 0.8
            self.world.put(thing)


@pytest.mark.parametrize("improved", [False, True], ids=["default", "improved"])
@pytest.mark.parametrize("numa", [False, True], ids=["alone", "aligned"])
@pytest.mark.parametrize("seed", fresh_seeds("dry runs with GPUs and NICs", 8))
def test_lockstep_finds_what_one_by_one_finds(seed, numa, improved):
    full = Full(seed, numa=numa, improved=improved)
    for thing in full.state.pending:
        full.something_happens()
        wanted = full.pending(thing)
        before = full.world.books()
        if full.valid(wanted):
            full.same(wanted)
        assert full.world.books() == before


@pytest.mark.parametrize("numa", [False, True], ids=["alone", "aligned"])
@pytest.mark.parametrize("seed", fresh_seeds("remembered dry runs with GPUs and NICs", 6))
def test_what_is_remembered_still_holds(seed, numa):
    """The same few kinds of pods ask again and again, while pods and Devices change."""
    full = Full(seed, numa=numa)
    kinds = [thing for thing in full.state.pending if full.valid(full.world.pod(thing))][:3]
    for at in range(12 if kinds else 0):
        full.something_happens()
        kind = full.rng.choice(kinds)
        wanted = full.pending({**kind, "metadata": {**kind["metadata"], "name": f"again-{at}", "uid": f"again-{at}"}})
        full.same(wanted)


def test_devices_decide():
    """The test above is about something: nodes that the plugin alone refuses, and candidates for those pods."""
    refused = candidates = one_by_one = 0
    for seed in range(12):
        full = Full(seed)
        for thing in full.state.pending:
            wanted = full.pending(thing)
            if not full.valid(wanted):
                continue
            codes = full.profile.filtering.filter(CycleState(wanted)).codes
            reasons = [full.profile.handle.reasons[code] for code in codes.tolist() if code != PASS]
            ours = sum(reason.plugin == DEVICES and reason.code.text == "Unschedulable" for reason in reasons)
            refused += ours
            candidates += full.same(wanted) if ours else 0
            one_by_one += bool(ours) and not full.world.plugin.columns.sums_decide(wanted.shape)
    assert refused > 15
    assert candidates > 5
    assert one_by_one > 0


# --- pods and their victims --------------------------------------------------------------------------------


def preempted(wanted, *objects, **options):
    """(node, victims) of a pod that does not pass."""
    world = World(*objects, **options)
    assert all(world.verdicts(wanted).values())
    said = world.explain(wanted)
    return said.nominated_node or None, [victim.partition("/")[2] for victim in said.victims]


def holding(name, *minors, share=100, priority=0, at=0, **more):
    """A pod that holds GPUs of m2 or g8."""
    made = used(*minors, share=share, priority=priority)
    made["metadata"] |= {"name": name, "uid": name}
    made["spec"]["priority"] = priority
    made["status"]["startTime"] = f"2030-01-01T00:{at:02}:00Z"
    return {**made, **more}


def test_the_pod_that_holds_the_least_important_gpu_goes():
    held = [holding("high", 0, priority=50, at=1), holding("low", 1, priority=10, at=2)]
    assert preempted(pod(gpu=100), *m2(), *held) == ("n", ["low"])


def test_fractions_are_given_back_as_fractions():
    """Two of three pods on a GPU must go; those that remain fit beside the one that comes."""
    held = [
        holding("a", 0, share=40, priority=30, at=1),
        holding("b", 0, share=40, priority=20, at=2),
        holding("c", 0, share=20, priority=10, at=3),
        holding("rest", 1, priority=200),
    ]
    assert preempted(pod(core=60, ratio=60), *m2(), *held) == ("n", ["b", "c"])
    assert preempted(pod(core=50, ratio=50), *m2(), *held) == ("n", ["b", "c"])
    assert preempted(pod(core=20, ratio=20), *m2(), *held) == ("n", ["c"])


def test_no_victims_where_what_they_hold_does_not_help():
    """Each GPU is held by one important pod and by one that is not."""
    held = [holding(f"{kind}{minor}", minor, share=50, priority=priority)
            for minor in (0, 1) for kind, priority in (("low", 0), ("high", 200))]  # fmt: skip
    assert preempted(pod(core=60, ratio=60), *m2(), *held) == (None, [])
    assert preempted(pod(gpu=100), *m2(), *held) == (None, [])
    assert preempted(pod(core=50, ratio=50), *m2(), *held)[1] in (["low0"], ["low1"])


def test_pods_that_hold_no_devices_stay():
    plain = bound(pod(), "plain")
    plain["spec"]["priority"] = 0
    held = [holding("low", 0, priority=10), holding("high", 1, priority=200)]
    assert preempted(pod(gpu=100), *m2(), plain, *held) == ("n", ["low"])


@pytest.mark.parametrize(
    ("wanted", "held", "victims"),
    [
        (2, [(0,), (1,), (2,), (3, 4, 5, 6, 7)], ["h0", "h1"]),
        (4, [(0, 1), (2,), (3,), (4, 5, 6, 7)], ["h0", "h1", "h2"]),
        (1, [(0, 1), (2, 3), (4, 5), (6, 7)], ["h2"]),
    ],
)
def test_whole_partitions_are_freed(wanted, held, victims):
    """Where partitions are honoured a GPU of each of two does not help. The last pod is too important to go."""
    last = len(held) - 1
    pods = [holding(f"h{at}", *some, priority=10 if at < last else 200, at=at) for at, some in enumerate(held)]
    assert preempted(pod(gpu=100 * wanted), *h8(policy="Honor"), *pods) == ("n", victims)


def test_partitions_that_no_victim_frees():
    pods = [holding(f"low{minor}", minor, priority=0) for minor in (0, 2, 4, 6)]
    pods += [holding(f"high{minor}", minor, priority=200) for minor in (1, 3, 5, 7)]
    assert preempted(pod(gpu=200), *h8(policy="Honor"), *pods) == (None, [])
    assert len(preempted(pod(gpu=200), *h8(policy="Prefer"), *pods)[1]) == 2


def test_a_gpu_and_a_nic_on_the_same_switch_are_freed():
    """GPU 2 and 3 are next to NIC 2: a GPU elsewhere does not help. By default the first GPU that is free is taken, and
    no other is looked for when its NIC is not."""
    gpus = [holding(f"gpu{minor}", minor, priority=10, at=minor) for minor in range(8)]
    nics = [used_nic(n) for n in (1, 2, 3, 4)]
    for at, thing in enumerate(nics):
        thing["spec"]["priority"] = 10 if at == 1 else 200
    wanted = pod(gpu=100, rdma=1, joint={"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})
    assert preempted(wanted, *g8(), *gpus, *nics) == (None, [])
    found, victims = preempted(wanted, *g8(), *gpus, *nics, args={"improvedAllocation": True})
    assert found == "n"
    assert sorted(victims) in (["gpu2", "used-n-nic-2"], ["gpu3", "used-n-nic-2"])


def with_function(name, minor, bus, priority):
    """A pod that holds a virtual function of a NIC."""
    made = bound(pod(rdma=1), name, rdma=[(minor, {"rdma": 1})])
    text = made["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"]
    text = text.replace("}}]", f'}}, "extension": {{"vfs": [{{"minor": -1, "busID": "{bus}"}}]}}}}]')
    made["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"] = text
    made["spec"]["priority"] = priority
    return made


def test_victims_give_back_their_virtual_functions():
    """The NIC has plenty of itself left, but no function."""
    entry = nic(0, bus="0000:1f:00", functions=2)
    held = [with_function("low", 0, "0000:1f:00.2", 0), with_function("high", 0, "0000:1f:00.3", 200)]
    wanted = pod(rdma=1, hints={"rdma": {"vfSelector": {}}})
    assert preempted(wanted, node(), device(entry), *held) == ("n", ["low"])
    assert preempted(wanted, node(), device(entry), *[{**h, "spec": {**h["spec"], "priority": 200}} for h in held]) == (
        None,
        [],
    )


def test_of_many_nodes_the_one_with_the_fewest_and_least_important_victims():
    machines = [thing for name in "abc" for thing in m2(name)]
    held = []
    for name, shares, priority in (("a", (100,), 10), ("b", (50, 50), 5), ("c", (100,), 5)):
        for minor in (0, 1):
            for at, share in enumerate(shares):
                made = used(minor, node=name, share=share)
                made["metadata"] |= {"name": f"{name}{minor}{at}", "uid": f"{name}{minor}{at}"}
                made["spec"]["priority"] = priority
                held.append(made)
    found, victims = preempted(pod(gpu=100), *machines, *held)
    assert found == "c"
    assert len(victims) == 1


def test_devices_that_only_pods_know_do_not_become_unknown_by_preemption():
    """Where nothing is known of devices the kubelet decides; but here something is."""
    assert preempted(pod(gpu=100), node(), holding("low", 0)) == (None, [])

"""Preemption with columns of a plugin's own: all nodes at once find what one after the other finds, and how fast."""

import time

import numpy as np
import pytest

from koordsched.cluster.pod import Pod
from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS
from koordsched.plugins.shared.preemption.kinds import PodKinds
from koordsched.plugins.shared.preemption.lockstep import Lockstep
from tests.parity.fresh import fresh_seeds
from tests.plugins.objects import container, node, pod
from tests.plugins.shared.preemption.devices import Devices, scheduler_with_devices
from tests.plugins.shared.preemption.test_search import Cluster, same_as_one_by_one
from tests.reference.randompreemption import RandomFullCluster


class RandomDevices(RandomFullCluster):
    """Full clusters whose nodes have devices, and whose pods use some."""

    def __init__(self, rng):
        super().__init__(rng)
        self.fill = rng.choice([1.0, 0.6, 0.6])

    def node(self, name):
        made = super().node(name)
        made["metadata"]["labels"] |= {"devices": self.rng.choice("00488"), "tenants": self.rng.choice("1399")}
        if self.maybe(0.1):
            made["metadata"]["labels"]["devices"] = "16"
        return made

    def plain(self, name, priority, cpu, on=None):
        made = super().plain(name, priority, cpu, on)
        rng = self.rng
        if self.maybe(0.6):
            count = rng.choice([1, 1, 2, 4])
            minors = rng.sample(range(16), count) if self.maybe(0.2) else rng.sample(range(8), count)
            made["metadata"]["labels"] |= {
                "minors": ".".join(map(str, minors)),
                "share": rng.choice(["100", "30", "50"]),
            }
        return made

    def preemptor(self, name, node_names):
        made = super().preemptor(name, node_names)
        wanted = self.rng.choice(["devices-1", "devices-2", "devices-3", "devices-4", "devices-8", "share-50", "i"])
        made["spec"]["containers"][0]["image"] = wanted
        return made


def cluster_with_devices(seed):
    return Cluster(seed, state=RandomDevices, scheduler=scheduler_with_devices)


def columns_of(cluster):
    """The plugin's columns, bit for bit, all of one width: a nominated pod may widen them."""
    devices = cluster.cluster.shared(Devices)
    columns = (devices.size, devices.limit, *devices.columns())
    return [(column.data.dtype, _widest(column.data).tobytes()) for column in columns]


def _widest(data):
    return np.pad(data, ((0, 0), (0, 64 - data.shape[1]))) if data.ndim == 2 else data


def accounted(cluster):
    """What the columns have to hold, added up pod by pod."""
    devices = cluster.cluster.shared(Devices)
    used, tenants = np.zeros_like(devices.used.data), np.zeros_like(devices.tenants.data)
    for each in cluster.cluster.assigned.values():
        amounts = devices.amounts(each) if each.row >= 0 else None
        if amounts is not None:
            used[each.row, : len(amounts[0])] += amounts[0]
            tenants[each.row] += amounts[1]
    return used, tenants


@pytest.mark.parametrize("seed", fresh_seeds("dry runs with devices", 60))
def test_lockstep_finds_what_one_by_one_finds(seed):
    cluster = cluster_with_devices(seed)
    devices = cluster.cluster.shared(Devices)
    for i in range(8):
        for _ in range(cluster.rng.choice([0, 1, 3])):
            cluster.something_happens()
        wanted = cluster.offline.add(cluster.preemptor(f"p{i}"))
        cluster.profile.filtering.filter(CycleState(wanted))  # a pod that was promised a node may widen the columns
        before = columns_of(cluster)
        same_as_one_by_one(cluster, wanted)
        assert columns_of(cluster) == before
        used, tenants = accounted(cluster)
        assert np.array_equal(devices.used.data, used)
        assert np.array_equal(devices.tenants.data, tenants)


@pytest.mark.parametrize("seed", fresh_seeds("remembered dry runs with devices", 40))
def test_what_is_remembered_still_holds(seed):
    cluster = cluster_with_devices(seed)
    kinds = [cluster.preemptor(f"kind-{i}") for i in range(3)]
    for kind in kinds:
        for other in ("topologySpreadConstraints", "affinity", "volumes"):
            kind["spec"].pop(other, None)
    for i in range(12):
        cluster.something_happens()
        kind = cluster.rng.choice(kinds)
        metadata = {**kind["metadata"], "name": f"p{i}", "uid": f"p{i}"}
        same_as_one_by_one(cluster, cluster.offline.add({**kind, "metadata": metadata, "status": {}}))


def test_devices_decide():
    """The tests above are about something: nodes that only devices refuse, and candidates for those who want them."""
    refused = candidates = 0
    for seed in range(6):
        cluster = cluster_with_devices(seed)
        for i in range(5):
            wanted = cluster.offline.add(cluster.preemptor(f"p{i}"))
            codes = cluster.profile.filtering.filter(CycleState(wanted)).codes
            reasons = [cluster.profile.handle.reasons[code] for code in codes.tolist()]
            refused += sum(reason.plugin == "DeviceShare" for reason in reasons)
            if "-" in wanted.shape.spec.containers[0].image:
                candidates += same_as_one_by_one(cluster, wanted)
    assert refused > 10
    assert candidates > 10


class SecondBooks:
    """Another accountant of the same facet, of whose books nothing is known."""

    def __init__(self, facets):
        self.facets = facets

    def pod_added(self, row, pod):
        return self.facets

    pod_removed = pod_added


@pytest.mark.parametrize(("image", "at_once"), [("devices-1", False), ("share-10", False), ("i", True)])
def test_a_facet_with_other_books_is_tried_one_by_one(image, at_once):
    offline = scheduler_with_devices([node("n"), pod("p", container(image))])
    cluster, filtering = offline.cluster, offline.profiles["default-scheduler"].filtering
    cycle = CycleState(offline.pending["default/p"])
    filtering.filter(cycle)
    assert Lockstep(cluster, filtering, cycle).applies
    cluster.add_accountant(SecondBooks(cluster.shared(Devices).facets))
    assert Lockstep(cluster, filtering, cycle).applies == at_once


class Allocated(Pod):
    """A pod with facts."""

    __slots__ = ("facts",)


def test_pods_with_other_facts_are_of_another_kind():
    offline = scheduler_with_devices([pod("p", container())])
    plain = offline.pending["default/p"]
    kinds = PodKinds()
    numbers = []
    for facts in ((), ("minor 0",), ("minor 1",), ("minor 0",)):
        made = Allocated.__new__(Allocated)
        for slot in Pod.__slots__:
            if slot != "__weakref__":
                setattr(made, slot, getattr(plain, slot))
        made.facts = facts
        numbers.append(kinds.of(made))
    assert numbers == [kinds.of(plain), 2, 3, 2]


def test_amounts_by_kind_keep_up_with_kinds_and_widths():
    offline = scheduler_with_devices([node("n", labels={"devices": "2"})])
    cluster = offline.cluster
    devices, kinds = cluster.shared(Devices), PodKinds()
    expected = [[0]]
    asked = []
    original = devices.amounts
    devices.amounts = lambda other: asked.append(other) or original(other)
    for i, minors in enumerate(("0", "1", None, "3", "0.9", "2")):
        labels = {"minors": minors} if minors else {}
        offline.add(pod(f"p{i}", labels=labels))
        assert kinds.of(offline.pending[f"default/p{i}"]) == i + 1
        amounts = np.zeros(16, dtype=np.int64)
        amounts[[int(minor) for minor in minors.split(".")] if minors else []] = 100
        expected.append(amounts.tolist())
        found = kinds.column_amounts(devices)
        used, tenants = found.tables
        assert used.dtype == np.int32
        assert used.shape[1] == devices.used.data.shape[1]
        for number, row in enumerate(expected):
            assert used[number].tolist() == [*row, *[0] * 16][: used.shape[1]]
            assert tenants[number] == found.counts[number] == any(row)
    assert len(asked) == 6


# --- cost ------------------------------------------------------------------------------------------------

NODES, MINORS, VICTIMS = 5000, 8, 4


def full_of_devices():
    """Every node has 8 devices, in use by four pods, two each, in one of many ways."""
    rng = np.random.default_rng(1)
    state = []
    for i in range(NODES):
        state.append(node(f"n{i}", cpu="64", labels={"devices": str(MINORS)}))
        minors = rng.permutation(MINORS).reshape(VICTIMS, -1).tolist()
        for k, some in enumerate(minors):
            labels = {"minors": ".".join(map(str, some))}
            state.append(pod(f"v{i}-{k}", container(cpu="1"), on=f"n{i}", labels=labels, priority=k % 3))
    return state


@pytest.mark.slow
@pytest.mark.parametrize("share", [10, 100])
def test_cost(share):
    """Of preemptors that want one device: the first decision of a shape, and the next ones.

    `share`: of all nodes, in percent, that are tried.
    """
    state = full_of_devices()
    state += [pod("first", container("devices-2"), priority=5)]  # reads who is where
    state += [pod(f"p{k}-{i}", container("devices-1", cpu=f"{k}m"), priority=10) for k in range(1, 6) for i in range(4)]
    args = {"minCandidateNodesPercentage": share}
    offline = scheduler_with_devices(state, pluginConfig=[{"name": "DefaultPreemption", "args": args}])
    profile = offline.profiles["default-scheduler"]

    def decided(name):
        cycle = CycleState(offline.pending[f"default/{name}"])
        codes = profile.filtering.filter(cycle).codes
        assert not (codes == PASS).any()
        started = time.thread_time()
        outcome = profile.run_post_filter(cycle, codes)
        assert len(outcome.victims) == 1
        return (time.thread_time() - started) * 1000

    cold = decided("first")
    profile.handle.rng.randrange = lambda most: 0  # the same nodes every time
    spent = np.array([[decided(f"p{k}-{i}") for i in range(4)] for k in range(1, 6)])
    first, again = spent[:, 0].min(), spent[:, 1:].min()
    print(f"\n{share}% of {NODES} nodes: cold {cold:.1f} ms, first {first:.1f} ms, again {again:.1f} ms")
    assert first < 20
    assert again < 6

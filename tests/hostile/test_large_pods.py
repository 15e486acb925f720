"""Pods as large as an API server takes them: what they cost is bounded, and goes with them."""

import asyncio
import gc
import json
import tracemalloc
import weakref

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster import facts
from koordsched.cluster.shape import SHAPE_BYTES
from koordsched.framework.interface import CycleState
from koordsched.plugins.nodenumaresource import columns as numa
from koordsched.plugins.shared.devices import columns as devices
from koordsched.plugins.shared.podcounts.index import PodIndex
from koordsched.plugins.shared.preemption import victims
from koordsched.plugins.shared.preemption.victims import VictimTable
from tests.embedded import Embedded, scheduler_on
from tests.plugins.harness import Bench, scheduler
from tests.plugins.objects import container, node, node_affinity, pod, pod_affinity, pod_term, requests, spread
from tests.plugins.objects import term as node_term
from tests.virtualtime import run

HOST = "kubernetes.io/hostname"


def large(name, megabytes=0.9, **more):
    tolerations = [{"key": f"{name}-{i}-{'x' * 900}", "operator": "Exists"} for i in range(int(megabytes * 1000))]
    return pod(name, container(cpu="1"), tolerations=tolerations, **more)


def test_a_shape_is_charged_what_it_takes():
    bench = Bench(node("n1"))
    small, big = bench.pod(pod("small", container(cpu="1"))).shape, bench.pod(large("big")).shape
    assert small.nbytes == SHAPE_BYTES
    assert big.nbytes > 4 * len(big.key) > 3_000_000
    terms = pod_affinity(required_anti=[pod_term(HOST, {"app": f"{i}"}) for i in range(1000)])
    assert bench.pod(pod("wary", affinity=terms)).shape.nbytes > 1_000_000


def selecting(name):
    return pod(name, nodeSelector={f"{name}-{i}": "v" for i in range(2000)})


def preferring(name):
    return pod(name, affinity=node_affinity(preferred=[(1, node_term((f"{name}-{i}", "Exists"))) for i in range(1000)]))


def requesting(name):
    return pod(name, container(**{f"ex.com/{name}-{i}": "1" for i in range(1000)}))


def spreading(name):
    keys = [f"{name}-{i}" for i in range(500)]
    return pod(name, topologySpreadConstraints=[spread(key, 1, {"app": key}, hard=False) for key in keys])


def of_many_containers(name):
    return pod(name, *(container(cpu="1m", name=f"{name}-{i}") for i in range(1000)))


def with_many_terms(name):
    return with_node_terms(name, 1000)


MANY = [selecting, preferring, with_many_terms, requesting, spreading, of_many_containers]


@pytest.mark.parametrize("make", MANY)
def test_whatever_a_pod_lists_is_charged(make):
    more = ("NodeNUMAResource", "DeviceShare", "Reservation", "ScarceResourceAvoidance")
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": name} for name in more]}}}
    offline = scheduler([node("n1"), node("n2")], profile)
    filtering = offline.profiles["default-scheduler"].filtering

    def verdict_of(name):
        asked = offline.cluster.pods.build(convert(make(name), core.Pod))
        filtering.filter(CycleState(asked))
        return filtering._evaluations.of(asked.shape)

    verdict_of("first")
    filtering.filter(CycleState(offline.cluster.pods.build(convert(pod("small"), core.Pod))))
    gc.collect()
    tracemalloc.start()
    try:
        found = verdict_of("second")
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1.2 * found.nbytes
    finally:
        tracemalloc.stop()


def test_verdicts_of_large_pods_go_with_the_next_one():
    offline = scheduler([node("n1")])
    profile = offline.profiles["default-scheduler"]
    shapes = []
    for i in range(12):
        asked = offline.cluster.pods.build(convert(large(f"big-{i}"), core.Pod))
        shapes.append(weakref.ref(asked.shape))
        profile.filtering.filter(CycleState(asked))
        del asked
    gc.collect()
    assert len(profile.filtering._evaluations._kept) == 1
    assert sum(ref() is not None for ref in shapes) == 1


def test_what_statuses_say_goes_with_the_last_pod():
    bench = Bench(node("n1"))
    shapes = []
    for i in range(10):
        thing = large(f"big-{i}", 0.2, on="n1")
        thing["status"] = {"containerStatuses": [{"name": "c", "resources": requests("2")}]}
        bench.add(thing)
        shapes.append(weakref.ref(bench.cluster.assigned[thing["metadata"]["uid"]].shape))
        bench.cluster.remove_pod(thing["metadata"]["uid"])
    gc.collect()
    assert [ref() for ref in shapes] == [None] * 10


def test_kinds_of_pods_that_are_gone_are_forgotten_by_what_they_take(monkeypatch):
    monkeypatch.setattr(victims, "_BYTES_SPARE", 4 << 20)
    bench = Bench(node("n1"))
    found = VictimTable(bench.cluster)
    for i in range(30):
        thing = large(f"big-{i}", 0.3, on="n1")
        bench.add(thing)
        found._refresh(bench.rows, 0.0)
        bench.cluster.remove_pod(thing["metadata"]["uid"])
    assert found.kinds.nbytes <= 8 << 20


def test_counters_of_many_terms_go_with_the_next_ones():
    bench = Bench(node("n1"))
    affinity = bench.plugin("InterPodAffinity")
    index, counters = bench.cluster.shared(PodIndex), set()
    for i in range(40):
        terms = [pod_term(HOST, {"app": f"{i}-{j}"}) for j in range(1000)]
        asked = bench.pod(pod(f"big-{i}", affinity=pod_affinity(required_anti=terms)))
        cycle = CycleState(asked)
        affinity.pre_filter(cycle, asked)
        affinity.filter(cycle, asked, bench.cluster.table, bench.rows)
        counters.update(index._counters.values())
    assert len(counters) >= 40
    kept = [counter for counter in counters if not counter.dropped]
    assert sum(counter.asked_bytes for counter in kept) < 20 << 20
    assert len(index) == len(kept) < 20


def with_node_terms(name, count=2000, **more):
    terms = [node_term(("disk", "In", f"{name}-{i}-{'x' * 40}"), ("zone", "NotIn", f"{i}")) for i in range(count)]
    return pod(name, affinity=node_affinity([*terms, node_term((HOST, "Exists"))]), **more)


def with_pod_terms(name, **more):
    terms = [pod_term(HOST, {"apart": name}, namespaceSelector={"matchLabels": {"team": f"{i}"}}) for i in range(1000)]
    return pod(name, affinity=pod_affinity(required_anti=terms), **more)


@pytest.mark.parametrize("make", [large, with_node_terms, with_pod_terms])
def test_shapes_go_with_their_pods_and_not_with_the_next_full_collection(make):
    """The daemon makes none."""

    async def main():
        embedded, shapes = Embedded(), []
        embedded.insert(node("n1"))
        async with scheduler_on(embedded) as running:
            for i in range(6):
                embedded.insert(make(f"big-{i}"))
                await asyncio.sleep(2)
                (there,) = running.scheduler.cluster.assigned.values()
                shapes.append(weakref.ref(there.shape))
                del there
                await embedded.call("DELETE", f"/api/v1/namespaces/default/pods/big-{i}", {"gracePeriodSeconds": 0})
                await asyncio.sleep(2)
        assert sum(ref() is not None for ref in shapes) <= 1

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


def many(i, count, suffix=""):
    return {f"ex.com/{i}-{k}{suffix}": "1" for k in range(count)}


def with_functions(i):
    functions = [{"minor": k, "busID": f"0000:{i}:{k}"} for k in range(1000)]
    given = {"minor": 0, "resources": {"koordinator.sh/rdma": "1"}, "extension": {"vfs": functions}}
    return {"annotations": {"scheduling.koordinator.sh/device-allocated": json.dumps({"rdma": [given]})}}


def with_devices(i):
    given = [{"minor": k % 8, "resources": many(i, 20, f"-{k}")} for k in range(50)]
    return {"annotations": {"scheduling.koordinator.sh/device-allocated": json.dumps({"gpu": given})}}


def with_numa_nodes(i):
    given = [{"node": k % 8, "resources": many(i, 20, f"-{k}")} for k in range(50)]
    value = json.dumps({"cpuset": "", "numaNodeResources": given})
    return {"annotations": {"scheduling.koordinator.sh/resource-status": value}}


def with_owners(i):
    owner = {"apiVersion": "v1", "kind": "ReplicaSet", "uid": "u"}
    return {"ownerReferences": [{**owner, "name": f"{i}-{k}"} for k in range(500)]}


def left_by(pass_by, number):
    """Bytes that stay of so many pods, but for the first, once they are gone."""
    pass_by(0)
    gc.collect()
    tracemalloc.start()
    try:
        for i in range(1, number):
            pass_by(i)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("metadata", [with_functions, with_devices, with_numa_nodes, with_owners])
def test_what_large_annotations_say_goes_with_their_pods(metadata, monkeypatch):
    budget = 1 << 18
    for module in (facts, devices, numa):
        monkeypatch.setattr(module, "_BUDGET", budget)
    bench = Bench(node("n1"))
    plugins = [bench.plugin(name) for name in ("NodeNUMAResource", "DeviceShare", "Reservation")]

    def pass_by(i):
        thing = pod(f"big-{i}", on="n1")
        thing["metadata"].update(metadata(i))
        bench.add(thing)
        assert bench.cluster.assigned[thing["metadata"]["uid"]].facts
        bench.cluster.remove_pod(thing["metadata"]["uid"])

    assert left_by(pass_by, 12) < budget
    assert plugins


def test_what_large_statuses_say_does_not_stay_with_their_shape():
    bench = Bench(node("n1"))
    containers = [container(cpu="1m", name=f"c{k}") for k in range(300)]

    def pass_by(i):
        thing = pod("big", *containers, on="n1")
        statuses = [{"name": f"c{k}", "resources": requests(f"{i + 2}m", f"{k}Ki")} for k in range(300)]
        thing["status"] = {"containerStatuses": statuses}
        bench.add(thing)
        there = bench.cluster.assigned[thing["metadata"]["uid"]]
        assert there.requests.get(0) == 300 * (i + 2)
        return there

    assert left_by(pass_by, 30) < 1 << 17

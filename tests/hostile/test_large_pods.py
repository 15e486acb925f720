"""Pods as large as an API server takes them: what they cost is bounded, and goes with them."""

import asyncio
import gc
import weakref

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.shape import SHAPE_BYTES
from koordsched.framework.evaluation import DEFAULT_BUDGET
from koordsched.framework.interface import CycleState
from koordsched.plugins.interpodaffinity import terms
from koordsched.plugins.shared.podcounts.query import PodQuery
from koordsched.plugins.shared.preemption import victims
from koordsched.plugins.shared.preemption.victims import VictimTable
from tests.embedded import Embedded, scheduler_on
from tests.plugins.harness import Bench, scheduler
from tests.plugins.objects import container, node, pod, requests
from tests.virtualtime import run

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def large(name, megabytes=0.9, **more):
    tolerations = [{"key": f"{name}-{i}-{'x' * 900}", "operator": "Exists"} for i in range(int(megabytes * 1000))]
    return pod(name, container(cpu="1"), tolerations=tolerations, **more)


def namespace(name, **labels):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def with_selectors(name, count):
    """A pod with so many anti-affinity terms, each with a namespace selector of its own."""
    listed = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"a": "b"}},
            "namespaceSelector": {"matchLabels": {"team": f"t{i}"}},
        }
        for i in range(count)
    ]
    return pod(name, container(cpu="1"), affinity={"podAntiAffinity": {REQUIRED: listed}})


def test_a_shape_is_charged_what_it_takes():
    bench = Bench(node("n1"))
    small, big = bench.pod(pod("small", container(cpu="1"))).shape, bench.pod(large("big")).shape
    assert small.nbytes == SHAPE_BYTES
    assert big.nbytes > 4 * len(big.key) > 3_000_000


def test_verdicts_of_large_pods_stay_within_the_budget():
    offline = scheduler([node("n1")])
    profile = offline.profiles["default-scheduler"]
    kept = profile.filtering._evaluations._kept
    kept.budget = 20 << 20
    shapes = []
    for i in range(12):
        asked = offline.cluster.pods.build(convert(large(f"big-{i}"), core.Pod))
        shapes.append(weakref.ref(asked.shape))
        profile.filtering.filter(CycleState(asked))
        del asked
    gc.collect()
    assert 1 <= len(kept) <= 5
    assert sum(ref() is not None for ref in shapes) <= 6
    assert kept.budget < DEFAULT_BUDGET


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


def test_terms_that_would_take_longer_than_a_lease_lasts_are_refused_at_once(monkeypatch):
    """No namespace is looked at for them, in no attempt and for no event; and the other pods are placed."""
    monkeypatch.setattr(terms, "MOST_COMPARISONS", 1000)
    asked = []
    admits = PodQuery.admits
    monkeypatch.setattr(PodQuery, "admits", lambda self, labels: asked.append(1) or admits(self, labels))

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="16"))
        for i in range(40):
            embedded.insert(namespace(f"ns-{i}", team=f"t{i}"))
        async with scheduler_on(embedded) as running:
            embedded.insert(with_selectors("hungry", 30))
            await asyncio.sleep(5)
            [condition] = embedded.get("Pod", "hungry")["status"]["conditions"]
            assert "30 different namespace selectors cannot be evaluated among 4" in condition["message"]
            for i in range(10):
                embedded.insert(pod(f"p-{i}", container(cpu="1"), labels={"a": "b"}))
            await asyncio.sleep(5)
            assert all(embedded.get("Pod", f"p-{i}")["spec"].get("nodeName") for i in range(10))
            assert len(asked) < 100
            for i in range(20):
                embedded.registry.delete(embedded.resource("Namespace"), None, f"ns-{i}")
            await asyncio.sleep(60)
            assert embedded.get("Pod", "hungry")["spec"].get("nodeName") == "alder"
            assert not running.work.done()

    run(main())


def test_a_few_selectors_are_evaluated_among_any_number_of_namespaces():
    bench = Bench(node("n1"), *(namespace(f"ns-{i}", team="t0") for i in range(50)))
    plugin = bench.plugin("InterPodAffinity")
    assert bench.filter(plugin, with_selectors("p", 5)) == {"n1": None}

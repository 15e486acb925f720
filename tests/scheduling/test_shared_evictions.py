"""Several preemptors, and one preemptor several times, may want the same victim to go: it is told once."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run
from tests.yamlfiles import document

REFUSED = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"not now"}'

CRD = Path(__file__).parents[2] / "manifests" / "crds" / "elasticquotas.yaml"

QUOTAS = DEFAULT_CONFIG | {
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {
                point: {"enabled": [{"name": "ElasticQuota"}], "disabled": [{"name": "*"}] if alone else []}
                for point, alone in (("preFilter", False), ("postFilter", True), ("reserve", False))
            },
            "pluginConfig": [{"name": "ElasticQuota", "args": {"enableRuntimeQuota": False}}],
        }
    ]
}


class SlowEvictions:
    """Evictions take `seconds` at each step; those of pods named in `refused` fail so many times. Counts the calls."""

    def __init__(self, seconds=5.0, refused=None):
        self.seconds = seconds
        self.refused = dict(refused or {})
        self.asked = Counter()

    async def __call__(self, call, proceed):
        victim = next((name for name in (f"v{i}" for i in range(9)) if f"/pods/{name}" in call.path), None)
        if victim is None or call.method not in ("PATCH", "DELETE"):
            return await proceed()
        self.asked[call.method, victim] += 1
        await asyncio.sleep(self.seconds)
        if self.refused.get(victim, 0):
            self.refused[victim] -= 1
            return 403, {}, REFUSED
        return await proceed()

    def once_each(self, *victims):
        """Whether just these were evicted, each with one call of a kind."""
        return self.asked == {(method, victim): 1 for victim in victims for method in ("PATCH", "DELETE")}


def on(embedded, name):
    """The node of a pod; None if it has none, "gone" if there is no such pod."""
    found = embedded.get("Pod", name)
    return "gone" if found is None else found["spec"].get("nodeName")


def told(embedded):
    """How often each victim was said to be preempted; repeated events are one with a count."""
    counts = Counter()
    for event in embedded.events():
        if event["reason"] == "Preempted":
            counts[event["regarding"]["name"]] += (event.get("series") or {}).get("count", 1)
    return counts


def full_node(cpu, labels=None, **options):
    """An embedded cluster whose only node is full of pods v0, v1, … of one CPU each, the first the oldest."""
    embedded = Embedded()
    Kubelet(embedded, **options)
    embedded.insert(node("alder", cpu=str(cpu)))
    for i in range(cpu):
        victim = pod(f"v{i}", container(cpu="1"), on="alder", labels=labels or {})
        victim["status"]["startTime"] = f"2029-01-0{i + 1}T00:00:00Z"
        embedded.insert(victim)
    return embedded


def test_a_victim_on_its_way_out_is_not_told_again_for_the_next_preemptor():
    async def main():
        embedded = full_node(3)
        evictions = SlowEvictions()
        async with scheduler_on(embedded, fault=evictions):
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            await asyncio.sleep(1)
            embedded.insert(pod("q", container(cpu="1"), priority=100))
            await asyncio.sleep(60)
            assert [on(embedded, name) for name in ("p", "q", "v0", "v1", "v2")] == [
                "alder",
                "alder",
                "alder",
                "gone",
                "gone",
            ]
            assert evictions.once_each("v1", "v2")
            assert told(embedded) == {"v1": 1, "v2": 1}

    run(main())


def test_a_more_important_preemptor_needs_no_other_victim():
    async def main():
        embedded = full_node(2)
        evictions = SlowEvictions()
        async with scheduler_on(embedded, fault=evictions):
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            await asyncio.sleep(1)
            embedded.insert(pod("q", container(cpu="1"), priority=200))
            await asyncio.sleep(11)
            assert embedded.get("Pod", "q")["status"].get("nominatedNodeName") == "alder"
            await asyncio.sleep(30)
            assert [on(embedded, name) for name in ("p", "q", "v0", "v1")] == ["alder", "alder", "gone", "gone"]
            assert evictions.once_each("v0", "v1")
            assert told(embedded) == {"v0": 1, "v1": 1}

    run(main())


@pytest.mark.parametrize("times", [1, 3])
def test_all_who_wait_for_a_victim_try_again_when_its_eviction_fails(times):
    async def main():
        embedded = full_node(2)
        evictions = SlowEvictions(refused={"v0": times, "v1": times})
        async with scheduler_on(embedded, fault=evictions):
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            await asyncio.sleep(1)
            embedded.insert(pod("q", container(cpu="1"), priority=200))
            embedded.insert(pod("r", container(cpu="1"), priority=200))
            await asyncio.sleep(200)
            assert [on(embedded, name) for name in ("p", "q", "r")] == [None, "alder", "alder"]
            assert told(embedded) == {"v0": 1, "v1": 1}

    run(main())


def test_who_counts_on_the_eviction_of_another_that_fails_tries_again():
    async def main():
        embedded = full_node(1)
        evictions = SlowEvictions(refused={"v0": 1})
        async with scheduler_on(embedded, fault=evictions):
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            await asyncio.sleep(1)
            embedded.insert(pod("q", container(cpu="1"), priority=200))
            await asyncio.sleep(1)
            embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)
            await asyncio.sleep(60)
            assert on(embedded, "q") == "alder"

    run(main())


def test_a_more_important_one_that_counts_on_an_eviction_tries_again_after_the_pause_of_the_other():
    """It is nominated to the node, so the other, whose eviction failed for the second time, does not try it again."""

    async def main():
        embedded = full_node(1)
        evictions = SlowEvictions(refused={"v0": 2})
        async with scheduler_on(embedded, fault=evictions):
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            await asyncio.sleep(6)
            assert evictions.asked["PATCH", "v0"] == 2
            embedded.insert(pod("q", container(cpu="1"), priority=200))
            await asyncio.sleep(60)
            assert (on(embedded, "p"), on(embedded, "q")) == (None, "alder")

    run(main())


def test_the_room_of_less_important_pods_is_taken_at_once():
    async def main():
        embedded = full_node(1)
        evictions = SlowEvictions(seconds=30.0)

        async def slow(call, proceed):
            if call.path.endswith("/pods/p/status"):
                await asyncio.sleep(20)  # what is promised is known before it can be read
            return await evictions(call, proceed)

        async with scheduler_on(embedded, fault=slow) as running:
            nominator = running.scheduler.queue.nominator
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            await asyncio.sleep(1)
            assert [each.name for each in nominator.nominated_on("alder")] == ["p"]
            embedded.insert(pod("q", container(cpu="1"), priority=200))
            await asyncio.sleep(1)
            assert [each.name for each in nominator.nominated_on("alder")] == ["q"]

    run(main())


def test_a_preemptor_that_is_woken_too_early_waits():
    """Something else happens while the last victim is told to go: that is no reason to tell it again."""

    async def main():
        embedded = full_node(2)
        embedded.insert(node("birch", cpu="1"))
        embedded.insert(pod("other", container(cpu="1"), on="birch", priority=1000))
        evictions = SlowEvictions()
        async with scheduler_on(embedded, fault=evictions) as running:
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            for _ in range(20):
                await asyncio.sleep(1)
                embedded.insert(node("birch", cpu="1") | {"metadata": {"name": f"new-{_}", "labels": {}}})
            await asyncio.sleep(20)
            assert running.attempts["default/p"] > 2
            assert on(embedded, "p") == "alder"
            assert evictions.once_each("v0", "v1")
            assert told(embedded) == {"v0": 1, "v1": 1}

    run(main())


def test_two_preemptors_of_one_quota():
    async def main():
        mine = {"quota.scheduling.koordinator.sh/name": "team"}
        embedded = full_node(3, mine)
        embedded.insert(document(CRD))
        quota = {"metadata": {"name": "team"}, "spec": {"max": {"cpu": "3"}}}
        embedded.insert({"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", **quota})
        evictions = SlowEvictions()
        async with scheduler_on(embedded, QUOTAS, fault=evictions):
            for name in ("p", "q"):
                embedded.insert(pod(name, container(cpu="1"), priority=100, labels=mine))
                await asyncio.sleep(1)
            await asyncio.sleep(90)
            assert [on(embedded, name) for name in ("p", "q")] == ["alder", "alder"]
            assert evictions.once_each("v1", "v2")
            assert told(embedded) == {"v1": 1, "v2": 1}

    run(main())

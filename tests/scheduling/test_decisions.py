"""The ring of the last decisions."""

import asyncio
import json

import msgspec
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.state import ClusterState
from koordsched.engine.explain import explain
from koordsched.framework.interface import CycleState
from koordsched.framework.scoring import Choice
from koordsched.plugins.podtopologyspread.plugin import PodTopologySpread
from koordsched.scheduling import decisions as module
from koordsched.scheduling.decisions import Decisions
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


async def place(embedded, count, **spec):
    for number in range(count):
        embedded.insert(pod(f"p{number}", container(cpu="100m"), **spec))
        await asyncio.sleep(1)


def test_scores_are_those_of_the_moment_and_agree_with_explain():
    async def main():
        embedded = Embedded()
        for name in ("alder", "beech", "cedar"):
            embedded.insert(node(name, labels={"kind": name}))
        async with scheduler_on(embedded) as running:
            scheduler = running.scheduler
            gate = pod("p0", container(cpu="1"), schedulingGates=[{"name": "later"}])
            embedded.insert(gate)
            await asyncio.sleep(1)
            (waiting,) = scheduler.pending_pods()
            profile = scheduler.profiles["default-scheduler"]
            profile.pre_enqueue = ()
            expected = explain(profile, scheduler.cluster, waiting)
            embedded.insert(pod("p1", container(cpu="1")))
            await asyncio.sleep(1)
            (decision,) = scheduler.decisions.of("default/p1")
            weighted = {
                seen.name: {plugin: score.weighted for plugin, score in seen.scores.items()} for seen in expected.nodes
            }
            assert {ranked.node: ranked.scores for ranked in decision.top} == weighted
            assert [ranked.total for ranked in decision.top] == [expected.nodes[0].total] * 3
            assert decision.feasible == 3
            assert decision.total == expected.nodes[0].total
            assert decision.node == embedded.get("Pod", "p1")["spec"]["nodeName"]
            assert decision.time == pytest.approx(embedded.clock.wall(), abs=5)

    run(main())


def test_best_five_of_many_in_order():
    async def main():
        embedded = Embedded()
        for number in range(9):
            embedded.insert(node(f"n{number}", cpu=str(4 + number)))
        async with scheduler_on(embedded) as running:
            await place(embedded, 1)
            (decision,) = running.scheduler.decisions.of()
            totals = [ranked.total for ranked in decision.top]
            assert len(totals) == module.TOP
            assert totals == sorted(totals, reverse=True)
            assert decision.total == totals[0]
            assert all(sum(ranked.scores.values()) == ranked.total for ranked in decision.top)

    run(main())


def test_no_plugin_is_asked_again_for_the_record(monkeypatch):
    """Plugins with books of their own may answer otherwise when they are asked a second time."""
    asked = []
    for method in ("pre_score", "score", "normalize"):
        original = getattr(PodTopologySpread, method)
        monkeypatch.setattr(
            PodTopologySpread,
            method,
            lambda self, *args, method=method, original=original: asked.append(method) or original(self, *args),
        )

    async def main():
        embedded = Embedded()
        for number in range(3):
            embedded.insert(node(f"n{number}", labels={"zone": f"z{number}"}))
        spread = {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p0", container(cpu="1"), labels={"app": "web"}, topologySpreadConstraints=[spread]))
            await asyncio.sleep(1)
            (decision,) = running.scheduler.decisions.of()
            assert all(ranked.scores["PodTopologySpread"] for ranked in decision.top)
            assert len(decision.top) == 3
            assert asked == ["pre_score", "score", "normalize"]

    run(main())


def test_of_refusals_the_last_of_each_pod_is_kept():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        async with scheduler_on(embedded) as running:
            for name in ("first", "second"):
                embedded.insert(pod(name, container(cpu="8")))
                await asyncio.sleep(1)
            ring = running.scheduler.decisions
            assert [refusal.pod for refusal in ring.refusals()] == ["default/second", "default/first"]
            (before,) = ring.refusals("default/first")
            assert (before.attempts, before.reason, before.plugins) == (1, "Unschedulable", ["NodeResourcesFit"])
            assert before.message == embedded.get("Pod", "first")["status"]["conditions"][0]["message"]
            await asyncio.sleep(100)
            embedded.insert(node("beech", cpu="8"))
            await asyncio.sleep(20)
            # One of the two has a node now, and keeps why it had none before; the other was refused again.
            (decision,) = ring.of()
            assert ring.refusal(decision.uid).attempts == 1
            again = next(refusal for refusal in ring.refusals() if refusal.uid != decision.uid)
            assert (again.attempts, again.time > again.first_time + 100) == (2, True)
            assert again.message.startswith("0/2 nodes are available: 2 Insufficient cpu")

    run(main())


def test_refusals_are_bounded():
    ring = Decisions(lambda: 0.0, lambda: 0.0, most_refused=2)
    pods = ClusterState().pods
    for name in ("first", "second", "first", "third"):
        ring.refused(pods.build(convert(pod(name), core.Pod)), "Unschedulable", "none", (), 1, "")
    assert [refusal.pod for refusal in ring.refusals()] == ["default/third", "default/first"]
    assert ring.refusal("uid-default-second") is None


def test_a_single_candidate_is_not_scored():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            await place(embedded, 1)
            (decision,) = running.scheduler.decisions.of()
            assert (decision.node, decision.feasible, decision.total, decision.top) == ("alder", 1, None, [])

    run(main())


def test_newest_first_and_bounded(monkeypatch):
    monkeypatch.setattr(module, "CAPACITY", 3)

    async def main():
        embedded = Embedded()
        for name in ("alder", "beech"):
            embedded.insert(node(name))
        async with scheduler_on(embedded) as running:
            ring = running.scheduler.decisions = Decisions(
                embedded.clock.monotonic, embedded.clock.wall, capacity=module.CAPACITY
            )
            running.scheduler.cycle.decisions = ring
            await place(embedded, 5)
            assert [decision.pod for decision in ring.of()] == ["default/p4", "default/p3", "default/p2"]
            assert [decision.pod for decision in ring.of("default/p3")] == ["default/p3"]
            assert list(ring.of("default/p0")) == []
            assert len(ring) == 3
            assert set(json.loads(msgspec.json.encode(next(ring.of())))) == {
                "pod", "uid", "time", "node", "feasible", "total", "top",
            }  # fmt: skip

    run(main())


def test_scores_take_no_more_than_their_share_of_the_time():
    """A look that took a second is followed by none until it was 0.3 percent of the time; totals are kept always."""

    async def main():
        embedded = Embedded()
        for name in ("alder", "beech"):
            embedded.insert(node(name))
        async with scheduler_on(embedded) as running:
            await place(embedded, 1)
            scheduler = running.scheduler
            profile, table = scheduler.profiles["default-scheduler"], scheduler.cluster.table
            placed = scheduler.cluster.assigned["uid-default-p0"]
            choice = Choice(profile.filtering.filter(CycleState(placed)), row=0, total=400)
            # Every look ends a second after it began.
            ring = Decisions(lambda: now + 1.0, lambda: 0.0)
            kept = []
            for now in (1.0, 2.0, 1.0 + 0.9 / module.DETAIL_SHARE, 3.0 + 1.0 / module.DETAIL_SHARE):
                ring.record(placed, table, choice, now, profile.chains)
                newest = next(ring.of())
                assert newest.total == 400
                kept.append(bool(newest.top))
            assert kept == [True, False, False, True]

    run(main())

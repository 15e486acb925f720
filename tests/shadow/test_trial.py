"""A trial beside another koordsched, with the same configuration and with another, on virtual time."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest

from koordsched.cli.shadow import follow, only_profile
from koordsched.cli.standby import standby
from koordsched.scheduling.handlers import PodHandler
from koordsched.shadow.judgement import ELSEWHERE, EQUAL, FAILED, REFUSED, SAME
from koordsched.shadow.metrics import ShadowMetrics
from koordsched.shadow.shadow import PATIENCE, Shadow
from tests import virtualtime
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.extraplugins import resolved_with
from tests.plugins.objects import container, node, pod
from tests.scheduling.test_core_cases import replace

NAME = "default-scheduler"


def with_profile(**profile):
    return {**DEFAULT_CONFIG, "profiles": [profile]}


MOST_ALLOCATED = with_profile(
    pluginConfig=[{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]
)
WITHOUT_TAINTS = with_profile(plugins={"multiPoint": {"disabled": [{"name": "TaintToleration"}]}})


@asynccontextmanager
async def trial_on(embedded, configuration=DEFAULT_CONFIG, *, calls=None):
    """A trial from the moment when it has seen the cluster. `calls` gets the methods of its requests."""
    calls = [] if calls is None else calls

    async def spied(call, proceed):
        calls.append(call.method)
        return await proceed()

    metrics = ShadowMetrics(process_metrics=False)
    shadow = Shadow(NAME, embedded.clock, metrics)
    resolved = only_profile(resolved_with(configuration, ()), NAME)
    async with standby(embedded.transport(spied), resolved, embedded.clock, Random(3), shadow) as scheduler:
        shadow.begin(scheduler)
        shadow.metrics, shadow.scheduler = metrics, scheduler
        yield shadow


def populated(seed=1, nodes=12):
    embedded = Embedded(seed)
    sizes = Random(seed)
    for i in range(nodes):
        taints = [("team",)] if i % 4 == 3 else ()
        embedded.insert(node(f"n{i}", cpu=str(sizes.choice([8, 16, 32])), memory="64Gi", taints=taints))
    return embedded


async def arrive(embedded, count, prefix="p", seed=1, every=0.05):
    """So many pods, one after the other."""
    sizes = Random(seed)
    for i in range(count):
        embedded.insert(pod(f"{prefix}{i}", container(cpu=sizes.choice(["100m", "500m", "1", "2"]), memory="1Gi")))
        await asyncio.sleep(every)


def test_the_same_configuration_agrees_on_every_pod():
    async def main():
        embedded = populated()
        async with trial_on(embedded) as shadow, scheduler_on(embedded):
            await arrive(embedded, 60)
            await asyncio.sleep(1)
            report = shadow.report()
        assert report.decisions == 60
        assert report.kinds[SAME] + report.kinds[EQUAL] == 60
        assert min(report.kinds[SAME], report.kinds[EQUAL]) > 0
        assert (report.differences, report.reasons, report.waiting) == ([], [], 0)

    virtualtime.run(main())


def test_a_burst_is_judged_decision_by_decision():
    """All pods are there at once, and bindings overtake each other: still each is judged on about its state."""

    async def main():
        embedded = populated()
        async with trial_on(embedded) as shadow, scheduler_on(embedded):
            await arrive(embedded, 80, every=0)
            await asyncio.sleep(1)
            assert shadow.report().kinds[SAME] + shadow.report().kinds[EQUAL] == 80

    virtualtime.run(main())


def test_another_configuration_differs_and_the_report_says_by_what():
    async def main():
        embedded = populated()
        async with trial_on(embedded, MOST_ALLOCATED) as shadow, scheduler_on(embedded):
            await arrive(embedded, 60)
            await asyncio.sleep(1)
            report = shadow.report()
            assert set(shadow.scheduler.cluster.assigned) == {f"uid-default-p{i}" for i in range(60)}
        assert report.decisions == 60
        assert report.kinds[ELSEWHERE] > 40
        (reason,) = report.reasons
        assert (reason.kind, reason.plugin, reason.pods) == (ELSEWHERE, "NodeResourcesFit", report.kinds[ELSEWHERE])
        assert len(report.differences) == reason.pods
        assert report.differences[-1] == reason.example
        bound = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods_of(embedded)}
        for difference in report.differences:
            judgement = difference.judgement
            assert bound[difference.pod.removeprefix("default/")] == judgement.node == judgement.theirs.node
            assert judgement.ours.total > judgement.theirs.total
            assert judgement.ours.total == sum(judgement.ours.scores.values())
            assert judgement.instead == judgement.ours.node

    virtualtime.run(main())


def pods_of(embedded):
    return embedded.registry.list(embedded.resource("Pod"))


def test_what_our_filters_refuse():
    async def main():
        embedded = populated(nodes=4)
        async with trial_on(embedded) as shadow, scheduler_on(embedded, WITHOUT_TAINTS):
            await arrive(embedded, 60)
            await asyncio.sleep(1)
            report = shadow.report()
        refused = [one for one in report.differences if one.judgement.kind == REFUSED]
        assert len(refused) == report.kinds[REFUSED] > 0
        assert {(one.judgement.plugin, one.judgement.node) for one in refused} == {("TaintToleration", "n3")}
        assert {one.judgement.reason for one in refused} == {"node(s) had untolerated taint(s)"}
        assert all(one.judgement.instead not in ("", "n3") for one in refused)

    virtualtime.run(main())


def test_nothing_is_written():
    """Only GET requests leave, and the scheduler that follows could not write if it tried."""

    async def main():
        embedded, calls = populated(), []
        embedded.insert(pod("huge", container(cpu="100")))
        async with trial_on(embedded, MOST_ALLOCATED, calls=calls) as shadow, scheduler_on(embedded):
            await arrive(embedded, 10)
            await asyncio.sleep(PATIENCE)
            shadow.look()
            before = len(calls)
            writes, waiting = shadow.scheduler.writes, shadow.scheduler.pending_pods()[0]
            for attempt in (
                writes.bind(waiting, "n1"),
                writes.patch_metadata(waiting, {"labels": {"a": "b"}}),
                writes.patch_status("default", "huge", b"{}"),
                writes.evict(waiting, "", ""),
            ):
                with pytest.raises(Exception, match="this process only reads"):
                    await attempt
            assert len(calls) == before
        assert set(calls) == {"GET"}
        assert embedded.get("Pod", "huge") is not None

    virtualtime.run(main())


def test_pods_that_wait_although_there_is_a_node():
    """The other scheduler refuses tainted nodes, we do not; then a pod is placed, and another one goes."""

    async def main():
        embedded = Embedded()
        embedded.insert(node("n1", cpu="2", taints=[("team",)]))
        async with trial_on(embedded, WITHOUT_TAINTS) as shadow, scheduler_on(embedded):
            for name in ("a", "b", "c"):
                embedded.insert(pod(name, container(cpu="1")))
            embedded.insert(pod("huge", container(cpu="100")))
            embedded.insert(pod("gated", schedulingGates=[{"name": "later"}]))
            await asyncio.sleep(PATIENCE / 2)
            shadow.look()
            assert shadow.report().waited == []
            await asyncio.sleep(PATIENCE)
            shadow.look()
            report = shadow.report()
            # There is room for two of the three.
            assert sorted((one.pod, one.node, one.seconds) for one in report.waited) == [
                ("default/a", "n1", None),
                ("default/b", "n1", None),
            ]
            assert report.waiting == 4
            assert "1 node(s) had untolerated taint(s)" in report.waited[0].message
            assert not shadow.scheduler.cluster.assigned
            await embedded.call("DELETE", "/api/v1/namespaces/default/pods/a")
            untainted = node("n2", cpu="1")
            await asyncio.sleep(3)
            embedded.insert(untainted)
            await asyncio.sleep(30)
            shadow.look()
            report = shadow.report()
            ended = {one.pod: (one.placed, one.seconds is not None) for one in report.waited}
            placed = {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in pods_of(embedded)}
            assert ended["default/a"] == ("", True)
            (first,) = (name for name in ("b", "c") if placed[name] == "n2")
            assert all(ended.get(f"default/{name}") in (("n2", True), None) for name in (first,))
            samples = {s.name: s.value for m in shadow.metrics.collect() for s in m.samples}
            assert samples["koordsched_shadow_waiting_pods"] == report.waiting == 2
            assert samples["koordsched_shadow_placeable_pods"] == 1

    virtualtime.run(main())


def test_times():
    """How long pods waited for the other scheduler: from when they came, or were let go by their gates."""

    async def main():
        embedded = populated()
        embedded.insert(pod("old"))
        async with trial_on(embedded) as shadow:
            embedded.insert(pod("new"))
            embedded.insert(pod("gated", schedulingGates=[{"name": "later"}]))
            await asyncio.sleep(7)
            replace(embedded, pod("gated"))
            await asyncio.sleep(5)
            async with scheduler_on(embedded):
                await asyncio.sleep(3)
            report = shadow.report()
        # One of three was there before.
        assert report.decisions == 3
        assert (round(report.binding.median), round(report.binding.most)) == (12, 12)
        assert report.deciding.median == 0.0

    virtualtime.run(main())


def test_pods_of_others_and_pods_that_come_with_a_node():
    async def main():
        embedded = populated()
        async with trial_on(embedded) as shadow, scheduler_on(embedded):
            embedded.insert(pod("strange", schedulerName="other"))
            embedded.insert(pod("strange-too", on="n1", schedulerName="other"))
            embedded.insert(pod("fixed", on="n1"))
            await asyncio.sleep(1)
            report = shadow.report()
        assert (report.decisions, report.unseen, report.waiting) == (0, 1, 0)

    virtualtime.run(main())


def test_a_plugin_that_fails_does_not_keep_the_pod_out(monkeypatch):
    async def main():
        embedded = populated()
        async with trial_on(embedded) as shadow, scheduler_on(embedded):
            monkeypatch.setattr("koordsched.shadow.shadow.judge", lambda *given: 1 // 0)
            embedded.insert(pod("p"))
            await asyncio.sleep(1)
            report = shadow.report()
            assert "uid-default-p" in shadow.scheduler.cluster.assigned
        assert report.kinds[FAILED] == 1
        assert report.reasons[0].reason.startswith("ZeroDivisionError")

    virtualtime.run(main())


def test_decisions_are_judged_before_the_state_has_them(monkeypatch):
    seen = []
    original = PodHandler.upsert

    async def main():
        embedded = populated()
        async with trial_on(embedded) as shadow, scheduler_on(embedded):

            def spied(handler, wire, anew=False):
                if handler is shadow.scheduler.pod_handler and wire.spec.node_name:
                    seen.append((shadow.tally.decisions, len(shadow.scheduler.cluster.assigned)))
                original(handler, wire, anew)

            monkeypatch.setattr(PodHandler, "upsert", spied)
            await arrive(embedded, 3, every=1)
        assert seen == [(1, 0), (2, 1), (3, 2)]

    virtualtime.run(main())


def test_reports_while_it_goes_on_and_at_the_end():
    async def main():
        embedded = populated()
        shown = []
        async with trial_on(embedded) as shadow, scheduler_on(embedded):
            stopping = asyncio.Event()
            following = asyncio.create_task(
                follow(shadow, stopping, 10.0, None, lambda report: shown.append(report.decisions))
            )
            await asyncio.sleep(5)
            await arrive(embedded, 4, every=10)
            await asyncio.sleep(1)
            stopping.set()
            await following
            assert shown == [1, 2, 3, 4, 4]
            shown.clear()
            await follow(shadow, asyncio.Event(), 0.0, 30.0, shown.append)
            (last,) = shown
            assert last.ended - last.began == pytest.approx(76, abs=1)

    virtualtime.run(main())


def test_results_age_as_in_a_scheduler_that_runs():
    async def main():
        embedded = populated()
        async with trial_on(embedded) as shadow:
            due = []
            shadow.scheduler.timers.at(embedded.clock.monotonic() + 3, lambda: due.append(embedded.clock.wall()))
            began = embedded.clock.wall()
            await asyncio.sleep(6)
        (at,) = due
        assert 3 <= at - began <= 4

    virtualtime.run(main())

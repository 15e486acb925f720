"""A busy life of a scheduler, recorded and replayed: what is compared, what is counted, what is explained."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from koordsched import config
from koordsched.client.errors import Ambiguous
from koordsched.journal.journalreplay import Limit, last_attempt
from koordsched.journal.records import Attempt, Chosen, Evicting, Leading, Refused, Undone, decode
from koordsched.plugins import CATALOG
from tests.embedded import DEFAULT_CONFIG, Embedded
from tests.journal.recording import Recorded, consider, repeat
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run
from tests.yamlfiles import documents

CRDS = Path(__file__).parents[2] / "manifests" / "crds" / "elasticquotas.yaml"

QUOTAS = {
    **DEFAULT_CONFIG,
    "profiles": [
        {
            "plugins": {
                "preFilter": {"enabled": [{"name": "ElasticQuota"}]},
                "reserve": {"enabled": [{"name": "ElasticQuota"}]},
                "postFilter": {
                    "disabled": [{"name": "DefaultPreemption"}],
                    "enabled": [{"name": "ElasticQuota"}, {"name": "DefaultPreemption"}],
                },
            }
        }
    ],
}


def quota(name, cpu):
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"min": {"cpu": cpu}, "max": {"cpu": cpu}},
    }


class FailsOnce:
    """The first binding of some pods is refused; another's answer gets lost."""

    def __init__(self, *names):
        self.left = [f"/pods/{name}/binding" for name in names]

    async def __call__(self, call, proceed):
        for suffix in self.left:
            if call.path.endswith(suffix):
                self.left.remove(suffix)
                if suffix == "/pods/w3/binding":
                    await proceed()
                    raise Ambiguous("connection lost after sending")
                return 500, {}, b'{"kind":"Status","code":500,"reason":"InternalError","message":"not now"}'
        return await proceed()


async def busy(embedded, **options):
    """Pods that fit and that do not, preemption, a quota, failed bindings, nodes that come, change and go."""
    Kubelet(embedded)
    for i in range(4):
        embedded.insert(node(f"n{i}", cpu="4", labels={"zone": f"z{i % 2}"}))
    for crd in documents(CRDS):
        embedded.insert(crd)
    embedded.insert(quota("team", "3"))
    recorded = Recorded(embedded, QUOTAS, fault=FailsOnce("w1", "w3", "w5"), **options)
    async with recorded.running():
        for i in range(12):
            embedded.insert(pod(f"w{i}", container(cpu="1")))
            await asyncio.sleep(0.3)
        label = {"quota.scheduling.koordinator.sh/name": "team"}
        for i in range(4):
            embedded.insert(pod(f"q{i}", container(cpu="1"), labels=label))
        await asyncio.sleep(5)
        embedded.insert(pod("first", container(cpu="3"), priority=100))
        embedded.insert(pod("second", container(cpu="4"), priority=50, node_selector={"zone": "z1"}))
        await asyncio.sleep(5)
        embedded.insert(node("n9", cpu="2"))
        await asyncio.sleep(12)
        resource = embedded.resource("Node")
        embedded.registry.delete(resource, None, "n0", grace_period_seconds=0)
        await asyncio.sleep(20)
    return recorded


@pytest.fixture(scope="module")
def journal():
    """What was recorded of a busy life."""

    async def main():
        return (await busy(Embedded(), seconds_per_segment=8)).journal

    return run(main())


def test_every_decision_comes_out_the_same(journal):
    records = journal.records()
    repetition, replay = repeat(records)
    assert repetition.divergence is None
    tally = repetition.tally
    assert tally.decisions == sum(isinstance(record, Attempt) for record in records) > 20
    assert tally.placed == sum(isinstance(record, Chosen) for record in records) >= 14
    assert tally.unbound == sum(isinstance(record, Undone) for record in records) >= 2
    assert tally.preemptions == sum(isinstance(record, Evicting) for record in records) >= 2
    assert tally.unschedulable > 3
    assert (tally.runs, tally.closed, tally.resumed) == (1, True, False)
    assert 40 < tally.span < 60
    assert replay.stream.peek() is None


def test_from_every_checkpoint_on(journal):
    assert len(journal.segments) > 4
    for segment in range(1, len(journal.segments)):
        repetition, _ = repeat(journal.records(segment))
        assert repetition.divergence is None, segment
        assert repetition.tally.resumed


def test_a_missing_segment_is_noticed_and_skipped(journal):
    segments = [[decode(data) for data in segment] for segment in journal.segments]
    decisions = [sum(isinstance(record, Attempt) for record in segment) for segment in segments]
    missing = next(number for number, count in enumerate(decisions) if number and count)
    left = [record for number, segment in enumerate(segments) if number != missing for record in segment]
    repetition, _ = repeat(left)
    assert repetition.divergence is None
    assert repetition.tally.resumed
    assert repetition.tally.decisions == sum(decisions) - decisions[missing]


def test_the_state_at_the_end_is_that_of_the_recorded_scheduler():
    async def main():
        recorded = await busy(Embedded())
        return recorded.scheduler, recorded.journal

    live, journal = run(main())
    _, replay = repeat(journal.records())
    replayed = replay.replayed.scheduler
    assert replayed.cluster.table.row_of == live.cluster.table.row_of
    assert {pod.key: pod.node for pod in replayed.cluster.assigned.values()} == {
        pod.key: pod.node for pod in live.cluster.assigned.values()
    }
    shown = [(queued.key, queued.place, queued.attempts, queued.timestamp) for queued in replayed.queue]
    assert shown == [(queued.key, queued.place, queued.attempts, queued.timestamp) for queued in live.queue]


def test_a_journal_says_when_its_scheduler_led(journal):
    assert [record.leads for record in journal.records() if isinstance(record, Leading)] == [True, False]


def test_lives_follow_each_other():
    async def main():
        embedded = Embedded()
        first = await busy(embedded)
        second = Recorded(embedded, QUOTAS, seed=2)
        async with second.running():
            embedded.insert(pod("late", container(cpu="1")))
            await asyncio.sleep(3)
        return first.journal.records() + second.journal.records()

    records = run(main())
    repetition, _ = repeat(records)
    assert repetition.divergence is None
    assert repetition.tally.runs == 2
    # A process that was killed leaves a journal without an end, perhaps within a decision.
    for length in (-1, -2, -3, -7):
        assert repeat(records[:length])[0].divergence is None


CHANGES = {
    "another node": (
        lambda record: isinstance(record, Chosen) and record.total is None,
        lambda record: replace_struct(record, node="n3"),
        "placed on n3",
    ),
    "another score": (
        lambda record: isinstance(record, Chosen) and record.total is not None,
        lambda record: replace_struct(record, total=record.total - 1),
        "score",
    ),
    "another message": (
        lambda record: isinstance(record, Refused),
        lambda record: replace_struct(record, message="0/4 nodes are available: 4 Insufficient patience."),
        "Insufficient patience",
    ),
    "other victims": (
        lambda record: isinstance(record, Evicting),
        lambda record: replace_struct(record, victims=(("uid", "default/nobody"),)),
        "preempts default/nobody",
    ),
    "another pod": (
        lambda record: isinstance(record, Attempt),
        lambda record: replace_struct(record, uid="uid", pod="default/other"),
        "the next pod is default/other",
    ),
}


def replace_struct(record, **changes):
    return type(record)(**{name: getattr(record, name) for name in record.__struct_fields__} | changes)


@pytest.mark.parametrize("case", CHANGES)
def test_the_first_difference_is_shown_with_both_sides(journal, case):
    concerns, change, recorded = CHANGES[case]
    records = journal.records()
    at = max(index for index, record in enumerate(records) if concerns(record))
    number = sum(isinstance(record, Attempt) for record in records[: at + 1])
    records[at] = change(records[at])
    divergence = repeat(records)[0].divergence
    assert divergence.at.number == number
    assert recorded in divergence.recorded
    assert divergence.repeated not in ("", divergence.recorded)


def test_limits(journal):
    records = journal.records()
    repetition, replay = repeat(records, Limit(decisions=7))
    assert (repetition.tally.decisions, replay.moment.number) == (7, 7)
    attempts = [record for record in records if isinstance(record, Attempt)]
    wall = records[0].wall - records[0].monotonic + attempts[9].at
    repetition, _ = repeat(records, Limit(time=wall))
    assert repetition.tally.decisions == sum(attempt.at <= attempts[9].at for attempt in attempts)
    assert repeat(records, Limit(decisions=0))[0].tally.decisions == 0


def test_a_decision_is_explained_as_it_was_made(journal):
    records = journal.records()
    moment, uid = last_attempt(records, "default/second", Limit())
    refused = [record for record in records if isinstance(record, Refused) and record.uid == uid]
    first = next(r for r in records if isinstance(r, Attempt) and r.uid == uid)
    number = 1 + [r for r in records if isinstance(r, Attempt)].index(first)
    _, replay = repeat(records, Limit(decisions=number - 1))
    explanation = replay.explain(uid)
    assert (explanation.pod, explanation.reason) == ("default/second", "Unschedulable")
    assert explanation.message == refused[0].message
    assert moment.number > number
    _, replay = repeat(records, Limit(decisions=moment.number - 1))
    assert replay.explain(uid).pod == "default/second"
    assert last_attempt(records, "default/second", Limit(decisions=number))[0].number == number
    assert last_attempt(records, "default/nobody", Limit()) is None


def resolved(strategy):
    args = {"scoringStrategy": {"type": strategy}}
    profile = {**QUOTAS["profiles"][0], "pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}
    return config.resolve(config.load(json.dumps({**QUOTAS, "profiles": [profile]}), catalog=CATALOG), catalog=CATALOG)


def test_the_same_configuration_would_have_decided_the_same(journal):
    for asked in (None, resolved("LeastAllocated")):
        comparison = consider(journal.records(), asked)
        assert comparison.changed == []
        assert list(comparison.kinds) == ["same"]
        assert comparison.kinds["same"] == comparison.tally.decisions


def test_a_promise_that_no_status_shows_counts_there_too():
    """One of two victims is gone, and the promised pod looked around in vain: what is free is not free to take."""

    async def not_shown(call, proceed):
        refused = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not you"}'
        return (403, {}, refused) if call.path.endswith("/pods/p/status") else await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="2"))
        for name in ("soon", "late"):
            embedded.insert(pod(name, container(cpu="1"), on="alder"))
        recorded = Recorded(embedded, fault=not_shown)
        async with recorded.running() as scheduler:
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(2)
            embedded.registry.delete(embedded.resource("Pod"), "default", "soon", grace_period_seconds=0)
            await asyncio.sleep(20)
            assert scheduler.queue.nominator.nodes_with_nominated() == {"alder"}
            embedded.insert(pod("q", container(cpu="1")))
            await asyncio.sleep(2)
            assert embedded.get("Pod", "q")["spec"].get("nodeName") is None
        return recorded.journal.records()

    records = run(main())
    refused = [record for record in records if isinstance(record, Refused)]
    assert [record.nominated for record in refused] == ["alder", None, ""]
    assert list(consider(records).kinds) == ["same"]


def test_preemptors_whose_evictions_fail_are_tried_again_there_too():
    """Within a second no event has them tried."""
    answers = [(403, {}, b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not now"}')]

    async def refuses_once(call, proceed):
        return answers.pop() if answers and call.method == "DELETE" else await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="1"))
        embedded.insert(pod("v", container(cpu="1"), on="alder"))
        recorded = Recorded(embedded, fault=refuses_once)
        async with recorded.running():
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            await asyncio.sleep(1)
        return recorded

    recorded = run(main())
    records = recorded.journal.records()
    assert sum(isinstance(record, Attempt) for record in records) == 2
    repetition, _ = repeat(records)
    assert repetition.divergence is None
    assert repetition.tally.decisions == 2


def test_another_configuration_would_have_packed(journal):
    comparison = consider(journal.records(), resolved("MostAllocated"))
    kinds = {change.kind for change in comparison.changed}
    assert kinds == {"elsewhere"}
    assert comparison.kinds["elsewhere"] == len(comparison.changed) > 2
    assert comparison.kinds["same"] + len(comparison.changed) == comparison.tally.decisions


def test_a_profile_of_another_name_takes_none_of_the_pods(journal):
    other = resolved("LeastAllocated")
    other = replace(other, profiles=(replace(other.profiles[0], scheduler_name="other"),))
    comparison = consider(journal.records(), other)
    assert list(comparison.kinds) == ["not ours"]

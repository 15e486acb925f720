"""Hints in a running scheduler: where pods go, what they read, what wakes them, and the same again in a replay."""

import asyncio
import json

import pytest

from tests.cli.clusters import run as command
from tests.cli.clusters import run_json, write
from tests.embedded import Embedded, scheduler_on
from tests.extender.service import Service, extended, extender, names_of, node_of, serving
from tests.journal.recording import Recorded, consider, repeat
from tests.plugins.objects import container, node, pod
from tests.plugins.schedulinghint.pods import CONFIG, INTERNAL, PROFILE, hinted, preferring
from tests.virtualtime import run
from tests.waiting import until


def where(embedded, *names):
    """The nodes of pods, None while they wait."""
    return [embedded.get("Pod", name)["spec"].get("nodeName") for name in names]


def condition(embedded, name):
    """(reason, message) of the pod's PodScheduled."""
    (found,) = (c for c in embedded.get("Pod", name)["status"]["conditions"] if c["type"] == "PodScheduled")
    return found["reason"], found["message"]


def cluster(*names, cpu="4"):
    embedded = Embedded()
    for name in names:
        embedded.insert(node(name, cpu))
    return embedded


def annotate(embedded, name, hint):
    """Writes another hint on a pod."""
    resource = embedded.resource("Pod")
    record = embedded.registry.record(resource, "default", name)
    stored = record.obj()
    metadata = {**stored["metadata"], "annotations": {INTERNAL: json.dumps(hint)}}
    embedded.registry.replace_record(resource, record, {**stored, "metadata": metadata})


def test_pods_go_where_their_hints_say():
    async def main():
        embedded = cluster("a", "b", "c")
        async with scheduler_on(embedded, CONFIG):
            for i in range(4):
                embedded.insert(hinted(f"named{i}", {"nodeNames": ["b"]}))
                embedded.insert(hinted(f"preferring{i}", preferring("ghost", "c", "a")))
            embedded.insert(hinted("late", preferring("b", "c"), container(cpu="4")))
            await asyncio.sleep(1)
            assert where(embedded, *(f"named{i}" for i in range(4))) == ["b"] * 4
            assert where(embedded, *(f"preferring{i}" for i in range(4))) == ["c"] * 4
            assert where(embedded, "late") == ["a"]

    run(main())


def test_a_hint_that_cannot_be_read_is_said_to_its_owner_who_may_correct_it():
    async def main():
        embedded = cluster("a", "b")
        async with scheduler_on(embedded, CONFIG):
            embedded.insert(hinted("p", "{"))
            embedded.insert(hinted("q", preferring("b")))
            await asyncio.sleep(1)
            assert where(embedded, "p", "q") == [None, "b"]
            assert condition(embedded, "p") == (
                "SchedulerError",
                f'running BeforePreFilter of plugin "SchedulingHint": annotation {INTERNAL}: Input data was truncated',
            )
            annotate(embedded, "p", {"nodeNames": ["a"]})
            await asyncio.sleep(30)
            assert where(embedded, "p") == ["a"]

    run(main())


def test_a_pod_that_its_hint_kept_out_is_tried_again_when_that_changes_and_only_then():
    async def main():
        embedded = cluster("a")
        async with scheduler_on(embedded, CONFIG) as running:
            for name, wanted in (("p", "b"), ("q", "c"), ("r", "z")):
                embedded.insert(hinted(name, {"nodeNames": [wanted]}))
            await asyncio.sleep(15)
            assert where(embedded, "p", "q", "r") == [None] * 3
            assert {running.attempts[f"default/{name}"] for name in "pqr"} == {1}
            embedded.insert(node("b"))
            await asyncio.sleep(1)
            assert where(embedded, "p", "q", "r") == ["b", None, None]
            annotate(embedded, "q", {"nodeNames": ["a"]})
            await asyncio.sleep(1)
            assert where(embedded, "p", "q", "r") == ["b", "a", None]
            assert running.attempts == {"default/p": 2, "default/q": 2, "default/r": 1}

    run(main())


def test_a_refusal_of_one_hint_is_no_answer_for_another():
    """Pods of one shape are equivalent pods where their hints are the same, so one is tried for all of these."""

    async def main():
        embedded = cluster("a", "b", cpu="1")
        for name in ("a", "b"):
            embedded.insert(pod(f"in-{name}", container(cpu="1"), on=name))
        async with scheduler_on(embedded, CONFIG) as running:
            for i in range(5):
                embedded.insert(hinted(f"p{i}", {"nodeNames": ["a"]}))
            embedded.insert(hinted("q", {"nodeNames": ["b"]}))
            embedded.insert(hinted("r", preferring("b")))
            embedded.insert(pod("s", container(cpu="1")))
            await asyncio.sleep(30)
            before = dict(running.attempts)
            embedded.registry.delete(embedded.resource("Pod"), "default", "in-b", grace_period_seconds=0)
            await asyncio.sleep(30)
            assert where(embedded, *(f"p{i}" for i in range(5))) == [None] * 5
            assert where(embedded, "q", "r", "s").count("b") == 1
            tried = {name for name in running.attempts if running.attempts[name] > before.get(name, 0)}
            assert {"default/q", "default/r", "default/s"} <= tried
            assert len(tried & {f"default/p{i}" for i in range(5)}) == 1

    run(main())


async def test_an_extender_that_refuses_a_preferred_node_leaves_the_others():
    service = Service(filter=lambda body: {"NodeNames": [name for name in body["NodeNames"] if name != "a"]})
    embedded = cluster("a", "b")
    async with serving(service), scheduler_on(embedded, extended(extender(service, "filter"), profiles=[PROFILE])):
        embedded.insert(hinted("p", preferring("a")))
        await until(lambda: node_of(embedded, "p") == "b", "the binding")
    assert [sorted(names_of(body)) for body in service.requests("filter")] == [["a"], ["a", "b"]]


@pytest.fixture(scope="module")
def journal():
    """Hints of every sort, cut into segments, with a pod that waits across all of them."""

    async def main():
        embedded = cluster("a", "b", "c")
        recorded = Recorded(embedded, CONFIG, seconds_per_segment=3)
        async with recorded.running():
            embedded.insert(hinted("waits", {"nodeNames": ["d"]}))
            embedded.insert(hinted("wrong", "{"))
            for i in range(8):
                embedded.insert(hinted(f"p{i}", [preferring("b", "c"), {"nodeNames": ["c", "a"]}][i % 2]))
                await asyncio.sleep(2)
            embedded.insert(node("d"))
            await asyncio.sleep(5)
            assert where(embedded, "waits") == ["d"]
        return recorded.journal

    return run(main())


def test_a_replay_decides_the_same(journal):
    assert len(journal.segments) > 4
    for segment in range(len(journal.segments)):
        repetition, _ = repeat(journal.records(segment))
        assert repetition.divergence is None, segment
    comparison = consider(journal.records())
    assert list(comparison.kinds) == ["same"]
    assert comparison.kinds["same"] == comparison.tally.decisions > 10


def test_simulate_and_explain_say_the_same(tmp_path):
    config = write(tmp_path / "config.yaml", CONFIG)
    pods = [hinted("p", preferring("c", "b")), hinted("q", {"nodeNames": ["b"]}), hinted("r", {"nodeNames": ["ghost"]})]
    objects = write(tmp_path / "objects.yaml", *(node(name) for name in "abc"), *pods)
    code, report = run_json("simulate", "-f", objects, "--config", config)
    assert (code, [entry.get("node") for entry in report["pods"]]) == (3, ["c", "b", None])
    code, explanation = run_json("explain", "default/p", "-f", objects, "--config", config)
    assert code == 0
    assert [n["name"] for n in explanation["nodes"] if n["feasible"]] == ["c"]
    assert [n["reasons"] for n in explanation["nodes"]] == [["not looked at"], ["not looked at"], []]
    shown = command("explain", "default/p", "-f", objects, "--config", config).stdout
    assert "c is preferred or nominated: it was tried before others and is taken without scoring." in shown

"""Extenders in a journal: what they said is repeated to the scheduler, and what it asks them has to be the same."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from aiohttp import web
from msgspec.structs import replace

from koordsched.extender.client import ExtenderError
from koordsched.extender.wire import FilterReply, MetaVictims
from koordsched.framework.preemption import Victims
from koordsched.journal.extendercalls import answer_to, asked, consulted, difference
from koordsched.journal.frames import frame_of
from koordsched.journal.journalreplay import Limit, last_attempt
from koordsched.journal.records import (
    Agreed,
    Attempt,
    BadRecord,
    Consulted,
    Failed,
    Filtered,
    LetIn,
    Scored,
    Timers,
    Upsert,
    decode,
    encode,
)
from koordsched.scheduling.recording import Question
from tests.embedded import Embedded
from tests.extender.service import Service, change, condition_of, extended, extender, names_of, node_of, serving
from tests.journal.recording import Recorded, consider, repeat
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.waiting import until

NODES = ("alder", "beech", "cedar", "dogwood")
SECRET = "hunter2"

# --- a conversation ------------------------------------------------------------------------------------


class Moody(Service):
    """Two extenders: one that must be heard, and one that often fails, which may be ignored."""

    def __init__(self, embedded):
        super().__init__(filter=self.filter, prioritize=self.prioritize, preempt=self.preempt, whim=self.whim)
        self._embedded = embedded
        self._whims = 0

    async def filter(self, body):
        name, names = body["Pod"]["metadata"]["name"], names_of(body)
        match name:
            case "unwanted":
                return {"FailedNodes": dict.fromkeys(names, "not this one")}
            case "broken":
                return {"Error": "the extender is down"}
            case "strange":
                return {"NodeNames": [*names, "yew"]}
            case "slow":
                # Meanwhile the cluster changes, and the queue's timers run.
                change(self._embedded, "Node", "alder", lambda thing: thing["metadata"]["labels"].update(new="yes"))
                self._embedded.insert(node("elm", cpu="1"))
                await asyncio.sleep(1.1)
        kept = [each for each in names if each != "alder"]
        final = {"alder": "alder is mine"} if "alder" in names else {}
        return {"NodeNames": kept, "FailedAndUnresolvableNodes": final, "FailedNodes": {"yew": "gone"}}

    def prioritize(self, body):
        return [{"Host": name, "Score": at % 11} for at, name in enumerate(reversed(names_of(body)), 3)]

    def preempt(self, body):
        offered = body["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {name: offered[name] for name in sorted(offered, reverse=True)}}

    def whim(self, body):
        self._whims += 1
        if self._whims % 3 == 0:
            return web.Response(status=500)
        return {"NodeNames": names_of(body)[1:] or names_of(body)}


async def conversation():
    """What was recorded of it, and what the extenders were asked."""
    embedded = Embedded()
    Kubelet(embedded)
    for name in NODES:
        embedded.insert(node(name, cpu="4"))
    service = Moody(embedded)
    async with serving(service):
        # Who is meant by the password is nobody's business.
        url = service.url.replace("http://", f"http://robot:{SECRET}@")
        configuration = extended(
            extender(service, "filter", "prioritize", "preempt", weight=3, urlPrefix=url),
            {"urlPrefix": service.url, "nodeCacheCapable": True, "filterVerb": "whim", "ignorable": True},
            podInitialBackoffSeconds=1,
            podMaxBackoffSeconds=1,
        )
        recorded = Recorded(embedded, configuration)
        async with recorded.running():
            for number in range(6):
                embedded.insert(pod(f"p{number}", container(cpu="1")))
            for name in ("unwanted", "broken", "strange"):
                embedded.insert(pod(name, container(cpu="100m"), priority=-1))
            await until(lambda: all(node_of(embedded, f"p{number}") for number in range(6)), "the bindings")
            for name in ("unwanted", "broken", "strange"):
                await until(lambda name=name: condition_of(embedded, name), f"the condition of {name}")
                embedded.registry.delete(embedded.resource("Pod"), "default", name, grace_period_seconds=0)
            embedded.insert(pod("slow", container(cpu="1")))
            await until(lambda: node_of(embedded, "slow"), "the binding of the slow one")
            embedded.insert(pod("preemptor", container(cpu="4"), priority=10))
            await until(lambda: embedded.get("Pod", "preemptor")["status"].get("nominatedNodeName"), "its nomination")
            await until(lambda: node_of(embedded, "preemptor"), "its binding")
    return recorded.journal, service


@pytest.fixture(scope="module")
def journal():
    return asyncio.run(conversation())[0]


def test_every_decision_comes_out_the_same(journal):
    records = journal.records()
    repetition, replay = repeat(records)
    assert repetition.divergence is None
    assert replay.stream.peek() is None
    tally = repetition.tally
    assert tally.decisions == sum(isinstance(record, Attempt) for record in records)
    # Each is one or the other, though what became of bindings and evictions was told in the middle of some.
    assert tally.placed + tally.unschedulable + tally.errors == tally.decisions
    assert tally.placed >= 8
    assert tally.errors >= 2
    assert tally.preemptions >= 1


def test_all_kinds_of_answers_were_recorded(journal):
    records = journal.records()
    answers = {type(record.answer) for record in records if isinstance(record, Consulted)}
    assert answers == {Failed, Filtered, Scored, Agreed}
    within = []
    waiting = False
    for record in records:
        within += [type(record)] if waiting else []
        waiting = isinstance(record, Consulted | Attempt) or (waiting and not isinstance(record, LetIn | Attempt))
    assert {Timers, Upsert} <= set(within)


def test_passwords_are_not_recorded(journal):
    data = b"".join(encoded for segment in journal.segments for encoded in segment)
    assert SECRET.encode() not in data
    assert b"robot:CLASSIFIED@" in data


def test_a_process_that_dies_while_it_waits(journal):
    records = journal.records()
    # The last of its records was one of an attempt, or one that came while that waited.
    lengths = [at + extra for at, record in enumerate(records) if isinstance(record, Consulted) for extra in (0, 1, 2)]
    for length in lengths[::7]:
        repetition, _ = repeat(records[:length])
        assert repetition.divergence is None, length


def test_the_next_process_begins_while_an_attempt_waits(journal):
    records = journal.records()
    at = next(index for index, record in enumerate(records) if isinstance(record, Consulted))
    header = replace(records[0], run="another")
    repetition, _ = repeat([*records[:at], header, *records[1:]])
    assert repetition.divergence is None
    assert repetition.tally.runs == 2


def test_a_decision_is_explained_by_what_plugins_say(journal):
    records = journal.records()
    moment, uid = last_attempt(records, "default/p3", Limit())
    _, replay = repeat(records, Limit(decisions=moment.number - 1))
    assert "alder" in replay.explain(uid).any_of  # which the extender refuses


def test_another_configuration_is_judged_without_them(journal):
    comparison = consider(journal.records())
    assert sum(comparison.kinds.values()) <= comparison.tally.decisions
    assert comparison.kinds["same"] > 0


# --- what comes out otherwise --------------------------------------------------------------------------


def first(records, kind):
    """Where the first answer of this kind is."""
    return next(
        at for at, record in enumerate(records) if isinstance(record, Consulted) and isinstance(record.answer, kind)
    )


def otherwise(records, at, **changes):
    return [*records[:at], replace(records[at], **changes), *records[at + 1 :]]


def other_nodes(records):
    at = first(records, Filtered)
    return otherwise(records, at, asked=replace(records[at].asked, nodes=(0, 1)))


def other_verb(records):
    at = first(records, Filtered)
    return otherwise(records, at, asked=replace(records[at].asked, verb="prioritize"))


def other_victims(records):
    at = first(records, Agreed)
    return otherwise(records, at, asked=replace(records[at].asked, victims=b"\0" * 8))


def nobody_left(records):
    at = first(records, Filtered)
    return otherwise(records, at, answer=Filtered((0, 1, 2, 3), None, (("no", True, (0, 1, 2, 3)),)))


def failure(records):
    return otherwise(records, first(records, Filtered), answer=Failed("out of order"))


def other_scores(records):
    at = first(records, Scored)
    (scores,) = records[at].answer.scores
    return otherwise(records, at, answer=Scored((tuple(10 - score for score in scores),)))


def not_asked(records):
    at = first(records, Filtered)
    return [*records[:at], *records[at + 1 :]]


def asked_twice(records):
    at = first(records, Scored)
    return [*records[:at], records[at], *records[at:]]


CHANGES = {
    "other nodes": (other_nodes, "to filter 2 nodes", "to filter 4 nodes, among them cedar, dogwood"),
    "another verb": (other_verb, "to prioritize 4 nodes", "to filter 4 nodes"),
    "other victims": (other_victims, "to preempt ", "(other victims)"),
    "nobody left": (nobody_left, "to filter 3 nodes", "asks for the time"),
    "a failure": (failure, "to filter ", "SchedulerError: out of order"),
    "other scores": (other_scores, "score ", "score "),
    "not asked": (not_asked, "to filter 3 nodes", "to filter 4 nodes, among them alder"),
    "asked twice": (asked_twice, "to prioritize ", "placed on "),
}


@pytest.mark.parametrize("case", CHANGES)
def test_the_first_difference_is_shown_with_both_sides(journal, case):
    changed, recorded, repeated = CHANGES[case]
    divergence = repeat(changed(journal.records()))[0].divergence
    assert divergence is not None
    assert recorded in divergence.recorded
    assert repeated in divergence.repeated
    assert divergence.recorded != divergence.repeated


def test_an_answer_that_does_not_fit_the_question(journal):
    records = journal.records()
    at = first(records, Filtered)
    with pytest.raises(BadRecord, match="does not fit the question"):
        repeat(otherwise(records, at, answer=Filtered((), None, (("no", True, (99,)),))))


# --- as records ----------------------------------------------------------------------------------------


def table(count):
    names = [f"node-{number:05d}" for number in range(count)]
    return SimpleNamespace(names=names, row_of={name: row for row, name in enumerate(names)})


def victims(*uids, violations=0):
    return Victims(tuple(SimpleNamespace(uid=uid) for uid in uids), violations)


TABLE = table(300)
ALL = TABLE.names
OFFERED = {ALL[7]: victims("a", "b"), ALL[3]: victims("c", violations=1), ALL[9]: victims("d")}


def as_answered(each):
    return MetaVictims([pod.uid for pod in each.pods], each.violations)


ANSWERS = {
    "all": ("filter", range(300), FilterReply(ALL)),
    "all but some": ("filter", range(300), FilterReply(ALL[3:], dict.fromkeys(ALL[:3], "no"))),
    "few": ("filter", range(300), FilterReply(ALL[7:9], {}, dict.fromkeys(ALL[9:], "no"))),
    "none": ("filter", [1, 5], FilterReply([], {ALL[1]: "a", ALL[5]: "b"}, {ALL[1]: "c"})),
    "a stranger": ("filter", [1, 5], FilterReply([ALL[1], "yew"])),
    "said of others": ("filter", [1], FilterReply([ALL[1]], {ALL[250]: "no"})),
    "scores": ("prioritize", [2, 4], [[(ALL[2], 7), (ALL[4], -3)], []]),
    "as offered": ("preempt", [7, 3, 9], {node: as_answered(each) for node, each in OFFERED.items()}),
    "in another order": ("preempt", [7, 3, 9], {ALL[9]: MetaVictims(["d"], 0), ALL[7]: MetaVictims(["a", "b"], 0)}),
    "others": ("preempt", [7, 3, 9], {ALL[7]: MetaVictims(["b"], 2), "yew": MetaVictims([], 0)}),
}


def question(verb, rows, about=TABLE):
    return Question(verb, ("http://e",), about, list(rows), OFFERED if verb == "preempt" else None)


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_come_back_as_they_were(case):
    verb, rows, answer = ANSWERS[case]
    asks = question(verb, rows)
    record = decode(encode(consulted(asks, answer)))
    assert record.asked == asked(asks)
    again = answer_to(asks, record)
    assert again == answer
    if isinstance(answer, Mapping):
        assert list(again) == list(answer)


NORMALIZED = {
    "kept twice, in another order": (
        "filter",
        [1, 5],
        FilterReply([ALL[5], ALL[1], ALL[5]]),
        FilterReply([ALL[1], ALL[5]]),
    ),
    "reasons for no node": ("filter", [1], FilterReply([], {"yew": "no"}), FilterReply([])),
    "several strangers": ("filter", [1], FilterReply(["yew", ALL[1], "ash"]), FilterReply([ALL[1], "yew"])),
    "scores that add up": (
        "prioritize",
        [2, 4],
        [[(ALL[4], 1), (ALL[4], 2), ("yew", 9)]],
        [[(ALL[2], 0), (ALL[4], 3)]],
    ),
    "scores beyond all bounds": (
        "prioritize",
        [2],
        [[(ALL[2], (1 << 63) - 1), (ALL[2], 5)]],
        [[(ALL[2], (1 << 63) - 1)]],
    ),
}


@pytest.mark.parametrize("case", NORMALIZED)
def test_what_makes_no_difference_is_left_out(case):
    verb, rows, answer, expected = NORMALIZED[case]
    asks = question(verb, rows)
    assert answer_to(asks, decode(encode(consulted(asks, answer)))) == expected


def test_failures_come_back():
    asks = question("filter", [1])
    with pytest.raises(ExtenderError, match=r"^connection refused$"):
        answer_to(asks, decode(encode(consulted(asks, ExtenderError("connection refused")))))


LARGE = table(5_000)
SIZES = {
    "all": (FilterReply(LARGE.names), 150),
    "one refused": (FilterReply(LARGE.names[:4000] + LARGE.names[4001:], {LARGE.names[4000]: "no"}), 170),
    "every other refused": (FilterReply(LARGE.names[::2], dict.fromkeys(LARGE.names[1::2], "no")), 250),
}


@pytest.mark.parametrize("case", SIZES)
def test_answers_about_thousands_of_nodes_are_small(case):
    """In the file. Their names alone would be 50,000 bytes."""
    answer, most = SIZES[case]
    assert len(frame_of([encode(consulted(question("filter", range(5_000), LARGE), answer))])) < most


def test_other_nodes_are_named():
    recorded = consulted(question("filter", [1, 2, 3, 4, 5, 6]), FilterReply([]))
    assert difference(question("filter", [1, 9]), recorded) == (
        f"asks http://e to filter 6 nodes, among them {ALL[2]}, {ALL[3]}, {ALL[4]} and 2 more",
        f"asks http://e to filter 2 nodes, among them {ALL[9]}",
    )

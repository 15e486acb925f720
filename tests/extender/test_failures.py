"""Extenders that fail, in every way: each ends in the right message and the queue goes on."""

import asyncio

import pytest
from aiohttp import web

from koordsched.extender import client
from koordsched.extender.transientreasons import TransientReasons
from koordsched.framework.status import Code, ReasonTable
from koordsched.queue.item import Place
from tests.embedded import Embedded, scheduler_on
from tests.extender.service import Service, change, condition_of, everything, extended, extender, node_of, serving
from tests.plugins.objects import container, node, pod
from tests.waiting import until

FAST = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}


def cluster(*names):
    embedded = Embedded()
    for name in names:
        embedded.insert(node(name))
    return embedded


async def hang(body):
    await asyncio.sleep(30)


def text(content, status=200):
    return lambda body: web.Response(text=content, status=status, content_type="application/json")


FAILED = "failed filter with extender at URL {url}/filter"
FAILURES = [
    ("500", text("{}", 500), f"{FAILED}, code 500"),
    ("404", text("", 404), f"{FAILED}, code 404"),
    ("201", text('{"NodeNames": ["alder"]}', 201), f"{FAILED}, code 201"),
    (
        "no answer",
        hang,
        'Post "{url}/filter": context deadline exceeded (Client.Timeout exceeded while awaiting headers)',
    ),
    ("an error", {"Error": "ext is ill"}, "ext is ill"),
    (
        "unknown node",
        {"NodeNames": ["alder", "ghost"]},
        'extender "{url}" claims a filtered node "ghost" which is not found in the input node list',
    ),
    (
        "unknown whole node",
        {"Nodes": {"items": [{"metadata": {"name": "ghost"}}]}},
        'extender "{url}" claims a filtered node "ghost" which is not found in the input node list',
    ),
    ("not JSON", text("garbage"), f"{FAILED}: the answer is not JSON: "),
    ("empty", text(""), f"{FAILED}: the answer is not JSON: "),
    ("a list", text("[]"), f"{FAILED}: the answer is not an object"),
    ("names that are none", {"NodeNames": [1]}, f"{FAILED}: NodeNames is not a string"),
    ("names in an object", {"NodeNames": {}}, f"{FAILED}: NodeNames is not a list"),
    ("reasons in a list", {"NodeNames": [], "FailedNodes": ["alder"]}, f"{FAILED}: FailedNodes is not an object"),
    ("a reason that is none", {"FailedNodes": {"alder": 1}}, f"{FAILED}: FailedNodes is not a string"),
    ("deep", text("[" * 100_000), f"{FAILED}: the answer is not JSON: "),
]


@pytest.mark.parametrize("answer, expected", [case[1:] for case in FAILURES], ids=[case[0] for case in FAILURES])
async def test_failures_of_filter_are_errors(answer, expected):
    service = Service(filter=answer)
    embedded = cluster("alder", "beech")
    async with (
        serving(service),
        scheduler_on(embedded, extended(extender(service, "filter", httpTimeout="300ms"))) as running,
    ):
        embedded.insert(pod("p"))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        reason, message = condition_of(embedded, "p")
        assert reason == "SchedulerError"
        assert message.startswith(expected.replace("{url}", service.url))
        assert running.scheduler.metrics.schedule_attempts.labels("error", "default-scheduler").value == 1
        assert running.scheduler.queue.get("default/p").place is Place.ERROR_BACKOFF


@pytest.mark.parametrize("answer", [text("", 500), hang, text("garbage")])
async def test_the_queue_goes_on_and_the_pod_is_tried_again(answer):
    service = Service(filter=answer)
    embedded = Embedded()
    embedded.insert(node("alder", gpu="4"))
    amounts = {"ex.com/gpu": "1"}
    managed = {"httpTimeout": "300ms", "managedResources": [{"name": "ex.com/gpu"}]}
    async with serving(service), scheduler_on(embedded, extended(extender(service, "filter", **managed), **FAST)):
        embedded.insert(pod("p", {**container(), "resources": {"requests": amounts, "limits": amounts}}, priority=5))
        embedded.insert(pod("other"))
        await until(lambda: node_of(embedded, "other"), "the binding of a pod that it does not care about")
        await until(lambda: condition_of(embedded, "p"), "the condition")
        service.answers["filter"] = everything
        await until(lambda: node_of(embedded, "p"), "the binding after back-off")


async def test_an_extender_that_is_not_there():
    service = Service(filter=everything)
    async with serving(service):
        pass
    embedded = cluster("alder")
    async with scheduler_on(embedded, extended(extender(service, "filter"), **FAST)):
        embedded.insert(pod("p"))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        reason, message = condition_of(embedded, "p")
        assert reason == "SchedulerError"
        assert message.startswith(f'Post "{service.url}/filter": ')


BROKEN = {"500": text("", 500), "no answer": hang, "garbage": text("garbage")}
IGNORED = [
    *((verb, answer) for verb in ("filter", "prioritize", "preempt", "bind") for answer in BROKEN.values()),
    ("filter", {"Error": "x"}),
    ("filter", {"NodeNames": ["ghost"]}),
    ("preempt", {"NodeNameToMetaVictims": {"ghost": {"Pods": [{"UID": "x"}]}}}),
    ("bind", {"Error": "x"}),
]


@pytest.mark.parametrize("verb, answer", IGNORED)
async def test_one_whose_failure_may_be_ignored_holds_nobody_up(verb, answer):
    service = Service(**{verb: answer})
    embedded = cluster("alder", "beech")
    if verb == "preempt":
        for name in ("alder", "beech"):
            embedded.insert(pod(f"on-{name}", on=name, priority=1))
            change(embedded, "Node", name, lambda thing: thing["status"]["allocatable"].update(pods="1"))
    async with (
        serving(service),
        scheduler_on(embedded, extended(extender(service, verb, ignorable=True, httpTimeout="200ms"), **FAST)),
    ):
        embedded.insert(pod("p", priority=10))
        if verb == "preempt":
            await until(lambda: embedded.get("Pod", "p")["status"].get("nominatedNodeName"), "the nomination")
        else:
            await until(lambda: node_of(embedded, "p"), "the binding")


@pytest.mark.parametrize("answer", [text("", 500), hang, text("garbage"), [{"Host": 1}], [{"Host": "a", "Score": 1.5}]])
async def test_failures_of_prioritize_never_matter(answer):
    service = Service(prioritize=answer)
    embedded = cluster("alder", "beech")
    async with (
        serving(service),
        scheduler_on(embedded, extended(extender(service, "prioritize", httpTimeout="200ms"))) as running,
    ):
        embedded.insert(pod("p"))
        await until(lambda: node_of(embedded, "p"), "the binding")
        assert running.scheduler.metrics.running("prioritizing_extender").value == 0


async def test_a_failing_bind_is_an_error_and_the_pod_is_tried_again():
    service = Service(bind=text("", 500))
    embedded = cluster("alder")

    async def bind(body):
        change(embedded, "Pod", "p", lambda thing: thing["spec"].update(nodeName=body["Node"]))
        return {}

    async with (
        serving(service),
        scheduler_on(embedded, extended(extender(service, "bind"), **FAST)) as running,
    ):
        embedded.insert(pod("p"))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        assert condition_of(embedded, "p") == (
            "SchedulerError",
            f"failed bind with extender at URL {service.url}/bind, code 500",
        )
        assert not running.scheduler.cluster.assigned
        service.answers["bind"] = bind
        await until(lambda: node_of(embedded, "p") == "alder", "the binding")


@pytest.mark.parametrize(
    "answer",
    [lambda body: {"Error": "the server was unable to return a response in time"}, text("", 409), text("", 500)],
    ids=["an error", "409", "500"],
)
async def test_a_binding_that_went_through_though_its_extender_says_otherwise_counts(answer):
    """Extenders pass on what the API server told them, which may be of a binding that it carried out.

    The watch is late: nobody but the server knows that the pod has its node.
    """
    embedded = cluster("alder")
    told = asyncio.Event()

    async def bind(body):
        change(embedded, "Pod", body["PodName"], lambda thing: thing["spec"].update(nodeName=body["Node"]))
        return answer(body)

    async def fault(call, proceed):
        status, headers, body = await proceed()
        return status, headers, body if isinstance(body, bytes) else late(body)

    async def late(chunks):
        async for chunk in chunks:
            if b"nodeName" in chunk:
                await told.wait()
            yield chunk

    def words():
        return {(e["regarding"]["name"], e["reason"]) for e in embedded.events()}

    async with (
        serving(Service(bind=bind)) as service,
        scheduler_on(embedded, extended(extender(service, "bind"), **FAST), fault=fault) as running,
    ):
        embedded.insert(pod("p", container(cpu="3")))
        embedded.insert(pod("q", container(cpu="3")))
        await until(lambda: len(words()) == 2, "a word on each")
        assert words() == {("p", "Scheduled"), ("q", "FailedScheduling")}
        assert [asked["PodName"] for asked in service.requests("bind")] == ["p"]
        told.set()
        await until(lambda: not running.scheduler.cluster.assumed, "its confirmation")


async def test_failing_preempt_ends_in_the_message():
    service = Service(preempt=text("", 503))
    embedded = Embedded()
    small = node("alder")
    small["status"]["allocatable"]["pods"] = "1"
    embedded.insert(small)
    embedded.insert(pod("low", on="alder", priority=1))
    async with serving(service), scheduler_on(embedded, extended(extender(service, "preempt"))):
        embedded.insert(pod("p", priority=10))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        assert condition_of(embedded, "p") == (
            "Unschedulable",
            "0/1 nodes are available: 1 Too many pods. "
            f"failed preempt with extender at URL {service.url}/preempt, code 503",
        )
        assert "deletionTimestamp" not in embedded.get("Pod", "low")["metadata"]


# --- hostile sizes ------------------------------------------------------------------------------


async def test_an_answer_without_end_is_not_read_to_the_end(monkeypatch):
    monkeypatch.setattr(client, "SMALL_REPLY", 1 << 16)
    service = Service(filter=text("[" + " " * (1 << 20)))
    embedded = cluster("alder")
    async with serving(service), scheduler_on(embedded, extended(extender(service, "filter"))):
        embedded.insert(pod("p"))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        assert condition_of(embedded, "p") == (
            "SchedulerError",
            f"failed filter with extender at URL {service.url}/filter: the answer is longer than 65536 bytes",
        )


async def test_long_reasons_are_cut():
    service = Service(
        filter=lambda body: {"FailedNodes": {name: f"{name} " + "x" * 9999 for name in body["NodeNames"]}}
    )
    embedded = cluster(*(f"n{number}" for number in range(20)))
    async with serving(service), scheduler_on(embedded, extended(extender(service, "filter"))):
        embedded.insert(pod("p", preemptionPolicy="Never"))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        _, message = condition_of(embedded, "p")
        assert len(message) == 32_768
        assert message.startswith("0/20 nodes are available: 1 n0 xxx")
        assert message.endswith(" ...")


@pytest.mark.parametrize("score", [2**63 - 1, -(2**63), 2**63, "5", None])
async def test_absurd_scores(score):
    service = Service(prioritize=[{"Host": "alder", "Score": score}])
    embedded = cluster("alder", "beech")
    async with serving(service), scheduler_on(embedded, extended(extender(service, "prioritize", weight=2**40))):
        embedded.insert(pod("p"))
        await until(lambda: node_of(embedded, "p"), "the binding")
        if isinstance(score, int) and abs(score) < 2**63:
            assert node_of(embedded, "p") == "alder"
        elif score == -(2**63):
            assert node_of(embedded, "p") == "beech"


def test_reasons_of_extenders_do_not_pile_up():
    table = ReasonTable()
    kept = table.intern("NodeName", Code.UNSCHEDULABLE, "kept")
    reasons = TransientReasons(table)
    for cycle in range(100):
        reasons.clear()
        numbers = [reasons.intern("Extender", Code.UNSCHEDULABLE, f"{cycle}.{number}") for number in range(5)]
        assert [table[number].texts for number in numbers] == [(f"{cycle}.{number}",) for number in range(5)]
        assert reasons.intern("Extender", Code.UNSCHEDULABLE, f"{cycle}.0") == numbers[0]
    assert len(table.reasons) == kept + 1 + 5
    assert table[kept].texts == ("kept",)
    assert table.intern("NodeName", Code.UNSCHEDULABLE, "more") == kept + 6


# --- bindings and the lease ---------------------------------------------------------------------

LEASE = 15.0
"""Seconds; a leader gives its lease back only if nothing of its doing may still arrive."""

BINDINGS = [
    ("done", {}, True),
    ("refused", {"Error": "no"}, True),
    ("404", text("", 404), True),
    ("500", text("", 500), False),
    ("no answer", hang, False),
    ("not JSON", text("garbage"), False),
]


@pytest.mark.parametrize("answer, quiet", [case[1:] for case in BINDINGS], ids=[case[0] for case in BINDINGS])
async def test_a_binding_of_an_extender_that_may_still_arrive_keeps_the_lease(answer, quiet):
    embedded = cluster("alder")
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def bind(body):
        asked.set()
        await go_on.wait()
        outcome = answer(body) if callable(answer) else answer
        return await outcome if asyncio.iscoroutine(outcome) else outcome

    async with (
        serving(Service(bind=bind)) as service,
        scheduler_on(embedded, extended(extender(service, "bind", httpTimeout="300ms"))) as running,
    ):
        binding, lanes = running.scheduler.binding, running.lanes
        embedded.insert(pod("p"))
        await asked.wait()
        assert not lanes.quiet_for(LEASE)
        go_on.set()
        await until(lambda: not binding.in_flight, "the end of the binding")
        assert await lanes.drain(5)  # what users are told goes through the lanes
        assert lanes.quiet_for(LEASE) == quiet


async def test_a_binding_of_an_extender_that_is_given_up_keeps_the_lease():
    embedded = cluster("alder")
    asked = asyncio.Event()

    async def bind(body):
        asked.set()
        await asyncio.sleep(30)

    async with (
        serving(Service(bind=bind)) as service,
        scheduler_on(embedded, extended(extender(service, "bind"))) as running,
    ):
        embedded.insert(pod("p"))
        await asked.wait()
        await running.scheduler.binding.abandon()
        assert not running.scheduler.binding.in_flight
        assert not running.lanes.quiet_for(LEASE)

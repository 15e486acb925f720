"""Section-7 cases 23 and 24 of the core contract, and what belongs to them, with a real extender over HTTP."""

import asyncio

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.builtinkinds import NODES, PODS
from koordsched.cluster.resources import CPU
from koordsched.engine.explain import explain
from tests.embedded import Embedded, scheduler_on
from tests.extender.service import Service, condition_of, everything, extended, extender, names_of, node_of, serving
from tests.framework.test_overlay import Lens
from tests.plugins.objects import container, node, pod
from tests.scheduling.together import JOB, Together
from tests.waiting import until

NOT_MATCHING = "2 node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize("capable", [True, False], ids=["names", "whole nodes"])
async def test_core_case_23_scores_add_up(capable):
    scores = {"alder": 0, "beech": 3}
    service = Service(
        filter=everything, prioritize=lambda body: [{"Host": name, "Score": scores[name]} for name in names_of(body)]
    )
    embedded = Embedded()
    for name in scores:
        embedded.insert(node(name, cpu="4", memory="8Gi"))
    async with serving(service):
        settings = extender(service, "filter", "prioritize", weight=2, nodeCacheCapable=capable)
        async with scheduler_on(embedded, extended(settings)) as running:
            embedded.insert(pod("p", container(cpu="1", memory="1Gi")))
            await until(lambda: node_of(embedded, "p"), "the binding")
            assert node_of(embedded, "p") == "beech"
            (decision,) = running.scheduler.decisions.of("default/p")
            assert [(ranked.node, ranked.total) for ranked in decision.top] == [("beech", 512), ("alder", 452)]
            assert [ranked.scores["Extender"] for ranked in decision.top] == [60, 0]
            assert decision.total == 512


@pytest.mark.parametrize(
    "field, no_victims, not_helpful",
    [("FailedNodes", "1 No preemption victims found for incoming pod, ", 2), ("FailedAndUnresolvableNodes", "", 3)],
)
async def test_core_case_24_refusals_count_into_the_message(field, no_victims, not_helpful):
    service = Service(filter=lambda body: {"NodeNames": [], field: dict.fromkeys(body["NodeNames"], "ext says no")})
    embedded = Embedded()
    for name in ("alder", "beech", "cedar"):
        embedded.insert(node(name, labels={"kind": name}))
    async with serving(service), scheduler_on(embedded, extended(extender(service, "filter"))) as running:
        embedded.insert(pod("p", container(cpu="1"), nodeSelector={"kind": "alder"}))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        assert condition_of(embedded, "p") == (
            "Unschedulable",
            f"0/3 nodes are available: 1 ext says no, {NOT_MATCHING}. no new claims to deallocate, "
            f"preemption: 0/3 nodes are available: {no_victims}"
            f"{not_helpful} Preemption is not helpful for scheduling.",
        )
        queue = running.scheduler.queue
        await until(
            lambda: (queued := queue.get("default/p")) and "Extender" in queued.unschedulable_plugins,
            "the extender among the plugins that refused it",
        )
    assert names_of(service.requests("filter")[0]) == ["alder"]


async def test_every_event_wakes_a_pod_that_an_extender_refused():
    """Its own status patch does so once; after that, any change of any object."""
    refusing = True
    service = Service(
        filter=lambda body: (
            {"NodeNames": [], "FailedNodes": dict.fromkeys(body["NodeNames"], "not now")}
            if refusing
            else everything(body)
        )
    )
    embedded = Embedded()
    embedded.insert(node("alder"))
    async with serving(service):
        config = extended(extender(service, "filter"), podInitialBackoffSeconds=1, podMaxBackoffSeconds=1)
        async with scheduler_on(embedded, config) as running:
            embedded.insert(pod("p"))
            await until(lambda: len(service.requests("filter")) == 2, "the retry after its own status patch")
            await until(lambda: running.scheduler.queue.pending()["unschedulable"] == 1, "the wait")
            refusing = False
            embedded.insert(pod("other", on="alder"))
            await until(lambda: node_of(embedded, "p") == "alder", "the binding")


async def test_an_extender_may_tell_pods_apart_that_are_alike():
    """It is asked about each of them when something happens, whatever it says of the first."""
    refused = ["first", "second"]

    def judge(body):
        no = body["Pod"]["metadata"]["name"] in refused
        return {"NodeNames": [], "FailedNodes": dict.fromkeys(body["NodeNames"], "no")} if no else everything(body)

    service = Service(filter=judge)
    embedded = Embedded()
    embedded.insert(node("alder"))
    async with serving(service):
        config = extended(extender(service, "filter"), podInitialBackoffSeconds=1, podMaxBackoffSeconds=1)
        async with scheduler_on(embedded, config) as running:
            for name in refused:
                embedded.insert(pod(name))
            await until(lambda: len(service.requests("filter")) == 4, "the retries after their own status patches")
            await until(lambda: running.scheduler.queue.pending()["unschedulable"] == 2, "the wait")
            refused.remove("second")
            embedded.insert(pod("other", on="alder"))
            await until(lambda: node_of(embedded, "second") == "alder", "the binding")
            assert not node_of(embedded, "first")


async def test_one_state_during_a_cycle():
    """What happens while an extender thinks is applied afterwards; bindings go on, no other pod is taken."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def think(body):
        asked.set()
        await answer.wait()
        return everything(body)

    service = Service(filter=think)
    embedded = Embedded()
    embedded.insert(node("alder", cpu="4"))
    managed = [{"name": "ex.com/gpu"}]
    async with serving(service):
        settings = extender(service, "filter", managedResources=managed)
        async with scheduler_on(embedded, extended(settings)) as running:
            scheduler = running.scheduler
            table = scheduler.cluster.table
            embedded.insert(node("gpu", cpu="4", gpu="4"))
            await until(lambda: table.count == 2, "the second node")
            embedded.insert(pod("plain", container(cpu="1"), nodeSelector={"kubernetes.io/hostname": "alder"}))
            await until(lambda: node_of(embedded, "plain"), "the first binding, without the extender")
            await until(lambda: not scheduler.cluster.assumed, "its confirmation")
            embedded.insert(pod("p", container(cpu="1", gpu="1")))
            await asked.wait()
            embedded.insert(node("late"))
            embedded.insert(pod("q", container(cpu="1")))
            await until(lambda: len(scheduler.consultations.inbox) >= 2, "the changes in the inbox")
            assert node_of(embedded, "q") is None
            assert table.count == 2
            assert "uid-default-q" not in {each.uid for each in scheduler.pending_pods()}
            answer.set()
            await until(lambda: node_of(embedded, "p") and node_of(embedded, "q"), "both bindings")
            assert node_of(embedded, "p") == "gpu"
            assert table.count == 3
    assert len(service.asked) == 1


@pytest.mark.parametrize("capable", [True, False], ids=["names", "whole nodes"])
async def test_what_is_made_anew_while_an_extender_thinks_replaces_what_was_there(capable):
    """Also if only a listing shows it: nodes go by their names, pods by their uids."""
    asked, answer = asyncio.Event(), asyncio.Event()
    blind = False

    async def think(body):
        asked.set()
        await answer.wait()
        return everything(body)

    async def watched(chunks):
        async for chunk in chunks:
            if not blind:
                yield chunk

    async def fault(call, proceed):
        status, headers, body = await proceed()
        return status, headers, body if isinstance(body, bytes) else watched(body)

    service = Service(filter=think)
    embedded = Embedded()
    embedded.insert(node("alder", cpu="4"))
    embedded.insert(node("beech", cpu="4"))
    embedded.insert(pod("there", container(cpu="1"), on="alder"))
    async with serving(service):
        settings = extender(service, "filter", nodeCacheCapable=capable)
        async with scheduler_on(embedded, extended(settings), fault=fault) as running:
            scheduler = running.scheduler
            embedded.insert(pod("p", container(cpu="1")))
            await asked.wait()
            blind = True
            for kind, namespace, name in (("Node", None, "alder"), ("Pod", "default", "there")):
                embedded.registry.delete(embedded.resource(kind), namespace, name, grace_period_seconds=0)
            embedded.insert(node("alder", cpu="8"))
            again = pod("there", container(cpu="1"), on="alder")
            again["metadata"]["uid"] = "another"
            embedded.insert(again)
            for reflector in (scheduler.watches.reflectors[kind.path] for kind in (NODES, PODS)):
                await reflector.relist()
            blind = False
            answer.set()
            await until(lambda: node_of(embedded, "p"), "the binding")
            await until(lambda: not scheduler.cluster.assumed, "its confirmation")
            table = scheduler.cluster.table
            assert set(table.row_of) == {"alder", "beech"}
            assert table.allocatable[CPU].data[table.row_of["alder"]] == 8000
            assert {"uid-default-p", "another"} == scheduler.cluster.assigned.keys()


async def test_events_of_the_meantime_count_for_the_pod_in_flight():
    """A node that came while the extender thought: the refused pod goes to back-off at once, not to wait for news."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def refuse(body):
        if asked.is_set():
            await asyncio.sleep(30)  # nothing more is to happen
        asked.set()
        await answer.wait()
        return {"FailedNodes": dict.fromkeys(body["NodeNames"], "no")}

    service = Service(filter=refuse)
    embedded = Embedded()
    embedded.insert(node("alder"))
    async with serving(service), scheduler_on(embedded, extended(extender(service, "filter"))) as running:
        scheduler = running.scheduler
        embedded.insert(pod("p"))
        await asked.wait()
        embedded.insert(node("beech"))
        await until(lambda: len(scheduler.consultations.inbox) > 0, "the node in the inbox")
        answer.set()
        await until(lambda: len(service.asked) == 2, "the second attempt")
        incoming = scheduler.queue.counters.incoming
        assert incoming["backoff", "ScheduleAttemptFailure"] == 1
        assert ("unschedulable", "ScheduleAttemptFailure") not in incoming


@pytest.mark.parametrize("labels", [{}, {JOB: "j"}], ids=["", "member of a job"])
async def test_explanations_meanwhile_leave_an_attempt_as_it_is(labels):
    """Also of a pod that is alike, for which nodes read otherwise (`framework.overlay`)."""
    explained = []

    def wanted(name):
        return pod(name, container(cpu="2"), labels=labels)

    def think(body):
        cluster, profile = running.scheduler.cluster, running.scheduler.profiles["default-scheduler"]
        alike = cluster.pods.build(convert(wanted("q"), core.Pod))
        explained.append([each.name for each in explain(profile, cluster, alike).nodes if each.feasible])
        return everything(body)

    service = Service(filter=think, prioritize=[])
    embedded = Embedded()
    embedded.insert(node("alder"))
    for name in ("beech", "cedar"):
        embedded.insert(node(name, taints=[("a", "PreferNoSchedule")]))
    embedded.insert(pod("full", container(cpu="4"), on="alder"))
    async with serving(service):
        config = extended(extender(service, "filter", "prioritize"))
        async with scheduler_on(embedded, config, plugins=[Lens, Together]) as running:
            running.scheduler.profiles["default-scheduler"].plugins["Lens"].away = ("default/full",)
            embedded.insert(wanted("p"))
            await until(lambda: node_of(embedded, "p"), "the binding")
            assert node_of(embedded, "p") == "alder"
    assert explained == [["beech", "cedar"]]

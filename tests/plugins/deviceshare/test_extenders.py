"""With extenders: devices are given on the node that is left, and nothing is held where none is."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.embedded import scheduler_on
from tests.extender.service import Service, change, condition_of, everything, extender, serving
from tests.plugins.deviceshare.machines import g8, gpu, m2, pod, used
from tests.plugins.deviceshare.running import complete, given, held, put, remove, replace, where
from tests.plugins.deviceshare.test_gangs import document, group, members
from tests.plugins.deviceshare.world import configuration, profile
from tests.plugins.loadaware.running import api_server
from tests.scheduling.kubelet import Kubelet
from tests.waiting import until

SOON = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}


@asynccontextmanager
async def extended(service, *objects, verbs=("filter",), settings=None, **more):
    """A scheduler on these objects that asks the service; a kubelet ends evicted pods."""
    embedded = api_server(*map(complete, objects))
    Kubelet(embedded)
    async with serving(service):
        config = (settings or configuration(profile())) | SOON | {"extenders": [extender(service, *verbs, **more)]}
        async with scheduler_on(embedded, config) as running:
            yield embedded, running


def only(*names):
    """The answer of a filter that leaves these nodes."""
    return lambda body: {"NodeNames": [name for name in body["NodeNames"] if name in names]}


async def test_devices_are_given_on_the_node_that_the_filter_leaves():
    objects = [*m2("alder"), *g8("beech"), used(0, 1, 2, node="beech")]
    async with extended(Service(filter=only("beech")), *objects) as (embedded, running):
        put(embedded, pod(gpu=200))
        await until(lambda: where(embedded, "p"), "the binding")
        assert (where(embedded, "p"), given(embedded, "p")) == ("beech", {"gpu": [4, 5]})
        assert held(running, "alder") == {}


async def test_an_extender_is_asked_about_nodes_with_the_devices_only():
    service = Service(filter=everything)
    objects = [*m2("alder"), *g8("beech"), *m2("cedar"), used(0, node="cedar", memory="8Gi")]
    async with extended(service, *objects) as (embedded, _):
        put(embedded, pod(gpu=200))
        await until(lambda: where(embedded, "p"), "the binding")
    assert [sorted(body["NodeNames"]) for body in service.requests("filter")] == [["alder", "beech"]]


async def test_the_node_that_an_extender_prefers_gives_its_devices():
    service = Service(prioritize=[{"Host": "cedar", "Score": 10}])
    objects = [thing for name in ("alder", "beech", "cedar") for thing in m2(name)]
    objects.append(used(0, node="cedar", memory="8Gi"))
    async with extended(service, *objects, verbs=("prioritize",), weight=100) as (embedded, running):
        put(embedded, pod(gpu=100))
        await until(lambda: where(embedded, "p"), "the binding")
        assert (where(embedded, "p"), given(embedded, "p")) == ("cedar", {"gpu": [1]})
        assert set(held(running, "cedar")) == {("gpu", 0), ("gpu", 1)}


@pytest.mark.parametrize(
    "answer",
    [
        {"NodeNames": []},
        {"NodeNames": [], "FailedNodes": {"alder": "not today", "beech": "not today"}},
        {"NodeNames": [], "FailedAndUnresolvableNodes": {"alder": "never", "beech": "never"}},
        {"Error": "broken"},
    ],
    ids=["nothing", "refused", "refused for good", "error"],
)
async def test_what_an_extender_refuses_holds_no_device(answer):
    service = Service(filter=lambda body: answer)
    async with extended(service, *m2("alder"), *m2("beech")) as (embedded, running):
        put(embedded, pod(gpu=100))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        assert held(running, "alder") == held(running, "beech") == {}
        service.answers["filter"] = only("beech")
        change(embedded, "Node", "beech", lambda thing: thing["metadata"]["labels"].update(new="yes"))
        await until(lambda: where(embedded, "p"), "the binding", 20)
        assert (where(embedded, "p"), given(embedded, "p")) == ("beech", {"gpu": [0]})


async def suspended_while(happens, wanted):
    """(what a pod was given, GPUs in use) if something happens while its attempt waits for an extender."""
    go = asyncio.Event()

    async def slow(body):
        await go.wait()
        return everything(body)

    service = Service(filter=slow)
    objects = [*m2("alder"), used(0, node="alder", memory="8Gi")]
    async with extended(service, *objects) as (embedded, running):
        put(embedded, pod(gpu=wanted))
        await until(lambda: service.asked, "the request")
        happens(embedded)
        await asyncio.sleep(0)
        assert set(held(running, "alder")) == {("gpu", 0)}  # changes wait for the attempt
        go.set()
        await until(lambda: where(embedded, "p"), "the binding")
        await until(lambda: not running.scheduler.cluster.assumed, "its confirmation")
        return given(embedded, "p"), {minor for _, minor in held(running, "alder")}


async def test_a_pod_that_leaves_while_an_attempt_is_suspended():
    found = await suspended_while(lambda embedded: remove(embedded, used(0, node="alder")), 100)
    assert found == ({"gpu": [1]}, {1})


async def test_a_gpu_that_is_reported_while_an_attempt_is_suspended():
    def more(embedded):
        report = m2("alder")[1]
        report["spec"]["devices"].append(gpu(2, "8Gi"))
        replace(embedded, report)

    found = await suspended_while(more, 100)
    assert found == ({"gpu": [1]}, {0, 1})


async def test_a_pod_that_is_deleted_while_its_attempt_is_suspended_holds_nothing():
    go = asyncio.Event()

    async def slow(body):
        await go.wait()
        return everything(body)

    service = Service(filter=slow)
    async with extended(service, *m2("alder")) as (embedded, running):
        put(embedded, pod("gone", gpu=200))
        await until(lambda: service.asked, "the request")
        remove(embedded, pod("gone"))
        put(embedded, pod("next", gpu=200))
        go.set()
        await until(lambda: where(embedded, "next"), "the binding")
        assert given(embedded, "next") == {"gpu": [0, 1]}
        assert set(held(running, "alder")) == {("gpu", 0), ("gpu", 1)}


async def test_an_extender_chooses_among_the_nodes_where_gpus_could_be_freed():
    def second(body):
        offered = body["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {"beech": offered["beech"]}}

    service = Service(preempt=second)
    victims = [used(0, 1, node=name, memory="8Gi") for name in ("alder", "beech")]
    async with extended(service, *m2("alder"), *m2("beech"), *victims, verbs=("preempt",)) as (embedded, running):
        put(embedded, pod("urgent", priority=50, gpu=100))
        await until(lambda: where(embedded, "urgent"), "the binding", 60)
        assert (where(embedded, "urgent"), given(embedded, "urgent")) == ("beech", {"gpu": [0]})
        assert set(held(running, "alder")) == {("gpu", 0), ("gpu", 1)}
        assert set(held(running, "beech")) == {("gpu", 0)}
    (offered,) = [body["NodeNameToMetaVictims"] for body in service.requests("preempt")]
    assert set(offered) == {"alder", "beech"}


async def test_no_pod_is_evicted_for_gpus_if_the_extender_minds():
    service = Service(preempt={"NodeNameToMetaVictims": {}})
    async with extended(service, *m2("alder"), used(0, 1, node="alder", memory="8Gi"), verbs=("preempt",)) as (
        embedded,
        running,
    ):
        put(embedded, pod("urgent", priority=50, gpu=100))
        await until(lambda: condition_of(embedded, "urgent"), "the condition")
        assert embedded.get("Pod", "used-alder-0-1") is not None
        assert set(held(running, "alder")) == {("gpu", 0), ("gpu", 1)}
        assert where(embedded, "urgent") is None


async def test_a_gang_of_which_an_extender_refuses_a_member_holds_nothing():
    """Each member is asked about; those that had their GPUs give them back."""

    def not_the_third(body):
        refused = body["Pod"]["metadata"]["name"] == "g-2"
        return {"NodeNames": [] if refused else body["NodeNames"]}

    service = Service(filter=not_the_third)
    things = [*m2("alder"), *m2("beech"), group(3)]
    async with extended(service, *things, settings=document()) as (embedded, running):
        for each in members(3, gpu=100):
            put(embedded, each)
        await until(lambda: condition_of(embedded, "g-2"), "the condition")
        await until(lambda: condition_of(embedded, "g-0"), "its condition")
        # Between two attempts: while the extender is asked about a member, those before it have theirs.
        await until(lambda: held(running, "alder") == held(running, "beech") == {}, "the GPUs being given back")
        service.answers["filter"] = everything
        change(embedded, "Node", "beech", lambda thing: thing["metadata"]["labels"].update(new="yes"))
        await until(lambda: all(where(embedded, f"g-{at}") for at in range(3)), "the bindings", 20)
        assert len({(where(embedded, f"g-{at}"), *given(embedded, f"g-{at}")["gpu"]) for at in range(3)}) == 3

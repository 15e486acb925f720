"""Every verb of an extender: what it is sent, what comes of its answer."""

import asyncio

import pytest

from koordsched.framework.interface import PreBind
from koordsched.framework.status import SUCCESS
from tests.embedded import Embedded, scheduler_on
from tests.extender.service import (
    Service,
    change,
    condition_of,
    everything,
    extended,
    extender,
    names_of,
    node_of,
    serving,
)
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term
from tests.waiting import until


def cluster(*names):
    embedded = Embedded()
    for name in names:
        embedded.insert(node(name))
    return embedded


def whole_pod():
    """A pod with fields that a scheduler has no use for."""
    thing = pod("p", {**container(cpu="1"), "env": [{"name": "A", "value": "b"}], "command": ["run"]})
    thing["metadata"]["annotations"] = {"example.com/hint": "x"}
    thing["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update"}]
    thing["spec"]["serviceAccountName"] = "robot"
    return thing


@pytest.mark.parametrize("capable", [True, False], ids=["names", "whole nodes"])
async def test_extenders_are_sent_whole_objects(capable):
    service = Service(filter=everything, prioritize=[])
    embedded = cluster("beech")
    detailed = node("alder", images={"img:1": 5})
    detailed["status"]["capacity"] = {"cpu": "5"}
    detailed["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.0"}
    detailed["metadata"]["managedFields"] = [{"manager": "kubelet", "operation": "Update"}]
    embedded.insert(detailed)
    async with serving(service):
        settings = extender(service, "filter", "prioritize", nodeCacheCapable=capable)
        async with scheduler_on(embedded, extended(settings)):
            embedded.insert(whole_pod())
            await until(lambda: node_of(embedded, "p"), "the binding")
    for body in (*service.requests("filter"), *service.requests("prioritize")):
        assert set(body) == {"Pod", "Nodes", "NodeNames"}
        assert sorted(names_of(body)) == ["alder", "beech"]
        assert (body["NodeNames"] is None, body["Nodes"] is None) == (not capable, capable)
        sent = body["Pod"]
        assert sent["spec"]["serviceAccountName"] == "robot"
        assert sent["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]
        assert sent["metadata"]["annotations"] == {"example.com/hint": "x"}
        assert "managedFields" not in sent["metadata"]
        if not capable:
            (alder,) = [item for item in body["Nodes"]["items"] if item["metadata"]["name"] == "alder"]
            assert alder["status"]["capacity"] == {"cpu": "5"}
            assert alder["status"]["nodeInfo"] == {"kubeletVersion": "v1.36.0"}
            assert "managedFields" not in alder["metadata"]


async def test_changed_objects_are_sent_as_they_are_now():
    service = Service(filter=lambda body: {"NodeNames": []})
    embedded = cluster("alder")
    async with serving(service):
        config = extended(
            extender(service, "filter", nodeCacheCapable=False), podInitialBackoffSeconds=1, podMaxBackoffSeconds=1
        )
        async with scheduler_on(embedded, config) as running:
            embedded.insert(pod("p"))
            await until(lambda: service.asked, "the first request")
            change(embedded, "Pod", "p", lambda thing: thing["metadata"].update(annotations={"new": "yes"}))
            change(embedded, "Node", "alder", lambda thing: thing["metadata"]["labels"].update(new="yes"))
            await until(
                lambda: (
                    service.asked[-1][1]["Pod"]["metadata"].get("annotations") == {"new": "yes"}
                    and service.asked[-1][1]["Nodes"]["items"][0]["metadata"]["labels"].get("new") == "yes"
                ),
                "a request with both changes",
            )
            service.answers["filter"] = everything
            change(embedded, "Node", "alder", lambda thing: thing["metadata"]["labels"].update(newer="yes"))
            await until(lambda: node_of(embedded, "p"), "the binding")
            await until(lambda: not running.scheduler.cluster.assumed, "its confirmation")
            shown = running.scheduler._extenders._objects
            assert (len(shown.pods), len(shown.nodes)) == (0, 1)


# --- who is asked -------------------------------------------------------------------------------

GPU = "ex.com/gpu"


@pytest.mark.parametrize(
    "spec, asked",
    [
        ({"containers": [container(cpu="1")]}, False),
        ({"containers": [container(gpu="1")]}, True),
        ({"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]}, True),
        ({"containers": [container()], "initContainers": [container(name="i", gpu="1")]}, True),
    ],
    ids=["none", "request", "limit", "init container"],
)
async def test_managed_resources_choose_the_pods(spec, asked):
    service = Service(filter=everything)
    embedded = Embedded()
    embedded.insert(node("alder", gpu="4"))
    async with serving(service):
        settings = extender(service, "filter", managedResources=[{"name": GPU}])
        async with scheduler_on(embedded, extended(settings)):
            thing = pod("p")
            thing["spec"] |= spec
            embedded.insert(thing)
            await until(lambda: node_of(embedded, "p"), "the binding")
    assert bool(service.asked) is asked


async def test_resources_left_to_the_extender_are_not_counted_by_the_scheduler():
    service = Service(filter=everything)
    embedded = cluster("alder")
    async with serving(service):
        managed = [{"name": GPU, "ignoredByScheduler": True}]
        async with scheduler_on(embedded, extended(extender(service, "filter", managedResources=managed))):
            embedded.insert(pod("p", container(gpu="64")))
            await until(lambda: node_of(embedded, "p") == "alder", "the binding")


async def test_those_that_must_not_fail_are_asked_first_and_each_sees_what_the_one_before_left():
    order = []

    def says(name, kept):
        def answer(body):
            order.append((name, sorted(body["NodeNames"])))
            return {"NodeNames": kept}

        return answer

    service = Service(
        first=says("ignorable", ["alder", "beech"]),
        second=says("must", ["alder", "beech"]),
        third=says("last", ["beech"]),
    )
    embedded = cluster("alder", "beech", "cedar")
    async with serving(service):
        base = {"urlPrefix": service.url, "nodeCacheCapable": True}
        config = extended(
            {**base, "filterVerb": "first", "ignorable": True},
            {**base, "filterVerb": "second"},
            {**base, "filterVerb": "third", "ignorable": True},
        )
        async with scheduler_on(embedded, config):
            embedded.insert(pod("p"))
            await until(lambda: node_of(embedded, "p") == "beech", "the binding")
    assert order == [
        ("must", ["alder", "beech", "cedar"]),
        ("ignorable", ["alder", "beech"]),
        ("last", ["alder", "beech"]),
    ]


# --- filter -------------------------------------------------------------------------------------

FILTER_ANSWERS = [
    ("go names", {"NodeNames": ["beech"], "FailedNodes": {"alder": "no"}}, "beech"),
    ("other case", {"nodeNames": ["beech"], "failedNodes": {"alder": "no"}, "error": ""}, "beech"),
    ("nodes instead of names", {"Nodes": {"items": [{"metadata": {"name": "alder"}}]}}, "alder"),
    ("names before nodes", {"NodeNames": ["beech"], "Nodes": {"items": [{"metadata": {"name": "alder"}}]}}, "beech"),
    ("unknown fields", {"NodeNames": ["alder"], "Extra": {"a": [1]}}, "alder"),
    ("twice", {"NodeNames": ["alder", "alder"]}, "alder"),
    ("nulls", {"NodeNames": ["alder"], "FailedNodes": None, "Error": None, "Nodes": None}, "alder"),
    ("reason for a node that stays", {"NodeNames": ["alder"], "FailedNodes": {"alder": "hm", "ghost": "boo"}}, "alder"),
]


@pytest.mark.parametrize("answer, expected", [case[1:] for case in FILTER_ANSWERS], ids=[c[0] for c in FILTER_ANSWERS])
async def test_answers_to_filter(answer, expected):
    service = Service(filter=answer)
    embedded = cluster("alder", "beech")
    async with serving(service), scheduler_on(embedded, extended(extender(service, "filter"))):
        embedded.insert(pod("p"))
        await until(lambda: node_of(embedded, "p"), "the binding")
        assert node_of(embedded, "p") == expected


REFUSALS = [
    ("nothing said", [{"NodeNames": []}], "0/3 nodes are available: 1 Insufficient cpu."),
    ("null", [None], "0/3 nodes are available: 1 Insufficient cpu."),
    (
        "both maps: final wins",
        [{"FailedNodes": {"alder": "a"}, "FailedAndUnresolvableNodes": {"alder": "b", "beech": "b"}}],
        "0/3 nodes are available: 1 Insufficient cpu, 2 b.",
    ),
    (
        "a node that the plugins refused",
        [{"FailedNodes": {"alder": "x", "beech": "x", "full": "and x"}}],
        "0/3 nodes are available: 1 Insufficient cpu, 1 and x, 2 x.",
    ),
    (
        "reasons of two extenders",
        [
            {"NodeNames": ["alder", "beech"], "FailedNodes": {"alder": "careful"}},
            {"FailedNodes": {"alder": "gone", "beech": "gone"}},
        ],
        "0/3 nodes are available: 1 Insufficient cpu, 1 careful, 2 gone.",
    ),
]


@pytest.mark.parametrize("answers, expected", [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
async def test_messages_of_refusals(answers, expected):
    service = Service(**{f"filter{number}": answer for number, answer in enumerate(answers)})
    embedded = cluster("alder", "beech")
    embedded.insert(node("full", cpu="100m"))
    async with serving(service):
        base = {"urlPrefix": service.url, "nodeCacheCapable": True}
        config = extended(*({**base, "filterVerb": verb} for verb in service.answers))
        async with scheduler_on(embedded, config):
            embedded.insert(pod("p", container(cpu="1"), preemptionPolicy="Never"))
            await until(lambda: condition_of(embedded, "p"), "the condition")
            reason, message = condition_of(embedded, "p")
            assert reason == "Unschedulable"
            assert message.startswith(f"{expected} no new claims to deallocate, ")


async def test_a_nominated_node_is_asked_about_first_and_alone():
    service = Service(filter=lambda body: {"NodeNames": [name for name in body["NodeNames"] if name != "alder"]})
    embedded = cluster("alder", "beech")
    async with serving(service), scheduler_on(embedded, extended(extender(service, "filter"))):
        thing = pod("p")
        thing["status"]["nominatedNodeName"] = "alder"
        embedded.insert(thing)
        await until(lambda: node_of(embedded, "p") == "beech", "the binding")
    assert [sorted(names_of(body)) for body in service.requests("filter")] == [["alder"], ["alder", "beech"]]


# --- prioritize ---------------------------------------------------------------------------------


async def test_scores_of_several_extenders_with_weights_and_strangers():
    service = Service(
        one=[{"Host": "alder", "Score": 10}, {"Host": "ghost", "Score": 10}],
        two=[{"host": "beech", "score": 4}, {"Host": "alder"}],
        broken={"not": "a list"},
    )
    embedded = cluster("alder", "beech", "cedar")
    async with serving(service):
        base = {"urlPrefix": service.url, "nodeCacheCapable": True}
        config = extended(
            {**base, "prioritizeVerb": "one", "weight": 1},
            {**base, "prioritizeVerb": "two", "weight": 5},
            {**base, "prioritizeVerb": "broken", "weight": 5},
        )
        async with scheduler_on(embedded, config) as running:
            embedded.insert(pod("p"))
            await until(lambda: node_of(embedded, "p") == "beech", "the binding")
            (decision,) = running.scheduler.decisions.of()
            given = {ranked.node: ranked.scores["Extender"] for ranked in decision.top}
            assert given == {"alder": 100, "beech": 200, "cedar": 0}
            assert running.scheduler.metrics.running("prioritizing_extender").value == 0


# --- preempt ------------------------------------------------------------------------------------


def full_cluster():
    """Two nodes, each full with one pod of lower priority."""
    embedded = cluster("alder", "beech")
    for name in ("alder", "beech"):
        embedded.insert(pod(f"on-{name}", container(cpu="3"), on=name, priority=1))
    return embedded


def uids_of(victims):
    return [(each.get("metadata") or {}).get("uid") or each.get("UID") for each in victims["Pods"]]


@pytest.mark.parametrize("capable", [True, False], ids=["uids", "whole pods"])
async def test_preempt_leaves_the_choice_to_the_extender(capable):
    def only_beech(body):
        offered = body["NodeNameToMetaVictims"] if capable else body["NodeNameToVictims"]
        assert body["NodeNameToVictims" if capable else "NodeNameToMetaVictims"] is None
        assert {name: uids_of(victims) for name, victims in offered.items()} == {
            name: [f"uid-default-on-{name}"] for name in ("alder", "beech")
        }
        assert [victims["NumPDBViolations"] for victims in offered.values()] == [0, 0]
        return {"NodeNameToMetaVictims": {"beech": {"Pods": [{"UID": "uid-default-on-beech"}], "NumPDBViolations": 0}}}

    service = Service(preempt=only_beech)
    embedded = full_cluster()
    async with (
        serving(service),
        scheduler_on(embedded, extended(extender(service, "preempt", nodeCacheCapable=capable))),
    ):
        embedded.insert(pod("p", container(cpu="3"), priority=10))
        await until(lambda: is_leaving(embedded, "on-beech"), "eviction")
        await until(lambda: embedded.get("Pod", "p")["status"].get("nominatedNodeName") == "beech", "nomination")
        assert not is_leaving(embedded, "on-alder")
    assert len(service.asked) == 1


def is_leaving(embedded, name):
    thing = embedded.get("Pod", name)
    return thing is None or "deletionTimestamp" in thing["metadata"]


REFUSED = "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate"
PREEMPT_ANSWERS = [
    ("nobody left", {}, {}, f"{REFUSED}, no candidate node for preemption"),
    ("null", None, {}, f"{REFUSED}, no candidate node for preemption"),
    (
        "a pod that is not there",
        {"NodeNameToMetaVictims": {"alder": {"Pods": [{"UID": "x"}]}}},
        {},
        "0/2 nodes are available: 2 Insufficient cpu. extender: URL claims to preempt pod (UID: x) on node: alder, "
        "but the pod is not found on that node",
    ),
    (
        "a node that was not offered",
        {"NodeNameToMetaVictims": {"ghost": {"Pods": [{"UID": "x"}]}}},
        {},
        '0/2 nodes are available: 2 Insufficient cpu. extender: URL claims to preempt on node "ghost", '
        "which it was not offered",
    ),
    (
        "no victims",
        {"NodeNameToMetaVictims": {"alder": {}}},
        {},
        '0/2 nodes are available: 2 Insufficient cpu. expected at least one victim pod on node "alder"',
    ),
    ("no victims, ignorable", {"NodeNameToMetaVictims": {"alder": None}}, {"ignorable": True},
     f"{REFUSED}, no candidate node for preemption"),
]  # fmt: skip


@pytest.mark.parametrize(
    "answer, settings, expected", [case[1:] for case in PREEMPT_ANSWERS], ids=[case[0] for case in PREEMPT_ANSWERS]
)
async def test_answers_to_preempt_that_leave_nothing(answer, settings, expected):
    service = Service(preempt=answer)
    embedded = full_cluster()
    async with serving(service), scheduler_on(embedded, extended(extender(service, "preempt", **settings))):
        embedded.insert(pod("p", container(cpu="3"), priority=10))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        assert condition_of(embedded, "p") == ("Unschedulable", expected.replace("URL", service.url))
        assert not is_leaving(embedded, "on-alder")
        assert not is_leaving(embedded, "on-beech")


@pytest.mark.parametrize("answer", [None, {}], ids=["not asked", "nobody left"])
async def test_pods_without_victims_wait_for_what_refused_them_in_dry_runs(answer):
    """One on alder must not be beside the pod; whoever is on beech is too important, or an extender spares it."""
    service = Service(filter=everything, preempt=answer)
    verbs = ("filter",) if answer is None else ("filter", "preempt")
    embedded = cluster("alder", "beech")
    embedded.insert(pod("on-alder", container(cpu="3"), on="alder", priority=1))
    embedded.insert(pod("avoided", container(cpu="1"), on="alder", priority=100, labels={"app": "x"}))
    embedded.insert(pod("on-beech", container(cpu="3"), on="beech", priority=100 if answer is None else 1))
    apart = pod_affinity(required_anti=[pod_term("kubernetes.io/hostname", {"app": "x"})])
    async with serving(service), scheduler_on(embedded, extended(extender(service, *verbs))) as running:
        embedded.insert(pod("p", container(cpu="3"), priority=10, affinity=apart))
        await until(lambda: condition_of(embedded, "p"), "the condition")
        waits_for = running.scheduler.queue.get("default/p").unschedulable_plugins
        assert waits_for == {"NodeResourcesFit", "InterPodAffinity"}


# --- bind ---------------------------------------------------------------------------------------


async def test_the_extender_binds_instead_of_the_plugins():
    embedded = cluster("alder")

    async def bind(body):
        target = {"kind": "Node", "name": body["Node"]}
        meta = {"name": body["PodName"], "namespace": body["PodNamespace"], "uid": body["PodUID"]}
        path = f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding"
        status, _ = await embedded.call(
            "POST", path, {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        )
        return {"Error": "" if status == 201 else f"status {status}"}

    service = Service(bind=bind)
    async with serving(service), scheduler_on(embedded, extended(extender(service, "bind"))) as running:
        embedded.insert(pod("p"))
        await until(lambda: node_of(embedded, "p") == "alder", "the binding")
        await until(lambda: not running.scheduler.cluster.assumed, "its confirmation")
        await until(lambda: any(e["reason"] == "Scheduled" for e in embedded.events()), "the event")
    assert service.requests("bind") == [
        {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-default-p", "Node": "alder"}
    ]


class Notes(PreBind):
    """Annotates pods."""

    name = "Notes"
    only_patches = True

    def __init__(self, args, handle):
        pass

    def pre_bind_pre_flight(self, cycle, pod, node):
        return SUCCESS

    async def pre_bind(self, cycle, pod, node):
        cycle.patch.annotate("on", node)
        return SUCCESS


@pytest.mark.parametrize("resource, found", [("example.com/ours", [{"on": "alder"}]), ("cpu", [None])])
async def test_an_extender_that_binds_finds_the_annotations_written(resource, found):
    """It writes the binding itself, so nothing can be added to that; other pods have it set by their binding."""
    embedded, seen = cluster("alder"), []

    async def watched(call, proceed):
        if call.path.endswith("/binding"):
            seen.append(embedded.get("Pod", "p")["metadata"].get("annotations"))
        return await proceed()

    async def bind(body):
        seen.append(embedded.get("Pod", body["PodName"])["metadata"].get("annotations"))
        change(embedded, "Pod", "p", lambda thing: thing["spec"].update(nodeName=body["Node"]))
        return {"Error": ""}

    service = Service(bind=bind)
    ours = {"name": "example.com/ours", "ignoredByScheduler": True}
    amounts = {resource: "1"}
    async with serving(service):
        managed = extended(extender(service, "bind", managedResources=[ours]))
        async with scheduler_on(embedded, managed, fault=watched, plugins=[Notes]):
            embedded.insert(pod("p", container() | {"resources": {"requests": amounts, "limits": amounts}}))
            await until(lambda: node_of(embedded, "p") == "alder", "the binding")
            assert embedded.get("Pod", "p")["metadata"]["annotations"] == {"on": "alder"}
    assert seen == found


async def test_a_binding_that_went_through_with_its_answer_lost_counts():
    embedded = cluster("alder")
    asked = asyncio.Event()

    async def bind_and_hang(body):
        change(embedded, "Pod", "p", lambda thing: thing["spec"].update(nodeName=body["Node"]))
        asked.set()
        await asyncio.sleep(30)

    service = Service(bind=bind_and_hang)
    async with (
        serving(service),
        scheduler_on(embedded, extended(extender(service, "bind", httpTimeout="200ms"))) as running,
    ):
        embedded.insert(pod("p"))
        await asked.wait()
        await until(lambda: any(e["reason"] == "Scheduled" for e in embedded.events()), "the event")
        assert running.scheduler.metrics.schedule_attempts.labels("scheduled", "default-scheduler").value == 1
    assert len(service.asked) == 1

"""Annotations that PreBind plugins give a pod are set by its binding, where that can carry them."""

import asyncio
import json

import pytest

from koordsched.client.errors import Ambiguous
from koordsched.framework.interface import Bind, PreBind
from koordsched.framework.status import SKIP, SUCCESS
from koordsched.scheduling.bindingannotations import LONGEST, carried
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

POD = "/api/v1/namespaces/default/pods/p"
BINDING = f"{POD}/binding"
FORBIDDEN = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not now"}


class Notes(PreBind):
    """Writes what its `changes(node)` say."""

    name = "Notes"
    only_patches = True

    def __init__(self, args, handle):
        self.changes = lambda node: {"annotations": {"on": node}}

    def pre_bind_pre_flight(self, cycle, pod, node):
        return SUCCESS

    async def pre_bind(self, cycle, pod, node):
        cycle.patch.merge(self.changes(node))
        return SUCCESS


class Elsewhere(Bind):
    """A bind plugin that knows nothing of annotations; it leaves the pods to the next one."""

    name = "Elsewhere"

    def __init__(self, args, handle):
        pass

    async def bind(self, cycle, pod, node):
        return SKIP


class Writes:
    """Of the pod `p`: method and body of patches and bindings, in order. `fault(number)` may answer a binding."""

    def __init__(self, fault=None):
        self.seen, self._fault, self._bindings = [], fault, 0

    async def __call__(self, call, proceed):
        if call.method == "GET" or call.path not in (POD, BINDING):
            return await proceed()
        self.seen.append((call.method, json.loads(call.body)["metadata"]))
        if call.path == BINDING and self._fault is not None:
            self._bindings += 1
            return await self._fault(self._bindings, proceed)
        return await proceed()


def notes_of(running):
    return running.scheduler.profiles["default-scheduler"].plugins["Notes"]


def played(changes=None, *, shown=(), plugins=(Notes,), fault=None, seconds=5):
    """The writes about a pod that shows these annotations, and the pod as it is then."""

    async def main():
        embedded, writes = Embedded(), Writes(fault)
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=writes, plugins=list(plugins)) as running:
            if changes is not None:
                notes_of(running).changes = changes
            thing = pod("p", container(cpu="1"))
            thing["metadata"]["annotations"] = dict(shown)
            embedded.insert(thing)
            await asyncio.sleep(seconds)
            return writes.seen, embedded.get("Pod", "p"), running.attempts

    return run(main())


def binding(**more):
    return "POST", {"name": "p", "namespace": "default", "uid": "uid-default-p", **more}


def patch(**more):
    return "PATCH", {"uid": "uid-default-p", **more}


def test_one_request_sets_node_and_annotations():
    writes, bound, attempts = played(shown={"kept": "1", "on": "birch"})
    assert writes == [binding(annotations={"on": "alder"})]
    assert bound["spec"]["nodeName"] == "alder"
    assert bound["metadata"]["annotations"] == {"kept": "1", "on": "alder"}
    assert attempts == {"default/p": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {"on": "alder", "old": None}},
        {"annotations": {"on": "alder"}, "labels": {"zone": "a"}},
    ],
    ids=["one to be removed", "a label"],
)
def test_what_a_binding_cannot_carry_is_patched_before(changes):
    writes, bound, _ = played(lambda node: changes, shown={"old": "1"})
    assert writes == [patch(**changes), binding()]
    assert bound["spec"]["nodeName"] == "alder"
    assert bound["metadata"]["annotations"].get("on") == "alder"


def test_an_annotation_to_be_removed_that_is_not_there_is_no_change():
    writes, _, _ = played(lambda node: {"annotations": {"on": node, "old": None}})
    assert writes == [binding(annotations={"on": "alder"})]


@pytest.mark.parametrize("plugins", [(Notes, Elsewhere), (Elsewhere, Notes)])
def test_a_bind_plugin_that_does_not_carry_them_finds_them_written(plugins):
    writes, _, _ = played(plugins=plugins)
    assert writes == [patch(annotations={"on": "alder"}), binding()]


@pytest.mark.parametrize(
    "annotations",
    [{"not a key": "1"}, {"on": "x" * LONGEST}],
    ids=["a key that is none", "too long"],
)
def test_what_an_api_server_would_refuse_is_not_smuggled_past_its_validation(annotations):
    """The embedded server refuses no annotation; the request says which way they go."""
    writes, _, _ = played(lambda node: {"annotations": annotations})
    assert writes[0] == patch(annotations=annotations)


def test_annotations_count_together_with_those_that_are_there():
    half = "ü" * (LONGEST // 4)
    assert carried({"annotations": {"a": "x"}}, {}) == {"a": "x"}
    assert carried({"annotations": {"a": "x"}}, {"b": half}) is None
    assert carried({"annotations": {"a": half}}, {}) is None


def test_a_refused_binding_leaves_the_pod_as_it_was():
    left = []

    async def refuse(number, proceed):
        if number > 1:
            return await proceed()
        return 403, {}, json.dumps(FORBIDDEN).encode()

    async def main():
        embedded, writes = Embedded(), Writes(refuse)
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=writes, plugins=[Notes]) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(0.5)
            left.append(embedded.get("Pod", "p")["metadata"].get("annotations"))
            assert not running.scheduler.binding._written
            notes_of(running).changes = lambda node: {"annotations": {"again": "yes"}}
            await asyncio.sleep(5)
            assert writes.seen == [binding(annotations={"on": "alder"}), binding(annotations={"again": "yes"})]
            bound = embedded.get("Pod", "p")
            assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("alder", {"again": "yes"})

    run(main())
    assert left == [None]


def test_a_binding_whose_answer_is_lost_has_set_them():
    async def lose(number, proceed):
        answer = await proceed()
        if number == 1:
            raise Ambiguous("connection lost after sending")
        return answer

    writes, bound, attempts = played(fault=lose)
    assert {method for method, _ in writes} == {"POST"}
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("alder", {"on": "alder"})
    assert attempts == {"default/p": 1}


def test_a_pod_of_the_same_name_is_neither_bound_nor_annotated():
    async def main():
        embedded = Embedded()

        async def replaced(number, proceed):
            if number == 1:
                embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)
                again = pod("p", container(cpu="1"), schedulerName="another")
                again["metadata"]["uid"] = "another"
                embedded.insert(again)
            return await proceed()

        writes = Writes(replaced)
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, fault=writes, plugins=[Notes]):
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(5)
            left = embedded.get("Pod", "p")
            assert (left["metadata"]["uid"], left["spec"].get("nodeName")) == ("another", None)
            assert "annotations" not in left["metadata"]
            assert len(writes.seen) == 1

    run(main())

"""What plugins declare to read of pods: part of the shape, or kept with pods that have a node."""

import asyncio
import tracemalloc

import pytest

from koordsched.api import core, podstates
from koordsched.api.decoding import convert
from koordsched.cluster.pod import Pod, PodWithFacts
from koordsched.cluster.state import ClusterState
from koordsched.framework.interface import ShapePreFilter
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.scheduling.snapshot import pod_object
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

WANTED, ALLOCATED, CORES = "example.com/wanted", "example.com/allocated", "example.com/cores"


def numbers(text):
    return tuple(int(part) for part in text.split(","))


def annotated(name, on=None, labels=None, **annotations):
    thing = pod(name, container(cpu="1"), on=on, labels=labels)
    thing["metadata"]["annotations"] = {f"example.com/{key}": value for key, value in annotations.items()}
    return thing


def built(cluster, thing):
    return cluster.pods.build(convert(thing, core.Pod))


class Choosy(ShapePreFilter):
    """Refuses pods by an annotation, and reads two of pods that have a node."""

    name = "Choosy"

    def __init__(self, args, handle):
        handle.cluster.shape_facts.declare(annotations=[WANTED])
        self.allocated = handle.cluster.pod_facts.declare(ALLOCATED, numbers, str)
        self.cores = handle.cluster.pod_facts.declare(CORES, numbers, str)

    def pre_filter_shape(self, shape):
        wanted = shape.meta.annotations.get(WANTED)
        return Status(Code.UNRESOLVABLE, (f"no {wanted} anywhere",)) if wanted == "moon" else SUCCESS


def test_declared_facts_are_part_of_the_shape_and_others_are_not():
    cluster = ClusterState()
    cluster.shape_facts.declare(annotations=[WANTED], labels=["tier"], owner_kinds=["Job"])
    one = built(cluster, annotated("a", wanted="x", other="1"))
    same = built(cluster, annotated("b", wanted="x", other="2", labels={"app": "web"}))
    assert one.shape is same.shape
    assert one.shape.meta.annotations == {WANTED: "x"}
    owned = annotated("e", wanted="x")
    owned["metadata"]["ownerReferences"] = [
        {"kind": "Job", "apiVersion": "batch/v1", "name": "j", "uid": "u", "controller": True}
    ]
    others = [annotated("c", wanted="y"), annotated("d", wanted="x", labels={"tier": "1"}), owned, annotated("f")]
    shapes = [one.shape, *(built(cluster, thing).shape for thing in others)]
    assert len(set(map(id, shapes))) == 5
    assert shapes[3].meta.owner_kinds == ("Job",)


def test_an_annotation_that_is_read_of_some_pods():
    cluster = ClusterState()
    cluster.shape_facts.declare_if(WANTED, lambda meta: meta.labels.get("app") == "web")
    read = [built(cluster, annotated(name, wanted=name, labels={"app": "web"})).shape for name in "ab"]
    others = [built(cluster, annotated(name, wanted=name)).shape for name in "cd"]
    assert [shape.meta.annotations for shape in (*read, *others)] == [{WANTED: "a"}, {WANTED: "b"}, {}, {}]
    assert others[0] is others[1]


def test_pods_that_differ_in_a_declared_annotation_share_no_verdict():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded, plugins=[Choosy]):
            for name, wanted in (("a", "sun"), ("b", "moon"), ("c", "sun")):
                embedded.insert(annotated(name, wanted=wanted))
            await asyncio.sleep(1)
            assert embedded.get("Pod", "a")["spec"]["nodeName"] == "alder"
            assert embedded.get("Pod", "c")["spec"]["nodeName"] == "alder"
            (condition,) = embedded.get("Pod", "b")["status"]["conditions"]
            assert "no moon anywhere" in condition["message"]

    run(main())


def test_declaring_after_a_pod_was_read_is_an_error():
    cluster = ClusterState()
    cluster.shape_facts.declare(annotations=[WANTED])
    before = cluster.pod_facts.declare(ALLOCATED, numbers, str)
    placed = built(cluster, annotated("a", on="alder", allocated="1"))
    cluster.shape_facts.declare(annotations=[WANTED])  # nothing new
    for more in ({"annotations": [ALLOCATED]}, {"labels": ["app"]}, {"owner_kinds": ["Job"]}):
        with pytest.raises(RuntimeError, match="before the first pod is read"):
            cluster.shape_facts.declare(**more)
    assert before.of(placed) == (1,)
    # Nothing was taken in by halves.
    assert built(cluster, annotated("b", labels={"app": "web"})).shape is built(cluster, annotated("c")).shape


def test_a_malformed_annotation_harms_that_pod_alone_and_is_told_once_per_version():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        embedded.insert(annotated("bad", on="alder", allocated="many", cores="3"))
        embedded.insert(annotated("good", on="alder", allocated="1,2"))
        async with scheduler_on(embedded, plugins=[Choosy]) as running:
            plugin = running.scheduler.profiles["default-scheduler"].plugins["Choosy"]
            assigned = running.scheduler.cluster.assigned
            assert plugin.allocated.of(assigned["uid-default-bad"]) is None
            assert plugin.cores.of(assigned["uid-default-bad"]) == (3,)
            assert plugin.allocated.of(assigned["uid-default-good"]) == (1, 2)

            async def notes():
                await asyncio.sleep(5)
                found = [event for event in embedded.events() if event["reason"] == "InvalidAnnotation"]
                return [(event["regarding"]["name"], event["type"], event["note"]) for event in found]

            problem = "ignored: annotation example.com/allocated: invalid literal for int() with base 10: 'many'"
            assert await notes() == [("bad", "Warning", problem)]
            # The same version again, as in a new listing.
            running.scheduler.pod_handler.upsert(convert(embedded.get("Pod", "bad"), core.Pod))
            assert len(await notes()) == 1
            body = {"status": {"phase": "Running"}}
            merge = {"content-type": "application/merge-patch+json"}
            path = "/api/v1/namespaces/default/pods/bad/status"
            status, answer = await embedded.call("PATCH", path, body, headers=merge)
            assert status == 200, answer
            assert await notes() == [("bad", "Warning", problem)] * 2
            embedded.insert(annotated("later"))
            await asyncio.sleep(1)
            assert embedded.get("Pod", "later")["spec"]["nodeName"] == "alder"

    run(main())


def test_facts_of_an_assumed_pod_that_annotations_give():
    """As a checkpoint has them."""
    cluster = ClusterState()
    allocated, cores = (cluster.pod_facts.declare(key, numbers, str) for key in (ALLOCATED, CORES))
    cluster.upsert_node(convert(node("alder"), core.Node))
    placed = built(cluster, annotated("a"))
    cluster.assume(placed, 0)
    cluster.allocate(placed, cores, (3,))
    cluster.allocate_all(placed, {ALLOCATED: "1,2"})
    assert (allocated.of(placed), cores.of(placed)) == ((1, 2), None)


def test_what_a_status_says():
    cluster = ClusterState()
    assert cluster.pod_facts.wire_type is core.Pod
    allocated = cluster.pod_facts.declare(ALLOCATED, numbers, str)

    def restarts(pod):
        return max((status.restart_count for status in pod.status.container_statuses), default=0) or None

    def broken(pod):
        raise ValueError(pod.status.phase)

    restarted = cluster.pod_facts.declare_states("restarts", restarts)
    never = cluster.pod_facts.declare_states("broken", broken)
    problems = []
    cluster.pod_facts.on_malformed = lambda meta, problem: problems.append((meta.name, problem))
    assert (cluster.pod_facts.wire_type, len(cluster.pod_facts)) == (podstates.Pod, 3)

    def seen(name, count, on="alder", allocated=None, kind=podstates.Pod):
        thing = annotated(name, on=on, allocated=allocated)
        thing["status"] = {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": count}]}
        return cluster.pods.build(convert(thing, kind))

    one, other = seen("a", 3), seen("b", 3)
    assert (restarted.of(one), allocated.of(one), never.of(one)) == (3, None, None)
    assert one.facts is other.facts
    assert problems == [("a", "status: Running"), ("b", "status: Running")]
    both = seen("c", 2, allocated="1,2")
    assert (restarted.of(both), allocated.of(both)) == (2, (1, 2))
    assert cluster.pod_facts.annotations(both).keys() == {ALLOCATED}
    # Well, without a node, and read without states.
    assert type(seen("d", 0)) is Pod
    assert restarted.of(seen("e", 3, on=None)) is None
    assert restarted.of(seen("f", 3, kind=core.Pod)) is None


def test_a_pod_without_a_node_has_no_facts_yet():
    cluster = ClusterState()
    fact = cluster.pod_facts.declare(ALLOCATED, numbers, str)
    waiting = built(cluster, annotated("a", allocated="malformed"))
    assert isinstance(waiting, PodWithFacts)
    assert fact.of(waiting) is None


@pytest.mark.slow
@pytest.mark.parametrize("allocation", [False, True])
def test_memory_of_bound_pods(allocation):
    def taken(declared):
        cluster = ClusterState()
        if declared:
            cluster.pod_facts.declare(ALLOCATED, numbers, str)
        wire = convert(annotated("a", on="alder", allocated="0"), core.Pod)
        tracemalloc.start()
        pods = []
        for i in range(100_000):
            # Allocations differ, a few thousand of them at a time.
            wire.metadata.annotations.clear()
            wire.metadata.annotations[ALLOCATED if allocation else CORES] = f"{i % 8000},0"
            pods.append(cluster.pods.build(wire))
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return {type(each) for each in pods}, size / len(pods)

    plain, declared = taken(declared=False), taken(declared=True)
    assert plain[0] == {Pod}
    assert declared[0] == ({PodWithFacts} if allocation else {Pod})
    assert declared[1] - plain[1] <= (200 if allocation else 1)


def test_a_fact_of_the_status_is_kept_and_written_back():
    cluster = ClusterState()
    ready = cluster.pod_facts.declare_status(
        "ready-since",
        lambda status: found.last_transition_time if (found := status.condition("Ready")) is not None else None,
        lambda since: {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]},
    )
    cores = cluster.pod_facts.declare(CORES, numbers, str)
    thing = annotated("a", on="alder", cores="1,2")
    thing["status"] = {
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    }
    placed, other = built(cluster, thing), built(cluster, annotated("b", on="alder"))
    assert (ready.of(placed), cores.of(placed)) == ("2026-01-01T00:00:00Z", (1, 2))
    assert other.facts == ()
    assert cluster.pod_facts.status(placed) == thing["status"]
    assert cluster.pod_facts.annotations(placed) == {CORES: "(1, 2)"}
    assert ready.parse(cluster.pod_facts.texts(placed)["ready-since"]) == "2026-01-01T00:00:00Z"


def references_of(*given):
    cluster = ClusterState()
    cluster.pod_facts.declare_references()
    thing = pod("p", on="alder")
    thing["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": name,
            "uid": name,
            **({"controller": True} if own else {}),
        }
        for name, own in given
    ]
    return cluster, cluster.pods.build(convert(thing, core.Pod))


@pytest.mark.parametrize("given", [(), (("rs", True),)], ids=["none", "its controller"])
def test_a_pod_with_no_more_references_than_its_controller_keeps_none(given):
    _, built = references_of(*given)
    assert type(built) is Pod
    assert [reference.name for reference in built.references] == [name for name, _ in given]


@pytest.mark.parametrize("given", [(("job", False),), (("job", False), ("rs", True)), (("rs", True), ("job", False))])
def test_all_references_of_a_pod_on_a_node(given):
    cluster, built = references_of(*given)
    assert built.wire is None
    assert [(reference.name, bool(reference.controller)) for reference in built.references] == list(given)
    # Journals keep facts as texts.
    (fact,) = cluster.pod_facts
    assert fact.parse(cluster.pod_facts.texts(built)[fact.annotation]) == built.references
    # Snapshots show them, and they are read again.
    shown = pod_object(built, [])
    again = ClusterState()
    again.pod_facts.declare_references()
    assert again.pods.build(convert(shown, core.Pod)).references == built.references
    assert cluster.pod_facts.status(built) == {}

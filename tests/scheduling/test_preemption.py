"""Preemption end to end: whatever happens to victims and preemptor meanwhile, none is lost and none waits for ever."""

import asyncio

import pytest

from koordsched.client.errors import NotSent
from koordsched.queue.item import Place
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

REFUSED = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"not now"}'


def on(embedded, name):
    """The node of a pod; None if it has none, "gone" if there is no such pod."""
    found = embedded.get("Pod", name)
    return "gone" if found is None else found["spec"].get("nodeName")


def delete(embedded, kind, name, **options):
    resource = embedded.resource(kind)
    embedded.registry.delete(resource, "default" if resource.namespaced else None, name, **options)


def settled(scheduler):
    """Whether nothing is under way: no binding, no eviction, no pod in flight or gated by an eviction."""
    return (
        not scheduler.cluster.assumed
        and not scheduler.queue.in_flight_pods()
        and not any(queued.place is Place.GATED for queued in scheduler.queue)
    )


def full_cluster(cpu):
    """An embedded cluster whose only node, alder, is full of pods v0, v1, … of one CPU each, with a kubelet."""
    embedded = Embedded()
    Kubelet(embedded)
    embedded.insert(node("alder", cpu=str(cpu)))
    for i in range(cpu):
        embedded.insert(pod(f"v{i}", container(cpu="1"), on="alder"))
    return embedded


def test_victims_that_wait_on_permit_lose_their_place_and_are_not_deleted(picky):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        async with scheduler_on(embedded) as running:
            picky[0].wait = 300.0
            for i in range(4):
                embedded.insert(pod(f"v{i}", container(cpu="1")))
            await asyncio.sleep(1)
            assert len(running.scheduler.waiting) == 4
            picky[0].wait = 0.0
            embedded.insert(pod("p", container(cpu="4"), priority=100))
            await asyncio.sleep(3)
            assert on(embedded, "p") == "alder"
            assert [on(embedded, f"v{i}") for i in range(4)] == [None] * 4
            notes = {event["note"] for event in embedded.events() if event["reason"] == "Preempted"}
            uid = embedded.get("Pod", "p")["metadata"]["uid"]
            assert notes == {f"Preempted by pod {uid} on node alder (in kube-scheduler memory)."}
            delete(embedded, "Pod", "p", grace_period_seconds=0)
            await asyncio.sleep(30)
            assert [on(embedded, f"v{i}") for i in range(4)] == ["alder"] * 4
            assert settled(running.scheduler)

    run(main())


@pytest.mark.parametrize("written", [True, False], ids=["", "status not written"])
def test_a_victim_that_found_its_place_again_loses_it_to_the_next_preemptor(written, picky):
    """`written`: whether the victim has a new version by then, which is another object."""

    async def refuse(call, proceed):
        return (403, {}, REFUSED) if call.path.endswith("/pods/v/status") and not written else await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="1"))
        async with scheduler_on(embedded, fault=refuse) as running:
            picky[0].wait = 300.0
            embedded.insert(pod("v", container(cpu="1")))
            await asyncio.sleep(1)
            for name in ("p", "q"):
                assert [waiting.pod.name for waiting in running.scheduler.waiting] == ["v"]
                picky[0].wait = 0.0
                embedded.insert(pod(name, container(cpu="1"), priority=100))
                await asyncio.sleep(3)
                assert on(embedded, name) == "alder"
                assert on(embedded, "v") is None
                picky[0].wait = 300.0
                delete(embedded, "Pod", name, grace_period_seconds=0)
                await asyncio.sleep(30)
            assert running.attempts["default/q"] == 2

    run(main())


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_victim_that_somebody_else_bound_while_it_waited_on_permit_is_deleted(elsewhere, picky):
    async def main():
        embedded = Embedded()
        Kubelet(embedded)
        embedded.insert(node("alder", cpu="1"))
        async with scheduler_on(embedded) as running:
            picky[0].wait = 300.0
            embedded.insert(pod("v", container(cpu="1")))
            await asyncio.sleep(1)
            assert len(running.scheduler.waiting) == 1
            if elsewhere:
                embedded.insert(node("beech", cpu="1"))
            uid = embedded.get("Pod", "v")["metadata"]["uid"]
            embedded.registry.bind("default", "v", uid, "beech" if elsewhere else "alder")
            await asyncio.sleep(1)
            picky[0].wait = 0.0
            for name in ("p", "q"):
                embedded.insert(pod(name, container(cpu="1"), priority=100))
                await asyncio.sleep(30)
            nodes = [on(embedded, name) for name in ("p", "q", "v")]
            assert nodes == (["alder", "beech", "gone"] if elsewhere else ["alder", None, "gone"])

    run(main())


LATE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "late"},
    "provisioner": "disk.test",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def claim(name):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    }


def test_a_victim_that_waits_for_its_volume_gives_up_binding_and_is_not_deleted():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        embedded.insert(LATE)
        embedded.insert(claim("data"))
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("v", container(cpu="3"), volumes=volumes))
            await asyncio.sleep(2)
            assert set(running.scheduler.cluster.assumed) == {embedded.get("Pod", "v")["metadata"]["uid"]}
            embedded.insert(pod("p", container(cpu="3"), priority=100))
            await asyncio.sleep(3)
            assert on(embedded, "p") == "alder"
            assert on(embedded, "v") is None
            assert "deletionTimestamp" not in embedded.get("Pod", "v")["metadata"]
            assert settled(running.scheduler)
            assert running.scheduler.queue.get("default/v") is not None

    run(main())


def test_victims_that_terminate_already_are_waited_for():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="2"))
        victim = pod("v", container(cpu="2"), on="alder")
        victim["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        embedded.insert(victim)
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(3)
            assert embedded.get("Pod", "p")["status"]["nominatedNodeName"] == "alder"
            assert not [event for event in embedded.events() if event["reason"] == "Preempted"]
            delete(embedded, "Pod", "v", grace_period_seconds=0)
            await asyncio.sleep(3)
            assert on(embedded, "p") == "alder"
            assert settled(running.scheduler)

    run(main())


class Slow:
    """Deletions of some pods take their time."""

    def __init__(self, *names, seconds=5.0):
        self.paths = tuple(f"/pods/{name}" for name in names)
        self.seconds = seconds

    async def __call__(self, call, proceed):
        if call.method == "DELETE" and call.path.endswith(self.paths):
            await asyncio.sleep(self.seconds)
        return await proceed()


@pytest.mark.parametrize("how", ["deleted", "finished"])
def test_the_last_victim_goes_by_itself_while_others_are_evicted(how):
    """Its going cannot wake the preemptor, which is not let in while the eviction of the others is under way."""

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="2"))
        for i in range(2):
            victim = pod(f"v{i}", container(cpu="1"), on="alder", terminationGracePeriodSeconds=0)
            victim["status"]["startTime"] = f"2029-01-0{i + 1}T00:00:00Z"
            embedded.insert(victim)
        async with scheduler_on(embedded, fault=Slow("v0", "v1")) as running:
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(1)
            if how == "deleted":
                delete(embedded, "Pod", "v1", grace_period_seconds=0)
            else:
                finish(embedded, "v1")
            await asyncio.sleep(8)
            assert on(embedded, "p") == "alder"
            assert settled(running.scheduler)

    run(main())


def finish(embedded, name):
    """The pod has run to its end."""
    resource = embedded.resource("Pod")
    record = embedded.registry.record(resource, "default", name)
    done = record.obj()
    embedded.registry.replace_record(resource, record, {**done, "status": {**done["status"], "phase": "Succeeded"}})


class Refusing:
    """Refuses the first `times` evictions, or all while `times` is None."""

    def __init__(self, answer, method, times):
        self.answer = answer
        self.method = method
        self.times = times
        self.asked = 0

    async def __call__(self, call, proceed):
        if call.method == self.method and ("/pods/v" in call.path):
            self.asked += 1
            if self.times is None or self.asked <= self.times:
                return await self.answer()
        return await proceed()


async def forbidden():
    return 403, {}, REFUSED


async def unreachable():
    raise NotSent("connection refused")


def answering(code, reason, message):
    text = f'{{"kind":"Status","status":"Failure","code":{code},"reason":"{reason}","message":"{message}"}}'

    async def answer():
        return code, {}, text.encode()

    return answer


changed_meanwhile = answering(409, "Conflict", "the object has been modified; please apply your changes to the latest")
failing = answering(500, "InternalError", "etcdserver: request timed out")
given_up = answering(504, "Timeout", "request did not complete within the allotted timeout")


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
@pytest.mark.parametrize("answer", [forbidden, unreachable, changed_meanwhile, failing, given_up])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_evictions_that_fail_are_tried_again(answer, method, times):
    async def main():
        embedded = full_cluster(3)
        async with scheduler_on(embedded, fault=Refusing(answer, method, times)) as running:
            embedded.insert(pod("p", container(cpu="3"), priority=100))
            await asyncio.sleep(60)
            assert on(embedded, "p") == "alder"
            assert settled(running.scheduler)

    run(main())


def test_a_server_that_refuses_evictions_for_good_is_not_asked_without_end():
    async def main():
        embedded = full_cluster(1)
        refusing = Refusing(forbidden, "DELETE", None)
        async with scheduler_on(embedded, fault=refusing) as running:
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            await asyncio.sleep(60)
            # At once, after 1, 2, 4, 8 seconds, and then every 10: not a word more.
            assert refusing.asked == running.attempts["default/p"] == 10
            refusing.times = 0
            await asyncio.sleep(15)
            assert on(embedded, "p") == "alder"

    run(main())


def test_a_scheduler_that_stops_has_the_evictions_finished_that_it_started():
    """The victims were told, and the next scheduler knows nothing of it."""

    async def main():
        embedded = full_cluster(2)
        async with scheduler_on(embedded, fault=Slow("v0", seconds=2.0)):
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(0.5)
        await asyncio.sleep(60)
        assert [on(embedded, name) for name in ("v0", "v1")] == ["gone", "gone"]

    run(main())


def test_the_preemptor_is_deleted_while_its_victims_are_evicted():
    async def main():
        embedded = full_cluster(2)
        async with scheduler_on(embedded, fault=Slow("v0", "v1")) as running:
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(1)
            delete(embedded, "Pod", "p", grace_period_seconds=0)
            embedded.insert(pod("q", container(cpu="2"), priority=0))
            await asyncio.sleep(60)
            assert on(embedded, "p") == "gone"
            assert on(embedded, "q") == "alder"
            assert len(running.scheduler.queue.nominator) == 0
            assert settled(running.scheduler)

    run(main())


def test_the_node_is_deleted_while_its_pods_are_evicted():
    async def main():
        embedded = full_cluster(2)
        async with scheduler_on(embedded, fault=Slow("v0", "v1")) as running:
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(1)
            delete(embedded, "Node", "alder")
            await asyncio.sleep(60)
            assert on(embedded, "p") is None
            assert running.scheduler.queue.get("default/p") is not None
            embedded.insert(node("birch", cpu="2"))
            await asyncio.sleep(15)
            assert on(embedded, "p") == "birch"
            assert settled(running.scheduler)

    run(main())


def test_two_preemptors_for_one_node_take_it_one_after_the_other():
    async def main():
        embedded = full_cluster(4)
        async with scheduler_on(embedded) as running:
            for name in ("p", "q"):
                embedded.insert(pod(name, container(cpu="2"), priority=100))
            await asyncio.sleep(30)
            assert (on(embedded, "p"), on(embedded, "q")) == ("alder", "alder")
            assert [on(embedded, f"v{i}") for i in range(4)] == ["gone"] * 4
            assert settled(running.scheduler)

    run(main())


def test_a_more_important_preemptor_takes_the_promised_room():
    async def main():
        embedded = Embedded()
        Kubelet(embedded, grace=5.0)
        embedded.insert(node("alder", cpu="2"))
        embedded.insert(pod("v", container(cpu="2"), on="alder"))
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(1)
            embedded.insert(pod("q", container(cpu="2"), priority=200))
            await asyncio.sleep(40)
            assert (on(embedded, "p"), on(embedded, "q"), on(embedded, "v")) == (None, "alder", "gone")
            assert settled(running.scheduler)
            delete(embedded, "Pod", "q", grace_period_seconds=0)
            await asyncio.sleep(15)
            assert on(embedded, "p") == "alder"

    run(main())


def budget(allowed):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": allowed},
    }


def test_a_budget_used_up_meanwhile_protects_from_the_next_preemptor():
    async def main():
        embedded = Embedded()
        Kubelet(embedded)
        for name, labels in (("alder", {"app": "db"}), ("birch", {"app": "web"})):
            embedded.insert(node(name, cpu="2"))
            for i in range(2):
                # Without the budget the pods on alder, of lower priority, would go first.
                priority = 0 if name == "alder" else 5
                embedded.insert(pod(f"{name}{i}", container(cpu="1"), on=name, labels=labels, priority=priority))
        embedded.insert(budget(1))
        async with scheduler_on(embedded, fault=Slow("alder0", "alder1", seconds=2.0)) as running:
            embedded.insert(pod("p", container(cpu="1"), priority=100))
            await asyncio.sleep(1)
            resource = embedded.resource("PodDisruptionBudget", "policy/v1")
            record = embedded.registry.record(resource, "default", "guard")
            embedded.registry.replace_record(resource, record, {**record.obj(), "status": {"disruptionsAllowed": 0}})
            await asyncio.sleep(0.1)
            embedded.insert(pod("q", container(cpu="1"), priority=100))
            await asyncio.sleep(20)
            assert (on(embedded, "p"), on(embedded, "q")) == ("alder", "birch")
            assert settled(running.scheduler)

    run(main())


@pytest.mark.parametrize(
    ("lower", "others", "taken"),
    [(3, 0, True), (4, 0, True), (1030, 0, True), (3, 1, False), (4, 1, False), (5, 2, False), (1030, 2, False)],
)
def test_pods_with_absurd_requests_are_victims_only_if_that_makes_room(lower, others, taken):
    """Their sum is larger than a column holds."""

    async def main():
        embedded = Embedded()
        Kubelet(embedded)
        alder = node("alder", cpu="8", memory="64Gi")
        alder["status"]["allocatable"]["pods"] = "100000"
        embedded.insert(alder)
        for number, (priority, name) in enumerate([(0, "lower")] * lower + [(1000, "other")] * others):
            embedded.insert(pod(f"{name}{number}", container(memory="9Ei"), on="alder", priority=priority))
        async with scheduler_on(embedded):
            embedded.insert(pod("p", container(memory="1Gi"), priority=100))
            await asyncio.sleep(60)
            assert on(embedded, "p") == ("alder" if taken else None)
            pods = embedded.registry.list(embedded.resource("Pod"))
            left = [thing for thing in pods if thing["metadata"]["name"].startswith("lower")]
            assert len(left) == (0 if taken else lower)

    run(main())

"""What network and API server may do to a scheduler, and what must come of it: no pod lost, none bound twice."""

import asyncio
from collections import Counter

import pytest

from koordsched.client.errors import Ambiguous, NotSent
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

STATUS = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":"%s","message":"told to fail"}'

TOO_OFTEN_CHANGED = b'Operation cannot be fulfilled on pods \\"druid-0\\": the object has been modified'


class BindingFaults:
    """Does something to the first `times` bindings of each pod."""

    def __init__(self, times, fault):
        self.times = times
        self.fault = fault
        self.seen = Counter()

    async def __call__(self, call, proceed):
        if call.path.endswith("/binding"):
            self.seen[call.path] += 1
            if self.seen[call.path] <= self.times:
                return await self.fault(proceed)
        return await proceed()


async def refuse_500(proceed):
    return 500, {}, STATUS % (500, b"InternalError")


async def refuse_429(proceed):
    return 429, {"retry-after": "1"}, STATUS % (429, b"TooManyRequests")


async def lost_before(proceed):
    raise Ambiguous("connection lost after sending")


async def lost_after(proceed):
    await proceed()
    raise Ambiguous("connection lost after sending")


async def given_up_before(proceed):
    return 504, {}, STATUS % (504, b"Timeout")


async def given_up_after(proceed):
    await proceed()
    return 502, {}, b"<html>Bad Gateway</html>"


def slow_binding(seconds):
    """Pod p's takes so long."""

    async def fault(call, proceed):
        if call.path.endswith("/pods/p/binding"):
            await asyncio.sleep(seconds)
        return await proceed()

    return fault


def cluster_of_one():
    embedded = Embedded()
    embedded.insert(node("alder", cpu="4"))
    return embedded


async def failed_after(proceed):
    await proceed()
    return 500, {}, STATUS % (500, b"InternalError")


async def redirected(proceed):
    return 302, {"location": "https://login.example.com"}, b""


async def not_sent(proceed):
    raise NotSent("connection refused")


async def slow(proceed):
    await asyncio.sleep(25)
    return await proceed()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "fault",
    [
        refuse_500, refuse_429, lost_before, lost_after, given_up_before, given_up_after, failed_after, redirected,
        not_sent, slow,
    ],
)  # fmt: skip
def test_bindings_that_go_wrong_are_settled(fault, times):
    async def main():
        embedded = Embedded()
        for name in ("alder", "birch"):
            embedded.insert(node(name, cpu="4"))
        faults = BindingFaults(times, fault)
        bound = Counter()
        pods = embedded.resource("Pod")

        def watch(kind, old, new):
            if kind == "MODIFIED" and new["spec"].get("nodeName") and not old["spec"].get("nodeName"):
                bound[new["metadata"]["name"]] += 1

        embedded.registry.subscribe(pods, watch)
        async with scheduler_on(embedded, fault=faults) as running:
            for i in range(8):
                embedded.insert(pod(f"p{i}", container(cpu="1")))
            await asyncio.sleep(180)
            assert bound == {f"p{i}": 1 for i in range(8)}
            used = Counter(embedded.get("Pod", f"p{i}")["spec"]["nodeName"] for i in range(8))
            assert used == {"alder": 4, "birch": 4}  # full, and not one too many
            assert running.scheduler.cluster.assumed == {}
            assert len(running.scheduler.queue) == 0

    run(main())


@pytest.mark.parametrize(
    "codes",
    [(500,), (502,), (503,), (504,), *((504, *[code] * 6) for code in (302, 401, 403, 422, 429, 500))],
)
def test_room_of_a_binding_that_was_carried_out_but_answered_with_an_error_is_taken(codes):
    """The watch is late: for a while nobody but the server knows that the pod has its node."""

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        bindings = Counter()
        looked = Counter()

        async def fault(call, proceed):
            status, headers, body = await proceed()
            if call.method == "GET" and call.path.endswith("/pods/p"):
                looked["p"] += 1
                if looked["p"] <= 2:  # whoever stands before the server has nothing to do with it
                    return 404, {}, b"<html>Not Found</html>"
            if call.path.endswith("/binding"):
                bindings[call.path.split("/")[-2]] += 1
                if bindings.total() <= len(codes):
                    code = codes[bindings.total() - 1]
                    return code, {}, STATUS % (code, b"Trouble")
            return status, headers, body if isinstance(body, bytes) else late(body)

        async def late(chunks):
            async for chunk in chunks:
                if b"nodeName" in chunk:
                    await asyncio.sleep(20)
                yield chunk

        async with scheduler_on(embedded, fault=fault) as running:
            embedded.insert(pod("p", container(cpu="3")))
            await asyncio.sleep(5)
            embedded.insert(pod("q", container(cpu="3")))
            await asyncio.sleep(60)
            assert bindings["p"] >= 1
            assert bindings["q"] == 0
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "alder"
            assert running.attempts["default/p"] == 1
            assert running.scheduler.cluster.assumed == {}

    run(main())


@pytest.mark.parametrize("code", [409, 429, 500, 502, 503, 504])
def test_a_refusal_is_told_although_the_server_is_in_trouble_at_first(code):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="2"))
        tries = Counter()

        async def fault(call, proceed):
            if call.path.endswith("/status"):
                tries["status"] += 1
                if tries["status"] <= 4:
                    return code, {}, STATUS.replace(b"told to fail", TOO_OFTEN_CHANGED) % (code, b"Trouble")
            return await proceed()

        async with scheduler_on(embedded, fault=fault) as running:
            embedded.insert(pod("druid-0", container(cpu="3")))
            await asyncio.sleep(30)
            conditions = embedded.get("Pod", "druid-0")["status"]["conditions"]
            assert [(c["type"], c["reason"]) for c in conditions] == [("PodScheduled", "Unschedulable")]
            assert (tries["status"], running.attempts) == (5, {"default/druid-0": 1})

    run(main())


def test_an_outage_of_the_server_loses_nothing():
    async def main():
        embedded = Embedded()
        for i in range(20):
            embedded.insert(node(f"n{i}", cpu="4"))
        down = False

        async def fault(call, proceed):
            if down:
                raise NotSent("connection refused")
            status, headers, body = await proceed()
            if not isinstance(body, bytes):
                body = cut(body)
            return status, headers, body

        async def cut(chunks):
            async for chunk in chunks:
                if down:
                    raise Ambiguous("connection reset")
                yield chunk

        async with scheduler_on(embedded, fault=fault) as running:
            for i in range(60):
                embedded.insert(pod(f"p{i}", container(cpu="1")))
                if i == 20:
                    await asyncio.sleep(0.01)
                    down = True
                    await asyncio.sleep(45)
            embedded.insert(pod("late", container(cpu="1")))
            await asyncio.sleep(20)
            down = False
            await asyncio.sleep(120)
            names = [*(f"p{i}" for i in range(60)), "late"]
            used = Counter(embedded.get("Pod", name)["spec"].get("nodeName") for name in names)
            assert None not in used
            assert max(used.values()) <= 4
            assert running.scheduler.cluster.assumed == {}

    run(main())


def test_a_pod_deleted_while_its_binding_is_under_way_frees_its_place():
    async def main():
        embedded = cluster_of_one()
        async with scheduler_on(embedded, fault=slow_binding(5)) as running:
            embedded.insert(pod("p", container(cpu="3")))
            await asyncio.sleep(1)
            assert len(running.scheduler.cluster.assumed) == 1
            embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)
            await asyncio.sleep(1)
            embedded.insert(pod("q", container(cpu="3")))
            await asyncio.sleep(20)
            assert embedded.get("Pod", "q")["spec"]["nodeName"] == "alder"
            assert running.scheduler.cluster.assumed == {}
            assert len(running.scheduler.queue) == 0

    run(main())


@pytest.mark.parametrize("wait", [600.0, 0.0], ids=["on Permit", "for the binding"])
def test_plugins_give_back_what_they_reserved_for_a_pod_that_vanished(picky, wait):
    async def main():
        embedded = cluster_of_one()
        async with scheduler_on(embedded, fault=slow_binding(5)) as running:
            picky[0].wait = wait
            embedded.insert(pod("p", container(cpu="3")))
            await asyncio.sleep(1)
            assert picky[0].unreserved == []
            embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)
            await asyncio.sleep(20)
            assert picky[0].unreserved == ["default/p"]
            assert running.scheduler.cluster.assumed == {}

    run(main())


def test_who_waits_gets_the_place_of_a_pod_that_is_being_deleted_before_it_is_bound():
    async def main():
        embedded = cluster_of_one()
        leaving = pod("p", container(cpu="3"))
        leaving["metadata"]["finalizers"] = ["example.com/kept"]
        async with scheduler_on(embedded, fault=slow_binding(600)) as running:
            embedded.insert(leaving)
            await asyncio.sleep(1)
            embedded.insert(pod("q", container(cpu="3")))
            await asyncio.sleep(3)
            assert len(running.scheduler.cluster.assumed) == 1
            assert "nodeName" not in embedded.get("Pod", "q")["spec"]
            embedded.registry.delete(embedded.resource("Pod"), "default", "p")
            await asyncio.sleep(5)
            assert embedded.get("Pod", "q")["spec"]["nodeName"] == "alder"
            assert embedded.get("Pod", "p")["metadata"]["deletionTimestamp"]

    run(main())


def test_a_pod_bound_by_somebody_else_is_theirs():
    async def main():
        embedded = Embedded()
        for name in ("alder", "birch"):
            embedded.insert(node(name, cpu="4"))

        async def fault(call, proceed):
            if call.path.endswith("/binding"):
                uid = embedded.get("Pod", "p")["metadata"]["uid"]
                embedded.registry.bind("default", "p", uid, "birch")
            return await proceed()

        async with scheduler_on(embedded, fault=fault) as running:
            embedded.insert(pod("p", container(cpu="3"), nodeSelector={"kubernetes.io/hostname": "alder"}))
            await asyncio.sleep(30)
            table = running.scheduler.cluster.table
            assert int(table.requested[0].data[table.row_of["alder"]]) == 0
            assert int(table.requested[0].data[table.row_of["birch"]]) == 3000
            assert len(running.scheduler.queue) == 0
            assert running.attempts == {"default/p": 1}

    run(main())


def test_bad_objects_get_a_message_and_harm_no_others():
    async def main():
        embedded = Embedded()
        broken = node("broken")
        broken["status"]["allocatable"] = {"cpu": "many", "memory": "8Gi", "pods": "110"}
        embedded.insert(broken)
        embedded.insert(node("sound"))
        unreadable = node("unreadable")
        unreadable["spec"]["taints"] = {"not": "a list"}
        embedded.insert(unreadable)
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("absurd", container(cpu="9e40", memory="9e40")))
            nonsense = pod("nonsense", container())
            nonsense["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "a lot"}}
            embedded.insert(nonsense)
            twisted = pod("twisted", container())
            twisted["spec"]["tolerations"] = "none"
            embedded.insert(twisted)
            embedded.insert(pod("fine", container(cpu="1")))
            await asyncio.sleep(5)
            assert embedded.get("Pod", "fine")["spec"]["nodeName"] == "sound"
            by_pod = {e["regarding"]["name"]: e["note"] for e in embedded.events() if e["reason"] != "Scheduled"}
            assert by_pod["broken"].startswith("counted as zero: allocatable cpu: quantity 'many' must match")
            assert by_pod["nonsense"].startswith("pod cannot be scheduled: quantity 'a lot' must match")
            assert "2 Insufficient cpu, 2 Insufficient memory" in by_pod["absurd"]
            # Mended, they are scheduled like any other.
            resource = embedded.resource("Pod")
            record = embedded.registry.record(resource, "default", "nonsense")
            mended = {**record.obj(), "spec": pod("nonsense", container(cpu="1"))["spec"]}
            embedded.registry.replace_record(resource, record, mended)
            await asyncio.sleep(5)
            assert embedded.get("Pod", "nonsense")["spec"]["nodeName"] == "sound"
            assert running.scheduler.watches.reflectors["/api/v1/pods"].malformed == 1

    run(main())


def test_restart_takes_up_where_the_last_one_was_killed():
    async def main():
        embedded = Embedded()
        for i in range(10):
            embedded.insert(node(f"n{i}", cpu="4"))
        for i in range(30):
            embedded.insert(pod(f"p{i}", container(cpu="1")))
        for life in range(6):
            async with scheduler_on(embedded, seed=life):
                await asyncio.sleep(0.001 * life)
        async with scheduler_on(embedded, seed=99) as running:
            await asyncio.sleep(30)
            used = Counter(embedded.get("Pod", f"p{i}")["spec"].get("nodeName") for i in range(30))
            assert None not in used
            assert max(used.values()) <= 4
            assert running.scheduler.cluster.assumed == {}

    run(main())

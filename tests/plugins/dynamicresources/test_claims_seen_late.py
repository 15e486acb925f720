"""What a scheduler wrote of claims, while its watch of claims is late, or ahead of the answers."""

import asyncio
from itertools import chain, repeat

import pytest

from koordsched.client.errors import Ambiguous
from koordsched.plugins.dynamicresources.binding import _uninterrupted
from koordsched.plugins.dynamicresources.claimwriter import ClaimFailed
from tests.plugins.dynamicresources.deviceworld import (
    GPU,
    GROUP,
    N1,
    allocated,
    claim,
    claiming,
    device_class,
    refusing,
    slice_of,
    wanting,
    world,
)
from tests.plugins.objects import container, node
from tests.virtualtime import run

ONE_NODE = (N1, device_class(), slice_of("n1", "d0"))


class Late:
    """A watch whose events come so many seconds late."""

    def __init__(self, body, seconds):
        self._body = body
        self._seconds = seconds

    async def __aiter__(self):
        coming, now = asyncio.Queue(), asyncio.get_running_loop().time

        async def read():
            async for chunk in self._body:
                coming.put_nowait((now() + self._seconds, chunk))
            coming.put_nowait((now() + self._seconds, None))

        reading = asyncio.create_task(read())
        try:
            while True:
                due, chunk = await coming.get()
                await asyncio.sleep(due - now())
                if chunk is None:
                    return
                yield chunk
        finally:
            reading.cancel()

    async def aclose(self):
        """The client goes away."""
        await self._body.aclose()


def is_watch_of_claims(call):
    return call.query.get("watch") == "1" and call.path.endswith("/resourceclaims")


def test_a_reservation_that_was_taken_back_is_made_again_though_the_watch_still_has_it():
    refuse = refusing(500, "not now")
    reserved = []

    async def steps():
        async def fault(call, proceed):
            if call.path.endswith("/binding"):
                found = there.get("c")["status"].get("reservedFor", [])
                reserved.append([each["name"] for each in found])
                return await refuse(call, proceed)
            status, headers, body = await proceed()
            return status, headers, Late(body, 60.0) if is_watch_of_claims(call) else body

        async with world(*ONE_NODE, claim("c"), fault=fault) as there:
            there.embedded.insert(claiming("p", "c"))
            await asyncio.sleep(30)
            assert there.where("p") == "n1"

    run(steps())
    assert reserved == [["p"], ["p"]]


def test_a_reservation_is_made_when_that_of_the_attempt_before_is_taken_back():
    """Else it could be taken back after it was made."""
    refuse = refusing(500, "not now")

    async def steps():
        async def fault(call, proceed):
            if call.path.endswith("/binding"):
                return await refuse(call, proceed)
            if call.method == "PATCH" and b"$patch" in call.body:
                await asyncio.sleep(5)
            return await proceed()

        async with world(*ONE_NODE, claim("c"), fault=fault) as there:
            there.embedded.insert(claiming("p", "c"))
            await asyncio.sleep(4)
            assert there.where("p") is None
            await asyncio.sleep(26)
            assert there.where("p") == "n1"
            assert there.running.attempts == {"default/p": 2}
            assert [each["name"] for each in there.get("c")["status"]["reservedFor"]] == ["p"]

    run(steps())


@pytest.mark.parametrize("readable", [True, False])
def test_a_claim_that_was_made_is_waited_for_however_late_it_is_seen(readable):
    async def steps():
        async def fault(call, proceed):
            if call.method == "GET" and "/resourceclaims/p-" in call.path and not readable:
                raise Ambiguous("connection reset")
            status, headers, body = await proceed()
            return status, headers, Late(body, 20.0) if is_watch_of_claims(call) else body

        async with world(N1, GPU, slice_of("n1", "d0"), fault=fault) as there:
            there.embedded.insert(wanting("p"))
            await asyncio.sleep(15)
            assert there.where("p") is None
            await asyncio.sleep(60)
            assert there.where("p") == "n1"
            assert there.running.attempts == {"default/p": 1}

    run(steps())


@pytest.mark.parametrize("again", [False, True])
def test_a_claim_that_is_deleted_before_its_write_is_answered_stays_gone(again):
    """`again`: there is another claim of that name by then."""

    async def steps():
        async def fault(call, proceed):
            answer = await proceed()
            if call.method == "PATCH" and call.path.endswith("/c/status"):
                registry, resource = there.embedded.registry, there.embedded.resource("ResourceClaim", GROUP)
                registry.update_record(resource, "default", "c", _unprotect)
                registry.delete_record(resource, "default", "c")
                if again:
                    there.embedded.insert(claim("c") | {"metadata": {"name": "c", "uid": "another"}})
                await asyncio.sleep(1)
            return answer

        async with world(*ONE_NODE, claim("c"), fault=fault) as there:
            there.embedded.insert(claiming("p", "c"))
            await asyncio.sleep(2)
            there.embedded.registry.delete_record(there.embedded.resource("Pod"), "default", "p")
            await asyncio.sleep(10)
            known = [each.metadata.uid for each in there.books.claims]
            assert known == (["another"] if again else [])
            assert (there.books.in_use.pools, len(there.books.in_flight)) == ({}, 0)

    run(steps())


def _unprotect(thing):
    return {**thing, "metadata": {key: value for key, value in thing["metadata"].items() if key != "finalizers"}}


def test_a_write_that_fails_after_its_binding_was_cancelled_is_no_exception_that_is_never_seen():
    unseen = []

    async def failing():
        await asyncio.sleep(1)
        raise ClaimFailed("too late")

    async def steps():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        task = asyncio.create_task(_uninterrupted(failing()))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(steps())
    assert unseen == []


class Omitting:
    """A watch that began anew after a claim had come and gone: it never shows it."""

    def __init__(self, body, text):
        self._body = body
        self._text = text

    async def __aiter__(self):
        async for chunk in self._body:
            if self._text not in chunk:
                yield chunk

    async def aclose(self):
        """The client goes away."""
        await self._body.aclose()


def test_devices_of_a_special_claim_that_no_watch_has_shown_are_free_when_it_is_gone():
    async def steps():
        async def fault(call, proceed):
            status, headers, body = await proceed()
            if call.method == "PATCH" and "-extended-resources-" in call.path and call.path.endswith("/status"):
                registry, resource = there.embedded.registry, there.embedded.resource("ResourceClaim", GROUP)
                name = call.path.split("/")[-2]
                registry.update_record(resource, "default", name, _unprotect)
                registry.delete_record(resource, "default", name)
                registry.delete_record(there.embedded.resource("Pod"), "default", "p")
            return status, headers, Omitting(body, b"-extended-resources-") if is_watch_of_claims(call) else body

        kind = device_class(extendedResourceName="ex.com/d")
        async with world(N1, kind, slice_of("n1", "d0"), fault=fault) as there:
            one = container(cpu="100m")
            for amounts in ("requests", "limits"):
                one["resources"].setdefault(amounts, {})["ex.com/d"] = "1"
            there.embedded.insert(claiming("p", containers=[one]))
            await asyncio.sleep(2)
            assert len(there.books.in_flight) == 1
            await asyncio.sleep(10)
            assert (there.books.in_use.pools, len(there.books.in_flight)) == ({}, 0)
            assert there.running.scheduler.binding.in_flight == 0

    run(steps())


def preempted_while_written(end):
    """A pod whose claim is being written when a more important one takes its place; `end` of the slow request. Returns
    (devices in use, claims) after that, with a watch that is an hour late."""

    async def steps():
        async def fault(call, proceed):
            if call.method != "GET" and slow and "/resourceclaims/" in call.path:
                await asyncio.sleep(3)
            status, headers, body = await proceed()
            found = call.path.endswith(end) or ("extended" in end and "-extended-resources-" in call.path)
            if call.method == "PATCH" and found and call.path.endswith("/status") and not slow:
                slow.append(call.path)
                await asyncio.sleep(5)
            return status, headers, Late(body, 3600.0) if is_watch_of_claims(call) else body

        slow = []
        one = node("n1", "1")
        kind = device_class(extendedResourceName="ex.com/d")
        async with world(one, kind, slice_of("n1", "d0"), claim("c"), fault=fault) as there:
            made = claiming("p", *([] if "extended" in end else ["c"]), containers=[container(cpu="1")])
            if "extended" in end:
                made["spec"]["containers"][0]["resources"]["requests"]["ex.com/d"] = "1"
                made["spec"]["containers"][0]["resources"]["limits"] = {"ex.com/d": "1"}
            there.embedded.insert(made)
            await asyncio.sleep(1)
            there.embedded.insert(claiming("important", containers=[container(cpu="1")], priority=100))
            await asyncio.sleep(2)
            used = []
            for _ in range(20):
                await asyncio.sleep(1)
                held = {name for pool in there.books.in_use.pools.values() for name in pool.exclusive}
                written = {
                    result["device"]
                    for each in there.claims()
                    for result in each.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
                }
                used.append((written, held))
            assert slow
            assert there.where("important") == "n1"
            return used

    return run(steps())


def test_what_is_written_for_a_pod_that_is_preempted_meanwhile_is_in_use():
    used = preempted_while_written("/c/status")
    assert used[-1] == ({"d0"}, {"d0"})
    assert all(written <= held for written, held in used)


def test_a_claim_that_is_made_for_a_pod_that_is_preempted_meanwhile_is_deleted():
    """Until then its devices are in use."""
    used = preempted_while_written("extended/status")
    assert used[-1] == (set(), set())
    assert all(written <= held for written, held in used)


def test_a_special_claim_of_an_attempt_that_failed_frees_nothing_that_the_next_one_chose():
    """It is seen while that attempt is bound: not even then do two pods get the same device."""
    made = []

    async def steps():
        async def fault(call, proceed):
            status, headers, body = await proceed()
            if call.method == "POST" and call.path.endswith("/resourceclaims"):
                made.append(call.path)
                if len(made) == 1:
                    asyncio.get_running_loop().call_soon(there.running.scheduler.binding.cancel, "uid-default-p")
            return status, headers, Late(body, 2.5) if is_watch_of_claims(call) else body

        async with world(N1, GPU, slice_of("n1", "d0"), fault=fault) as there:
            there.embedded.insert(wanting("p"))
            used = []
            while there.where("p") is None:
                await asyncio.sleep(0.5)
                if len(made) == 2:
                    used.append([dict(pool.exclusive) for pool in there.books.in_use.pools.values()])
                    if len(used) == 3:
                        there.embedded.insert(wanting("q"))
            assert all(used)
            await asyncio.sleep(30)
            assert there.running.attempts["default/p"] == 2
            assert there.where("q") is None

    run(steps())


@pytest.mark.parametrize("readable", ["always", "after two failures", "once"])
def test_a_claim_whose_answer_is_lost_is_not_taken_for_another_clients(readable):
    """`readable`: when requests succeed that read it back."""
    lost = []
    answers = {"always": repeat(True), "after two failures": chain([False] * 2, repeat(True))}
    succeeds = answers.get(readable, chain([True], repeat(False)))

    async def steps():
        async def fault(call, proceed):
            if call.method == "GET" and call.path.endswith("/c") and not next(succeeds):
                raise Ambiguous("connection reset")
            status, headers, body = await proceed()
            if call.method == "PATCH" and call.path.endswith("/c/status") and not lost:
                lost.append(call.path)
                raise Ambiguous("connection reset")
            return status, headers, Late(body, 3600.0) if is_watch_of_claims(call) else body

        async with world(*ONE_NODE, claim("c"), fault=fault) as there:
            there.embedded.insert(claiming("p", "c"))
            await asyncio.sleep(30)
            assert there.where("p") == "n1"
            assert there.running.attempts == {"default/p": 1}
            assert lost

    run(steps())


def test_a_claim_that_another_client_has_allocated_meanwhile_is_known_when_it_is_read():
    async def steps():
        async def fault(call, proceed):
            if call.method == "PATCH" and call.path.endswith("/c") and not there.get("c").get("status"):
                resource = there.embedded.resource("ResourceClaim", GROUP)
                there.embedded.registry.replace_status(resource, "default", "c", allocated("d1"))
            status, headers, body = await proceed()
            return status, headers, Late(body, 3600.0) if is_watch_of_claims(call) else body

        async with world(N1, device_class(), slice_of("n1", "d0", "d1"), claim("c"), fault=fault) as there:
            there.embedded.insert(claiming("p", "c"))
            await asyncio.sleep(30)
            assert [name for pool in there.books.in_use.pools.values() for name in pool.exclusive] == ["d1"]
            assert there.where("p") == "n1"

    run(steps())


@pytest.mark.parametrize("written", ["c", "a"], ids=["while it is written", "while another claim is written"])
def test_what_was_chosen_for_a_claim_is_not_written_to_its_successor(written):
    replaced = []

    async def steps():
        async def fault(call, proceed):
            if call.method == "PATCH" and call.path.endswith(f"/{written}") and not replaced:
                replaced.append(call.path)
                registry, resource = there.embedded.registry, there.embedded.resource("ResourceClaim", GROUP)
                registry.delete_record(resource, "default", "c")
                there.embedded.insert(claim("c", 2) | {"metadata": {"name": "c", "uid": "another"}})
                await asyncio.sleep(1)  # its watch shows the successor
            return await proceed()

        devices = slice_of("n1", "d0", "d1", "d2")
        async with world(N1, device_class(), devices, claim("a"), claim("c"), fault=fault) as there:
            there.embedded.insert(claiming("p", "a", "c"))
            await asyncio.sleep(30)
            assert replaced
            assert there.where("p") == "n1"
            found = there.get("c")["status"]["allocation"]["devices"]["results"]
            assert len(found) == 2
            assert there.running.attempts["default/p"] > 1

    run(steps())

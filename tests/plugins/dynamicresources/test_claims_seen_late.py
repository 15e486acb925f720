"""What a scheduler wrote of claims, while its watch of claims is late, or ahead of the answers."""

import asyncio

import pytest

from koordsched.plugins.dynamicresources.binding import _uninterrupted
from koordsched.plugins.dynamicresources.claimwriter import ClaimFailed
from tests.plugins.dynamicresources.deviceworld import (
    GROUP,
    N1,
    claim,
    claiming,
    device_class,
    refusing,
    slice_of,
    world,
)
from tests.virtualtime import run

ONE_NODE = (N1, device_class(), slice_of("n1", "d0"))


class Late:
    """A watch whose events come so many seconds late."""

    def __init__(self, body, seconds):
        self._body = body
        self._seconds = seconds

    async def __aiter__(self):
        async for chunk in self._body:
            await asyncio.sleep(self._seconds)
            yield chunk

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

"""With extenders: devices are allocated on a node that they leave, and nothing is held while they are asked in vain."""

import asyncio
from contextlib import asynccontextmanager

from tests.embedded import DEFAULT_CONFIG
from tests.extender.service import Service, extender, serving
from tests.plugins.dynamicresources.deviceworld import N1, N2, claim, claiming, device_class, slice_of, world
from tests.waiting import until

OBJECTS = N1, N2, device_class(), slice_of("n1", "d0"), slice_of("n2", "d0"), claim("c")


def only(*names):
    """The answer of a filter that leaves these nodes."""
    return lambda body: {"NodeNames": [name for name in body["NodeNames"] if name in names]}


@asynccontextmanager
async def extended(service, *verbs, **settings):
    async with serving(service):
        settings = {"extenders": [extender(service, *verbs, **settings)]}
        async with world(*OBJECTS, configuration={**DEFAULT_CONFIG, **settings}) as there:
            yield there


async def test_devices_are_those_of_the_node_that_is_left():
    async with extended(Service(filter=only("n2")), "filter") as there:
        there.embedded.insert(claiming("p", "c"))
        await until(lambda: there.where("p"), "the binding")
        assert there.where("p") == "n2"
        (result,) = there.get("c")["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == "n2"


async def test_nothing_is_held_where_no_node_is_left():
    async with extended(Service(filter=only()), "filter") as there:
        there.embedded.insert(claiming("p", "c"))
        await until(lambda: there.message("p"), "the verdict")
        assert there.where("p") is None
        assert (there.books.in_use.pools, len(there.books.in_flight), there.of_claims()) == ({}, 0, [])


async def test_a_claim_that_is_replaced_while_the_extender_answers_is_allocated_anew():
    """The attempt has the claim of its beginning, and what it writes is refused: the uid is another one. The next
    attempt has the new claim."""
    asked = asyncio.Event()

    async def answer(body):
        if not asked.is_set():
            asked.set()
            await asyncio.sleep(0.3)
        return {"NodeNames": body["NodeNames"]}

    async with extended(Service(filter=answer), "filter") as there:
        there.embedded.insert(claiming("p", "c"))
        await asked.wait()
        there.embedded.registry.delete(there.embedded.resource("ResourceClaim", "resource.k8s.io/v1"), "default", "c")
        there.embedded.insert(claim("c") | {"metadata": {"name": "c", "namespace": "default", "uid": "another"}})
        await until(lambda: there.where("p"), "the binding")
        found = there.get("c")
        assert (found["metadata"]["uid"], [each["name"] for each in found["status"]["reservedFor"]]) == (
            "another",
            ["p"],
        )
        assert len(there.books.in_flight) == 0

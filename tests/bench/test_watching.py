"""The watch of whoever measures, against the embedded API server on virtual time."""

import asyncio

import pytest

from bench.api import Api
from bench.watching import PODS, WatchLost, pod_events
from koordsched.client.errors import Ambiguous
from tests.embedded import Embedded
from tests.virtualtime import run


def pod(number):
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "default"}, "spec": spec,
    }  # fmt: skip


async def ended(chunks):
    """A stream that the server ends after its first chunk."""
    async for chunk in chunks:
        yield chunk
        return


async def cut_off(chunks):
    """A stream whose connection breaks after its first chunk."""
    async for chunk in chunks:
        yield chunk
        raise Ambiguous("connection reset")


class Watch:
    """A watch whose connections `breaks`, each after its first chunk; and the names of the pods it showed."""

    def __init__(self, embedded, breaks):
        self.opened = 0
        self.names = []
        self.queries = []
        self._breaks = breaks
        self._transport = embedded.transport(self._fault)

    async def _fault(self, call, proceed):
        if call.query.get("watch") != "1":
            return await proceed()
        self.opened += 1
        self.queries.append(call.query["resourceVersion"])
        status, headers, body = await proceed()
        return status, headers, self._breaks(body)

    async def follow(self, version, pods):
        """Until so many pods were shown."""
        async for events in pod_events(self._transport, version):
            self.names += [event.object.metadata.name for event in events]
            if len(self.names) >= pods:
                return


@pytest.mark.parametrize("breaks", [ended, cut_off])
def test_goes_on_where_the_server_ended_it(breaks):
    async def scenario():
        embedded = Embedded()
        api = Api(embedded.transport())
        _, version = await api.list_all(PODS)
        watch = Watch(embedded, breaks)
        following = asyncio.create_task(watch.follow(version, 4))
        for number in range(4):
            await asyncio.sleep(1.0)
            await api.create(pod(number))
        async with asyncio.timeout(5.0):
            await following
        assert watch.names == ["p0", "p1", "p2", "p3"]
        assert watch.opened == 4
        assert watch.queries[0] == version
        assert sorted(set(watch.queries), key=int) == watch.queries

    run(scenario())


def test_waits_for_a_server_that_is_not_ready():
    async def scenario():
        embedded = Embedded()
        api = Api(embedded.transport())
        _, version = await api.list_all(PODS)
        refusals = [429, 503]

        async def fault(call, proceed):
            return (refusals.pop(), {}, b"not now") if refusals else await proceed()

        shown = pod_events(embedded.transport(fault), version)
        await api.create(pod(0))
        async with asyncio.timeout(5.0):
            events = await anext(shown)
        assert [event.type for event in events] == ["ADDED"]
        assert refusals == []

    run(scenario())


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((410, {}, b"too old"), "refused to go on with the watch: too old"),
        (
            (200, {}, b'{"type":"ERROR","object":{"code":410,"message":"too old resource version"}}\n'),
            "too old resource",
        ),
    ],
)
def test_says_so_where_it_cannot_go_on(reply, message):
    async def scenario():
        embedded = Embedded()

        async def fault(call, proceed):
            return reply

        with pytest.raises(WatchLost, match=message):
            await anext(pod_events(embedded.transport(fault), "1"))

    run(scenario())

"""The API server is away for a minute, under load: what is placed stays within bounds, and all comes out right."""

import asyncio
from collections import Counter

import pytest

from koordsched.client.errors import Ambiguous, NotSent
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run
from tests.waiting import until

LIMIT = 200
PODS = 1500
OUTAGE = 60.0


class Server:
    """Answers until it goes: writes first; then every request ends as `end` says, and every watch is cut."""

    def __init__(self, end):
        self.takes_writes = True
        self.away = False
        self.writes_meanwhile = 0
        self._end = end

    async def __call__(self, call, proceed):
        if self.away or (call.method != "GET" and not self.takes_writes):
            self.writes_meanwhile += call.method != "GET"
            return await self._end(proceed)
        status, headers, body = await proceed()
        return status, headers, body if isinstance(body, bytes) else self._until_it_goes(body)

    async def _until_it_goes(self, chunks):
        async for chunk in chunks:
            if self.away:
                raise Ambiguous("connection reset")
            yield chunk


async def refused(proceed):
    raise NotSent("connection refused")


async def silent(proceed):
    await asyncio.sleep(OUTAGE)
    raise Ambiguous("no answer")


async def lost_answers(proceed):
    """The worst: everything is carried out, and nobody hears of it."""
    await proceed()
    await asyncio.sleep(1)
    raise Ambiguous("connection lost after sending")


async def overloaded(proceed):
    status = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests"}'
    return 429, {"retry-after": "1"}, status


def known(scheduler):
    """The uids of all pods that the scheduler has seen."""
    return scheduler.cluster.assigned.keys() | {pod.uid for pod in scheduler.pending_pods()}


@pytest.mark.parametrize("end", [refused, silent, lost_answers, overloaded])
def test_an_outage_does_not_assume_the_whole_queue(end):
    async def main():
        embedded = Embedded()
        for i in range(100):
            embedded.insert(node(f"n{i}", cpu="16"))
        server = Server(end)
        bound = Counter()

        def watch(kind, old, new):
            if kind == "MODIFIED" and new["spec"].get("nodeName") and not old["spec"].get("nodeName"):
                bound[new["metadata"]["name"]] += 1

        embedded.registry.subscribe(embedded.resource("Pod"), watch)
        async with scheduler_on(embedded, fault=server, max_binding=LIMIT) as running:
            scheduler, most = running.scheduler, 0
            embedded.insert(pod("first", container(cpu="1")))
            await asyncio.sleep(1)
            server.takes_writes = False
            for i in range(PODS):
                embedded.insert(pod(f"p{i}", container(cpu="1")))
            await until(lambda: len(known(scheduler)) == PODS + 1, "the pods")
            server.away = True
            for _ in range(int(OUTAGE * 10)):
                await asyncio.sleep(0.1)
                most = max(most, len(scheduler.cluster.assumed))
                assert scheduler.binding.in_flight <= LIMIT
            assert 0 < most <= LIMIT
            # Nobody hammers a server in trouble: bindings wait in their lane, and the answers slow it down.
            assert server.writes_meanwhile <= 2 * LIMIT
            server.takes_writes, server.away = True, False
            await asyncio.sleep(120)
            assert bound == {"first": 1, **{f"p{i}": 1 for i in range(PODS)}}
            used = Counter(embedded.get("Pod", name)["spec"]["nodeName"] for name in bound)
            assert max(used.values()) <= 16
            assert scheduler.cluster.assumed == {}
            assert sum(scheduler.queue.pending().values()) == 0

    run(main())

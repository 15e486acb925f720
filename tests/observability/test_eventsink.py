"""Events through the write lanes: requests, and what outcomes are told as."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import pytest

from koordsched.client.errors import Ambiguous, ClientError
from koordsched.client.lanes import Lanes
from koordsched.client.transport import Done, Request, Response, Transport
from koordsched.observability.eventsink import LaneEventSink
from tests.virtualtime import VirtualClock, run


class Server:
    """Answers everything alike."""

    def __init__(self, outcome: Response | ClientError) -> None:
        self.outcome = outcome
        self.requests: list[tuple[str, str, bytes, str]] = []

    def send(self, request: Request, done: Done) -> None:
        self.requests.append((request.method, request.target, request.body, request.content_type))
        asyncio.get_running_loop().call_soon(done, self.outcome)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Response(201, {}, b"{}"), 201),
        (Response(409, {}, b'{"reason":"AlreadyExists"}'), 409),
        (Response(404, {}, b""), 404),
        (Ambiguous("time-out"), 0),
    ],
)
def test_outcomes(outcome: Response | ClientError, status: int) -> None:
    server = Server(outcome)
    results: list[int] = []

    async def main() -> None:
        lanes = Lanes(cast(Transport, server), VirtualClock(asyncio.get_running_loop()), Random(1))
        LaneEventSink(lanes).create("shop", b"{1}", results.append)
        LaneEventSink(lanes).patch("shop", "web.1", b"{2}", results.append)
        LaneEventSink(lanes, "/api/v1").create("kube-system", b"{3}", results.append)
        await asyncio.sleep(1)
        await lanes.close()
        LaneEventSink(lanes).create("shop", b"{4}", results.append)
        await asyncio.sleep(1)

    run(main())
    assert server.requests == [
        ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events", b"{1}", "application/json"),
        ("PATCH", "/apis/events.k8s.io/v1/namespaces/shop/events/web.1", b"{2}", "application/merge-patch+json"),
        ("POST", "/api/v1/namespaces/kube-system/events", b"{3}", "application/json"),
    ]
    assert results == [status] * 3 + [0]

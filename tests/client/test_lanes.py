import asyncio
import itertools
import random
from collections import Counter

import pytest

from koordsched.client import lanes as lanes_module
from koordsched.client.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Fenced,
    LanesClosed,
    NotSent,
    QueueFull,
    TooManyRequests,
)
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.ratelimit import AdaptiveLimit, TokenBucket
from koordsched.client.transport import Request, Response
from tests.virtualtime import VirtualClock, run

OK = Response(201, {}, b"{}")


class Server:
    """Stands in for a transport: answers each request after `latency` seconds with what `answer` says."""

    def __init__(self, latency=0.1):
        self.latency = latency
        self.answer = lambda request: OK
        self.sent = []
        self.under_way = 0
        self.most = 0

    def send(self, request, done):
        loop = asyncio.get_running_loop()
        if request.fence is not None and not request.fence():
            loop.call_soon(done, Fenced("not the leader"))
            return
        self.sent.append((round(loop.time() - 1000, 3), request.target, request.body))
        self.under_way += 1
        self.most = max(self.most, self.under_way)

        def answered():
            self.under_way -= 1
            done(self.answer(request))

        loop.call_later(self.latency, answered)

    def order(self):
        return [target for _, target, _ in self.sent]


def make(server, *, slots=None, **options):
    limit = AdaptiveLimit(slots, slots, slots) if slots else None
    clock = VirtualClock(asyncio.get_running_loop())
    return Lanes(server, clock, random.Random(1), limit=limit, **options)


def write(name="x", body=b""):
    return Request("POST", name, body)


async def outcome(future):
    try:
        return (await future).status
    except Exception as error:
        return type(error)


def test_right_of_way():
    async def main():
        server = Server()
        lanes = make(server, slots=1)
        lanes.submit(Lane.EVENT, write("first"))
        for lane in (Lane.EVENT, Lane.STATUS, Lane.EVICTION, Lane.BINDING):
            for i in range(2):
                lanes.submit(lane, write(f"{lane.name}{i}"))
        lanes.submit(Lane.LEASE, write("LEASE"))
        assert server.order() == ["first", "LEASE"], "a lease waits for no slot"
        assert await lanes.drain(60)
        assert server.order()[2:] == [
            "BINDING0",
            "BINDING1",
            "EVICTION0",
            "EVICTION1",
            "STATUS0",
            "STATUS1",
            "EVENT0",
            "EVENT1",
        ]
        stats = lanes.stats[Lane.BINDING]
        assert (stats.submitted, stats.sent, stats.succeeded, stats.in_flight) == (2, 2, 2, 0)
        assert stats.latency_sum == pytest.approx(0.2)

    run(main())


def test_no_lane_starves():
    async def main():
        server = Server()
        lanes = make(server, slots=1)
        for lane in (Lane.EVENT, Lane.STATUS, Lane.EVICTION, Lane.BINDING):
            for i in range(200):
                lanes.submit(lane, write(f"{lane.name}{i}"))
        await lanes.drain(60)
        while_bindings_wait = server.order()[: server.order().index("BINDING199")]
        count = Counter(name.rstrip("0123456789") for name in while_bindings_wait)
        # 8, 2 and 1 of 64; the first Event was sent before anything else waited.
        assert count == {"BINDING": 199, "EVICTION": 30, "STATUS": 8, "EVENT": 5}

    run(main())


def test_concurrency_follows_the_server():
    async def main():
        server = Server(latency=0.01)
        lanes = make(server)
        assert lanes.limit.current == 32
        for _ in range(300):
            lanes.submit(Lane.BINDING, write())
        await lanes.drain(60)
        assert lanes.limit.current == server.most == 128, "slow start: a slot for every answer"
        server.latency = 3.0
        for _ in range(1000):
            lanes.submit(Lane.BINDING, write())
        await lanes.drain(3600)
        assert lanes.limit.current == 2, "slow answers narrow the lanes"
        server.latency = 0.01
        for _ in range(1000):
            lanes.submit(Lane.BINDING, write())
        await lanes.drain(60)
        assert 30 <= lanes.limit.current <= 60, "quick ones widen them again, by a slot per round from now on"

    run(main())


def test_leases_pass_while_everything_else_is_held_back():
    async def main():
        server = Server()
        lanes = make(server)
        server.answer = lambda request: Response(429, {"retry-after": "5"}, b"")
        refused = lanes.submit(Lane.BINDING, write("b"))
        await asyncio.sleep(0.2)
        server.answer = lambda request: OK
        waiting = lanes.submit(Lane.EVENT, write("e"))
        lease = lanes.submit(Lane.LEASE, write("lease"))
        assert await outcome(lease) == 201
        assert server.order() == ["b", "lease"]
        assert await outcome(refused) == 201
        await waiting
        assert [(t, name) for t, name, _ in server.sent[2:]] == [(5.1, "b"), (5.1, "e")]
        assert lanes.stats[Lane.BINDING].retried == 1

    run(main())


@pytest.mark.parametrize(
    ("lane", "answer", "result", "attempts"),
    [
        (Lane.BINDING, OK, 201, 1),
        (Lane.BINDING, NotSent("refused"), NotSent, 6),
        (Lane.BINDING, Ambiguous("lost"), Ambiguous, 1),
        (Lane.BINDING, Response(429, {}, b""), TooManyRequests, 6),
        (Lane.BINDING, Response(302, {}, b""), ApiError, 1),
        (Lane.BINDING, Response(409, {}, b""), Conflict, 1),
        (Lane.BINDING, Response(500, {}, b""), ApiError, 1),
        (Lane.BINDING, Response(502, {}, b"<html>"), Ambiguous, 1),
        (Lane.BINDING, Response(503, {}, b""), ApiError, 1),
        (Lane.STATUS, Response(504, {}, b""), Ambiguous, 1),
        (Lane.STATUS, NotSent("refused"), NotSent, 4),
        (Lane.EVICTION, Response(429, {}, b""), TooManyRequests, 6),
        (
            Lane.EVICTION,
            Response(429, {}, b'{"kind":"Status","details":{"causes":[{"reason":"DisruptionBudget"}]}}'),
            TooManyRequests,
            1,
        ),
        (Lane.LEASE, NotSent("refused"), NotSent, 1),
    ],
)
def test_only_what_was_certainly_not_carried_out_is_repeated(lane, answer, result, attempts):
    async def main():
        server = Server()
        server.answer = lambda request: answer
        lanes = make(server)
        assert await outcome(lanes.submit(lane, write())) == result
        assert len(server.sent) == attempts
        stats = lanes.stats[lane]
        assert stats.retried == attempts - 1
        assert stats.failed + stats.ambiguous + stats.succeeded == 1
        pauses = [b[0] - a[0] - 0.1 for a, b in itertools.pairwise(server.sent)]
        assert all(0.02 <= pause <= 7.5 for pause in pauses)

    run(main())


def test_an_outage_pauses_the_lanes_instead_of_hammering():
    async def main():
        server = Server(latency=0.001)
        server.answer = lambda request: NotSent("refused")
        lanes = make(server)
        futures = [lanes.submit(Lane.BINDING, write()) for _ in range(200)]
        await asyncio.sleep(2)
        assert len(server.sent) < 200
        server.answer = lambda request: OK
        results = [await outcome(f) for f in futures]
        assert results.count(201) >= 100
        assert set(results) <= {201, NotSent}

    run(main())


def test_trouble_is_told_at_once_and_then_once_a_minute(caplog):
    async def main():
        server = Server(latency=0.001)
        lanes = make(server)
        for answer in (OK, Ambiguous("no answer within 30 s"), Response(503, {}, b""), OK, Response(409, {}, b"")):
            server.answer = lambda request, answer=answer: answer
            await outcome(lanes.submit(Lane.BINDING, write()))
        await asyncio.sleep(61)
        server.answer = lambda request: Response(504, {}, b"")
        await outcome(lanes.submit(Lane.EVENT, write()))

    run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "the API server is slow to accept writes: 1 more waiting, latest: a binding: no answer within 30 s",
        "the API server is slow to accept writes: 2 more waiting, latest: an event: the server answered 504",
    ]


def test_the_fence_is_asked_for_everything_but_the_lease():
    async def main():
        server = Server()
        leading = True
        lanes = make(server, slots=1, fence=lambda: leading)
        first = lanes.submit(Lane.BINDING, write("in time"))
        late = [lanes.submit(lane, write(lane.name)) for lane in (Lane.BINDING, Lane.EVICTION, Lane.STATUS, Lane.EVENT)]
        leading = False
        lease = lanes.submit(Lane.LEASE, write("release"))
        assert await outcome(first) == 201
        assert await outcome(lease) == 201
        assert [await outcome(f) for f in late] == [Fenced] * 4
        assert server.order() == ["in time", "release"]
        assert [lanes.stats[lane].fenced for lane in Lane] == [0, 1, 1, 1, 1]

    run(main())


def test_a_full_event_lane_drops_the_oldest_and_never_encodes_it(monkeypatch):
    monkeypatch.setitem(lanes_module.CAPACITY, Lane.EVENT, 3)

    async def main():
        server = Server()
        lanes = make(server, slots=1)
        encoded = []

        def body(i):
            encoded.append(i)
            return b"%d" % i

        for i in range(8):
            lanes.post(Lane.EVENT, write("event"), lambda i=i: body(i))
        await lanes.drain(60)
        assert [b for _, _, b in server.sent] == [b"0", b"5", b"6", b"7"]
        assert encoded == [0, 5, 6, 7]
        assert (lanes.stats[Lane.EVENT].submitted, lanes.stats[Lane.EVENT].dropped) == (8, 4)

    run(main())


def test_an_event_that_cannot_be_encoded_is_dropped_alone(caplog):
    async def main():
        server = Server()
        lanes = make(server, slots=1)
        lanes.post(Lane.EVENT, write("a"))
        lanes.post(Lane.EVENT, write("b"), lambda: "\ud800".encode())
        lanes.post(Lane.EVENT, write("c"))
        assert await lanes.drain(60)
        assert server.order() == ["a", "c"]
        assert lanes.stats[Lane.EVENT].dropped == 1
        assert "cannot be encoded" in caplog.text

    run(main())


def test_a_write_that_is_awaited_and_dropped_says_so(monkeypatch):
    """Where the caller is gone, too, nothing is said."""
    monkeypatch.setitem(lanes_module.CAPACITY, Lane.STATUS, 2)

    async def main():
        server = Server()
        lanes = make(server, slots=1)
        first, gone, dropped = (lanes.submit(Lane.STATUS, write(name)) for name in ("first", "gone", "dropped"))
        gone.cancel()
        lanes.post(Lane.STATUS, write("a"))
        lanes.post(Lane.STATUS, write("b"))
        assert [await outcome(future) for future in (first, dropped)] == [201, QueueFull]
        assert await lanes.drain(60)
        assert server.order() == ["first", "a", "b"]
        assert lanes.stats[Lane.STATUS].dropped == 2

    run(main())


def test_a_full_awaited_lane_says_so(monkeypatch):
    monkeypatch.setitem(lanes_module.CAPACITY, Lane.BINDING, 2)

    async def main():
        lanes = make(Server(), slots=1)
        futures = [lanes.submit(Lane.BINDING, write()) for _ in range(4)]
        assert [await outcome(f) for f in futures] == [201, 201, 201, QueueFull]
        assert lanes.stats[Lane.BINDING].rejected == 1

    run(main())


def test_a_withdrawn_write_is_not_sent():
    async def main():
        server = Server()
        lanes = make(server, slots=1)
        keep, withdraw, last = (lanes.submit(Lane.STATUS, write(name)) for name in "abc")
        withdraw.cancel()
        await asyncio.gather(keep, last)
        assert server.order() == ["a", "c"]

    run(main())


def test_a_write_withdrawn_while_under_way_is_not_repeated():
    async def main():
        server = Server()
        server.answer = lambda request: NotSent("refused")
        lanes = make(server)
        future = lanes.submit(Lane.BINDING, write())
        await asyncio.sleep(0.05)
        future.cancel()
        assert await lanes.drain(10)
        assert len(server.sent) == 1

    run(main())


def test_a_configured_rate_is_kept_and_events_have_their_own():
    async def main():
        server = Server(latency=0.001)
        lanes = make(server, qps=10, burst=3)
        for i in range(13):
            lanes.submit(Lane.BINDING, write(f"b{i}"))
            lanes.submit(Lane.EVENT, write(f"e{i}"))
        for i in range(5):
            lanes.submit(Lane.LEASE, write(f"l{i}"))
        await lanes.drain(60)
        times = {name: t for t, name, _ in server.sent}
        assert [times[f"l{i}"] for i in range(5)] == [0.0] * 5
        for kind in "be":
            assert [times[f"{kind}{i}"] for i in range(3)] == [0.0] * 3
            gaps = [times[f"{kind}{i + 1}"] - times[f"{kind}{i}"] for i in range(2, 12)]
            assert gaps == pytest.approx([0.1] * 10, abs=0.005)

    run(main())


def test_without_a_configured_rate_there_is_none():
    async def main():
        server = Server(latency=0.0)
        lanes = make(server)
        for _ in range(5000):
            lanes.submit(Lane.BINDING, write())
        await lanes.drain(60)
        assert server.sent[-1][0] == 0.0

    run(main())


def test_closing_ends_what_waits_and_leaves_what_is_under_way():
    async def main():
        lanes = make(Server(), slots=1)
        under_way = lanes.submit(Lane.BINDING, write())
        waiting = lanes.submit(Lane.BINDING, write())
        assert not await lanes.drain(0.05)
        await lanes.close()
        assert await outcome(waiting) == LanesClosed
        assert await outcome(lanes.submit(Lane.BINDING, write())) == LanesClosed
        assert await outcome(under_way) == 201
        assert lanes.stats[Lane.BINDING].dropped == 1

    run(main())


def test_quiet_means_answered_and_not_in_doubt():
    async def main():
        server = Server()
        lanes = make(server)
        assert lanes.quiet_for(15)
        future = lanes.submit(Lane.STATUS, write())
        assert not lanes.quiet_for(15)  # under way
        await future
        assert lanes.quiet_for(15)
        server.answer = lambda request: Ambiguous("lost")
        assert await outcome(lanes.submit(Lane.LEASE, write())) == Ambiguous
        assert lanes.quiet_for(15)  # the lease's own writes are no matter
        assert await outcome(lanes.submit(Lane.STATUS, write())) == Ambiguous
        await asyncio.sleep(14)
        assert not lanes.quiet_for(15)  # it may still arrive
        await asyncio.sleep(1.1)
        assert lanes.quiet_for(15)

    run(main())


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 5), (10, 0)])
def test_a_senseless_rate_is_refused(qps, burst):
    with pytest.raises(ValueError, match="rate limit"):
        TokenBucket(qps, burst, 0.0)


def test_quiet_means_that_others_have_done_what_we_asked_them_to_write():
    async def main():
        lanes = make(Server())
        external = lanes.external_writes
        external.began()
        external.began()
        assert not lanes.quiet_for(15)
        external.ended(answered=True)
        assert not lanes.quiet_for(15)  # the other one is still under way
        external.ended(answered=False)
        await asyncio.sleep(14)
        assert not lanes.quiet_for(15)  # it may still be carried out
        external.began()
        external.ended(answered=True)
        await asyncio.sleep(1.1)
        assert lanes.quiet_for(15)

    run(main())

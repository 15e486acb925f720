"""Events: their exact bodies, series, bounds, and what happens when the API server does not take them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from koordsched.cluster.pod import Pod
from koordsched.observability.eventrecorder import NORMAL, WARNING
from koordsched.observability.events import EventBroadcaster
from koordsched.observability.eventsink import OnResult
from koordsched.observability.eventwire import ObjectReference, cut_note, event_name, reporting_instance
from koordsched.observability.leaseevents import LeaseEvents
from tests.virtualtime import VirtualClock, run

START = "2030-01-01T00:00:00.000000Z"


def pod(name: str = "web", version: str = "7", namespace: str = "shop") -> Pod:
    return cast(Pod, SimpleNamespace(namespace=namespace, name=name, uid=f"uid-{name}", resource_version=version))


@dataclass
class Sink:
    """Keeps what it is given; answers with what `answers` holds (201 if nothing), or not before `release`."""

    answers: list[int] = field(default_factory=list)
    hold: bool = False
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    held: list[OnResult] = field(default_factory=list)

    def create(self, namespace: str, body: bytes, on_result: OnResult) -> None:
        self._take(("create", namespace, orjson.loads(body)), on_result)

    def patch(self, namespace: str, name: str, body: bytes, on_result: OnResult) -> None:
        self._take(("patch", f"{namespace}/{name}", orjson.loads(body)), on_result)

    def _take(self, request: tuple[str, str, Any], on_result: OnResult) -> None:
        self.requests.append(request)
        if self.hold:
            self.held.append(on_result)
        else:
            on_result(self.answers.pop(0) if self.answers else 201)

    def release(self, status: int = 201) -> None:
        self.hold = False
        held, self.held = self.held, []
        for on_result in held:
            on_result(status)

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _, _ in self.requests]

    @property
    def counts(self) -> list[int]:
        """The count of the series in each request."""
        return [body.get("series", {"count": 1})["count"] for _, _, body in self.requests]


class World:
    """A running broadcaster on virtual time."""

    def __init__(self, sink: Sink, **limits: int) -> None:
        self.sink = sink
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.broadcaster = EventBroadcaster(sink, self.clock, Random(1), hostname="host-1", **limits)
        self.recorder = self.broadcaster.recorder("default-scheduler")
        self.task = asyncio.create_task(self.broadcaster.run())

    async def settle(self, seconds: float = 0.001) -> None:
        await asyncio.sleep(seconds)


def in_world(test: Callable[[World], Coroutine[Any, Any, None]], sink: Sink | None = None, **limits: int) -> Sink:
    """Runs `test` in a world and returns its sink."""
    used = sink or Sink()

    async def main() -> None:
        world = World(used, **limits)
        await world.settle()
        await test(world)
        world.task.cancel()

    run(main())
    return used


def test_scheduled() -> None:
    async def test(world: World) -> None:
        world.recorder.scheduled(pod(), "node-1")
        await world.settle()
        assert (world.broadcaster.sent, world.broadcaster.pending) == (1, 0)

    sink = in_world(test)
    verb, namespace, body = sink.requests[0]
    assert (verb, namespace) == ("create", "shop")
    assert body["metadata"].pop("name") == f"web.{1893456000001000000:x}"
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "shop"},
        "eventTime": "2030-01-01T00:00:00.001000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-host-1",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {
            "kind": "Pod",
            "namespace": "shop",
            "name": "web",
            "uid": "uid-web",
            "apiVersion": "v1",
            "resourceVersion": "7",
        },
        "note": "Successfully assigned shop/web to node-1",
        "type": "Normal",
    }


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            lambda r: r.failed_scheduling(pod(), "0/3 nodes are available: 3 Insufficient cpu. 100% of them"),
            ("Warning", "FailedScheduling", "Scheduling", "0/3 nodes are available: 3 Insufficient cpu. 100% of them"),
        ),
        (
            lambda r: r.preempted(pod(), pod("boss"), "node-1"),
            ("Normal", "Preempted", "Preempting", "Preempted by pod uid-boss on node node-1"),
        ),
        (
            lambda r: r.preempted(pod(), pod("boss"), "node-1", deleted=False),
            (
                "Normal",
                "Preempted",
                "Preempting",
                "Preempted by pod uid-boss on node node-1 (in kube-scheduler memory).",
            ),
        ),
        (
            lambda r: r.record(ObjectReference("v1", "Node", "", "node-1"), WARNING, "Odd", "Looking", "a\nb\x1b[31m"),
            ("Warning", "Odd", "Looking", "a\\nb\\x1b[31m"),
        ),
    ],
)
def test_texts(record: Callable[[Any], None], expected: tuple[str, str, str, str]) -> None:
    async def test(world: World) -> None:
        record(world.recorder)
        await world.settle()

    (_, _, body) = in_world(test).requests[0]
    assert (body["type"], body["reason"], body["action"], body["note"]) == expected


def test_the_preemptor_is_related_and_cluster_wide_objects_go_to_default() -> None:
    async def test(world: World) -> None:
        world.recorder.preempted(pod(), pod("boss"), "node-1")
        world.recorder.record(ObjectReference("v1", "Node", "", "node-1"), NORMAL, "A", "B", "note")
        await world.settle()

    (_, _, preempted), (_, namespace, about_node) = in_world(test).requests
    assert preempted["related"]["uid"] == "uid-boss"
    assert namespace == about_node["metadata"]["namespace"] == "default"
    assert about_node["regarding"] == {"kind": "Node", "name": "node-1", "apiVersion": "v1"}


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("short", "short"),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1020 + " ..."),
        # 2 bytes each: 512 fit, of 513 the 510 whole ones in 1020 bytes stay.
        ("é" * 512, "é" * 512),
        ("é" * 513, "é" * 510 + " ..."),
        # 1 + 3n bytes: the character that would be cut in two goes.
        ("x" + "€" * 400, "x" + "€" * 339 + " ..."),
        ("a\r\nI0101 forged", "a\\r\\nI0101 forged"),
        ("\u202egnp\u2028\u0085\ud800", "\\u202egnp\\u2028\\x85\\ud800"),
    ],
)
def test_notes(text: str, note: str) -> None:
    cut = cut_note(text)
    assert cut == note
    assert len(cut.encode()) <= 1024


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web", "web.1f"),
        ("x" * 253, "x" * 250 + ".1f"),
        ("x" * 249 + ".yyy", "x" * 249 + ".1f"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert event_name(name, 0x1F) == expected


def test_instances_are_cut() -> None:
    assert reporting_instance("a", "b") == "a-b"
    assert len(reporting_instance("a" * 100, "b" * 100)) == 128


def test_names_differ_while_the_clock_stands_still() -> None:
    async def test(world: World) -> None:
        for version in ("1", "2", "3"):
            world.recorder.failed_scheduling(pod(version=version), "no")
        await world.settle()

    names = [body["metadata"]["name"] for _, _, body in in_world(test).requests]
    numbers = [int(name.rsplit(".", 1)[1], 16) for name in names]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


def test_a_series_is_created_patched_once_and_finished() -> None:
    async def test(world: World) -> None:
        for _ in range(5):
            world.recorder.failed_scheduling(pod(), "no")
            await world.settle(1)
        assert world.broadcaster.coalesced == 3
        await world.settle(300)
        assert world.sink.counts == [1, 2]
        await world.settle(100)

    sink = in_world(test)
    assert sink.verbs == ["create", "patch", "patch"]
    assert sink.counts == [1, 2, 5]
    name = sink.requests[0][2]["metadata"]["name"]
    assert sink.requests[1] == (
        "patch",
        f"shop/{name}",
        {"series": {"count": 2, "lastObservedTime": "2030-01-01T00:00:01.001000Z"}},
    )
    assert sink.requests[2][2]["series"]["lastObservedTime"] == "2030-01-01T00:00:04.001000Z"


def test_a_series_that_goes_on_is_refreshed_every_half_hour() -> None:
    async def test(world: World) -> None:
        for _ in range(80):
            world.recorder.failed_scheduling(pod(), "no")
            await world.settle(60)

    # At 0 and 60 s, then about every 1,800 s after the last write.
    assert in_world(test).counts == [1, 2, 32, 62]


def test_a_series_that_ended_is_forgotten() -> None:
    async def test(world: World) -> None:
        world.recorder.failed_scheduling(pod(), "no")
        await world.settle(400)
        world.recorder.failed_scheduling(pod(), "no")
        await world.settle()

    assert in_world(test).verbs == ["create", "create"]


def test_another_version_of_the_object_or_another_reason_is_another_event() -> None:
    async def test(world: World) -> None:
        world.recorder.failed_scheduling(pod(version="1"), "no")
        world.recorder.failed_scheduling(pod(version="2"), "no")
        world.recorder.preempted(pod(version="1"), pod("boss"), "node-1")
        world.broadcaster.recorder("other").failed_scheduling(pod(version="1"), "no")
        world.recorder.failed_scheduling(pod(version="1"), "another note is no difference")
        await world.settle()

    assert in_world(test).counts == [2, 1, 1, 1]


def test_repetitions_of_what_waits_cost_nothing() -> None:
    async def test(world: World) -> None:
        world.recorder.failed_scheduling(pod(), "no")
        await world.settle()
        for _ in range(3):
            world.recorder.failed_scheduling(pod(), "no")
        world.sink.release()
        await world.settle()

    # The first was under way, so the series is patched once it exists, with all there is by then.
    assert in_world(test, Sink(hold=True)).counts == [1, 4]


@pytest.mark.parametrize(
    ("answers", "verbs", "counts", "dropped"),
    [
        # No answer, too many requests, server error: again, later.
        ([0, 429, 503], ["create"] * 4, [1, 1, 1, 1], {}),
        # Our own earlier try.
        ([0, 409], ["create"] * 2, [1, 1], {}),
        ([403], ["create"], [1], {"rejected": 1}),
        ([404], ["create"], [1], {"rejected": 1}),
        ([422], ["create"], [1], {"rejected": 1}),
        ([0] * 12, ["create"] * 12, [1] * 12, {"unreachable": 1}),
    ],
)
def test_answers_to_a_create(answers: list[int], verbs: list[str], counts: list[int], dropped: dict[str, int]) -> None:
    async def test(world: World) -> None:
        world.recorder.failed_scheduling(pod(), "no")
        await world.settle(200)
        assert world.broadcaster.pending == 0
        assert {k: v for k, v in world.broadcaster.dropped.items() if v} == dropped
        assert world.broadcaster.sent == (0 if dropped else 1)

    sink = in_world(test, Sink(answers))
    assert (sink.verbs, sink.counts) == (verbs, counts)


@pytest.mark.parametrize(
    ("answers", "verbs", "counts"),
    [
        # The event was deleted meanwhile: created again as a series.
        ([201, 404], ["create", "patch", "create"], [1, 2, 2]),
        # Deleted and there after all.
        ([201, 404, 409], ["create", "patch", "create", "patch"], [1, 2, 2, 2]),
        ([201, 500, 200], ["create", "patch", "patch"], [1, 2, 2]),
        ([201, 422], ["create", "patch"], [1, 2]),
    ],
)
def test_answers_to_a_patch(answers: list[int], verbs: list[str], counts: list[int]) -> None:
    async def test(world: World) -> None:
        for _ in range(2):
            world.recorder.failed_scheduling(pod(), "no")
            await world.settle(1)
        await world.settle(100)

    sink = in_world(test, Sink(answers))
    assert (sink.verbs, sink.counts) == (verbs, counts)


def test_nothing_is_sent_while_the_server_does_not_answer() -> None:
    async def test(world: World) -> None:
        for number in range(200):
            world.recorder.scheduled(pod(f"p{number}"), "node-1")
        await world.settle(60)
        # Pauses grow to 10 s: some tries, not 200 x 12.
        assert 1 < len(world.sink.requests) < 40
        assert world.broadcaster.pending == 200
        world.sink.answers.clear()
        await world.settle(30)
        assert (world.broadcaster.sent, world.broadcaster.pending) == (200, 0)

    in_world(test, Sink([0] * 1000))


def test_the_buffer_is_bounded() -> None:
    async def test(world: World) -> None:
        for number in range(20):
            world.recorder.scheduled(pod(f"p{number}"), "node-1")
        await world.settle()
        for number in range(20, 40):
            world.recorder.scheduled(pod(f"p{number}"), "node-1")
        assert world.broadcaster.dropped["full"] == 10 + 16
        assert world.broadcaster.pending == 4 + 10
        world.sink.release()
        await world.settle()

    sink = in_world(test, Sink(hold=True), capacity=10, max_in_flight=4)
    assert len(sink.requests) == 14


@pytest.mark.parametrize(("events", "handed_over"), [(4, 4), (12, 8), (57, 8), (58, 9), (65, 16), (90, 20)])
def test_few_are_written_at_a_time_until_half_of_those_that_may_wait_do(events: int, handed_over: int) -> None:
    """Of 100 that may wait: 8 at a time, and up to 20 at a time until fewer than 50 wait."""

    async def test(world: World) -> None:
        for number in range(events):
            world.recorder.scheduled(pod(f"p{number}"), "node-1")
        await world.settle()
        assert len(world.sink.requests) == handed_over
        world.sink.release()
        await world.settle()
        assert world.broadcaster.sent == events

    in_world(test, Sink(hold=True), capacity=100, max_in_flight=20)


@pytest.mark.parametrize(("waited", "handed_over"), [(9.9, 8 + 1), (10.1, 7 + 1 + 13)])
def test_what_has_waited_for_long_is_urgent(waited: float, handed_over: int) -> None:
    """8 at a time, and up to 20 once the first of those that wait has done so for ten seconds."""

    async def test(world: World) -> None:
        for number in range(40):
            world.recorder.scheduled(pod(f"p{number}"), "node-1")
        await world.settle(waited)
        assert len(world.sink.requests) == 8
        world.sink.held.pop(0)(201)
        await world.settle()
        assert len(world.sink.requests) == handed_over

    in_world(test, Sink(hold=True), capacity=100, max_in_flight=20)


def test_at_the_end_there_is_no_time_to_lose() -> None:
    async def test(world: World) -> None:
        for number in range(30):
            world.recorder.scheduled(pod(f"p{number}"), "node-1")
        await world.settle()
        assert len(world.sink.requests) == 8
        await world.broadcaster.drain(1)
        assert len(world.sink.requests) == 20

    in_world(test, Sink(hold=True), capacity=100, max_in_flight=20)


def test_remembered_series_are_bounded_and_lose_no_count() -> None:
    async def test(world: World) -> None:
        for _ in range(3):
            world.recorder.failed_scheduling(pod("first"), "no")
            await world.settle(1)
        for number in range(3):
            world.recorder.failed_scheduling(pod(f"p{number}"), "no")
        await world.settle()

    sink = in_world(test, max_series=2)
    assert [(body.get("series") or {}).get("count") for _, _, body in sink.requests if "series" in body] == [2, 3]


def test_drain() -> None:
    async def test(world: World) -> None:
        assert await world.broadcaster.drain(1) == 0
        world.recorder.scheduled(pod(), "node-1")
        await world.settle()
        assert await world.broadcaster.drain(2) == 1
        asyncio.get_running_loop().call_later(1, world.sink.release)
        assert await world.broadcaster.drain(2) == 0

    in_world(test, Sink(hold=True))


def test_events_wait_for_the_writer_to_start() -> None:
    sink = Sink()

    async def main() -> None:
        broadcaster = EventBroadcaster(sink, VirtualClock(asyncio.get_running_loop()), Random(1), hostname="h")
        broadcaster.recorder("s").scheduled(pod(), "node-1")
        await asyncio.sleep(1)
        assert sink.requests == []
        task = asyncio.create_task(broadcaster.run())
        await asyncio.sleep(1)
        task.cancel()

    run(main())
    assert sink.requests[0][2]["eventTime"] == START


def test_lease_events() -> None:
    sink = Sink([201, 0])
    events = LeaseEvents(
        sink, lambda: 1893456000.25, component="default-scheduler", namespace="kube-system", lease="kube-scheduler"
    )
    events.became_leader("host_1-2", "uid-1", "42")
    events.stopped_leading("host\n_1-2")
    (verb, namespace, body), (_, _, second) = sink.requests
    assert (verb, namespace, events.lost) == ("create", "kube-system", 1)
    assert body == {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": f"kube-scheduler.{1893456000250000000:x}", "namespace": "kube-system"},
        "involvedObject": {
            "kind": "Lease",
            "namespace": "kube-system",
            "name": "kube-scheduler",
            "uid": "uid-1",
            "apiVersion": "coordination.k8s.io/v1",
            "resourceVersion": "42",
        },
        "reason": "LeaderElection",
        "message": "host_1-2 became leader",
        "source": {"component": "default-scheduler"},
        "firstTimestamp": "2030-01-01T00:00:00Z",
        "lastTimestamp": "2030-01-01T00:00:00Z",
        "count": 1,
        "type": "Normal",
        "reportingComponent": "default-scheduler",
        "reportingInstance": "",
    }
    assert second["message"] == "host\\n_1-2 stopped leading"
    assert "uid" not in second["involvedObject"]

"""What is written of a reserve pod to its Reservation, and said in Events about it."""

import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from koordsched.cluster.builtinkinds import PODS
from koordsched.framework.handle import NORMAL, WARNING
from koordsched.plugins.reservation.kinds import RESERVATIONS
from koordsched.plugins.reservation.reservepod import reserve_pod
from koordsched.plugins.reservation.writer import ReservationWriter
from tests.plugins.harness import Bench, StoppedClock
from tests.plugins.reservation.objects import reservation


class Written:
    """A writer, the Reservation that it finds, and what it writes: each write makes a new version."""

    def __init__(self):
        self.found = reservation(meta={"resourceVersion": "1"})
        self.versions, self.events = [], []
        handle = SimpleNamespace(clock=StoppedClock(), writes=self, events=self)
        self.writer = ReservationWriter(handle, lambda uid: self.found)
        self.pod = Bench().cluster.pods.build(reserve_pod(self.found), virtual="Reservation r")

    async def patch(self, kind, thing, changes, subresource=""):
        assert kind is RESERVATIONS
        self.versions.append(thing.metadata.resource_version)
        version = str(int(thing.metadata.resource_version) + 1)
        return replace(thing, metadata=replace(thing.metadata, resource_version=version))

    def event(self, kind, meta, event_type, reason, message, *, action=""):
        self.events.append((kind, reason, message))


@pytest.mark.parametrize(("seen", "expected"), [("1", "2"), ("2", "2"), ("3", "3")])
def test_it_is_bound_in_the_version_that_it_has_since_it_was_patched(seen, expected):
    made = Written()

    async def main():
        await made.writer.patch(made.pod, {"annotations": {"a": "b"}})
        made.found = replace(made.found, metadata=replace(made.found.metadata, resource_version=seen))
        await made.writer.bind(made.pod, "n")

    asyncio.run(main())
    assert made.versions == ["1", expected]


def test_one_that_has_a_node_does_not_say_any_more_that_it_has_none():
    made = Written()
    made.writer.condition(made.pod, "Unschedulable", "no room", None)
    assert [failure.message for failure in made.writer.failures.values()] == ["no room"]
    asyncio.run(made.writer.bind(made.pod, "n"))
    assert made.writer.failures == {}


@pytest.mark.parametrize(
    ("event_type", "size", "cut"), [(WARNING, 1024, False), (WARNING, 1025, True), (NORMAL, 3000, False)]
)
def test_a_long_warning_is_cut(event_type, size, cut):
    made = Written()
    made.writer.event(made.pod, event_type, "FailedScheduling", "x" * size, "Scheduling")
    text = "x" * 1020 + " ..." if cut else "x" * size
    assert made.events == [(RESERVATIONS, "FailedScheduling", text)]


def test_that_it_is_scheduled_is_said_of_the_reserve_pod_as_well():
    made = Written()
    made.pod.node = "n"
    made.writer.event(made.pod, NORMAL, "Scheduled", "the text about pods", "Binding")
    assert made.events == [
        (PODS, "Scheduled", "the text about pods"),
        (RESERVATIONS, "Scheduled", "Successfully assigned r to n"),
    ]

"""Changes wait while the inbox is held, and come in order."""

import asyncio
from itertools import groupby
from types import SimpleNamespace

import pytest

from koordsched.client.sink import ObjectKey
from koordsched.scheduling.inbox import Inbox, InboxSink
from tests.simulation.loop import SimulationLoop
from tests.virtualtime import run

KEYS = [ObjectKey("ns", name, f"uid-{name}") for name in "abc"]


class Recorder:
    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        return lambda obj, *anew: self.seen.append((name, obj, *filter(None, anew)))


def test_open_inbox_applies_at_once():
    recorder = Recorder()
    sink = InboxSink(Inbox(), recorder)
    sink.upsert("a")
    sink.upsert("b", True)
    assert recorder.seen == [("upsert", "a"), ("upsert", "b", True)]


def test_held_changes_are_applied_in_order_including_late_ones():
    async def main():
        recorder, inbox = Recorder(), Inbox()
        sink = InboxSink(inbox, recorder)
        inbox.hold()
        for number in range(500):
            sink.upsert(number)
        sink.delete("x")
        sink.delete_key("y")
        assert (recorder.seen, len(inbox)) == ([], 502)
        releasing = asyncio.create_task(inbox.release())
        await asyncio.sleep(0)
        assert 0 < len(recorder.seen) < 502
        sink.upsert("late")
        await releasing
        assert recorder.seen == [
            *(("upsert", number) for number in range(500)),
            ("delete", "x"),
            ("delete_key", "y"),
            ("upsert", "late"),
        ]
        sink.upsert("now")
        assert recorder.seen[-1] == ("upsert", "now")

    run(main())


def test_a_change_that_fails_does_not_keep_the_others_out(caplog):
    def broken():
        raise ValueError("no")

    seen = []
    inbox = Inbox()
    inbox.hold()
    inbox.put(broken)
    inbox.put(seen.append, 1)
    inbox.release_now()
    assert seen == [1]
    assert "could not be applied" in caplog.text
    inbox.put(seen.append, 2)
    assert seen == [1, 2]


def test_what_waits_is_known():
    """A listing that lacks it comes after it, also if both wait."""

    class Known(Recorder):
        def upsert(self, obj, anew=False):
            raise AssertionError("not yet")

        def known(self):
            return iter([KEYS[0]])

    thing = SimpleNamespace(metadata=SimpleNamespace(**KEYS[1]._asdict()))
    inbox = Inbox()
    sink, other = InboxSink(inbox, Known()), InboxSink(inbox, Known())
    inbox.hold()
    sink.upsert(thing)
    sink.delete_key(KEYS[2])
    assert (list(sink.known()), list(other.known())) == ([KEYS[1], KEYS[0]], [KEYS[0]])


@pytest.mark.parametrize("by_name", [False, True])
def test_who_takes_over_a_name_is_not_taken_out_with_whom_had_it(by_name):
    """Three nodes of one name, one after the other: the first is known, the others wait. A listing shows the last."""

    class Known(Recorder):
        def upsert(self, obj, anew=False):
            raise AssertionError("not yet")

        def known(self):
            return iter([ObjectKey("", "n", "first"), ObjectKey("", "other", "x")])

    inbox = Inbox()
    sink = InboxSink(inbox, Known(), by_name=by_name)
    inbox.hold()
    for uid in ("second", "third"):
        sink.upsert(SimpleNamespace(metadata=SimpleNamespace(namespace="", name="n", uid=uid)))
    uids = [key.uid for key in sink.known()]
    assert uids == (["third", "x"] if by_name else ["second", "third", "first", "x"])


def test_the_inbox_is_emptied_in_slices_of_time():
    async def main():
        loop, seen, turns = asyncio.get_running_loop(), [], []

        def slow(number):
            loop.burn(0.002)
            seen.append(number)

        inbox = Inbox()
        inbox.hold()
        for number in range(10):
            inbox.put(slow, number)
        releasing = asyncio.create_task(inbox.release())
        while not releasing.done():
            await asyncio.sleep(0)
            turns.append(len(seen))
        assert [turn for turn, _ in groupby(turns)] == [3, 6, 9, 10]
        assert seen == list(range(10))

    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        runner.run(main())

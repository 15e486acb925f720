"""Changes wait while the inbox is held, and come in order."""

import asyncio

from koordsched.scheduling.inbox import Inbox, InboxSink
from tests.virtualtime import run


class Recorder:
    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        return lambda *args: self.seen.append((name, *args))


def test_open_inbox_applies_at_once():
    recorder = Recorder()
    sink = InboxSink(Inbox(), recorder)
    sink.upsert("a")
    assert recorder.seen == [("upsert", "a")]


def test_held_changes_are_applied_in_order_including_late_ones():
    async def main():
        recorder, inbox = Recorder(), Inbox()
        sink = InboxSink(inbox, recorder)
        inbox.hold()
        sink.replace_begin()
        for number in range(500):
            sink.upsert(number)
        sink.replace_end({"k"})
        sink.delete("x")
        sink.delete_key("y")
        assert (recorder.seen, len(inbox)) == ([], 504)
        releasing = asyncio.create_task(inbox.release())
        await asyncio.sleep(0)
        assert 0 < len(recorder.seen) < 504
        sink.upsert("late")
        await releasing
        assert recorder.seen == [
            ("replace_begin",),
            *(("upsert", number) for number in range(500)),
            ("replace_end", {"k"}),
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
    assert "could not be taken in" in caplog.text
    inbox.put(seen.append, 2)
    assert seen == [1, 2]

"""What cannot be recorded ends the journal, and is nobody else's trouble."""

from random import Random
from types import SimpleNamespace

from koordsched.journal.recorder import JournalRecorder
from koordsched.journal.records import Answer, Attempt, Drawn, LetIn, Timers, Unreadable, decode
from koordsched.scheduling.recording import STATE


class Journal:
    def __init__(self):
        self.records = []
        self.problems = []
        self.recorder = JournalRecorder(self.put, self.problems.append, lambda: 1.0)

    def put(self, record, change=None):
        self.records.append(decode(record))


def test_answers_are_passed_on_and_noted():
    journal = Journal()
    chance, plain = journal.recorder.chance(Random(1)), Random(1)
    drawn = [chance.randrange(100), chance.random(), chance.choice("abc")]
    assert drawn == [plain.randrange(100), plain.random(), plain.choice("abc")]
    assert all(isinstance(record, Drawn) for record in journal.records)
    assert journal.recorder.ask(lambda: True) is True
    assert journal.records[-1] == Answer(True, STATE)
    assert journal.problems == []


def test_what_cannot_be_encoded_ends_the_journal():
    journal = Journal()
    assert journal.recorder.ask(lambda: 1 << 70) == 1 << 70
    journal.recorder.hidden("/api/v1/nodes", "\ud800")
    assert journal.records == []
    assert [problem.partition(" cannot")[0] for problem in journal.problems] == ["Answer", "Unreadable"]
    journal.recorder.hidden("/api/v1/nodes", "forbidden")
    assert journal.records == [Unreadable("/api/v1/nodes", "forbidden")]


def test_a_segment_that_cannot_be_begun_ends_the_journal(caplog):
    def fail():
        raise RuntimeError("no state")

    journal = Journal()
    journal.recorder.between = fail
    journal.recorder.timers()
    assert journal.problems == ["cannot begin a new segment: no state"]
    assert len(journal.records) == 1
    assert caplog.messages == ["cannot begin a new segment of the journal"]


async def test_no_segment_begins_within_an_attempt_that_waits():
    """It would begin with half of the attempt; it begins with the next one."""
    journal = Journal()
    journal.recorder.between = lambda: journal.records.append("a new segment")

    async def meanwhile():
        journal.recorder.timers()

    await journal.recorder.let_in(meanwhile)
    journal.recorder.attempt(SimpleNamespace(pod=SimpleNamespace(uid="uid", title="default/p")))
    journal.recorder.attempt(SimpleNamespace(pod=SimpleNamespace(uid="uid", title="default/p")))
    attempt = Attempt("uid", "default/p", 1.0)
    assert journal.records == [Timers(1.0), LetIn(), "a new segment", attempt, attempt]

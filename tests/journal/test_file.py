"""The file: what is written is read, whatever happened to it; it stays within its size, and tells nobody's secrets."""

import logging
import stat
import struct
import threading

import pytest
from msgspec.structs import replace

from koordsched.journal.frames import MAGIC, Damaged, NotAJournal, frame_of, read_frames
from koordsched.journal.objects import PODS, Change, NewestObjects
from koordsched.journal.reading import Journal
from koordsched.journal.records import Binding, Bound, Closed, Header, Timers, Upsert, decode, encode
from koordsched.journal.segments import Segments
from koordsched.journal.writer import JournalWriter
from tests.waiting import until

HEADER = Header("run", 0, False, {}, "", (), False, 300.0, False, ("", ""), 0.0, 0.0, 0)


def written(path, *frames, closed=True):
    """A segment with a header, and these frames of records."""
    path.write_bytes(MAGIC + frame_of([encode(HEADER)]) + b"".join(frame_of(frame) for frame in frames))
    return path


BINDINGS = [encode(Binding(str(number))) for number in range(6)]


def test_frames(tmp_path):
    path = written(tmp_path / "journal", BINDINGS[:4], BINDINGS[4:])
    assert [type(record) for record in Journal(path)] == [Header, *[Binding] * 6]


@pytest.mark.parametrize("missing", [1, 9, 20])
def test_a_file_that_ends_within_a_frame(tmp_path, missing):
    path = written(tmp_path / "journal", BINDINGS[:4], BINDINGS[4:])
    whole = path.read_bytes()
    last = len(frame_of(BINDINGS[4:]))
    path.write_bytes(whole[: len(whole) - missing])
    journal = Journal(path)
    assert len(list(journal)) == 5
    (damage,) = journal.damages
    assert damage.truncated
    assert damage.text == f"the file ends within a frame at byte {len(whole) - last}"


def test_a_damaged_frame(tmp_path):
    path = written(tmp_path / "journal", BINDINGS[:4], BINDINGS[4:], [encode(Closed())])
    data = bytearray(path.read_bytes())
    at = len(MAGIC) + len(frame_of([encode(HEADER)])) + len(frame_of(BINDINGS[:4]))
    data[at + 12] ^= 1
    path.write_bytes(data)
    journal = Journal(path)
    assert len(list(journal)) == 5
    (damage,) = journal.damages
    assert not damage.truncated
    assert damage.text == f"a damaged frame (wrong checksum) at byte {at}"


def test_an_impossible_length(tmp_path):
    path = tmp_path / "journal"
    path.write_bytes(MAGIC + struct.pack("<II", 1 << 31, 0))
    with path.open("rb") as file, pytest.raises(Damaged, match="impossible length"):
        list(read_frames(file))


def test_a_segment_that_was_not_begun(tmp_path):
    """A full disk may leave an empty file; what is in the others counts."""
    path = written(tmp_path / "journal.1", BINDINGS[:4]).with_name("journal")
    for left in (b"", MAGIC[:8]):
        path.write_bytes(left)
        journal = Journal(path)
        assert len(list(journal)) == 5
        (damage,) = journal.damages
        assert damage.truncated
        assert damage.path == path


def headed(path, run, segment):
    """A segment of a process."""
    path.write_bytes(MAGIC + frame_of([encode(replace(HEADER, run=run, segment=segment, continues=segment > 0))]))


GAPS = {
    "none": ([("a", 0), ("a", 1), ("b", 0), ("b", 1)], []),
    "at the beginning": ([("a", 2), ("a", 3)], []),
    "one": ([("a", 0), ("a", 1), ("a", 3)], ["the segment before it cannot be found"]),
    "several": ([("a", 0), ("a", 4), ("a", 5)], ["3 segments before it cannot be found"]),
}


@pytest.mark.parametrize("case", GAPS)
def test_missing_segments(tmp_path, case):
    headers, texts = GAPS[case]
    path = tmp_path / "journal"
    for number, (run, segment) in enumerate(reversed(headers)):
        # The last of the series has a number twice as high: others before it were deleted.
        headed(path.with_name(f"journal.{number * 2}") if number else path, run, segment)
    (tmp_path / "journal.20260101").write_text("a copy of somebody's")
    journal = Journal(path)
    assert [(record.run, record.segment) for record in journal] == headers
    assert [(damage.text, damage.truncated) for damage in journal.damages] == [(text, False) for text in texts]


def test_segments_that_move_on_while_they_are_read(tmp_path):
    path = tmp_path / "journal"
    segments = Segments(path, encode(HEADER), keep=9)
    for number in range(3):
        segments.write(frame_of([encode(Binding(str(number)))]))
        segments.next(encode(HEADER))
    seen = []
    for record in Journal(path):
        if isinstance(record, Binding):
            seen.append(record.uid)
            segments.next(encode(HEADER))
    segments.close()
    assert seen == ["0", "1", "2"]
    journal = Journal(path)
    for segment in journal.paths:
        segment.unlink()
    with pytest.raises(FileNotFoundError, match="is gone: the journal was written on meanwhile"):
        list(journal)


FOREIGN = {
    "nothing": (b"", "the file is empty"),
    "something else": (b"apiVersion: v1\nkind: List\n", "this is not a journal of koordsched"),
    "a newer format": (
        b"koordsched journal 7\nabc",
        "a journal of format 7; this version of koordsched reads format 4",
    ),
    "the format before": (
        b"koordsched journal 2\nabc",
        "a journal of format 2; this version of koordsched reads format 4",
    ),
    "half a line": (MAGIC[:8], "the file ends within its first line"),
    "no header": (MAGIC + frame_of(BINDINGS), "the first record is no header"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_files_that_are_no_journal(tmp_path, case):
    data, message = FOREIGN[case]
    path = tmp_path / "journal"
    path.write_bytes(data)
    with pytest.raises(NotAJournal) as raised:
        list(Journal(path))
    assert str(raised.value) == f"{path}: {message}"


def test_a_record_of_an_unknown_type(tmp_path):
    path = written(tmp_path / "journal", [BINDINGS[0], b"\x92\xcc\xfa\x01", BINDINGS[1]])
    journal = Journal(path)
    assert len(list(journal)) == 2
    assert "a record that cannot be understood" in journal.damages[0].text


def test_segments_move_on_and_the_oldest_goes(tmp_path):
    path = tmp_path / "journal"
    for run in range(5):
        segments = Segments(path, encode(HEADER), keep=2)
        segments.write(frame_of([encode(Binding(str(run)))]))
        segments.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["journal", "journal.1", "journal.2"]
    assert [record.uid for record in Journal(path) if isinstance(record, Binding)] == ["2", "3", "4"]
    assert [record.uid for record in Journal(tmp_path / "journal.1") if isinstance(record, Binding)] == ["3"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("data", [b"", MAGIC[:5], b"koordsched journal 1\nabc", b"koordsched journal 99\n"])
def test_journals_of_other_formats_move_on(tmp_path, data):
    """A new version of the scheduler starts where an old one recorded."""
    path = tmp_path / "journal"
    path.write_bytes(data)
    Segments(path, encode(HEADER)).close()
    assert (tmp_path / "journal.1").read_bytes() == data
    assert path.read_bytes().startswith(MAGIC)


def test_what_is_no_journal_is_left_alone(tmp_path):
    path = tmp_path / "notes"
    path.write_text("dear diary")
    with pytest.raises(NotAJournal, match="cannot replace"):
        Segments(path, encode(HEADER))
    assert path.read_text() == "dear diary"


def pod(uid, text=""):
    """(record, change) of a pod."""
    return encode(Upsert(PODS, encode({"metadata": {"uid": uid, "name": text}}))), Change(PODS, uid)


def test_the_writer_writes_everything_in_order(tmp_path):
    path = tmp_path / "journal"
    writer = JournalWriter(Segments(path, encode(HEADER)))
    for number in range(20_000):
        writer.put(encode(Bound(str(number))))
    writer.close()
    records = list(Journal(path))
    assert [record.uid for record in records[1:-1]] == [str(number) for number in range(20_000)]
    assert records[-1] == Closed()
    assert writer.written == path.stat().st_size


async def test_a_full_segment_is_cut_and_the_next_begins_with_the_objects(tmp_path):
    path = tmp_path / "journal"
    writer = JournalWriter(Segments(path, encode(HEADER), keep=1), max_size=2_000, pause=0.01)
    for number in range(300):
        writer.put(*pod(f"uid-{number}", f"{number * 7919 % 10007:x}" * 9))
    writer.put(encode(Timers(1.0)), Change(PODS, "uid-0", gone=True))
    for number in range(100, 300):
        writer.put(encode(Timers(2.0)), Change(PODS, f"uid-{number}", gone=True))
    await until(lambda: writer.full, "the segment is full")
    writer.cut(encode(HEADER), encode(Timers(3.0)))
    assert not writer.full
    writer.put(encode(Timers(4.0)))
    writer.close()
    newest = [decode(data) for data in path_records(path)]
    assert [type(record) for record in newest] == [Header, *[Upsert] * 99, Timers, Timers, Closed]
    assert [record.at for record in newest if isinstance(record, Timers)] == [3.0, 4.0]
    assert (tmp_path / "journal.1").exists()


def path_records(path):
    with path.open("rb") as file:
        return [data for frame in read_frames(file) for data in frame]


def test_newest_objects():
    objects = NewestObjects()
    for text, uid in (("old", "a"), ("b", "b"), ("new", "a"), ("c", "c")):
        objects.apply(text.encode(), Change(PODS, uid))
    objects.apply(b"gone", Change(PODS, "b", gone=True))
    assert list(objects) == [b"new", b"c"]


class FullDisk(Segments):
    """Takes the first frames, then no more."""

    def write(self, data):
        if self.written > 2_000:
            raise OSError(28, "No space left on device")
        super().write(data)


def test_a_full_disk_ends_recording_with_one_warning(tmp_path, caplog):
    writer = JournalWriter(FullDisk(tmp_path / "journal", encode(HEADER)), pause=0.01)
    with caplog.at_level(logging.WARNING):
        number = 0
        while writer.recording:
            writer.put(encode(Bound(f"{number * 2654435761 % (1 << 64):x}")))
            number += 1
            assert number < 5_000_000
        for _ in range(1000):
            writer.put(BINDINGS[0])
        writer.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"the journal {tmp_path / 'journal'} ends here: [Errno 28] No space left on device"
    ]
    assert "No space" in writer.problem


class SlowDisk(Segments):
    """Blocks until told otherwise."""

    gate = None

    def write(self, data):
        if self.gate is not None:
            self.gate.wait()
        super().write(data)


def test_a_slow_disk_holds_up_no_step(tmp_path, caplog):
    segments = SlowDisk(tmp_path / "journal", encode(HEADER))
    segments.gate = threading.Event()
    writer = JournalWriter(segments, most_waiting=1 << 20, pause=0.01)
    with caplog.at_level(logging.WARNING):
        for _ in range(30_000):
            writer.put(encode(Bound("u" * 100)))
    assert not writer.recording
    assert [record.getMessage() for record in caplog.records] == [
        f"the journal {tmp_path / 'journal'} ends here: 1 MiB wait to be written, the disk is too slow"
    ]
    segments.gate.set()
    writer.close()
    # What was taken is written: as far as it goes, it can be replayed.
    assert len(list(Journal(tmp_path / "journal"))) == writer.records + 1

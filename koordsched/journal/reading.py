"""Reads records back, from one segment or from all that there are of a journal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from koordsched.journal.frames import Damaged, NotAJournal, NotBegun, read_frames
from koordsched.journal.records import Answer, AnyRecord, BadRecord, Drawn, Header, decode
from koordsched.journal.segments import all_segments_of


@dataclass(frozen=True, slots=True)
class Damage:
    """What cannot be read of a segment. `truncated`: it just ends there, as after a crash, or while it is written."""

    path: Path
    text: str
    truncated: bool


class Journal:
    """The segments of a journal, oldest first. `damages` fills while it is read, which may be while it is written."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if there is no such file, or if it is none."""
        if not path.exists():
            others = [other.name for other in all_segments_of(path)[1:]] if path.parent.is_dir() else []
            hint = f", but there is {', '.join(others)}" if others else ""
            raise FileNotFoundError(f"{path}: no such file{hint}")
        if not path.is_file():
            # For example a pipe, which can be read only once.
            raise OSError(f"{path} is not a regular file")
        self.paths = all_segments_of(path)[::-1]
        self.damages: list[Damage] = []
        # Segments move on while they are read.
        self._files = {segment: _identity(segment.stat()) for segment in self.paths}

    def header(self) -> Header | None:
        """The first record; None if not even that can be read. Raises OSError, NotAJournal."""
        first = next(iter(self), None)
        return first if isinstance(first, Header) else None

    def __iter__(self) -> Iterator[AnyRecord]:
        """Every record that can be read. Raises OSError, and NotAJournal with the name of the file."""
        self.damages.clear()
        before: Header | None = None
        for path in self.paths:
            for record in self._segment(path):
                if isinstance(record, Header):
                    self._look_for_gap(path, before, record)
                    before = record
                yield record

    def _look_for_gap(self, path: Path, before: Header | None, header: Header) -> None:
        if before is not None and header.run == before.run and header.segment > before.segment + 1:
            count = header.segment - before.segment - 1
            segments = "the segment" if count == 1 else f"{count} segments"
            self.damages.append(Damage(path, f"{segments} before it cannot be found", False))

    def _segment(self, path: Path) -> Iterator[AnyRecord]:
        began = False
        try:
            with self._open(path) as file:
                for frame in read_frames(file):
                    for data in frame:
                        record = decode(data)
                        if not began and not isinstance(record, Header):
                            raise NotAJournal("the first record is no header")
                        began = True
                        yield record
        except NotBegun as error:
            if len(self.paths) == 1:
                raise NotAJournal(f"{path}: {error}") from None
            self.damages.append(Damage(path, str(error), True))
        except NotAJournal as error:
            raise type(error)(f"{path}: {error}") from None
        except Damaged as damage:
            self.damages.append(Damage(path, str(damage), damage.truncated))
        except BadRecord as error:
            self.damages.append(Damage(path, f"a record that cannot be understood ({error})", False))

    def _open(self, path: Path) -> BinaryIO:
        """The file that was at this path when we began, wherever it is now. Raises OSError."""
        for place in (path, *all_segments_of(self.paths[-1])):
            with suppress(FileNotFoundError):
                file = place.open("rb")
                if _identity(os.fstat(file.fileno())) == self._files[path]:
                    return file
                file.close()
        raise FileNotFoundError(f"{path} is gone: the journal was written on meanwhile")


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


class Stream:
    """Records one by one, with a look at the next. `on_taken` is called with each record taken."""

    def __init__(self, records: Iterable[AnyRecord], on_taken: Callable[[AnyRecord], None] | None = None) -> None:
        self._on_taken = on_taken
        self._records = iter(records)
        self._next = next(self._records, None)

    def peek(self) -> AnyRecord | None:
        """The next record; None at the end."""
        return self._next

    def take(self) -> AnyRecord | None:
        """The next record, and goes on."""
        taken = self._next
        if taken is not None:
            self._next = next(self._records, None)
            if self._on_taken is not None:
                self._on_taken(taken)
        return taken

    def answer(self, about: int) -> Answer | None:
        """The next record, if it is an answer about this (`scheduling.recording`)."""
        taken = self._next
        if isinstance(taken, Answer) and taken.about == about:
            self.take()
            return taken
        return None

    def drawn(self) -> Drawn | None:
        """The next record, if it is a random number."""
        taken = self._next
        if isinstance(taken, Drawn):
            self.take()
            return taken
        return None

    def skip_answers(self) -> AnyRecord | None:
        """Skips answers that were not asked for; returns the record after them, without taking it."""
        while isinstance(self._next, Answer | Drawn):
            self.take()
        return self._next

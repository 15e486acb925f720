"""Reads records back, from one segment or from all that there are of a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from koordsched.journal.frames import Damaged, NotAJournal, read_frames
from koordsched.journal.records import Answer, AnyRecord, BadRecord, Header, decode
from koordsched.journal.segments import segments_of


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a segment cannot be read on. `truncated`: it just ends there, as after a crash."""

    path: Path
    text: str
    truncated: bool


class Journal:
    """The segments of a journal, oldest first. `damages` fills while it is read."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if there is no such file."""
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file")
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a directory")
        self.paths = segments_of(path)[::-1] or [path]
        self.damages: list[Damage] = []

    def header(self) -> Header | None:
        """The first record; None if not even that can be read. Raises OSError, NotAJournal."""
        first = next(iter(self), None)
        return first if isinstance(first, Header) else None

    def __iter__(self) -> Iterator[AnyRecord]:
        """Every record that can be read. Raises OSError, and NotAJournal with the name of the file."""
        self.damages.clear()
        for path in self.paths:
            yield from self._segment(path)

    def _segment(self, path: Path) -> Iterator[AnyRecord]:
        began = False
        try:
            with path.open("rb") as file:
                for frame in read_frames(file):
                    for data in frame:
                        record = decode(data)
                        if not began and not isinstance(record, Header):
                            raise NotAJournal("the first record is no header")
                        began = True
                        yield record
        except NotAJournal as error:
            raise NotAJournal(f"{path}: {error}") from None
        except Damaged as damage:
            self.damages.append(Damage(path, str(damage), damage.truncated))
        except BadRecord as error:
            self.damages.append(Damage(path, f"a record that cannot be understood ({error})", False))


class Stream:
    """Records one by one, with a look at the next. `on_taken` is told of each that was passed."""

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

    def answer(self) -> Answer | None:
        """The next record, if it is an answer."""
        if isinstance(self._next, Answer):
            taken = self._next
            self.take()
            return taken
        return None

    def skip_answers(self) -> AnyRecord | None:
        """Leaves out answers that nobody asks for; returns what comes after them, without taking it."""
        while isinstance(self._next, Answer):
            self.take()
        return self._next

"""The files of a journal. FILE is the newest segment, FILE.1 the one before, and so on; at most this many are kept."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

from koordsched.journal.frames import MAGIC, NotAJournal, NotBegun, OtherFormat, check_title, frame_of

_NUMBER = re.compile(r"[1-9]\d{0,3}", re.ASCII)
"""The number of a segment. Longer suffixes are dates, of copies made by hand."""


class Segments:
    """The segment that is written, and its predecessors."""

    def __init__(self, path: Path, first: bytes, *, keep: int = 3) -> None:
        """Begins a segment with the record `first`; what is there already moves on.

        Raises OSError, and NotAJournal if what is there is something else.
        """
        check_replaceable(path)
        self.path = path
        self._keep = keep
        self.written = 0
        self.size = 0
        """Bytes of the current segment."""
        self._file = self._begin(first)

    def _begin(self, first: bytes) -> BinaryIO:
        shift(self.path, self._keep)
        # Only its owner may read it: names of pods and nodes are confidential.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        file = os.fdopen(descriptor, "wb", buffering=0)
        self.size = 0
        self._file = file
        self.write(MAGIC + frame_of([first]))
        return file

    def write(self, data: bytes) -> None:
        """Appends. Raises OSError."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self.size += len(data)
        self.written += len(data)

    def next(self, first: bytes) -> None:
        """Ends the segment and begins another. Raises OSError."""
        self._file.close()
        self._begin(first)

    def close(self) -> None:
        """No more is written."""
        self._file.close()


def check_replaceable(path: Path) -> None:
    """What is there must be a journal, begun or not, of whatever format: it is moved. Raises OSError, NotAJournal."""
    if not path.exists():
        return
    with path.open("rb") as file:
        try:
            check_title(file)
        except (NotBegun, OtherFormat):
            return
        except NotAJournal as error:
            raise NotAJournal(f"cannot replace {path}: {error}") from None


def numbered(path: Path, number: int) -> Path:
    """FILE, FILE.1, FILE.2, ..."""
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def shift(path: Path, keep: int) -> None:
    """Makes room for a new FILE: FILE becomes FILE.1 and so on; beyond FILE.`keep` they are deleted. Raises OSError."""
    count = len(segments_of(path))
    for number in range(count - 1, -1, -1):
        if number >= keep:
            numbered(path, number).unlink()
        else:
            numbered(path, number).replace(numbered(path, number + 1))


def segments_of(path: Path) -> list[Path]:
    """The segments that are there up to the first that is not, newest first."""
    found: list[Path] = []
    while (segment := numbered(path, len(found))).is_file():
        found.append(segment)
    return found


def all_segments_of(path: Path) -> list[Path]:
    """The segments that are there, newest first, also beyond those that are missing. Raises OSError.

    A numbered one named by itself stands for itself.
    """
    beginning = f"{path.name}."
    older = {
        int(other.suffix[1:]): other
        for other in path.parent.iterdir()
        if other.name.startswith(beginning) and _NUMBER.fullmatch(other.name, len(beginning)) and other.is_file()
    }
    return [path, *(older[number] for number in sorted(older))]

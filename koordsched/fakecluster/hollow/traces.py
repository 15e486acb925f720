"""Files of recorded usage: a line per change, `<time since the start> <cpu> <memory>`, e.g. `90s 1500m 2Gi`.

Times are durations or seconds and ascend; commas may take the place of blanks; what follows a `#` is a comment.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from koordsched.fakecluster.hollow.amounts import amount
from koordsched.fakecluster.hollow.curves import Floats
from koordsched.fakecluster.hollow.duration import parse_duration

Trace = tuple[Floats, Floats, Floats]
"""Ages in seconds, milli-cores, bytes."""
_LARGEST_FILE = 4 << 20


class Traces:
    """The traces of one directory, by file name; each is read once. Without a directory there are none.

    Pods name traces, and users who can create pods must not be able to have other files read.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._read: dict[str, Trace] = {}

    def load(self, name: str) -> Trace:
        """Raises ValueError, which names the file and the line, when the trace cannot be used."""
        if name not in self._read:
            self._read[name] = self._load(name)
        return self._read[name]

    def _load(self, name: str) -> Trace:
        if self._directory is None:
            raise ValueError("no directory of traces was given (--usage-traces)")
        path = self._directory / name
        if path.name != name or not name.isprintable():
            raise ValueError(f"trace {name[:64]!r} is not the name of a file in the directory of traces")
        try:
            if not path.is_file():
                raise ValueError(f"trace {name!r}: no such file")
            if path.stat().st_size > _LARGEST_FILE:
                raise ValueError(f"trace {name!r}: larger than {_LARGEST_FILE >> 20} MiB")
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ValueError(f"trace {name[:64]!r}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"trace {name!r}: not UTF-8 text") from None
        return _parse(name, lines)


def _parse(name: str, lines: list[str]) -> Trace:
    rows: list[tuple[float, float, float]] = []
    for number, line in enumerate(lines, start=1):
        parts = line.partition("#")[0].replace(",", " ").split()
        if not parts:
            continue
        try:
            if len(parts) != 3:
                raise ValueError("not a time, a CPU amount and a memory amount")
            age = parse_duration(parts[0] if parts[0][-1].isalpha() else parts[0] + "s")
            rows.append((age, amount("cpu", parts[1]), amount("memory", parts[2])))
        except ValueError as error:
            raise ValueError(f"trace {name!r}, line {number}: {error}") from None
        if len(rows) > 1 and age <= rows[-2][0]:
            raise ValueError(f"trace {name!r}, line {number}: times have to ascend")
    if not rows:
        raise ValueError(f"trace {name!r}: empty")
    ages, cpu, memory = np.array(rows, dtype=np.float64).T.copy()
    return ages, cpu, memory

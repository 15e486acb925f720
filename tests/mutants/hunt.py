"""Which tests are asked about a mutant, and in which order.

Only those that reach the changed statement: first the ones that have found others of the same function, then those
that bear its name or reach little else, and some of every test file, for as long as one mutant may take (`--seconds`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from tests.mutants.changes import Mutant, Where, mutated
from tests.mutants.live import Live, put
from tests.mutants.reach import Seen
from tests.mutants.results import Found
from tests.mutants.session import Session

_RECENT = 8
"""How many of the tests that found others of the function, and of the module, are tried first."""


class Limits(NamedTuple):
    """Seconds: of all tests of a mutant, as long as they take without it; beyond three times that, for one test."""

    tests: float
    patience: float


class Hunt:
    """Asks tests about mutants of one module."""

    def __init__(
        self, session: Session, root: Path, module: str, tests: dict[Where, dict[str, Seen]], limits: Limits
    ) -> None:
        self._session = session
        self._numbers = {name: number for number, name in enumerate(session.names)}
        self._path = root / module
        self._source = self._path.read_text()
        self._live = Live([self._path])
        self._tests = tests
        self._limits = limits
        self._finders: dict[str, list[str]] = {}

    def judge(self, mutant: Mutant) -> Found:
        """Whether a test finds it."""
        known = self._tests.get(mutant.where, {})
        known = {name: seen for name, seen in known.items() if name in self._numbers}
        if not known:
            return Found.UNREACHED
        changes = self._live.changes(self._path, mutated(self._source, mutant))
        if not changes:
            raise SystemExit(f"not loaded: {mutant.module} {mutant.name}")
        chosen = self._chosen(mutant, known)
        numbers = [self._numbers[name] for name in chosen]
        limits = [3 * known[name].seconds + self._limits.patience for name in chosen]
        verdict = self._session.ask(lambda: put(changes), numbers, limits)
        if verdict.test is None:
            return Found.SURVIVED
        finder = self._session.names[verdict.test]
        for key in ("", mutant.where.function):
            names = self._finders.setdefault(key, [])
            if finder in names:
                names.remove(finder)
            names.insert(0, finder)
        return Found.LATE if verdict.late else Found.KILLED

    def _chosen(self, mutant: Mutant, known: dict[str, Seen]) -> list[str]:
        recent = [name for key in (mutant.where.function, "") for name in self._finders.get(key, [])[:_RECENT]]
        left = self._limits.tests
        taken: dict[str, float] = {}
        for name in chain(recent, self._spread(known)):
            if name in known and name not in taken and (known[name].seconds <= left or not taken):
                left -= known[name].seconds
                taken[name] = 0.0 if name in recent else known[name].seconds
        return sorted(taken, key=taken.__getitem__)

    def _spread(self, known: dict[str, Seen]) -> Iterator[str]:
        """In turn: one that is about the module or reaches least beside the statement; a quick one of the next file."""
        about = f"test_{self._path.stem}.py::"
        close = sorted(known, key=lambda name: (about not in name, len(known[name].reached), known[name].seconds))
        files: dict[str, list[str]] = {}
        for name in sorted(known, key=lambda name: known[name].seconds):
            files.setdefault(name.partition("::")[0], []).append(name)
        by_file = [name for turn in zip_longest(*files.values()) for name in turn if name is not None]
        return chain.from_iterable(zip(close, by_file, strict=True))

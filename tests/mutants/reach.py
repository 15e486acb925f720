"""Which tests reach which statements: recorded by running every test once with probes, and kept.

The record of a test file stays valid until that file changes. In modules that have changed since, a test that reached
any statement of a function is taken to reach all of it.
"""

from __future__ import annotations

import builtins
import hashlib
import pickle
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from tests.mutants.changes import PROBE, Where, probed, statements_of
from tests.mutants.live import Live, put
from tests.mutants.session import Session


class Numbering(NamedTuple):
    """What the numbers of a module's statements mean. `version`: of its text; `first`: the number of the first one."""

    version: str
    first: int
    wheres: tuple[Where, ...]


class Seen(NamedTuple):
    """What is known of one test: whether it passes, how long it is busy, and the statements it reaches, ascending."""

    passes: bool
    seconds: float
    reached: npt.NDArray[np.uint32]


class Record(NamedTuple):
    """What is known of the tests of one file. `version`: of its text; `numbering`: the name of the numbering."""

    version: str
    numbering: str
    tests: dict[str, Seen]


def version_of(*paths: Path) -> str:
    """A short name for the text of files."""
    return hashlib.blake2s(b"".join(path.read_bytes() for path in paths), digest_size=8).hexdigest()


class Reach:
    """The records of all test files, in a folder."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._kept: dict[Path, Any] = {}

    def of(self, test_file: str) -> Record | None:
        """The record of a test file; None where there is no valid one."""
        record: Record | None = self._read(f"{test_file.replace('/', '.')}.pickle")
        return record if record is not None and record.version == version_of(self._root / test_file) else None

    def keep(self, test_file: str, record: Record) -> None:
        """Keeps a record."""
        self._write(f"{test_file.replace('/', '.')}.pickle", record)

    def numbering(self, name: str) -> dict[str, Numbering]:
        """By module."""
        found: dict[str, Numbering] = self._read(f"numbering-{name}.pickle")
        return found

    def keep_numbering(self, name: str, numbering: dict[str, Numbering]) -> None:
        """Keeps one."""
        self._write(f"numbering-{name}.pickle", numbering)

    def tests_by_statement(self, module: str, test_files: Sequence[str]) -> dict[Where, dict[str, Seen]]:
        """For each statement of a module the passing tests that reach it, by name."""
        version = version_of(self._root / module)
        wheres = statements_of((self._root / module).read_text())
        functions: dict[str, list[Where]] = defaultdict(list)
        for where in wheres:
            functions[where.function].append(where)
        found: dict[Where, dict[str, Seen]] = {where: {} for where in wheres}
        for record in filter(None, map(self.of, test_files)):
            numbering = self.numbering(record.numbering).get(module)
            if numbering is None:
                continue
            bounds = [numbering.first, numbering.first + len(numbering.wheres)]
            for name, seen in record.tests.items():
                begin, end = np.searchsorted(seen.reached, bounds)
                for number in seen.reached[begin:end] if seen.passes else ():
                    old = numbering.wheres[number - numbering.first]
                    for where in [old] if numbering.version == version else functions[old.function]:
                        found[where][name] = seen
        return found

    def _read(self, name: str) -> Any:
        path = self._folder / name
        if path not in self._kept and path.exists():
            self._kept[path] = pickle.loads(path.read_bytes())
        return self._kept.get(path)

    def _write(self, name: str, value: object) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_bytes(pickle.dumps(value))
        self._kept[self._folder / name] = value


class Recorder:
    """Runs tests with probes in all modules."""

    def __init__(self, session: Session, root: Path, modules: Sequence[str], reach: Reach) -> None:
        self._session = session
        self._root = root
        self._reach = reach
        live = Live([root / module for module in modules])
        self._probes: list[tuple[FunctionType, CodeType]] = []
        self._numbering: dict[str, Numbering] = {}
        self._count = 0
        for module in modules:
            source = (root / module).read_text()
            wheres = statements_of(source)
            self._probes += live.changes(root / module, probed(source, self._count))
            self._numbering[module] = Numbering(version_of(root / module), self._count, tuple(wheres))
            self._count += len(wheres)
        self._name = version_of(*(root / module for module in modules))
        reach.keep_numbering(self._name, self._numbering)

    def record(self, test_file: str, tests: Sequence[int], answer: Path) -> None:
        """Runs the tests of a file in a process of their own, and keeps the record. `answer`: may be written."""
        answer.unlink(missing_ok=True)
        self._session.fork(lambda: answer.write_bytes(pickle.dumps(self._run(tests))))
        seen = pickle.loads(answer.read_bytes()) if answer.exists() else {}
        self._reach.keep(test_file, Record(version_of(self._root / test_file), self._name, seen))

    def _run(self, tests: Sequence[int]) -> dict[str, Seen]:
        reached = bytearray(self._count)
        setattr(builtins, PROBE, reached)
        put(self._probes)
        fixtures = _Fixtures(reached)
        self._session.items[tests[0]].config.pluginmanager.register(fixtures)
        found = {}
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            reached[:] = bytes(len(reached))
            began = time.process_time()
            passes = self._session.run(test, following)
            seconds = time.process_time() - began
            numbers = sorted(set(_set_bytes(reached)) | fixtures.of(self._session.items[test]))
            found[self._session.names[test]] = Seen(passes, seconds, np.array(numbers, np.uint32))
        return found


class _Fixtures:
    """What shared fixtures reach counts for each test that uses them."""

    def __init__(self, reached: bytearray) -> None:
        self._reached = reached
        self._by_fixture: dict[Any, frozenset[int]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = bytes(self._reached)
        self._reached[:] = bytes(len(before))
        try:
            return (yield)
        finally:
            self._by_fixture[fixturedef] = frozenset(_set_bytes(self._reached))
            for number in _set_bytes(before):
                self._reached[number] = 1

    def of(self, item: pytest.Item) -> set[int]:
        definitions = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009
        used = (self._by_fixture.get(each) for group in definitions for each in group)
        return {number for numbers in used if numbers is not None for number in numbers}


def _set_bytes(array: bytes | bytearray) -> Iterator[int]:
    at = array.find(1)
    while at >= 0:
        yield at
        at = array.find(1, at + 1)

"""The tool for mutation testing makes the defects it says, and they are there when tests are asked."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, TARGETS, modules_in
from tests.mutants.changes import mutants_of, mutated, statements_of
from tests.mutants.results import Found, Results

SOURCE = """
LIMIT = 7

class Room:
    taken: int = 0

    def __repr__(self):
        return f"{self.taken + 1}"

    def decide(self, free: int | None, wanted: int = 3) -> bool:
        if free is None or not wanted:
            raise ValueError(f"{free + 1}")
        note(free - wanted)
        _log.info(free - wanted)
        self.taken += free
        return free >= wanted
"""

DEFECTS = {
    "`free is None or not wanted` Or to And": "if free is None and (not wanted):",
    "`free is None` Is to IsNot": "if free is not None or",
    "`not wanted` Not left out": "if free is None or not not wanted:",
    "`note(free - wanted)` left out": "if False:\n            note(free - wanted)",
    "`free - wanted` Sub to Add": "note(free + wanted)",
    "`self.taken += free` Add to Sub": "self.taken -= free",
    "`self.taken += free` left out": "if False:\n            self.taken += free",
    "`return free >= wanted` None returned": "return None and free >= wanted",
    "`free >= wanted` GtE to Gt": "return free > wanted",
}


def test_defects():
    found = mutants_of("room.py", SOURCE)
    assert {mutant.what for mutant in found} == set(DEFECTS)
    assert len({mutant.key for mutant in found}) == len(found) == len(DEFECTS)
    for mutant in found:
        assert mutant.where.function == "Room.decide"
        assert DEFECTS[mutant.what] in ast.unparse(mutated(SOURCE, mutant))


def test_names_stay_when_lines_move():
    moved = SOURCE.replace("LIMIT = 7", "# A limit\nLIMIT = max(3, 7)\n\ndef other(a):\n    return a + 1")
    mutants = mutants_of("room.py", moved)
    assert {mutant.key for mutant in mutants_of("room.py", SOURCE)} < {mutant.key for mutant in mutants}


def test_equal_texts_of_a_function_are_numbered():
    mutants = mutants_of("sums.py", "def sums(a, b):\n    yield a + b\n    yield a + b\n")
    assert [mutant.what for mutant in mutants] == ["`a + b` Add to Sub", "`a + b` Add to Sub #2"]
    assert ast.unparse(mutated("def sums(a, b):\n    yield a + b\n    yield a + b\n", mutants[1])).endswith("(a - b)")


def test_statements_are_numbered_in_their_function():
    found = statements_of("a = 1\nclass B:\n    def c(self):\n        def d():\n            pass\n        return d\n")
    assert found == [("B.c", 0), ("B.c.<locals>.d", 0), ("B.c", 1)]


TREE = {
    "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow: not run"]\n',
    "kept.py": """
import functools

def counted(function):
    @functools.wraps(function)
    def inner(*arguments):
        inner.calls += 1
        return function(*arguments)
    inner.calls = 0
    return inner

@functools.lru_cache
def twice(a):
    return a * 2

@counted
def less(a):
    return a - 1

async def equal(a, b):
    return a == b

class Account:
    def __init__(self):
        super().__init__()
        self.left = 3

    @property
    def empty(self):
        return self.left < 1

def until(limit):
    at = 0
    while at < limit:
        at += 1

def unasked(a):
    return a % 3

def unreached(a):
    return a % 3
""",
    "user.py": "from kept import equal, twice\n\ndef fourfold(a):\n    return twice(twice(a))\n",
    "tests/test_kept.py": """
import asyncio
import kept
import user

def test_all():
    assert user.fourfold(3) == 12
    assert kept.less(3) == 2 and kept.less(1) == 0 and kept.less.calls == 2
    assert asyncio.run(user.equal(1, 1))
    assert not kept.Account().empty
    kept.unasked(1)

def test_end():
    kept.until(2)
""",
}

FOUND = {
    "killed": {
        "counted.<locals>.inner: `inner.calls += 1` Add to Sub",
        "counted.<locals>.inner: `inner.calls += 1` 1 to 2",
        "counted.<locals>.inner: `inner.calls += 1` left out",
        "counted.<locals>.inner: `return function(*arguments)` None returned",
        "twice: `return a * 2` None returned",
        "twice: `a * 2` Mult to FloorDiv",
        "twice: `a * 2` 2 to 3",
        "less: `return a - 1` None returned",
        "less: `a - 1` Sub to Add",
        "less: `a - 1` 1 to 2",
        "equal: `return a == b` None returned",
        "equal: `a == b` Eq to NotEq",
        "Account.__init__: `self.left = 3` left out",
        "until: `at += 1` Add to Sub",
    },
    "survived": {
        "Account.__init__: `super().__init__()` left out",
        "Account.__init__: `self.left = 3` 3 to 4",
        "Account.empty: `return self.left < 1` None returned",
        "Account.empty: `self.left < 1` Lt to LtE",
        "Account.empty: `self.left < 1` 1 to 2",
        "until: `at = 0` 0 to 1",
        "until: `at < limit` Lt to LtE",
        "until: `at += 1` 1 to 2",
        "unasked: `return a % 3` None returned",
        "unasked: `a % 3` Mod to Mult",
        "unasked: `a % 3` 3 to 4",
    },
    "unreached": {
        "counted: `inner.calls = 0` left out",
        "counted: `inner.calls = 0` 0 to 1",
        "counted: `return inner` None returned",
        "unreached: `return a % 3` None returned",
        "unreached: `a % 3` Mod to Mult",
        "unreached: `a % 3` 3 to 4",
    },
}


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for name, text in TREE.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{root}"}
    options = ["--root", root, "--results", root, "--patience", "0.3"]
    command = [sys.executable, "-m", "tests.mutants", "kept.py", *map(str, options)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return root


def test_tests_find_what_they_ask_for(survey):
    results = Results(survey)
    mutants = mutants_of("kept.py", TREE["kept.py"])
    kept = json.loads((survey / "results.json").read_text())["kept.py"]["others"]
    found = {mutant.name: kept.get(mutant.name, "killed") for mutant in mutants if results.has(mutant)}
    assert found == {name: what for what, names in FOUND.items() for name in names}


def test_modules_are_there():
    assert all(modules_in(ROOT, name) for name in TARGETS)


def test_all_that_is_justified_has_a_reason():
    reasons = Results(Path(__file__).parent).justified
    kinds = {reason.partition(":")[0] for names in reasons.values() for reason in names.values()}
    assert kinds <= {"boundary", "cost", "equivalent", "metric", "text"}


def test_what_is_gone_is_forgotten(tmp_path):
    mutants = mutants_of("room.py", SOURCE)
    (tmp_path / "justified.json").write_text(json.dumps({"room.py": {mutants[0].name: "cost: x", "old": "cost: y"}}))
    before = Results(tmp_path)
    for mutant, found in zip(mutants, [Found.SURVIVED, Found.LATE, Found.UNREACHED, Found.KILLED], strict=False):
        before.add(mutant, found)
    before.keep("room.py", mutants)
    assert Results(tmp_path).justified == {"room.py": {mutants[0].name: "cost: x"}}
    row = Results(tmp_path).row(mutants)
    assert (row.all, row.tried, row.killed, row.justified, row.survivors) == (9, 4, 2, 1, (mutants[2].name,))
    Results(tmp_path).keep("room.py", mutants[1:])
    assert Results(tmp_path).row(mutants).tried == 3

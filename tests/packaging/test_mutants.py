"""The tool for mutation testing makes the defects it says, and knows tests that are there."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCE = """
def decide(free: int | None, wanted: int = 3) -> bool:
    if free is None or not wanted:
        raise ValueError(f"{free + 1}")
    note(free - wanted)
    return free >= wanted
"""

DEFECTS = {
    (2, "3 to 4", "wanted: int=4"),
    (3, "Or to And", "free is None and (not wanted)"),
    (3, "Is to IsNot", "free is not None"),
    (3, "Not left out", "not not wanted"),
    (5, "call left out", "None\n    return"),
    (5, "Sub to Add", "free + wanted"),
    (6, "None returned", "return None"),
    (6, "GtE to Gt", "free > wanted"),
}


def test_defects(tool):
    found = list(tool.mutants_of("decide.py", SOURCE))
    assert len({mutant.name for mutant in found}) == len(found) == len(DEFECTS)
    for line, what, text in DEFECTS:
        (mutant,) = (each for each in found if each.what.startswith(what))
        assert mutant.line == line
        assert text in mutant.source
        compile(mutant.source, "decide.py", "exec")


def test_modules_and_their_tests_are_there(tool):
    for name, tests in tool.TESTS.items():
        assert tool.modules_in(name)
        assert all((ROOT / path).exists() for path in [name, *tests])

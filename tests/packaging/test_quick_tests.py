"""Tests of `make test` judge no time: machines are shared, and what a CPU takes differs from run to run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"process_time", "process_time_ns", "thread_time", "thread_time_ns", "perf_counter", "perf_counter_ns"}


def names_in(node: ast.AST) -> set[str]:
    """All names that a piece of code mentions, of attributes and parameters, too."""
    return {
        name
        for part in ast.walk(node)
        for name in (getattr(part, field, None) for field in ("id", "attr", "arg", "name"))
        if isinstance(name, str)
    }


def judging(text: str) -> list[str]:
    """The tests of a module that use these clocks, by themselves or by what the module defines, and are not slow."""
    if not any(clock in text for clock in CLOCKS):
        return []
    tree = ast.parse(text)
    mentions: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            mentions[node.name] = names_in(node)
        elif isinstance(node, ast.Assign):
            mentions |= {name: names_in(node.value) for target in node.targets for name in names_in(target)}
    reading = set(CLOCKS)
    while found := {name for name, used in mentions.items() if used & reading} - reading:
        reading |= found
    return [
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
        and node.name in reading
        and not any(ast.unparse(mark) == "pytest.mark.slow" for mark in node.decorator_list)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def test_a():\n    time.process_time()", ["test_a"]),
        ("async def test_a():\n    perf_counter()", ["test_a"]),
        ("def b():\n    time.thread_time()\nC = [b]\ndef test_a():\n    return C", ["test_a"]),
        ("@pytest.fixture\ndef b():\n    return time.process_time\ndef test_a(b):\n    pass", ["test_a"]),
        ("@pytest.mark.slow\ndef test_a():\n    time.process_time()", []),
        ("def b():\n    time.thread_time()\ndef test_a():\n    time.monotonic()", []),
    ],
)
def test_what_is_found(text: str, expected: list[str]) -> None:
    assert judging(text) == expected


def test_no_quick_test_judges_time() -> None:
    modules = sorted(TESTS.rglob("test_*.py"))
    assert len(modules) > 100
    found = {str(path.relative_to(TESTS)): judging(path.read_text()) for path in modules}
    assert {path: names for path, names in found.items() if names} == {}

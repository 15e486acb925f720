"""Mutation testing of the modules that decide and account: which small defects do their tests let pass?

    python tools/mutants.py --slice 1/20 --results mutants.jsonl      # a twentieth of all mutants of all modules
    python tools/mutants.py --module koordsched/framework/keyed.py

A mutant is one changed operator, number or statement. It is written into a copy of the tree, where the tests of its
module are run: nothing else is touched. Results are kept, and mutants that have one are not run again.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

PLUGINS = "koordsched/plugins"

_DEVICES = [f"tests/plugins/deviceshare/test_{name}.py" for name in ("cases", "verdicts", "books_property")]
_NUMA = [f"tests/plugins/nodenumaresource/test_{name}.py" for name in ("cases", "agreement", "books_property")]
_CPUS = [f"tests/plugins/nodenumaresource/test_cpu_pick{name}.py" for name in ("", "_against_reference")]

TESTS = {
    "koordsched/engine": ["tests/engine"],
    "koordsched/framework/overlay.py": ["tests/framework/test_overlay.py"],
    "koordsched/framework/filtering.py": ["tests/framework/test_overlay.py", "tests/engine"],
    "koordsched/framework/keyed.py": ["tests/framework/test_keyed.py"],
    "koordsched/framework/agenda.py": ["tests/framework/test_agenda.py", "tests/framework/test_timers.py"],
    "koordsched/framework/timers.py": ["tests/framework/test_timers.py"],
    "koordsched/framework/podpatch.py": ["tests/framework/test_podpatch.py", "tests/scheduling/test_podpatch.py"],
    f"{PLUGINS}/shared/devices": _DEVICES,
    f"{PLUGINS}/deviceshare/allocator.py": _DEVICES,
    f"{PLUGINS}/deviceshare/feasibility.py": _DEVICES,
    f"{PLUGINS}/deviceshare/gpus.py": _DEVICES,
    f"{PLUGINS}/nodenumaresource/cpupick.py": _CPUS,
    f"{PLUGINS}/nodenumaresource/columns.py": _NUMA,
    f"{PLUGINS}/nodenumaresource/alignment.py": _NUMA,
}
"""Modules, or folders of them, and quick tests that are about them. The others of `make test` are not asked."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


class Mutant(NamedTuple):
    """One defect. `what`: in words; `source`: the whole module with it."""

    module: str
    line: int
    what: str
    source: str

    @property
    def name(self) -> str:
        """By what it is known in results."""
        return f"{self.module}:{self.line} {self.what}"


Variant = tuple[str, Callable[[ast.AST], None]]
"""What is changed, in words, and the change of a node of the same place in another tree."""


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """All of a module, in the order of its text."""
    tree = ast.parse(source)
    for place, node in enumerate(_places(tree)):
        for what, change in _variants(node):
            mutated = ast.parse(source)
            change(list(_places(mutated))[place])
            line = getattr(node, "lineno", 0)
            yield Mutant(module, line, f"{what} in column {getattr(node, 'col_offset', 0)}", ast.unparse(mutated))


def _places(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run and decide: neither annotations nor decorators, nor the texts of errors."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "keywords") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _places(child)


def _variants(node: ast.AST) -> Iterator[Variant]:
    match node:
        case ast.Compare():
            for at, old in enumerate(node.ops):
                if (new := _COMPARISONS.get(type(old))) is not None:
                    yield _words(old, new), partial(_compare, at, new)
        case ast.BinOp() | ast.AugAssign() if (operator := _OPERATORS.get(type(node.op))) is not None:
            yield _words(node.op, operator), partial(_set, "op", operator)
        case ast.BoolOp():
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield _words(node.op, other), partial(_set, "op", other)
        case ast.UnaryOp(op=ast.Not()):
            yield "Not left out", _leave_out_not
        case ast.Constant(value=bool(value)):
            yield f"{value} to {not value}", partial(_set, "value", lambda: not value)
        case ast.Constant(value=int(value)):
            yield f"{value} to {value + 1}", partial(_set, "value", lambda: value + 1)
        case ast.Expr(value=ast.Call()):
            yield "call left out", partial(_set, "value", lambda: ast.Constant(None))
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield "None returned", partial(_set, "value", lambda: ast.Constant(None))


def _words(old: ast.AST, new: type[ast.AST]) -> str:
    return f"{type(old).__name__} to {new.__name__}"


def _set(field: str, make: Callable[[], object], node: ast.AST) -> None:
    setattr(node, field, make())
    ast.fix_missing_locations(node)


def _compare(at: int, new: type[ast.cmpop], node: ast.AST) -> None:
    assert isinstance(node, ast.Compare), "the same place of the same source"
    node.ops[at] = new()


def _leave_out_not(node: ast.AST) -> None:
    assert isinstance(node, ast.UnaryOp), "the same place of the same source"
    node.operand = ast.fix_missing_locations(ast.copy_location(ast.UnaryOp(ast.Not(), node.operand), node))


class Bench:
    """A copy of the tree in which tests run."""

    def __init__(self, root: Path) -> None:
        self._root = root
        for name in ("koordsched", "tests", "config", "manifests", "docs", "bench", "tools", "pyproject.toml"):
            kept = ROOT / name
            if kept.is_dir():
                shutil.copytree(kept, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(kept, root / name)
        self._seconds: dict[str, float] = {}

    def passes(self, tests: Sequence[str], within: float | None = None) -> bool:
        """Whether the quick ones of these tests pass, within so many seconds."""
        environment = {**os.environ, "PYTHONPATH": str(self._root), "KOORDSCHED_TEST_SEED": "7"}
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        try:
            ended = subprocess.run(
                command, cwd=self._root, env=environment, capture_output=True, timeout=within, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return ended.returncode == 0

    def kills(self, mutant: Mutant, tests: Sequence[str]) -> bool:
        """Whether the tests find the mutant; one in which they never end is found."""
        key = " ".join(tests)
        if key not in self._seconds:
            began = time.monotonic()
            if not self.passes(tests):
                raise SystemExit(f"without a mutant these fail: {key}")
            self._seconds[key] = time.monotonic() - began
        path = self._root / mutant.module
        original = path.read_text()
        path.write_text(mutant.source)
        try:
            return not self.passes(tests, 3 * self._seconds[key] + 20)
        finally:
            path.write_text(original)


def modules_in(name: str) -> list[str]:
    """The modules of a folder, or the one of this name."""
    path = ROOT / name
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [str(each.relative_to(ROOT)) for each in found]


def main() -> int:
    """Runs a slice, and prints what has survived so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", help="only this one, or those below this folder", default="")
    parser.add_argument("--slice", help="i/n: the i-th of n parts, spread over all modules", default="1/1")
    parser.add_argument("--results", type=Path, default=ROOT / "mutants.jsonl")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.slice.split("/"))
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    known: dict[str, bool] = {each["mutant"]: each["killed"] for each in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder, arguments.results.open("a") as results:
        bench = Bench(Path(folder))
        for name, tests in TESTS.items():
            for module in modules_in(name):
                if not module.startswith(arguments.module):
                    continue
                mutants = list(mutants_of(module, (ROOT / module).read_text()))
                for mutant in mutants[part - 1 :: parts]:
                    if mutant.name not in known:
                        known[mutant.name] = bench.kills(mutant, tests)
                        results.write(json.dumps({"mutant": mutant.name, "killed": known[mutant.name]}) + "\n")
                        results.flush()
    killed, all_of = Counter[str](), Counter[str]()
    for mutant_name, found in known.items():
        module = mutant_name.partition(":")[0]
        all_of[module] += 1
        killed[module] += found
        if not found:
            print(f"survived: {mutant_name}")
    for module in sorted(all_of):
        print(f"{module}: {killed[module]} of {all_of[module]} killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Mutation testing: which small defects in what decides and accounts do the quick tests let pass?

    python -m tests.mutants --slice 1/50                      # a fiftieth of all mutants of all modules
    python -m tests.mutants koordsched/queue --slice 1/10     # of these modules
    python -m tests.mutants koordsched/queue --survivors      # those again that have survived, after tests were added
    python -m tests.mutants koordsched/queue --list           # what is known; tries none

Mutants that have a result are not tried again.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path

from tests.mutants.changes import Mutant, mutants_of
from tests.mutants.hunt import Hunt, Limits
from tests.mutants.reach import Reach, Recorder
from tests.mutants.results import Results, table
from tests.mutants.session import Session, collected, stopwatch

ROOT = Path(__file__).resolve().parents[2]

TARGETS = (
    "koordsched/cluster",
    "koordsched/queue",
    "koordsched/client",
    "koordsched/scheduling",
    "koordsched/engine",
    "koordsched/framework",
    "koordsched/plugins",
)
"""What is surveyed."""

LEFT_OUT = tuple(
    f"tests/{name}"
    for name in (
        "bench/",
        "cli/test_daemon.py",
        "cli/test_demo.py",
        "cli/test_endings.py",
        "cli/test_imports.py",
        "fakecluster/",
        "ha/",
        "mutants/",
        "packaging/",
        "simulation/test_mutations.py",
        "soak/",
    )
)
"""Tests that are not asked: they start processes, in which there is no mutant, or are about something else."""


def main() -> int:
    """Tries mutants, or says what is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="modules, or folders of them", default=TARGETS)
    parser.add_argument("--slice", help="i/n: the i-th of n parts, spread over all modules", default="1/1")
    parser.add_argument("--minutes", type=float, help="ends after so long", default=float("inf"))
    parser.add_argument("--seconds", type=float, help="of tests per mutant", default=15.0)
    parser.add_argument("--patience", type=float, help="seconds that a test may be busy beyond 3 times", default=1.0)
    parser.add_argument(
        "--survivors", action="store_true", help="try those again that no test has found, of all slices"
    )
    parser.add_argument("--tests", nargs="+", help="ask no other test files than these", default=())
    parser.add_argument("--list", action="store_true", help="print what is known")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the tree; its tests are in `tests`")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent, help="the folder of what is kept")
    arguments = parser.parse_args()
    survey = Survey(arguments)
    if not arguments.list:
        survey.run()
    survey.report()
    return 0


class Survey:
    """One run of the tool."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._root: Path = arguments.root
        self._results = Results(arguments.results)
        self._reach = Reach(self._root, self._root / ".mutants")
        self._mutants = {
            module: mutants_of(module, (self._root / module).read_text())
            for target in arguments.targets
            for module in modules_in(self._root, target)
        }
        tests = sorted((self._root / "tests").rglob("test_*.py"))
        names = [str(path.relative_to(self._root)) for path in tests]
        self._test_files = [
            name for name in names if name in (arguments.tests or names) and not name.startswith(LEFT_OUT)
        ]

    def run(self) -> None:
        """Tries the mutants of the slice that have not been tried."""
        os.environ |= {"KOORDSCHED_TEST_SEED": "7", "OPENBLAS_NUM_THREADS": "1"}
        unknown = [test_file for test_file in self._test_files if self._reach.of(test_file) is None]
        if unknown:
            # In a process of its own: the one that tries mutants collects only the tests that it needs.
            if os.fork() == 0:
                collected(self._root, unknown, lambda session: self._record(session, unknown))
                os._exit(0)
            os.wait()
            self._reach = Reach(self._root, self._root / ".mutants")  # which has read none of the old records
        todo = {module: chosen for module in self._mutants if (chosen := self._chosen(module))}
        needed = set()
        for module, chosen in todo.items():
            tests = self._reach.tests_by_statement(module, self._test_files)
            needed |= {name.partition("::")[0] for mutant in chosen for name in tests.get(mutant.where, ())}
        if needed:
            collected(self._root, sorted(needed), lambda session: self._try(session, todo))
        elif todo:
            raise SystemExit("no test reaches any of these mutants")

    def _chosen(self, module: str) -> list[Mutant]:
        mutants = self._mutants[module]
        if self._arguments.survivors:
            left = [mutant for mutant in mutants if self._results.survives(mutant)]
            return [mutant for mutant in left if not self._results.is_justified(mutant)]
        part, parts = map(int, self._arguments.slice.split("/"))
        part_of = [mutant for mutant in mutants if int(mutant.key, 16) % parts == part - 1]
        return [mutant for mutant in part_of if not self._results.has(mutant)]

    def _record(self, session: Session, test_files: list[str]) -> None:
        modules = [module for target in TARGETS for module in modules_in(self._root, target)]
        modules = modules or list(self._mutants)
        for module in modules:
            importlib.import_module(module.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        recorder = Recorder(session, self._root, modules, self._reach)
        with tempfile.TemporaryDirectory() as folder:
            for at, test_file in enumerate(test_files):
                if self._reach.of(test_file) is not None:
                    continue  # recorded by another process
                tests = [n for n, name in enumerate(session.names) if name.startswith(f"{test_file}::")]
                print(f"{at} of {len(test_files)}: {test_file}, {len(tests)} tests", file=sys.stderr)
                recorder.record(test_file, tests, Path(folder) / "answer")

    def _try(self, session: Session, todo: dict[str, list[Mutant]]) -> None:
        with stopwatch() as seconds:
            for module, mutants in todo.items():
                importlib.import_module(module.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
                tests = self._reach.tests_by_statement(module, self._test_files)
                limits = Limits(self._arguments.seconds, self._arguments.patience)
                hunt = Hunt(session, self._root, module, tests, limits)
                began = seconds()
                for mutant in mutants:
                    if seconds() > 60 * self._arguments.minutes:
                        break
                    self._results.add(mutant, hunt.judge(mutant))
                self._results.keep(module, self._mutants[module])
                print(f"{module}: {len(mutants)} in {seconds() - began:.1f} s", file=sys.stderr)

    def report(self) -> None:
        """Prints the survivors, and the table."""
        rows = {module: self._results.row(mutants) for module, mutants in self._mutants.items()}
        for module, row in rows.items():
            for name in row.survivors:
                print(f"{module} {name}")
        print("\n".join(table(rows)))


def modules_in(root: Path, name: str) -> list[str]:
    """The modules of a folder, or the one of this name."""
    path = root / name
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [str(each.relative_to(root)) for each in found if each.exists()]


if __name__ == "__main__":
    sys.exit(main())

"""What was found of each mutant: kept in `results.json`; and why survivors may stay: `justified.json`.

Both know mutants by module and name, so that they stay valid when lines move.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tests.mutants.changes import Mutant


class Found(Enum):
    """What became known of a mutant."""

    KILLED = "killed"
    LATE = "late"
    SURVIVED = "survived"
    UNREACHED = "unreached"


class Row(NamedTuple):
    """Numbers of mutants of a module (or of several); `survivors`: names of those without a reason."""

    all: int = 0
    killed: int = 0
    justified: int = 0
    survivors: tuple[str, ...] = ()

    @property
    def tried(self) -> int:
        """How many of all."""
        return self.killed + self.justified + len(self.survivors)

    def __add__(self, other: object) -> Row:
        assert isinstance(other, Row)
        survivors = self.survivors + other.survivors
        return Row(self.all + other.all, self.killed + other.killed, self.justified + other.justified, survivors)


class Results:
    """Of all modules. Killed ones are kept by key, the others by name."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "results.json"
        self._killed: dict[str, set[str]] = {}
        self._others: dict[str, dict[str, str]] = {}
        for module, kept in (json.loads(self._path.read_text()) if self._path.exists() else {}).items():
            self._killed[module] = set(kept["killed"].split())
            self._others[module] = kept["others"]
        self._reasons = folder / "justified.json"
        self.justified: dict[str, dict[str, str]] = (
            json.loads(self._reasons.read_text()) if self._reasons.exists() else {}
        )

    def has(self, mutant: Mutant) -> bool:
        """Whether it has been tried."""
        return mutant.key in self._killed.get(mutant.module, ()) or self.survives(mutant)

    def survives(self, mutant: Mutant) -> bool:
        """Whether it has been tried, and no test has found it."""
        return mutant.name in self._others.get(mutant.module, ())

    def is_justified(self, mutant: Mutant) -> bool:
        """Whether there is a reason why no test need find it."""
        return mutant.name in self.justified.get(mutant.module, ())

    def add(self, mutant: Mutant, found: Found) -> None:
        """Takes note."""
        self._others.setdefault(mutant.module, {}).pop(mutant.name, None)
        if found in (Found.KILLED, Found.LATE):
            self._killed.setdefault(mutant.module, set()).add(mutant.key)
        else:
            self._others[mutant.module][mutant.name] = found.value

    def keep(self, module: str, mutants: Sequence[Mutant]) -> None:
        """Forgets mutants of a module that there are no longer, and writes what is known."""
        keys = {mutant.key for mutant in mutants}
        names = {mutant.name for mutant in mutants}
        self._killed[module] = self._killed.get(module, set()) & keys
        others = self._others.get(module, {})
        self._others[module] = {name: found for name, found in others.items() if name in names}
        kept = {
            each: {"killed": " ".join(sorted(self._killed.get(each, ()))), "others": dict(sorted(others.items()))}
            for each, others in sorted(self._others.items())
            if others or self._killed.get(each)
        }
        _write(self._path, kept)
        reasons = self.justified.get(module, {})
        if not reasons.keys() <= names:
            self.justified[module] = {name: reason for name, reason in reasons.items() if name in names}
            _write(self._reasons, self.justified)

    def row(self, mutants: Sequence[Mutant]) -> Row:
        """The numbers of a module."""
        killed = sum(self.has(mutant) and not self.survives(mutant) for mutant in mutants)
        left = [mutant for mutant in mutants if self.survives(mutant)]
        survivors = [mutant.name for mutant in left if not self.is_justified(mutant)]
        return Row(len(mutants), killed, len(left) - len(survivors), tuple(survivors))


def _write(path: Path, value: object) -> None:
    written = path.with_suffix(".new")
    written.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    written.replace(path)


def table(rows: dict[str, Row]) -> Iterator[str]:
    """As in docs/reliability.md: a line per folder; survivors by module."""
    folders: dict[str, dict[str, Row]] = {}
    for module, row in rows.items():
        folders.setdefault(_folder(module), {})[module] = row
    yield "| modules | tried, of all | killed | justified | left, by module |"
    yield "|---|---|---|---|---|"
    for folder, of in {**folders, "all": rows}.items():
        whole = sum(of.values(), Row())
        left = {module.removeprefix(f"koordsched/{folder}/"): len(row.survivors) for module, row in of.items()}
        texts = [f"`{module.removesuffix('.py')}` {count}" for module, count in left.items() if count]
        left_over = str(len(whole.survivors)) if folder == "all" else ", ".join(texts)
        share = f" ({100 * whole.killed / whole.tried:.0f} %)" if whole.tried else ""
        tried = f"{whole.tried:,} of {whole.all:,}"
        yield f"| `{folder}` | {tried} | {whole.killed:,}{share} | {whole.justified} | {left_over} |"


def _folder(module: str) -> str:
    """Of a package, or of a plugin."""
    parts = module.split("/")[1:-1]
    return "/".join(parts[: 2 if parts[:1] == ["plugins"] else 1])

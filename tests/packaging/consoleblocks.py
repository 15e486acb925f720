"""The console blocks of a document: commands, and what they are said to print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = "--- command"


class Command(NamedTuple):
    """`printed`: the lines below it; none if the document does not show what it prints."""

    text: str
    printed: tuple[str, ...]


def commands(document: str) -> list[Command]:
    """All of a document, in order. A line that ends in a backslash goes on in the next one."""
    found: list[Command] = []
    for block in _BLOCK.findall(document):
        text = ""
        for line in block.splitlines():
            if text.endswith("\\"):
                text += "\n" + line
            elif line.startswith("$ "):
                text = line[2:]
            else:
                last = found.pop()
                found.append(Command(last.text, (*last.printed, line)))
                continue
            if not text.endswith("\\"):
                found.append(Command(text, ()))
    return found


def run(
    script: list[Command], environment: Mapping[str, str], directory: Path, output: Path, within: float
) -> list[list[str]]:
    """Runs them in one shell, which ends with the first one that fails; what each printed.

    What they leave in the background is ended.
    """
    lines = ["set -eu"]
    for number, command in enumerate(script):
        lines += [f"echo '{_MARK}' {number}", command.text]
    with output.open("w") as file:
        shell = subprocess.Popen(
            ["bash", "-c", "\n".join(lines)],
            env=environment,
            cwd=directory,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        code = shell.wait(within)
    finally:
        _end(shell.pid)
        shell.wait()
    text = output.read_text()
    assert code == 0, text
    return [part.splitlines()[1:] for part in text.split(_MARK)[1:]]


def _end(group: int) -> None:
    """The shell and all that it started."""
    os.killpg(group, signal.SIGTERM)
    end = time.monotonic() + 30.0
    try:
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def differences(script: list[Command], printed: list[list[str]]) -> list[str]:
    """Where the document says something else. Blanks do not count; `...` at the end of a line is its rest."""
    found = []
    for command, lines in zip(script, printed, strict=True):
        if command.printed:
            said, shown = ([" ".join(line.split()) for line in each] for each in (command.printed, lines))
            same = len(said) == len(shown) and all(
                there.startswith(line.removesuffix("...")) if line.endswith("...") else there == line
                for line, there in zip(said, shown, strict=True)
            )
            if not same:
                found.append("\n".join([command.text, "document:", *said, "printed:", *shown]))
    return found

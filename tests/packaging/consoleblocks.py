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
    end = time.monotonic() + 30.0
    try:
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def differences(script: list[Command], printed: list[list[str]]) -> list[str]:
    """Where the document says something else. Blanks do not count, nor does what differs from run to run."""
    return [
        "\n".join([command.text, "document:", *command.printed, "printed:", *lines])
        for command, lines in zip(script, printed, strict=True)
        if command.printed and not agree([*map(constant, command.printed)], [*map(constant, lines)])
    ]


def agree(said: list[str], shown: list[str]) -> bool:
    """Whether what a document shows is what is printed.

    `...` at the end of a line stands for its rest, `...` as a line for any number of lines.
    """
    if "..." in said:
        first = said.index("...")
        rest = said[first + 1 :]
        return agree(said[:first], shown[:first]) and any(
            agree(rest, shown[skipped:]) for skipped in range(first, len(shown) + 1)
        )
    return len(said) == len(shown) and all(
        there.startswith(line.removesuffix("...")) if line.endswith("...") else there == line
        for line, there in zip(said, shown, strict=True)
    )


def constant(line: str) -> str:
    """A line without what differs from run to run: times, rates, ids of processes, generated names."""
    for pattern, name in _VOLATILE:
        line = pattern.sub(name, line)
    return " ".join(line.split())


_VOLATILE = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"\b\d[\d,.]* (pods|decisions)/s", r"N \1/s"),
        (r"\b(\d+m)?\d+(\.\d+)? ?m?s\b", "DURATION"),
        (r"\b(process|pid) \d+", r"\1 N"),
        # How often pods that wait for others to go are tried in between.
        (r"\b\d+ (decisions on|unschedulable)\b", r"N \1"),
        (r"\b\d+ of \d+ (decisions the same)\b", r"N of M \1"),
        (r"\b(\[\d+\] )\d+$", r"\1N"),
        (r"-[b-df-hj-np-tv-z2-9]{8,10}-[b-df-hj-np-tv-z2-9]{5}\b", "-HASH"),
        # Of ResourceClaims that were made of templates, or for extended resources.
        (r"(-(?:gpus?|half|card|resources)-)[b-df-hj-np-tv-z2-9]{5}\b", r"\1HASH"),
        (r"\b10\.\d+\.\d+\.\d+\b", "ADDRESS"),
    )
)

"""Child processes that never outlive us: terminated, then killed; if we are killed, the kernel ends them."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from collections.abc import Callable
from pathlib import Path

GRACE = 8.0
"""Seconds that a child has to end by itself."""

_TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1


class ChildFailed(Exception):
    """A child exited, or did not become ready; the message has the end of its log."""


class Child:
    """One process of ours, with its output in a file."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    def check(self) -> None:
        """Raises ChildFailed if the process has ended."""
        if self.process.returncode is not None:
            raise ChildFailed(f"{self.name} ended with exit code {self.process.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        """The last lines of its output."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join(f"  {line}" for line in lines) or "  (it wrote nothing)"

    async def until(self, condition: Callable[[], bool], within: float, what: str) -> None:
        """Waits until the condition holds. Raises ChildFailed if the process ends before, or time is up."""
        try:
            async with asyncio.timeout(within):
                while not condition():
                    self.check()
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            raise ChildFailed(f"{self.name}: {what} did not happen within {within:g} s:\n{self.tail()}") from error


class Children:
    """All child processes; an asynchronous context manager that ends them, the last one started first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []

    async def start(self, name: str, *arguments: str) -> Child:
        """Starts `koordsched <arguments>`; its output goes to `<name>.log` in the folder."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "koordsched", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C goes to us only; we stop the children, in order.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raises ChildFailed if one of them has ended."""
        for child in self._children:
            child.check()

    async def __aenter__(self) -> Children:
        return self

    async def __aexit__(self, *exc: object) -> None:
        while self._children:
            await _end(self._children.pop().process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(GRACE):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
        await process.wait()
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise


_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """In the child, before it executes another program: it ends with its parent, however that ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

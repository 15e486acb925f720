"""Commands as processes, with their output read as it comes."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress

PATIENCE = 60.0
"""Seconds that a process may take to say what is expected of it."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A command, such as `koordsched <arguments>`."""

    def __init__(self, process):
        self._process = process
        self.lines = []
        self._said = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, *arguments):
        """koordsched."""
        return await cls.of(sys.executable, "-m", "koordsched", *arguments)

    @classmethod
    async def of(cls, *command):
        """Anything."""
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "NO_COLOR": "1"},
            )
        )

    async def _read(self):
        while line := await self._process.stdout.readline():
            async with self._said:
                self.lines.append(line.decode().rstrip("\n"))
                self._said.notify_all()
        async with self._said:
            self.lines.append("(end of output)")
            self._said.notify_all()

    def says(self, text):
        return any(text in line for line in self.lines)

    async def wait_for(self, text):
        """Until a line has the text in it."""
        async with asyncio.timeout(PATIENCE), self._said:
            await self._said.wait_for(lambda: self.says(text) or self.lines[-1:] == ["(end of output)"])
        assert self.says(text), f"no {text!r} in:\n" + "\n".join(self.lines[-30:])

    @property
    def pid(self):
        return self._process.pid

    @property
    def running(self):
        return self._process.returncode is None

    def signal(self, number):
        self._process.send_signal(number)

    async def ended(self):
        """Its exit code, once it has one."""
        async with asyncio.timeout(PATIENCE):
            code = await self._process.wait()
            await self._reading
        return code

    async def destroy(self):
        """Leaves nothing of it."""
        if self.running:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.kill()
        await self.ended()

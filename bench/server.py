"""The API server to measure on: the embedded one in a process of its own, unless there is another."""

from __future__ import annotations

import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

KOORDSCHED = (sys.executable, "-m", "koordsched")
"""The command of this very project, whatever is installed elsewhere."""

OURS = (
    f"koordsched={shlex.join(KOORDSCHED)} run --config {{config}} --secure-port 0 --address 127.0.0.1 --port {{port}}"
)
"""What is measured if nothing else is asked for."""

START_WITHIN = 60.0
"""Seconds that the embedded server may take to be ready."""


class ServerFailed(Exception):
    """The embedded server did not start; the message is ready for the user."""


class Embedded(NamedTuple):
    """The embedded server: its kubeconfig and its process."""

    kubeconfig: Path
    process: subprocess.Popen[str]

    def forget_history(self) -> None:
        """Has it end all watches, and answer 410 to who would resume one."""
        self.process.send_signal(signal.SIGUSR1)


@contextmanager
def embedded(directory: Path, *, tls: bool, emulate: bool) -> Iterator[Embedded]:
    """Runs the embedded server without nodes of its own. Raises ServerFailed.

    Bound pods never start: what kubelets write about pods is not what is measured.
    """
    kubeconfig = directory / "embedded.kubeconfig"
    command = [*KOORDSCHED, "fakecluster", "--nodes", "0", "--pod-start-delay", "-1"]
    command += ["--kubeconfig-out", str(kubeconfig), "--token", "benchmark"]
    command += ["--tls"] if tls else []
    command += ["--emulate-apiserver"] if emulate else []
    with (directory / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            _await_ready(process, directory / "server.log")
            yield Embedded(kubeconfig, process)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_ready(process: subprocess.Popen[str], log: Path) -> None:
    assert process.stdout is not None
    end = time.monotonic() + START_WITHIN
    while (left := end - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            line = process.stdout.readline()
            if "fakecluster ready" in line:
                return
            if not line:
                break
    raise ServerFailed(f"the embedded server did not start; see {log}")

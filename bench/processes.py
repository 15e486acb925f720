"""A scheduler as a process: started from a command line, its CPU time and memory read from /proc."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

SAMPLE_EVERY = 0.05
"""Seconds between two looks at /proc, which counts CPU time in hundredths of a second."""

IDLE_FOR = 1.0
IDLE_SHARE = 0.04
"""A process is idle when it used at most this share of a CPU for so many seconds."""


class CommandFailed(Exception):
    """The scheduler could not be started, or ended; the message is ready for the user."""


class Command:
    """A scheduler to measure: `name`, and the command line with placeholders.

    {name}: the schedulerName it must serve; {kubeconfig}; {config}: a KubeSchedulerConfiguration file that says both;
    {config_all}: the same, with every node scored for every pod; {port}: a free port on which it should serve /metrics
    without TLS, if it can. `decides`: whether it can tell which pods must wait.
    """

    def __init__(self, name: str, template: str, *, decides: bool = True) -> None:
        self.name = name
        self.template = template
        self.decides = decides

    @classmethod
    def parse(cls, text: str) -> Command:
        """From `name=command …`. Raises ValueError."""
        name, equals, template = text.partition("=")
        if not equals or not name or not template.strip():
            raise ValueError(f"{text!r} is not of the form 'name=command …'")
        return cls(name, template)

    def arguments(self, values: Mapping[str, str]) -> list[str]:
        """The command line with its placeholders filled in. Raises CommandFailed."""
        try:
            return [part.format(**values) for part in shlex.split(self.template)]
        except (KeyError, IndexError, ValueError) as error:
            raise CommandFailed(f"{self.name}: unknown placeholder or stray brace in the command: {error}") from error


def write_config(
    path: Path,
    scheduler_name: str,
    kubeconfig: Path,
    profile: Mapping[str, Any],
    *,
    score_every_node: bool = False,
) -> None:
    """A KubeSchedulerConfiguration without leader election and client limits, of one profile under this name.

    `profile`: what differs from the default one. Without `score_every_node` a scheduler may look at a part of the
    nodes, as kube-scheduler does by default. Parallelism stays what the scheduler takes by itself.
    """
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        # A negative rate switches the limit of client-go off; with 0 it would be 50 per second.
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": -1, "burst": 100000},
        "profiles": [{**profile, "schedulerName": scheduler_name}],
    }
    if score_every_node:
        config["percentageOfNodesToScore"] = 100
    path.write_bytes(orjson.dumps(config))


def free_port() -> int:
    """A TCP port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class SchedulerProcess:
    """A running scheduler. Samples are (monotonic seconds, CPU seconds so far)."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        """Starts it. Raises CommandFailed."""
        self._log_path = log
        self._log = log.open("wb")
        try:
            self._process = subprocess.Popen(
                arguments, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise CommandFailed(f"{arguments[0]}: {error.strerror}") from error
        loop = asyncio.get_running_loop()
        self.started = time.monotonic()
        self.samples: list[tuple[float, float]] = [(self.started, 0.0)]
        # From samples alone: what the kernel tells at the end counts the process that started this one, too.
        self.peak_rss_mib = 0
        self._exit_usage: float | None = None
        self._sampler = loop.create_task(self._sample())

    async def _sample(self) -> None:
        while self._exit_usage is None:
            self._look(time.monotonic())
            await asyncio.sleep(SAMPLE_EVERY)

    def _look(self, now: float) -> None:
        if self._exit_usage is not None:
            return
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            # After the end the kernel tells exactly; before, in hundredths of a second.
            self._exit_usage = usage.ru_utime + usage.ru_stime
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self.samples.append((now, self._exit_usage))
            return
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            peak = Path(f"/proc/{self._process.pid}/status").read_text().partition("VmHWM:")[2].split()
        except OSError:
            return  # it ended between the two looks
        self.samples.append((now, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")))
        if peak:
            self.peak_rss_mib = max(self.peak_rss_mib, int(peak[0]) >> 10)

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._exit_usage is not None

    @property
    def cpu_seconds(self) -> float:
        """CPU time used so far."""
        return self.samples[-1][1]

    def cpu_at(self, moment: float) -> float:
        """CPU time used until a monotonic moment."""
        return max((cpu for at, cpu in self.samples if at <= moment), default=0.0)

    def check(self) -> None:
        """Raises CommandFailed if the process has ended with an error."""
        if self.ended and self._process.returncode:
            raise CommandFailed(f"it ended with code {self._process.returncode}; see {self._log_path}")

    async def idle(self, within: float) -> float:
        """Waits until the process has nothing left to do, or has ended. The CPU time used by then."""
        end = time.monotonic() + within
        while not self.ended and time.monotonic() < end:
            now = time.monotonic()
            recently = self.cpu_seconds - self.cpu_at(now - IDLE_FOR)
            if now - self.started >= IDLE_FOR and recently <= IDLE_SHARE * IDLE_FOR:
                break
            await asyncio.sleep(SAMPLE_EVERY)
        return self.cpu_seconds

    async def stop(self, within: float = 20.0) -> None:
        """Ends it, and waits until it is gone."""
        if not self.ended:
            self._process.send_signal(signal.SIGTERM)
        end = time.monotonic() + within
        while not self.ended:
            self._look(time.monotonic())
            if time.monotonic() > end:
                self._process.kill()
            await asyncio.sleep(SAMPLE_EVERY)
        self._sampler.cancel()
        self._log.close()

"""A pytest that has collected tests once, and runs chosen ones in forked processes."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
from hypothesis import Phase, settings

_MEMORY = 6 << 30
"""Address space that a mutant may take beyond what there is at its start."""


_PR_SET_PDEATHSIG = 1
"""Of Linux: the signal that a process gets when the one that started it ends."""


_WAITING = 10
"""How many times as long a test may take as it may be busy."""

_TIMERS = (signal.SIGPROF, signal.SIGALRM)


class Verdict(NamedTuple):
    """The test that failed, or None; `late`: it did not end in its time."""

    test: int | None
    late: bool


class Session:
    """The tests, in a process that never runs one itself."""

    def __init__(self, session: pytest.Session) -> None:
        self.items = list(session.items)
        self.names = [item.nodeid for item in self.items]
        self._session = session
        self._current = mmap.mmap(-1, 4)
        gc.collect()

    def ask(self, prepare: Callable[[], object], tests: Sequence[int], seconds: Sequence[float]) -> Verdict:
        """Runs tests, after `prepare`, in a process of their own until one fails.

        `seconds`: the time that each may be busy; that it may take is a multiple.
        """

        def ask() -> NoReturn:
            prepare()
            for number, (test, limit) in enumerate(zip(tests, seconds, strict=True)):
                self._current[:] = number.to_bytes(4, "little")
                # Not handled: these end the process wherever it is, busy or waiting.
                signal.setitimer(signal.ITIMER_PROF, limit)
                signal.setitimer(signal.ITIMER_REAL, _WAITING * limit)
                if not self.run(test, tests[number + 1] if number + 1 < len(tests) else None):
                    os._exit(1)
            os._exit(0)

        status = self.fork(ask)
        if status == 0:
            return Verdict(None, False)
        failed = tests[int.from_bytes(self._current[:], "little")]
        return Verdict(failed, os.WIFSIGNALED(status) and os.WTERMSIG(status) in _TIMERS)

    def run(self, test: int, following: int | None) -> bool:
        """Runs one test here (in a forked process); returns whether it passed or was skipped."""
        failures: list[pytest.TestReport] = []
        self._session.config.pluginmanager.register(_Failures(failures), "failures")
        item = self.items[test]
        after = None if following is None else self.items[following]
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        finally:
            self._session.config.pluginmanager.unregister(name="failures")
        return not failures

    def fork(self, work: Callable[[], object]) -> int:
        """Does work in a process of its own, waits, and returns how that ended. What it started is ended, too."""
        gc.freeze()  # what the child does not touch need not be copied
        process = os.fork()
        if process == 0:
            try:
                os.setsid()
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
                quiet = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(quiet, descriptor)
                work()
                os._exit(0)
            finally:
                os._exit(70)
        _, status = os.waitpid(process, 0)
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        return status


class _Failures:
    def __init__(self, failures: list[pytest.TestReport]) -> None:
        self._failures = failures

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failures.append(report)


class _Server:
    """Has the work done when tests are collected."""

    def __init__(self, work: Callable[[Session], object]) -> None:
        self._work = work

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        # A failure is enough: none is made smaller, and none is kept for the next run.
        settings.register_profile(
            "mutants", database=None, derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate]
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._work(Session(session))
        return True


def collected(root: Path, tests: Sequence[str], work: Callable[[Session], object]) -> None:
    """Collects the quick tests of these files, and does work with them.

    Raises: SystemExit, where they cannot be collected.
    """
    os.chdir(root)
    left_out = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "terminal", "faulthandler", "randomly")]
    options = ["-o", "addopts=", "-o", "tmp_path_retention_policy=none", "-m", "not slow", "--strict-markers"]
    status = pytest.main([*left_out, *options, f"--rootdir={root}", *tests], plugins=[_Server(work)])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"pytest ended with {status!r}")


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Seconds since the beginning of the block."""
    began = time.monotonic()
    yield lambda: time.monotonic() - began

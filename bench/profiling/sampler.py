"""Runs `koordsched run` and looks again and again at which function is running.

`python -m bench.profiling.sampler OUT WARM_UP -- ARGUMENTS`. Sampling starts when the process has used WARM_UP seconds
of CPU time. The timer runs with CPU time, too: looking at a process that waits would wake it up. Each look counts for
the CPU time used since the one before. What compiled code does (TLS, JSON, NumPy) counts for the function of ours that
called it, or for the next one, since Python hears of the timer between two instructions of its own.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

import orjson

INTERVAL = 0.001
"""Seconds of CPU time between two looks; the kernel makes it a tick of its own, one to ten milliseconds."""

_ROOT = str(Path(__file__).resolve().parents[2]) + "/"

Stack = tuple[str, ...]
"""Innermost function of ours first: `module:function`."""


class Sampler:
    """Adds up CPU seconds by stack. Lives in the main thread, where Python handles signals."""

    def __init__(self) -> None:
        self.seconds: defaultdict[Stack, float] = defaultdict(float)
        self._before = 0.0

    def start(self, after: float) -> None:
        """Begins after so many seconds of CPU time."""
        self._before = after
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def stop(self) -> None:
        """Ends sampling."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _look(self, number: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        if now > self._before:
            self.seconds[_stack_of(frame)] += now - self._before
            self._before = now

    def save(self, path: Path) -> None:
        """Writes [[stack, seconds], …] as JSON."""
        path.write_bytes(orjson.dumps(list(self.seconds.items())))


def _stack_of(frame: FrameType | None) -> Stack:
    stack: list[str] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_ROOT) and not name.startswith(f"{_ROOT}bench/"):
            module = name.removeprefix(_ROOT).removesuffix(".py").replace("/", ".")
            stack.append(f"{module}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return tuple(stack)


def main() -> None:
    """Runs the command under the sampler."""
    out, warm_up, _, *arguments = sys.argv[1:]
    from koordsched.cli.run import run

    sampler = Sampler()
    sampler.start(float(warm_up))
    try:
        run(arguments, prog_name="koordsched run")
    finally:
        sampler.stop()
        sampler.save(Path(out))


if __name__ == "__main__":
    main()

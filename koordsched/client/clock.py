"""The three clocks a client needs, injected so that tests and the simulator can bring their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Readings in seconds.

    `monotonic` times requests and stands still while the machine sleeps; `boottime` goes on and therefore decides how
    long a lease is still ours; `wall` is written for others to read and compared only with a credential's expiry.
    """

    def monotonic(self) -> float: ...

    def boottime(self) -> float: ...

    def wall(self) -> float: ...


class SystemClock:
    """The clocks of this machine (Linux: CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME)."""

    # No frame of ours around it: it is asked several dozen times per pod.
    monotonic = staticmethod(time.monotonic)

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        return time.time()

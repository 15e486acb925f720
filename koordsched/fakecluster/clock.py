"""Time as the embedded cluster sees it: injected, so that a test can run an hour in a millisecond."""

from __future__ import annotations

import asyncio
import calendar
import time
from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """Wall time."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...


class TimerHandle(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None: ...


CallLater = Callable[..., TimerHandle]
"""`call_later(delay_seconds, callback, *args)`, as `asyncio.AbstractEventLoop.call_later`."""


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> float:
        return time.time()


def loop_call_later(delay: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
    """A timer of the running event loop."""
    return asyncio.get_running_loop().call_later(delay, callback, *args)


_last_second: tuple[int, str] = (-1, "")


def rfc3339(seconds: float) -> str:
    """`2026-01-02T03:04:05Z`, the form of metav1.Time."""
    global _last_second
    whole = int(seconds)
    cached = _last_second
    if cached[0] == whole:
        return cached[1]
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(whole))
    _last_second = (whole, text)
    return text


def rfc3339_micro(seconds: float) -> str:
    """`2026-01-02T03:04:05.000006Z`, the form of metav1.MicroTime."""
    whole = int(seconds)
    return f"{rfc3339(whole)[:-1]}.{int((seconds - whole) * 1e6):06d}Z"


def parse_rfc3339(text: str) -> float:
    """Seconds since the epoch of a UTC or offset timestamp, with or without a fraction.

    Raises ValueError when the text is not such a timestamp.
    """
    body, fraction, offset = text, 0.0, 0
    if body.endswith(("Z", "z")):
        body = body[:-1]
    elif len(body) > 6 and body[-6] in "+-" and body[-3] == ":":
        sign = 1 if body[-6] == "+" else -1
        offset = sign * (int(body[-5:-3]) * 3600 + int(body[-2:]) * 60)
        body = body[:-6]
    else:
        raise ValueError(f"timestamp {text!r} has no time zone")
    if "." in body:
        body, _, digits = body.partition(".")
        fraction = float("0." + digits)
    return calendar.timegm(time.strptime(body, "%Y-%m-%dT%H:%M:%S")) + fraction - offset

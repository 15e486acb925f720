"""How long writes pause, refusal by refusal."""

from __future__ import annotations

from random import Random

import pytest

from koordsched.client.errors import Ambiguous, ClientError, NotSent, TooManyRequests
from koordsched.client.writepause import FIRST_PAUSE, LONGEST_PAUSE, LONGEST_RETRY_AFTER, WritePause

REFUSED = NotSent("refused")


class Middle(Random):
    """Draws the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_pauses_double_until_a_write_succeeds_after_one() -> None:
    pause = WritePause(Middle())
    now, lengths = 100.0, []
    for _ in range(9):
        pause.overloaded("binding", REFUSED, now)
        lengths.append(pause.until - now)
        now = pause.until
    expected = [min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) for number in range(9)]
    assert lengths == pytest.approx(expected)
    pause.overloaded("binding", REFUSED, now)
    until = pause.until
    pause.overloaded("binding", REFUSED, now + 1)
    pause.succeeded(now + 1)  # was under way before the pause
    assert pause.until == until
    pause.overloaded("binding", REFUSED, until)
    assert pause.until - until == pytest.approx(LONGEST_PAUSE)
    pause.succeeded(pause.until)
    now = pause.until
    pause.overloaded("binding", REFUSED, now)
    assert pause.until - now == pytest.approx(FIRST_PAUSE)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (TooManyRequests(429, retry_after=7.0), 7.0),
        (TooManyRequests(429, retry_after=1000.0), LONGEST_RETRY_AFTER),
        (TooManyRequests(429), FIRST_PAUSE),
        (REFUSED, FIRST_PAUSE),
        (Ambiguous("no answer"), -100.0),
    ],
)
def test_the_server_may_say_how_long(error: ClientError, seconds: float) -> None:
    pause = WritePause(Middle())
    pause.overloaded("event", error, 100.0)
    assert pause.until == pytest.approx(100.0 + seconds)
    pause.overloaded("event", TooManyRequests(429, retry_after=0.5), 100.0)
    assert pause.until == pytest.approx(max(100.0 + seconds, 100.5))


def test_one_line_a_minute_says_how_many_wait(caplog: pytest.LogCaptureFixture) -> None:
    pause = WritePause(Middle())
    for now in (0.0, 1.0, 59.0, 60.0, 61.0):
        pause.overloaded("event" if now == 60.0 else "binding", REFUSED, now)
    texts = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert texts == [
        "1 more waiting, latest: a binding: refused",
        "3 more waiting, latest: an event: refused",
    ]

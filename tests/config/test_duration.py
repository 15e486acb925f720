"""Durations in Go's notation."""

import pytest

from koordsched.config import Duration


@pytest.mark.parametrize(
    "text, seconds, shown",
    [
        ("15s", 15.0, "15s"),
        ("1m30s", 90.0, "1m30s"),
        ("10m", 600.0, "10m0s"),
        ("1h", 3600.0, "1h0m0s"),
        ("1.5s", 1.5, "1.5s"),
        (".5s", 0.5, "500ms"),
        ("1us", 1e-6, "1µs"),
        ("1µs", 1e-6, "1µs"),
        ("3ns", 3e-9, "3ns"),
        ("-2.5h", -9000.0, "-2h30m0s"),
        ("+1s", 1.0, "1s"),
        ("0", 0.0, "0s"),
    ],
)
def test_notation(text: str, seconds: float, shown: str) -> None:
    duration = Duration.parse(text)
    assert duration.seconds == seconds
    assert str(duration) == shown
    assert repr(duration) == f"Duration('{shown}')"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("5", 'time: missing unit in duration "5"'),
        ("abc", 'time: invalid duration "abc"'),
        ("5x", 'time: unknown unit "x" in duration "5x"'),
        (".s", 'time: invalid duration ".s"'),
        ("1e3s", 'time: unknown unit "e" in duration "1e3s"'),
        ("9999999999h", 'time: invalid duration "9999999999h"'),
        ("1" * 200 + "s", f'time: invalid duration "{"1" * 200}s"'),
        ('"', 'time: invalid duration "\\""'),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        Duration.parse(text)
    assert str(caught.value) == message

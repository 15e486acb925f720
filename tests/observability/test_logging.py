"""Log lines: their exact form, levels, and what cannot be done with them."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from koordsched.observability.logging import (
    JsonFormatter,
    KlogFormatter,
    LogControl,
    LogOptionError,
    LogOptions,
    RepeatFilter,
    level_of,
    parse_verbosity,
    set_up_logging,
    verbosity_of,
)


def record(
    level: int = logging.INFO, message: str = "hello %s", args: tuple[Any, ...] = ("you",), **more: Any
) -> logging.LogRecord:
    made = logging.LogRecord("koordsched.x", level, "/src/file.py", 57, message, args, None)
    made.created, made.process = 1893456000.25, 1234
    made.__dict__.update(more)
    return made


HEADER = "0101 00:00:00.250000    1234 file.py:57] "


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (record(), f"I{HEADER}hello you"),
        (record(level_of(4)), f"I{HEADER}hello you"),
        (record(logging.WARNING), f"W{HEADER}hello you"),
        (record(logging.ERROR), f"E{HEADER}hello you"),
        (record(logging.CRITICAL), f"F{HEADER}hello you"),
        (record(args=("a\nE0101 forged\r\x1b[2J\u2028",)), f"I{HEADER}hello a\\nE0101 forged\\r\\x1b[2J\\u2028"),
        (
            record(message="Pod gone", args=(), fields={"pod": 'ns/"x"\n', "count": 3, "share": 0.5}),
            f'I{HEADER}"Pod gone" pod="ns/\\"x\\"\\n" count=3 share=0.5',
        ),
        (record(message="stuck", args=(), trace="one\ntwo\x07\n"), f"I{HEADER}stuck\n\tone\n\ttwo\\x07"),
    ],
)
def test_text(made: logging.LogRecord, line: str) -> None:
    assert KlogFormatter().format(made) == line


def test_a_traceback_cannot_pass_for_records() -> None:
    try:
        raise ValueError("bad\nE0101 00:00:00.000000 forged")
    except ValueError as error:
        made = record(logging.ERROR, exc_info=(ValueError, error, error.__traceback__))
    lines = KlogFormatter().format(made).split("\n")
    assert lines[0] == f"E{HEADER}hello you"
    assert lines[1] == "\tTraceback (most recent call last):"
    assert all(line.startswith("\t") for line in lines[1:])
    assert "\tE0101 00:00:00.000000 forged" in lines


@pytest.mark.parametrize(
    ("made", "body"),
    [
        (record(), {"msg": "hello you", "v": 0}),
        (record(level_of(2), fields={"pod": "a\nb", 5: None}), {"msg": "hello you", "v": 2, "pod": "a\nb", "5": None}),
        (record(logging.ERROR, fields={"msg": "not this"}), {"msg": "hello you", "level": "error"}),
        (record(args=("\ud800",), fields={"big": 1}), {"msg": "hello \\ud800", "v": "0", "big": "1"}),
    ],
)
def test_json(made: logging.LogRecord, body: dict[str, Any]) -> None:
    line = JsonFormatter().format(made)
    assert "\n" not in line
    parsed = json.loads(line)
    assert float(parsed.pop("ts")) == 1893456000250.0
    assert parsed == {"caller": "file.py:57", "logger": "koordsched.x", **body}


@pytest.mark.parametrize(
    ("verbosity", "level"), [(-1, 20), (0, 20), (1, 19), (3, 17), (4, logging.DEBUG), (5, 9), (10, 4), (99, 4)]
)
def test_levels(verbosity: int, level: int) -> None:
    assert level_of(verbosity) == level
    assert verbosity_of(level) == min(max(verbosity, 0), 10)


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (lambda: parse_verbosity("x\n"), r"verbosity must be a number, not 'x\\\\n'"),
        (lambda: parse_verbosity("-1"), "verbosity must not be negative: -1"),
    ],
)
def test_bad_options(parse: Callable[[], object], message: str) -> None:
    with pytest.raises(LogOptionError, match=message):
        parse()


class Logs:
    """Logging into a string, with a clock that is set by hand."""

    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        self.root = logging.getLogger(f"test-{id(self)}")
        self.root.propagate = False
        self.logger = self.root.getChild("child")
        self.control: LogControl = set_up_logging(
            LogOptions(**options), monotonic=lambda: self.now, stream=self.stream, root=self.root
        )

    def messages(self) -> list[str]:
        self.control.close()
        return [line.partition("] ")[2] for line in self.stream.getvalue().splitlines()]


def test_verbosity_can_be_changed_while_running() -> None:
    logs = Logs(verbosity=2)
    logs.logger.log(level_of(2), "two")
    logs.logger.log(level_of(3), "three")
    logs.control.set_verbosity(4)
    logs.logger.debug("four")
    logs.logger.log(level_of(5), "five")
    assert logs.messages() == ["two", "four"]


def test_what_was_there_before_comes_back() -> None:
    root = logging.getLogger("test-restored")
    handler = logging.NullHandler()
    root.addHandler(handler)
    root.setLevel(33)
    control = set_up_logging(LogOptions(), monotonic=lambda: 0.0, stream=io.StringIO(), root=root)
    assert root.handlers != [handler]
    control.close()
    assert (root.handlers, root.level) == ([handler], 33)


def test_repeated_errors_are_counted_not_shown() -> None:
    logs = Logs()

    def fail(number: int) -> None:
        logs.logger.error("failure %d", number)

    for number in range(8):
        fail(number)
    logs.logger.error("another place")
    logs.logger.info("not limited")
    logs.now = 60.0
    fail(8)
    fail(9)
    assert logs.messages() == [
        *(f"failure {n}" for n in range(5)),
        "another place",
        "not limited",
        '"failure 8" suppressed=3',
        "failure 9",
    ]


def test_the_filter_remembers_a_bounded_number_of_places() -> None:
    repeat = RepeatFilter(lambda: 0.0, burst=1, max_places=2)
    texts = ["a", "b", "a", "c", "b", "a"]
    # a is used again before c pushes b out.
    assert [repeat.filter(record(logging.ERROR, text, ())) for text in texts] == [True, True, False, True, True, True]


def test_fields() -> None:
    stream = io.StringIO()
    control = set_up_logging(LogOptions(), monotonic=lambda: 0.0, stream=stream)
    logging.getLogger("koordsched.y").info("Bound %s", "it", extra={"fields": {"pod": "ns/p"}, "trace": "below"})
    control.close()
    assert re.fullmatch(r'I[^\]]*test_logging.py:\d+\] "Bound it" pod="ns/p"\n\tbelow\n', stream.getvalue())


class Blocked(io.StringIO):
    """Takes nothing until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.entered = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        assert self.open.wait(30)
        return super().write(text)


def test_a_blocked_stream_blocks_nobody() -> None:
    stream = Blocked()
    root = logging.getLogger("test-blocked")
    root.propagate = False
    control = set_up_logging(LogOptions(), monotonic=lambda: 0.0, stream=stream, root=root)
    root.info("the writer takes this one and hangs")
    assert stream.entered.wait(30)
    for number in range(10_005):
        root.info("line %d", number)
    assert control.dropped == 5
    stream.open.set()
    control.close(seconds=30)
    assert stream.getvalue().count("\n") == 10_001

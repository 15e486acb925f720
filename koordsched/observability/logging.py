"""Log set-up: klog's text or JSON lines, verbosity as in Kubernetes, one line per record whatever it contains.

Modules log through the standard library. Verbosity (-v) maps to levels below INFO: V(1) to V(3) are 19 to 17, V(4) is
DEBUG, V(5) to V(10) are 9 to 4. Records are handed to a thread that writes them, so a blocked standard error does not
block the loop; what does not fit into its queue is counted and dropped.
"""

from __future__ import annotations

import copy
import logging
import queue
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from logging.handlers import QueueHandler
from typing import Any, Literal, TextIO

import orjson

from koordsched.observability.escaping import printable

MAX_VERBOSITY = 10
_INT32_MAX = 2**31 - 1
_QUEUE_LENGTH = 10_000
_KLOG_LETTERS = {logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}
_FIELDS = "fields"
_TRACE = "trace"


class LogOptionError(ValueError):
    """A logging flag has a value that cannot be used; the message says which and why."""


@dataclass(frozen=True)
class LogOptions:
    """`verbosity` is -v; `format` is --logging-format."""

    verbosity: int = 0
    format: Literal["text", "json"] = "text"


def parse_verbosity(text: str) -> int:
    """The number of -v or of `PUT /debug/flags/v`. Raises LogOptionError."""
    try:
        verbosity = int(text)
    except ValueError:
        raise LogOptionError(f"verbosity must be a number, not {printable(text[:64])!r}") from None
    if verbosity < 0:
        raise LogOptionError(f"verbosity must not be negative: {verbosity}")
    if verbosity > _INT32_MAX:
        raise LogOptionError(f"verbosity must not be greater than {_INT32_MAX}")
    return verbosity


def level_of(verbosity: int) -> int:
    """The lowest level that is shown at this -v."""
    if verbosity < 4:
        return logging.INFO - max(verbosity, 0)
    return logging.DEBUG + 4 - min(verbosity, MAX_VERBOSITY)


def verbosity_of(level: int) -> int:
    """The -v from which records of this level are shown."""
    if level >= logging.INFO:
        return 0
    return logging.INFO - level if level >= level_of(3) else max(logging.DEBUG + 4 - level, 4)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, _FIELDS, {})
    return fields


def _trace(record: logging.LogRecord, formatter: logging.Formatter) -> str:
    """The lines below a record: an exception's, its own stack, or those given as `extra={"trace": …}`."""
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.stack_info or str(getattr(record, _TRACE, ""))


def _quoted(value: Any) -> str:
    escaped = printable(str(value)).replace('"', '\\"')
    return f'"{escaped}"'


class KlogFormatter(logging.Formatter):
    """`I0102 15:04:05.000000    1234 file.py:56] message` (UTC), with fields `"message" key="value"`.

    The lines of a traceback follow, each behind a tab, so that nothing in them can look like a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        letter = next((_KLOG_LETTERS[level] for level in sorted(_KLOG_LETTERS, reverse=True)
                       if record.levelno >= level), "I")  # fmt: skip
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(record.created))
        micros = int(record.created % 1 * 1e6)
        header = f"{letter}{stamp}.{micros:06d} {record.process or 0:7d} {record.filename}:{record.lineno}] "
        fields = _fields(record)
        if fields:
            pairs = "".join(f" {printable(key)}={_number_or_quoted(value)}" for key, value in fields.items())
            line = header + _quoted(record.getMessage()) + pairs
        else:
            line = header + printable(record.getMessage())
        if trace := _trace(record, self):
            line += "".join(f"\n\t{printable(part)}" for part in trace.rstrip("\n").split("\n"))
        return line


def _number_or_quoted(value: Any) -> str:
    return str(value) if isinstance(value, int | float) else _quoted(value)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts (milliseconds since the epoch), caller, msg, v or err, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        body: dict[str, Any] = {
            "ts": round(record.created * 1000, 4),
            "caller": f"{record.filename}:{record.lineno}",
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.levelno < logging.WARNING:
            body["v"] = verbosity_of(record.levelno)
        else:
            body["level"] = record.levelname.lower()
        for key, value in _fields(record).items():
            body.setdefault(key, value)
        if record.exc_info:
            body["err"] = str(record.exc_info[1])
        if trace := _trace(record, self):
            body["stacktrace"] = trace
        try:
            return orjson.dumps(body, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        except orjson.JSONEncodeError:
            # Lone surrogates, integers beyond 64 bits: as text.
            return orjson.dumps({str(key): printable(str(value)) for key, value in body.items()}).decode()


class RepeatFilter(logging.Filter):
    """Lets through `burst` equal warnings or errors (same place, same text before formatting) per `window` seconds.

    The first one after that says how many were left out. At most `max_places` places are remembered.
    """

    def __init__(
        self, monotonic: Callable[[], float], burst: int = 5, window: float = 60.0, max_places: int = 1000
    ) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._burst = burst
        self._window = window
        self._max_places = max_places
        # Place -> (start of its window, records in it).
        self._seen: OrderedDict[tuple[str, int, str], tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        if record.levelno < logging.WARNING:
            return True
        place = (record.pathname, record.lineno, str(record.msg))
        now = self._monotonic()
        start, count = self._seen.pop(place, (now, 0))
        if now - start >= self._window:
            suppressed = count - self._burst
            start, count = now, 0
            if suppressed > 0:
                setattr(record, _FIELDS, {**_fields(record), "suppressed": suppressed})
        elif len(self._seen) >= self._max_places:
            self._seen.popitem(last=False)
        self._seen[place] = (start, count + 1)
        return count < self._burst


class _DroppingQueueHandler(QueueHandler):
    """Never waits for room in the queue."""

    def __init__(self, records: queue.Queue[Any]) -> None:
        super().__init__(records)
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Arguments are rendered now, as they may change; the rest is left to the formatter."""
        rendered = copy.copy(record)
        rendered.msg = record.getMessage()
        rendered.args = None
        return rendered

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class LogControl:
    """Logging while it is set up; `close` writes what is queued and restores what was there before."""

    def __init__(
        self, options: LogOptions, stream: TextIO, monotonic: Callable[[], float], root: logging.Logger
    ) -> None:
        self.verbosity = options.verbosity
        self._root = root
        self._before = (root.level, list(root.handlers))
        writer = logging.StreamHandler(stream)
        writer.setFormatter(JsonFormatter() if options.format == "json" else KlogFormatter())
        records: queue.Queue[Any] = queue.Queue(_QUEUE_LENGTH)
        self._records = records
        self._writer = writer
        self._thread = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self._handler = _DroppingQueueHandler(records)
        self._handler.addFilter(RepeatFilter(monotonic))
        root.handlers[:] = [self._handler]
        self.set_verbosity(options.verbosity)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Records that were lost because the stream took no more."""
        return self._handler.dropped

    def set_verbosity(self, verbosity: int) -> None:
        """Changes -v."""
        self.verbosity = verbosity
        self._root.setLevel(level_of(verbosity))

    def close(self, seconds: float = 2.0) -> None:
        """Undoes the set-up, and waits at most this long until what is queued is written."""
        self._root.setLevel(self._before[0])
        self._root.handlers[:] = self._before[1]
        with suppress(queue.Full):
            self._records.put(None, timeout=seconds)
            self._thread.join(seconds)

    def _write(self) -> None:
        while (record := self._records.get()) is not None:
            self._writer.handle(record)


def set_up_logging(
    options: LogOptions,
    *,
    monotonic: Callable[[], float],
    stream: TextIO | None = None,
    root: logging.Logger | None = None,
) -> LogControl:
    """Logs to `stream` (standard error) from now on. `monotonic` (seconds) limits the rate of repeated errors."""
    return LogControl(options, stream or sys.stderr, monotonic, root or logging.getLogger())

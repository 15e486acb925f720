"""Durations and timestamps: parsing, printing, arithmetic and the parts of a date."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.declarations import Overload, method
from koordsched.plugins.dynamicresources.cel.errors import Failure
from koordsched.plugins.dynamicresources.cel.values import LARGEST, SMALLEST, Opaque, Value

SECOND = 10**9
EARLIEST, LATEST = -62_135_596_800, 253_402_300_799
"""Seconds since 1970 of the years 1 and 9999."""


class Duration(Opaque):
    """`order` is the length in nanoseconds."""

    __slots__ = ("order",)
    type = types.DURATION
    go_name = "types.Duration"

    def __init__(self, nanoseconds: int) -> None:
        if not SMALLEST <= nanoseconds <= LARGEST:
            raise Failure("duration overflow" if abs(nanoseconds) > 1 << 64 else "integer overflow")
        self.order = nanoseconds

    def equals(self, other: Value) -> bool:
        """Same length."""
        return type(other) is Duration and other.order == self.order

    def __str__(self) -> str:
        return duration_text(self)


class Timestamp(Opaque):
    """`order` is the time in nanoseconds since 1970."""

    __slots__ = ("order",)
    type = types.TIMESTAMP
    go_name = "types.Timestamp"

    def __init__(self, nanoseconds: int) -> None:
        if not EARLIEST <= nanoseconds // SECOND <= LATEST:
            raise Failure("timestamp overflow")
        self.order = nanoseconds

    def equals(self, other: Value) -> bool:
        """Same time."""
        return type(other) is Timestamp and other.order == self.order

    def __str__(self) -> str:
        return timestamp_text(self)


_UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND}
_UNITS["h"] = 3600 * SECOND
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LONGEST = 128


def parse_duration(text: str) -> Duration | None:
    """A duration as Go writes it (`1h30m`); None if it is none."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return Duration(0)
    total, position = Decimal(0), 0
    while position < len(body) <= _LONGEST:
        part = _DURATION_PART.match(body, position)
        if part is None:
            return None
        total += Decimal(part.group(1)) * _UNITS[part.group(2)]
        position = part.end()
    if position == 0 or position != len(body):
        return None
    nanoseconds = -int(total) if text[0] == "-" else int(total)
    return Duration(nanoseconds) if SMALLEST <= nanoseconds <= LARGEST else None


def duration_text(duration: Duration) -> str:
    """Seconds, like `90.5s`."""
    seconds = Decimal(duration.order) / SECOND
    return f"{seconds.normalize():f}s"


_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,30}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)


def parse_timestamp(text: str) -> Timestamp | None:
    """A timestamp in RFC 3339; None if it is none."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    *numbers, fraction, sign, hours, minutes = match.groups()
    try:
        year, month, day, hour, minute, second = map(int, numbers)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    seconds = int((moment - _EPOCH) / timedelta(seconds=1))
    if sign is not None:
        if int(hours) > 24 or int(minutes) > 59:
            return None
        seconds -= (int(hours) * 60 + int(minutes)) * (-60 if sign == "-" else 60)
    return Timestamp(seconds * SECOND + int(f"{fraction or '0':<09}"[:9]))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_text(timestamp: Timestamp) -> str:
    """RFC 3339 with as many digits as are needed."""
    fraction = f"{timestamp.order % SECOND:09}".rstrip("0")
    moment = _EPOCH + timedelta(seconds=timestamp.order // SECOND)
    return f"{moment:%Y-%m-%dT%H:%M:%S}{f'.{fraction}' if fraction else ''}Z".zfill(20)


def _zone(name: str) -> tzinfo:
    hours, colon, minutes = name.partition(":")
    if not colon:
        try:
            return ZoneInfo(name or "UTC")
        except (ValueError, OSError, KeyError):
            raise Failure(f"unknown time zone {name}") from None
    for part in (hours, minutes):
        if not re.fullmatch(r"[+-]?\d{1,18}", part, re.ASCII):
            raise Failure(f'strconv.Atoi: parsing "{part}": invalid syntax')
    offset = int(hours) * 60 + (-int(minutes) if name[0] == "-" else int(minutes))
    try:
        return timezone(timedelta(minutes=offset))
    except ValueError:
        raise Failure("invalid timezone offset") from None


def _local(timestamp: Timestamp, zone: str) -> datetime:
    moment = _EPOCH + timedelta(seconds=timestamp.order // SECOND)
    if zone == "UTC":
        return moment
    try:
        return moment.astimezone(_zone(zone))
    except OverflowError:
        raise Failure("timestamp overflow") from None


_PARTS: dict[str, tuple[str, Callable[[datetime], int]]] = {
    "getFullYear": ("timestamp_to_year", lambda moment: moment.year),
    "getMonth": ("timestamp_to_month", lambda moment: moment.month - 1),
    "getDayOfYear": ("timestamp_to_day_of_year", lambda moment: moment.timetuple().tm_yday - 1),
    "getDayOfMonth": ("timestamp_to_day_of_month", lambda moment: moment.day - 1),
    "getDate": ("timestamp_to_day_of_month_1_based", lambda moment: moment.day),
    "getDayOfWeek": ("timestamp_to_day_of_week", lambda moment: moment.isoweekday() % 7),
    "getHours": ("timestamp_to_hours", lambda moment: moment.hour),
    "getMinutes": ("timestamp_to_minutes", lambda moment: moment.minute),
    "getSeconds": ("timestamp_to_seconds", lambda moment: moment.second),
}
_LENGTHS = {"Hours": 3600 * SECOND, "Minutes": 60 * SECOND, "Seconds": SECOND, "Milliseconds": 10**6}


def _part(name: str) -> list[Overload]:
    identifier, part = _PARTS[name]

    def run(timestamp: Timestamp, zone: str = "UTC") -> int:
        return part(_local(timestamp, zone))

    return [
        method(name, identifier, "timestamp", "int", run),
        method(name, f"{identifier}_with_tz", "timestamp, string", "int", run),
    ]


def _milliseconds(timestamp: Timestamp, zone: str = "UTC") -> int:
    _local(timestamp, zone)
    return timestamp.order % SECOND // 10**6


def _length(name: str) -> Overload:
    unit = _LENGTHS[name]

    def run(duration: Duration) -> int:
        whole = abs(duration.order) // unit
        return -whole if duration.order < 0 else whole

    return method(f"get{name}", f"duration_to_{name.lower()}", "duration", "int", run)


OVERLOADS: Final[tuple[Overload, ...]] = (
    *(overload for name in _PARTS for overload in _part(name)),
    method("getMilliseconds", "timestamp_to_milliseconds", "timestamp", "int", _milliseconds),
    method("getMilliseconds", "timestamp_to_milliseconds_with_tz", "timestamp, string", "int", _milliseconds),
    *map(_length, _LENGTHS),
)

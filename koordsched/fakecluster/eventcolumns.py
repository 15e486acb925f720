"""The columns of events, in either of their APIs (upstream: printEvent)."""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster.resources import Object
from koordsched.fakecluster.table import NAME, Cell, Column, since


def _event_seen(obj: Object, now: float) -> Any:
    series = obj.get("series") or {}
    last = obj.get("lastTimestamp") or series.get("lastObservedTime") or obj.get("eventTime")
    return since(last or obj["metadata"].get("creationTimestamp"), now)


def _event_object(obj: Object, now: float) -> Any:
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{str(target.get('kind', '')).lower()}/{target.get('name', '')}"


def _event_text(obj: Object, now: float) -> Any:
    return str(obj.get("message") or obj.get("note") or "").strip()


def _event_source(obj: Object, now: float) -> Any:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    return f"{component}, {source['host']}" if source.get("host") else component


def _event_first(obj: Object, now: float) -> Any:
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    return since(first or obj["metadata"].get("creationTimestamp"), now)


def _event_count(obj: Object, now: float) -> Any:
    return (obj.get("series") or {}).get("count") or obj.get("count") or obj.get("deprecatedCount") or 1


def _event_subobject(obj: Object, now: float) -> Any:
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    return target.get("fieldPath", "")


def _text_of(key: str) -> Cell:
    return lambda obj, now: obj.get(key) or ""


EVENT_COLUMNS = (
    Column("Last Seen", _event_seen),
    Column("Type", _text_of("type")),
    Column("Reason", _text_of("reason")),
    Column("Object", _event_object),
    Column("Subobject", _event_subobject, priority=1),
    Column("Source", _event_source, priority=1),
    Column("Message", _event_text),
    Column("First Seen", _event_first, priority=1),
    Column("Count", _event_count, priority=1),
    Column("Name", NAME.cell, priority=1, format="name"),
)

"""Tables (meta.k8s.io/v1 Table): what `kubectl get` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from koordsched.fakecluster.clock import parse_rfc3339
from koordsched.fakecluster.resources import Object, Resource

if TYPE_CHECKING:
    from koordsched.fakecluster.registry import Registry

Cell = Callable[[Object, float], Any]
"""The value of a column for an object at a time in epoch seconds."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; those of a priority above 0 are shown by `-o wide` only."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


def human_duration(seconds: float) -> str:
    """A duration at the precision kubectl prints (apimachinery `pkg/util/duration`)."""
    s = int(seconds)
    if s < -1:
        return "<invalid>"
    if s < 0:
        return "0s"
    if s < 120:
        return f"{s}s"
    minutes, hours, days, years = s // 60, s // 3600, s // 86400, s // 31536000
    if minutes < 10:
        return f"{minutes}m{s % 60}s" if s % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if years < 2:
        return f"{days}d"
    if years < 8:
        return f"{years}y{days % 365}d" if days % 365 else f"{years}y"
    return f"{years}y"


def since(timestamp: Any, now: float) -> str:
    """How long ago; `<unknown>` when there is no time."""
    if not isinstance(timestamp, str):
        return "<unknown>"
    try:
        return human_duration(now - parse_rfc3339(timestamp))
    except ValueError:
        return "<unknown>"


def name_cell(obj: Object, now: float) -> Any:
    """metadata.name."""
    return obj["metadata"].get("name", "")


def age_cell(obj: Object, now: float) -> Any:
    """Time since metadata.creationTimestamp."""
    return since(obj["metadata"].get("creationTimestamp"), now)


NAME = Column("Name", name_cell, format="name")
AGE = Column("Age", age_cell)
DEFAULT = (NAME, AGE)


def columns_of(registry: Registry, resource: Resource) -> Sequence[Column]:
    """The columns of a kind: its own, or those its CustomResourceDefinition declares, or name and age."""
    from koordsched.fakecluster.columns import COLUMNS

    return registry.strategy(resource).columns(resource) or COLUMNS.get(resource.storage) or DEFAULT


def table(
    columns: Sequence[Column],
    objects: Sequence[Object],
    include: str,
    now: float,
    resource_version: str,
    continue_token: str = "",
    remaining: int | None = None,
) -> Object:
    """The Table of the objects; `include` is None, Metadata or Object: what each row carries of its object."""
    meta: Object = {"resourceVersion": resource_version}
    if continue_token:
        meta["continue"] = continue_token
    if remaining is not None:
        meta["remainingItemCount"] = remaining
    rows = []
    for obj in objects:
        row: Object = {"cells": [column.cell(obj, now) for column in columns]}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            }
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [
            {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
            for c in columns
        ],
        "rows": rows,
    }

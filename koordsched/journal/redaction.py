"""What of an object goes into a journal: the fields that the scheduler decodes, and of its annotations those it reads.

Environments, commands, Secrets etc. are never decoded (`koordsched.api`). Annotations are a map of arbitrary content,
so they are chosen by their domain.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeVar

from msgspec.structs import replace

from koordsched.api.meta import HasMetadata

T = TypeVar("T", bound=HasMetadata)

READ_DOMAINS = (
    "koordinator.sh",
    "koordsched.io",
    "pv.kubernetes.io",
    "volume.kubernetes.io",
    "volume.beta.kubernetes.io",
)
"""Annotations of these domains, and of their subdomains, may be read by plugins."""

READ_KEYS = frozenset(
    ("storage.alpha.kubernetes.io/migrated-plugins", "resource.kubernetes.io/extended-resource-claim")
)

UNREAD = "koordsched.io/unread"
"""Stands for the annotations of a node that were left out: changes when they do, for that is an event."""


def is_read(annotation: str) -> bool:
    """Whether the annotation of this key may be of interest to a plugin."""
    domain = annotation.partition("/")[0]
    return annotation in READ_KEYS or any(domain == read or domain.endswith(f".{read}") for read in READ_DOMAINS)


def redacted(thing: T, *, marked: bool = False, read: Container[str] = ()) -> T:
    """The object without annotations that the scheduler does not read. `marked`: with a mark in their place.

    `read`: keys that plugins declared to read.

    The mark is Python's hash, which is salted anew in every process: it says whether something changed, not what.
    """
    annotations = thing.metadata.annotations
    if not annotations:
        return thing
    kept = {key: value for key, value in annotations.items() if key in read or is_read(key)}
    if len(kept) == len(annotations):
        return thing
    if marked:
        left_out = frozenset(item for item in annotations.items() if item[0] not in kept)
        kept[UNREAD] = f"{hash(left_out) & (1 << 64) - 1:016x}"
    struct: Any = thing
    changed: T = replace(struct, metadata=replace(thing.metadata, annotations=kept))
    return changed

"""What a reflector asks of an encoding: pages into raw items, streams into frames, frames into raw events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Decode = Callable[[bytes | msgspec.Raw], T]
"""Makes an object of its bytes; whatever it raises counts as a malformed object."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the initial state of a streamed list."""


class Unreadable(ValueError):
    """The bytes are no list, or no event, in this encoding."""


class Meta(msgspec.Struct, rename="camel"):
    """The part of an object's metadata needed to tell which object it is and how new."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class HasMeta(msgspec.Struct):
    """Any object."""

    metadata: Meta = msgspec.field(default_factory=Meta)


class Page(NamedTuple):
    """One page of a list. `next_token` is empty with the last."""

    items: Sequence[bytes | msgspec.Raw]
    version: str
    next_token: str


class Splitter(Protocol):
    """Cuts the chunks of a watch into frames, one per event, in linear time however long one is."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The frames completed by this chunk. Raises Unreadable."""
        ...


class WireFormat(Protocol[T_co]):
    """An encoding of lists and watches of one kind of object."""

    accept: str
    """The header that asks for it."""

    def page(self, body: bytes) -> Page:
        """One page of a list. Raises Unreadable if it is none."""
        ...

    def splitter(self) -> Splitter:
        """For one stream."""
        ...

    def event(self, frame: bytes) -> tuple[str, bytes]:
        """Type and raw object. Raises Unreadable."""
        ...

    def decode(self, data: bytes | msgspec.Raw, frame: bytes | None) -> T_co:
        """The object, of an item of a page or of the event in `frame`. Raises whatever there is to raise."""
        ...

    def meta(self, data: bytes | msgspec.Raw) -> Meta | None:
        """The metadata of an object that may be malformed elsewhere; None if even that cannot be read."""
        ...

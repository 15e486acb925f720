"""Who receives the objects that a reflector lists and watches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeVar

from koordsched.api.meta import HasMetadata


class ObjectKey(NamedTuple):
    """Which object: a name may be taken again by another object, with another uid."""

    namespace: str
    name: str
    uid: str


T_contra = TypeVar("T_contra", bound=HasMetadata, contravariant=True)


class Sink(Protocol[T_contra]):
    """Receives the state of one kind of object.

    A listing upserts every existing object, whether known or not; then whatever was `known` and is not among them is
    deleted, one key after the other, with pauses in between. Methods are synchronous; an exception is reported like a
    malformed object and the object skipped. `anew`: the server went back in time, and this is the object as it is now:
    its version may be older than the known one, or be the same and mean another state.
    """

    def upsert(self, obj: T_contra, anew: bool = False) -> None:
        """The object is new or changed."""
        ...

    def delete(self, obj: T_contra) -> None:
        """The object is gone; `obj` is its last state. It may never have been seen here."""
        ...

    def delete_key(self, key: ObjectKey) -> None:
        """The object is gone and only its key is known. It may never have been seen here."""
        ...

    def known(self) -> Iterator[ObjectKey]:
        """Every object that exists as far as was heard until this call, in whatever way it is remembered.

        What happens while the iterator is used does not disturb it. A key may come twice.
        """
        ...

"""Who receives the objects that a reflector lists and watches."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from koordsched.api.meta import ObjectMeta


class ObjectKey(NamedTuple):
    """Which object: a name may be taken again by another object, with another uid."""

    namespace: str
    name: str
    uid: str


class KubeObject(Protocol):
    """Anything with standard metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)


class Sink(Protocol[T_contra]):
    """Receives the state of one kind of object.

    Between `replace_begin` and `replace_end` every existing object is upserted, whether known or not; a `replace_begin`
    without its end means that the listing starts over. Methods are synchronous; an exception is reported like a
    malformed object and the object skipped.
    """

    def upsert(self, obj: T_contra) -> None:
        """The object is new or changed."""
        ...

    def delete(self, obj: T_contra) -> None:
        """The object is gone; `obj` is its last state. It may never have been seen here."""
        ...

    def delete_key(self, key: ObjectKey) -> None:
        """The object is gone and its last state could not be decoded. It may never have been seen here."""
        ...

    def replace_begin(self) -> None:
        """A complete listing starts."""
        ...

    def replace_end(self, present: set[ObjectKey]) -> None:
        """The listing is complete: whatever is not in `present` is gone."""
        ...

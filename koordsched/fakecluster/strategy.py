"""What a kind adds to the generic verbs: defaults, admission, validation, and how gracefully it is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from koordsched.fakecluster.errors import FieldError

if TYPE_CHECKING:
    from koordsched.fakecluster.registry import Registry
    from koordsched.fakecluster.resources import Resource
    from koordsched.fakecluster.scale import ScalePaths
    from koordsched.fakecluster.table import Column

Object = dict[str, Any]


class Strategy:
    """The strategy of a kind with no rules of its own. Hooks run in the order in which they stand here."""

    counts_generations = False
    """metadata.generation starts at 1 and grows with every change outside metadata and status."""
    unconditional_update = True
    """An update without resourceVersion overwrites."""
    returns_deleted = False
    """A completed delete answers with the object instead of a Status."""

    def defaults(self, obj: Object) -> None:
        """Fill what the client left open, in place; also before updates."""

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        """Complete or refuse (ApiStatusError) a new object, in place."""

    def prepare_update(self, registry: Registry, obj: Object, old: Object, subresource: str) -> None:
        """Carry over from `old` what this update may not touch. `old` is shared: read only."""

    def validate_new(self, obj: Object) -> list[FieldError]:
        """What is wrong with a new object; of what no update can change."""
        return []

    def validate(self, obj: Object) -> list[FieldError]:
        """What is wrong with an object, new or updated."""
        return []

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        """What is wrong with the change."""
        return []

    def charge(self, resource: Resource, obj: Object) -> None:
        """Refuse (ApiStatusError) a valid new object for which a quota has nothing left."""

    def fit_storage(self, obj: Object) -> None:
        """Make a valid object, of another version than the stored one, what is stored of it, in place."""

    def name_error(self, name: str) -> str | None:
        """Why the name cannot be, or None."""
        from koordsched.fakecluster.names import subdomain_error

        return subdomain_error(name)

    def grace_period(self, obj: Object, requested: int | None) -> int:
        """Seconds between the deletion request and the deletion; 0 = at once."""
        return 0

    def deletion_blocked(self, obj: Object) -> bool:
        """Whether something besides metadata.finalizers keeps a deleted object alive."""
        return False

    def prune(self, resource: Resource, obj: Object) -> list[str]:
        """Drop what the schema of a custom kind does not know, in place; returns the paths of what was dropped."""
        return []

    def schema(self, resource: Resource) -> dict[str, Any]:
        """The structural schema of a custom kind; empty when it has none."""
        return {}

    def scale_paths(self, resource: Resource) -> ScalePaths | None:
        """Where a custom kind keeps its replicas; None = where the built-in kinds do."""
        return None

    def columns(self, resource: Resource) -> Sequence[Column]:
        """The printer columns of a custom kind; empty for the default ones."""
        return ()

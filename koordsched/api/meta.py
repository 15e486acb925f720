"""metav1: what every object carries. Structs hold only the fields the scheduler reads; the rest is skipped."""

from __future__ import annotations

from typing import Annotated, Protocol

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""As the API declares it. Columns hold int64, and the API server lets nothing larger through, but others may."""

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of the wire types: immutable, camelCase on the wire, unknown fields skipped.

    `gc=False` keeps millions of these out of the cycle collector; wire types form trees, never cycles.
    """


class OwnerReference(Wire, frozen=True):
    """The owning object; `controller` marks the one that manages this object, None if that is not said."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class ObjectMeta(Wire, frozen=True):
    """Identity and bookkeeping. Timestamps stay RFC 3339 text until they are compared."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None


class HasMetadata(Protocol):
    """Any API object."""

    @property
    def metadata(self) -> ObjectMeta: ...


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """The owner reference marked as controller, if any."""
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return None


class LabelSelectorRequirement(Wire, frozen=True):
    """One expression of a label selector: operator is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    """matchLabels and matchExpressions, ANDed. Empty selects everything; an absent selector (None) nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

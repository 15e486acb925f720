"""Constraints: what devices of a claim have in common, or do not (dra spec 3.6; B3, B11).

The state of a constraint is immutable, so that a search takes a choice back by keeping the state before it.
"""

from __future__ import annotations

from typing import NamedTuple

from koordsched.api.resource import DeviceAttribute
from koordsched.plugins.dynamicresources.structured.devices import Equipment

Value = tuple[str, frozenset[object]]
"""The type of an attribute and its values, of which there is one unless it is a list."""

LISTED = "list"
"""The type of lists where the feature for them is off: nothing is equal to, or distinct from, them."""

State = Value | frozenset[Value] | None
"""None before the first device; of matchAttribute, the values in common; of distinctAttribute, those of each device."""


class Constraint(NamedTuple):
    """A constraint on the devices of some (sub-)requests, by their numbers among all of the demand."""

    domain: str
    name: str
    distinct: bool
    alternatives: frozenset[int]


def value_of(constraint: Constraint, equipment: Equipment, *, lists: bool) -> Value | None:
    """The value that a constraint compares; None if the device has none, so that it is refused."""
    attribute = equipment.attribute(constraint.domain, constraint.name)
    return None if attribute is None else _value(attribute, lists)


def _value(attribute: DeviceAttribute, lists: bool) -> Value | None:
    for kind, single, several in (
        ("int", attribute.int_value, attribute.ints),
        ("bool", attribute.bool_value, attribute.bools),
        ("string", attribute.string_value, attribute.strings),
        ("version", attribute.version_value, attribute.versions),
    ):
        if single is not None:
            return kind, frozenset((single,))
        if several:
            return (kind, frozenset(several)) if lists else (LISTED, frozenset(several))
    return None


def extended(constraint: Constraint, state: State, value: Value) -> State:
    """The state with another device; None if the constraint does not allow it."""
    if constraint.distinct:
        values = state if isinstance(state, frozenset) else frozenset()
        for other in values:
            if LISTED in (other[0], value[0]) or (other[0] == value[0] and other[1] & value[1]):
                return None
        return values | {value}
    if not isinstance(state, tuple):
        return value
    common = state[1] & value[1]
    if value[0] == LISTED or value[0] != state[0] or not common:
        return None
    return state[0], common

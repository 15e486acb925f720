"""Which types may be used as which others, and what type parameters stand for.

The rules are cel-go's, because the types that the checker infers and its errors follow from their order.
"""

from __future__ import annotations

from koordsched.plugins.dynamicresources.cel.types import DYN, Kind, Type

Substitution = dict[str, Type]
"""What is known of type parameters, by name."""

_NESTED = frozenset((Kind.OPAQUE, Kind.LIST, Kind.MAP, Kind.TYPE))
_NULLABLE = frozenset((Kind.OPAQUE, Kind.STRUCT, Kind.ANY, Kind.DURATION, Kind.TIMESTAMP, Kind.NULL))


def is_dynamic(type_: Type) -> bool:
    """Whether the type is only known when the expression is evaluated."""
    return type_.kind is Kind.DYN or type_.kind is Kind.ANY


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    """The type of the value of an optional type, and whether it was one."""
    if type_.kind is Kind.OPAQUE and type_.name == "optional_type":
        return type_.parameters[0], True
    return type_, False


def substitute(known: Substitution, type_: Type, *, dynamic: bool) -> Type:
    """The type with its parameters replaced by what is known of them; unknown ones by dyn if `dynamic`."""
    while type_.kind is Kind.PARAMETER:
        found = known.get(type_.name)
        if found is None:
            return DYN if dynamic else type_
        type_ = found
    if not type_.parameters:
        return type_
    return Type(type_.kind, type_.name, tuple(substitute(known, each, dynamic=dynamic) for each in type_.parameters))


def assignable(known: Substitution, first: list[Type], second: list[Type]) -> Substitution | None:
    """What is then known if each of the first types may be used as the second; None if not."""
    if len(first) != len(second):
        return None
    copy = dict(known)
    return copy if all(_assignable(copy, one, other) for one, other in zip(first, second, strict=True)) else None


def most_general(first: Type, second: Type) -> Type:
    """The one of two types that unify that says less."""
    return first if _less_specific(first, second) else second


def _less_specific(first: Type, second: Type) -> bool:
    if is_dynamic(first) or first.kind is Kind.PARAMETER:
        return True
    if is_dynamic(second) or second.kind is Kind.PARAMETER or first.kind is not second.kind:
        return False
    if first.kind is Kind.TYPE:
        return True
    if first.name != second.name or len(first.parameters) != len(second.parameters):
        return False
    return all(map(_less_specific, first.parameters, second.parameters))


def _assignable(known: Substitution, first: Type, second: Type) -> bool:
    if second.kind is Kind.PARAMETER:
        valid, bound = _may_stand_for(known, first, second)
        if valid or bound:
            return valid
    if first.kind is Kind.PARAMETER:
        return _may_stand_for(known, second, first)[0]
    if is_dynamic(first) or is_dynamic(second) or Kind.ERROR in (first.kind, second.kind):
        return True
    if first.kind is Kind.NULL:
        return second.kind in _NULLABLE
    if second.kind is Kind.NULL:
        return first.kind in _NULLABLE
    if first.kind is not second.kind:
        return False
    if first.kind is Kind.TYPE:
        return True
    if first.name != second.name or len(first.parameters) != len(second.parameters):
        return False
    return all(_assignable(known, one, other) for one, other in zip(first.parameters, second.parameters, strict=True))


def _may_stand_for(known: Substitution, type_: Type, parameter: Type) -> tuple[bool, bool]:
    """Whether the parameter may stand for the type, and whether it was known already what it stands for."""
    if type_ == parameter:
        return True, True
    bound = known.get(parameter.name)
    if bound is not None:
        if type_ == bound:
            return True, True
        if not _assignable(known, type_, bound):
            return False, True
        general = most_general(type_, bound)
        if not _occurs(known, parameter, general):
            known[parameter.name] = general
        return True, True
    if _occurs(known, parameter, type_):
        return False, False
    known[parameter.name] = type_
    return True, False


def _occurs(known: Substitution, parameter: Type, within: Type) -> bool:
    if parameter == within:
        return True
    if within.kind is Kind.PARAMETER:
        bound = known.get(within.name)
        return bound is not None and _occurs(known, parameter, bound)
    return within.kind in _NESTED and any(_occurs(known, parameter, each) for each in within.parameters)

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
    return _substituted(known, type_, dynamic, {})


def _substituted(known: Substitution, type_: Type, dynamic: bool, done: dict[Type, Type]) -> Type:
    if not type_.is_open:
        return type_
    found = done.get(type_)
    if found is None:
        if type_.kind is Kind.PARAMETER:
            bound = known.get(type_.name)
            unbound = DYN if dynamic else type_
            found = _substituted(known, bound, dynamic, done) if bound is not None else unbound
        else:
            parameters = tuple([_substituted(known, each, dynamic, done) for each in type_.parameters])
            found = Type(type_.kind, type_.name, parameters)
        done[type_] = found
    return found


def assignable(known: Substitution, first: list[Type], second: list[Type]) -> Substitution | None:
    """What is then known if each of the first types may be used as the second; None if not."""
    if len(first) != len(second):
        return None
    unifier = _Unifier(dict(known))
    return unifier.known if all(map(unifier.assignable, first, second)) else None


def most_general(first: Type, second: Type) -> Type:
    """The one of two types that unify that says less."""
    return first if _less_specific(first, second, set()) else second


def _less_specific(first: Type, second: Type, done: set[tuple[Type, Type]]) -> bool:
    """`done`: pairs for which it is so."""
    if first is second or (first, second) in done:
        return True
    if is_dynamic(first) or first.kind is Kind.PARAMETER:
        return True
    if first.kind is not second.kind:
        return False
    if first.kind is Kind.TYPE:
        return True
    if first.name != second.name or len(first.parameters) != len(second.parameters):
        return False
    if not all(
        _less_specific(one, other, done) for one, other in zip(first.parameters, second.parameters, strict=True)
    ):
        return False
    done.add((first, second))
    return True


class _Unifier:
    """`known` grows. A pair of types that unified is not looked at again: that would add nothing to what is known."""

    __slots__ = ("_done", "known")

    def __init__(self, known: Substitution) -> None:
        self.known = known
        self._done: set[tuple[Type, Type]] = set()

    def assignable(self, first: Type, second: Type) -> bool:
        """Whether the first may be used as the second."""
        if first is second or (first, second) in self._done:
            return True
        if not self._unifies(first, second):
            return False
        self._done.add((first, second))
        return True

    def _unifies(self, first: Type, second: Type) -> bool:
        if second.kind is Kind.PARAMETER:
            valid = self._may_stand_for(first, second)
            if valid is not None:
                return valid
        if first.kind is Kind.PARAMETER:
            return bool(self._may_stand_for(second, first))
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
        return all(map(self.assignable, first.parameters, second.parameters))

    def _may_stand_for(self, type_: Type, parameter: Type) -> bool | None:
        """Whether the parameter may stand for the type; None for one in which it occurs, if it stands for none yet."""
        bound = self.known.get(parameter.name)
        if bound is not None:
            if type_ is bound:
                return True
            if not self.assignable(type_, bound):
                return False
            general = most_general(type_, bound)
            if not self._occurs(parameter, general, set()):
                self.known[parameter.name] = general
            return True
        if self._occurs(parameter, type_, set()):
            return None
        self.known[parameter.name] = type_
        return True

    def _occurs(self, parameter: Type, within: Type, done: set[Type]) -> bool:
        """`done`: types in which it does not."""
        if parameter is within:
            return True
        if not within.is_open or within in done:
            return False
        done.add(within)
        if within.kind is Kind.PARAMETER:
            bound = self.known.get(within.name)
            return bound is not None and self._occurs(parameter, bound, done)
        return within.kind in _NESTED and any(self._occurs(parameter, each, done) for each in within.parameters)

"""How functions are declared: their overloads for the type checker, what they do, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from koordsched.plugins.dynamicresources.cel.types import Type, parse_types
from koordsched.plugins.dynamicresources.cel.values import Value, size

Cost = int | Callable[..., int]
"""What a call costs: a number, or a function of its arguments."""


@dataclass(frozen=True)
class Overload:
    """A function for arguments of certain types.

    `run` takes the arguments, after the frame if `metered`; None if the planner does it. A metered one charges for
    itself what depends on its result.
    """

    function: str
    id: str
    member: bool
    parameters: tuple[Type, ...]
    result: Type
    run: Callable[..., Value] | None = None
    cost: Cost = 1
    metered: bool = False
    unguarded: bool = False


@dataclass
class Function:
    """All overloads of a name. `singleton`: one implementation for all, which looks at the types itself."""

    name: str
    overloads: list[Overload] = field(default_factory=list)
    singleton: Callable[..., Value] | None = None


@dataclass(frozen=True)
class Environment:
    """What expressions may use: functions, variables, names of types, and fields of struct types."""

    functions: dict[str, Function]
    variables: dict[str, Type]
    types: dict[str, Type]
    fields: dict[str, dict[str, Type]]


def function(
    name: str, identifier: str, parameters: str, result: str, run: Callable[..., Value] | None = None, **more: Any
) -> Overload:
    """An overload of a global function; types as `types.parse_types` reads them."""
    return Overload(name, identifier, False, parse_types(parameters), parse_types(result)[0], run, **more)


def method(
    name: str, identifier: str, parameters: str, result: str, run: Callable[..., Value] | None = None, **more: Any
) -> Overload:
    """An overload of a method; the first type is that of its target."""
    return Overload(name, identifier, True, parse_types(parameters), parse_types(result)[0], run, **more)


def functions(
    overloads: Iterable[Overload], singletons: dict[str, Callable[..., Value]] | None = None
) -> dict[str, Function]:
    """Overloads by the name of the function, in the order in which they are given."""
    result: dict[str, Function] = {}
    for overload in overloads:
        result.setdefault(overload.function, Function(overload.function)).overloads.append(overload)
    for name, run in (singletons or {}).items():
        result[name].singleton = run
    return result


def tenths(count: int) -> int:
    """The cost of going through that many characters once."""
    return -(-count // 10)


def traversal(value: Value, *_: Value) -> int:
    """The cost of going through the first argument once, as a string."""
    return tenths(size(value))


def pattern_cost(text: Value, pattern: Value, *_: Value) -> int:
    """The cost of matching a regular expression."""
    return tenths(size(text) + 1) * -(-size(pattern) // 4)

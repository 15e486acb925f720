"""The syntax tree. Macros are expanded by the parser: the tree has comprehensions instead.

A node has a position in the text and, once checked, a type. A part that a macro needs twice is one node with two
parents, so a tree has no more nodes than the text has characters, but for a constant factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koordsched.plugins.dynamicresources.cel.types import Type


@dataclass(slots=True, eq=False)
class Node:
    """What all nodes have; `type` is None until the node is checked."""

    position: int
    type: Type | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant: int, Uint, float, str, bytes, bool or None."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A name; a leading dot is kept."""

    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """`operand.field`, or whether there is one (`has`). `qualified` is the name of a type, if that is what it is."""

    operand: Node
    field: str
    test_only: bool = False
    qualified: str | None = None


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function, operators included; && and || may have more than two arguments.

    `overloads` are the identifiers of the overloads that the types leave.
    """

    function: str
    target: Node | None
    arguments: list[Node]
    overloads: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ListNode(Node):
    """A list; elements at the indices `optional` are optional values, and left out if these are empty."""

    elements: list[Node]
    optional: frozenset[int]


@dataclass(slots=True, eq=False)
class Entry:
    """An entry of a map, or a field of a message, whose key is then a literal."""

    position: int
    key: Node
    value: Node
    optional: bool


@dataclass(slots=True, eq=False)
class MapNode(Node):
    """A map."""

    entries: list[Entry]


@dataclass(slots=True, eq=False)
class Message(Node):
    """A message of a named type."""

    name: str
    entries: list[Entry]


class Loop(Enum):
    """Which macro a comprehension comes from."""

    ALL = auto()
    EXISTS = auto()
    EXISTS_ONE = auto()
    LIST = auto()
    MAP = auto()
    ENTRIES = auto()
    BIND = auto()


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A loop over `range`, as cel-go defines it for the type checker, and `loop`, `keep`, `yields` to run it by.

    `keep` is the condition of ALL, EXISTS and EXISTS_ONE, and the filter, if any, of those that collect; these collect
    `yields`. BIND has no loop: its accumulator is the variable.
    """

    range: Node
    variable: str
    second: str | None
    accumulator: str
    initial: Node
    condition: Node
    step: Node
    result: Node
    loop: Loop
    keep: Node | None
    yields: Node | None

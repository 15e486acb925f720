"""From a checked tree to closures: what an evaluation runs.

A closure takes the frame, adds what it costs and returns a value, or raises. Nodes that two parents share have one
closure. What can be known beforehand is: constants, conversions of constants, chains of names that start at the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from koordsched.plugins.dynamicresources.cel import access, comprehensions, operators
from koordsched.plugins.dynamicresources.cel.calls import Run, call_of
from koordsched.plugins.dynamicresources.cel.conversions import FOLDED
from koordsched.plugins.dynamicresources.cel.declarations import Environment
from koordsched.plugins.dynamicresources.cel.environment import DEVICE
from koordsched.plugins.dynamicresources.cel.errors import EvaluationError, Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.frame import Frame
from koordsched.plugins.dynamicresources.cel.regexes import pattern
from koordsched.plugins.dynamicresources.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    Loop,
    MapNode,
    Node,
    Select,
)
from koordsched.plugins.dynamicresources.cel.values import (
    MISSING,
    Map,
    Optional,
    TypeValue,
    Value,
    equal,
    shown,
)

_LIST_COST, _MAP_COST = 10, 30
_NODES = 8
"""Nodes of a loop's body that weigh as much as an iteration."""
_EQUALS = operators.equal_cost


class Plan(NamedTuple):
    """How to get a value. `constant` is MISSING if it takes an evaluation.

    `root` is None unless this is a chain of selections, to which one more adds 1; then it is the cost of its start,
    which a branch of a conditional does not add.
    """

    run: Run
    constant: Value = MISSING
    root: int | None = None


def plan(tree: Node, environment: Environment) -> tuple[Run, int]:
    """The closure of a tree, and how many variables it has. Raises Failure for a constant that cannot be converted."""
    planner = _Planner(environment)
    return planner.plan(tree).run, planner.slots


def _constant(value: Value) -> Plan:
    return Plan(lambda frame: value, value)


class _Planner:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._plans: dict[Node, Plan] = {}
        self._scopes: list[dict[str, Plan]] = [{DEVICE: Plan(_device, root=1)}]
        self.slots = 0

    def plan(self, node: Node) -> Plan:
        """The plan of a node, made once."""
        found = self._plans.get(node)
        if found is None:
            found = self._plans[node] = self._make(node)
        return found

    def _make(self, node: Node) -> Plan:
        match node:
            case Literal():
                return _constant(node.value)
            case Ident():
                return self._ident(node.name.removeprefix("."))
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)
        raise AssertionError(type(node))

    def _ident(self, name: str) -> Plan:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return _constant(TypeValue(name))

    # --- selections

    def _select(self, node: Select) -> Plan:
        if node.qualified is not None:
            return self._ident(node.qualified)
        if not node.test_only:
            return self._indexed(self.plan(node.operand), _constant(node.field), access.index)
        operand, field = self.plan(node.operand), node.field
        run, cost = operand.run, 0 if operand.root is not None else 1

        def test(frame: Frame) -> Value:
            value = run(frame)
            frame.cost += cost
            return access.has(value, field)

        return Plan(test, root=0)

    def _indexed(self, operand: Plan, key: Plan, get: Callable[[Value, Value], Value]) -> Plan:
        """`get` of operand and key: 1, and 1 for the start of a chain."""
        run = operand.run
        cost = 1 if operand.root is not None else 2
        root = 1 if operand.root is None else operand.root
        if key.constant is not MISSING:
            constant = key.constant
            if get is access.index and type(constant) is str:
                return Plan(_text_chain(run, constant, cost), root=root)

            def select(frame: Frame) -> Value:
                value = run(frame)
                frame.cost += cost
                return get(value, constant)

            return Plan(select, root=root)
        key_run = key.run
        if key.root is not None:
            cost -= 1

        def look_up(frame: Frame) -> Value:
            value = run(frame)
            found = key_run(frame)
            frame.cost += cost
            return get(value, found)

        return Plan(look_up, root=root)

    # --- calls

    def _call(self, node: Call) -> Plan:
        operands = node.arguments if node.target is None else [node.target, *node.arguments]
        arguments = [self.plan(each) for each in operands]
        match node.function:
            case "_&&_":
                return Plan(_conjunction([each.run for each in arguments], final=True))
            case "_||_":
                return Plan(_conjunction([each.run for each in arguments], final=False))
            case "_?_:_":
                return _conditional(*arguments)
            case "_==_":
                return Plan(_equality(arguments[0].run, arguments[1].run))
            case "_!=_":
                return Plan(_inequality(arguments[0].run, arguments[1].run))
            case "_[_]":
                return self._indexed(arguments[0], arguments[1], access.index)
            case "_[?_]" | "_?._":
                return self._indexed(arguments[0], arguments[1], access.index_optional)
            case "or" if node.overloads == ["optional_or_optional"]:
                return Plan(_alternative(arguments[0].run, arguments[1].run, unwrap=False))
            case "orValue" if node.overloads == ["optional_orValue_value"]:
                return Plan(_alternative(arguments[0].run, arguments[1].run, unwrap=True))
            case "@in" if node.overloads == ["in_list"] and arguments[1].constant is not MISSING:
                return _membership(arguments[0].run, arguments[1].constant)
        return self._function(node, arguments)

    def _function(self, node: Call, arguments: list[Plan]) -> Plan:
        function = self._environment.functions[node.function]
        run = call_of(function, node.overloads, [each.run for each in arguments])
        constants = [each.constant for each in arguments]
        if node.function in ("find", "findAll") and type(constants[1]) is str:
            pattern(constants[1])  # one that is none is refused when the expression is compiled
        if any(each is MISSING for each in constants):
            return Plan(run)
        frame = Frame(None, 0, None)
        if node.function in FOLDED and len(constants) == 1:
            return _constant(run(frame))
        # No other call is a constant to upstream: it costs every time what it costs.
        try:
            value = run(frame)
        except EvaluationError:
            return Plan(run)
        return Plan(_known(value, frame.cost))

    # --- collections

    def _list(self, node: ListNode) -> Plan:
        elements = [self.plan(each) for each in node.elements]
        runs = [(each.run, index in node.optional) for index, each in enumerate(elements)]

        def make(frame: Frame) -> Value:
            values = [(run(frame), optional) for run, optional in runs]
            frame.cost += _LIST_COST
            if not node.optional:
                return tuple(value for value, _ in values)
            kept = (_element(value) if optional else Optional(value) for value, optional in values)
            return tuple(each.value for each in kept if each.present)

        if all(each.constant is not MISSING for each in elements):
            return _constant(make(Frame(None, 0, None)))
        return Plan(make)

    def _map(self, node: MapNode) -> Plan:
        keys = [self.plan(each.key) for each in node.entries]
        values = [self.plan(each.value) for each in node.entries]
        runs = [
            (key.run, value.run, entry.optional) for key, value, entry in zip(keys, values, node.entries, strict=True)
        ]

        def make(frame: Frame) -> Value:
            result = Map()
            for key_run, value_run, optional in runs:
                key, value = key_run(frame), value_run(frame)
                if optional:
                    if type(value) is not Optional:
                        raise Failure(
                            f"cannot initialize optional entry '{shown(key)}' from non-optional value {shown(value)}"
                        )
                    if not value.present:
                        result.remove(key)
                        continue
                    value = value.value
                result.put(key, value)
            frame.cost += _MAP_COST
            return result

        if all(each.constant is not MISSING for each in (*keys, *values)):
            return _constant(make(Frame(None, 0, None)))
        return Plan(make)

    # --- loops

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _comprehension(self, node: Comprehension) -> Plan:
        if node.loop is Loop.BIND:
            slot = self._slot()
            read = comprehensions.bound(slot, self.plan(node.initial).run)
            self._scopes.append({node.accumulator: Plan(read, root=1)})
            result = self.plan(node.result).run
            self._scopes.pop()
            return Plan(comprehensions.bind(slot, result))
        over = self.plan(node.range).run
        first = self._slot()
        scope = {node.variable: Plan(_variable(first), root=1)}
        second = None
        if node.second is not None:
            second = self._slot()
            scope[node.second] = Plan(_variable(second), root=1)
        self._scopes.append(scope)
        before = len(self._plans)
        keep = None if node.keep is None else self.plan(node.keep).run
        yields = None if node.yields is None else self.plan(node.yields)
        self._scopes.pop()
        weight = 1 + (len(self._plans) - before) // _NODES
        if yields is None:
            assert keep is not None
            return Plan(comprehensions.quantifier(node.loop, over, first, second, keep, weight))
        free = node.loop is Loop.LIST and yields.constant is not MISSING
        return Plan(comprehensions.collector(node.loop, over, first, second, keep, yields.run, weight, free=free))


# --- closures


def _device(frame: Frame) -> Value:
    frame.cost += 1
    return frame.device


def _variable(slot: int) -> Run:
    def read(frame: Frame) -> Value:
        frame.cost += 1
        return frame.variables[slot]

    return read


def _known(value: Value, cost: int) -> Run:
    def read(frame: Frame) -> Value:
        frame.cost += cost
        return value

    return read


def _text_chain(run: Run, key: str, cost: int) -> Run:
    def select(frame: Frame) -> Value:
        value = run(frame)
        frame.cost += cost
        if isinstance(value, Map):
            found = value.find_text(key, MISSING)
            if found is not MISSING:
                return found
        return access.index(value, key)

    return select


def _conjunction(terms: list[Run], *, final: bool) -> Run:
    """&& if `final` is True, || if it is False: the other value decides, errors do not matter then."""

    def decide(frame: Frame) -> Value:
        failure: Failure | None = None
        for term in terms:
            try:
                value = term(frame)
            except Failure as error:
                failure = failure or error
                continue
            if value is final:
                continue
            if type(value) is bool:
                return value
            failure = failure or no_such_overload()
        if failure is not None:
            raise failure
        return final

    return decide


def _conditional(condition: Plan, chosen: Plan, other: Plan) -> Plan:
    test, yes, no = condition.run, chosen.run, other.run
    yes_root, no_root = chosen.root or 0, other.root or 0

    def choose(frame: Frame) -> Value:
        value = test(frame)
        if value is True:
            frame.cost -= yes_root
            return yes(frame)
        if value is False:
            frame.cost -= no_root
            return no(frame)
        raise no_such_overload()

    return Plan(choose, root=0)


def _equality(left: Run, right: Run) -> Run:
    def compare(frame: Frame) -> Value:
        one, other = left(frame), right(frame)
        if type(one) is str and type(other) is str:
            frame.cost += (min(len(one), len(other)) + 9) // 10
            return one == other
        frame.cost += _EQUALS(one, other)
        return equal(one, other)

    return compare


def _inequality(left: Run, right: Run) -> Run:
    def compare(frame: Frame) -> Value:
        one, other = left(frame), right(frame)
        frame.cost += _EQUALS(one, other)
        try:
            return not equal(one, other)
        except Failure:
            return True

    return compare


def _alternative(first: Run, second: Run, *, unwrap: bool) -> Run:
    def choose(frame: Frame) -> Value:
        value = first(frame)
        if type(value) is not Optional:
            return value
        if value.present:
            return value.value if unwrap else value
        return second(frame)

    return choose


def _membership(run: Run, elements: tuple[Value, ...]) -> Plan:
    if not elements:
        return _constant(False)
    if all(type(each) is str for each in elements):
        texts = frozenset(elements)

        def find(frame: Frame) -> Value:
            value = run(frame)
            return type(value) is str and value in texts

        return Plan(find)

    numbers = frozenset(elements) if all(type(each) is int for each in elements) else frozenset()

    def search(frame: Frame) -> Value:
        value = run(frame)
        if numbers and type(value) is int:
            return value in numbers
        return operators.contains(value, elements)

    return Plan(search)


def _element(value: Value) -> Optional:
    if type(value) is not Optional:
        raise Failure(f"cannot initialize optional list element from non-optional value {shown(value)}")
    return value

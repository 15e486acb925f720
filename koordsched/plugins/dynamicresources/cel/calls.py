"""Calls of functions: which overload it is, by the types that the arguments turn out to have, and what that costs."""

from __future__ import annotations

from collections.abc import Callable

from koordsched.plugins.dynamicresources.cel.declarations import Function, Overload
from koordsched.plugins.dynamicresources.cel.errors import Failure
from koordsched.plugins.dynamicresources.cel.frame import Frame
from koordsched.plugins.dynamicresources.cel.times import Duration, Timestamp
from koordsched.plugins.dynamicresources.cel.types import Kind, Type
from koordsched.plugins.dynamicresources.cel.values import Map, Opaque, Optional, TypeValue, Uint, Value, type_name

Run = Callable[[Frame], Value]
Guard = Callable[[Value], bool]

_CLASSES: dict[Kind, type] = {
    Kind.BOOL: bool,
    Kind.BYTES: bytes,
    Kind.DOUBLE: float,
    Kind.DURATION: Duration,
    Kind.INT: int,
    Kind.NULL: type(None),
    Kind.STRING: str,
    Kind.TIMESTAMP: Timestamp,
    Kind.TYPE: TypeValue,
    Kind.UINT: Uint,
}


def _anything(_: Value) -> bool:
    return True


def guard_of(type_: Type) -> Guard:
    """Whether a value may be an argument of this type; of collections the first element is looked at, as upstream."""
    if (wanted := _CLASSES.get(type_.kind)) is not None:
        return lambda value: type(value) is wanted
    if type_.kind is Kind.LIST:
        element = guard_of(type_.parameters[0])
        return lambda value: type(value) is tuple and (not value or element(value[0]))
    if type_.kind is Kind.MAP:
        key, each = map(guard_of, type_.parameters)
        return lambda value: isinstance(value, Map) and all(key(k) and each(v) for k, v in value.items()[:1])
    if type_.kind is Kind.OPAQUE and type_.name == "optional_type":
        return lambda value: type(value) is Optional
    if type_.kind in (Kind.STRUCT, Kind.OPAQUE):
        name = type_.name
        return lambda value: isinstance(value, Opaque) and value.type.name == name
    return _anything


def call_of(function: Function, overloads: list[str], arguments: list[Run]) -> Run:
    """A call of a function whose overload is one of these."""
    candidates = [each for each in function.overloads if each.id in overloads]
    if function.singleton is not None:
        return _operator(function, candidates, arguments)
    if len(candidates) > 1:
        # Upstream dispatches over all overloads then.
        candidates = [each for each in function.overloads if len(each.parameters) == len(arguments)]
        return _dispatched(function.name, candidates, arguments)
    only = candidates[0]
    if len(arguments) == 1 and not only.metered:
        return _unary(only, arguments[0])
    if len(arguments) == 2 and not only.metered:
        return _binary(only, *arguments)
    return _dispatched(function.name, candidates, arguments)


def _mismatch(name: str, *values: Value) -> Failure:
    return Failure(f"no such overload: {name}({', '.join(map(type_name, values))})")


def _operator(function: Function, candidates: list[Overload], arguments: list[Run]) -> Run:
    run, cost = function.singleton, candidates[0].cost
    assert run is not None
    if len(arguments) == 1:
        (only,) = arguments
        assert isinstance(cost, int)
        fixed = cost

        def apply(frame: Frame) -> Value:
            value = only(frame)
            frame.cost += fixed
            return run(value)

        return apply
    left, right = arguments
    if isinstance(cost, int):
        constant = cost

        def compute(frame: Frame) -> Value:
            one, other = left(frame), right(frame)
            frame.cost += constant
            return run(one, other)

        return compute
    measured = cost

    def measure(frame: Frame) -> Value:
        one, other = left(frame), right(frame)
        frame.charge(measured(one, other))
        return run(one, other)

    return measure


def _unary(overload: Overload, argument: Run) -> Run:
    run, cost = overload.run, overload.cost
    guard = _anything if overload.unguarded else guard_of(overload.parameters[0])
    assert run is not None

    def call(frame: Frame) -> Value:
        value = argument(frame)
        if not guard(value):
            raise _mismatch(overload.function, value)
        frame.charge(cost if isinstance(cost, int) else cost(value))
        return run(value)

    return call


def _binary(overload: Overload, first: Run, second: Run) -> Run:
    run, cost = overload.run, overload.cost
    guards = [_anything if overload.unguarded else guard_of(each) for each in overload.parameters]
    one_guard, other_guard = guards
    assert run is not None

    def call(frame: Frame) -> Value:
        one, other = first(frame), second(frame)
        if not (one_guard(one) and other_guard(other)):
            raise _mismatch(overload.function, one, other)
        frame.charge(cost if isinstance(cost, int) else _measured(cost, one, other))
        return run(one, other)

    return call


def _measured(cost: Callable[..., int], *values: Value) -> int:
    try:
        return cost(*values)
    except TypeError:  # without guards the values may be of any type, and the function says so
        return 1


def _dispatched(name: str, candidates: list[Overload], arguments: list[Run]) -> Run:
    guarded = [
        (each, [_anything if each.unguarded else guard_of(parameter) for parameter in each.parameters])
        for each in candidates
        if each.run is not None
    ]

    def call(frame: Frame) -> Value:
        values = [argument(frame) for argument in arguments]
        for overload, guards in guarded:
            if not all(guard(value) for guard, value in zip(guards, values, strict=True)):
                continue
            cost, run = overload.cost, overload.run
            assert run is not None
            frame.charge(cost if isinstance(cost, int) else _measured(cost, *values))
            return run(frame, *values) if overload.metered else run(*values)
        raise _mismatch(name, *values)

    return call

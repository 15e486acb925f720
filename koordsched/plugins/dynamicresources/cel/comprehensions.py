"""Loops and bindings, each with the costs of the comprehension that cel-go makes of the macro."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from koordsched.plugins.dynamicresources.cel.calls import Run
from koordsched.plugins.dynamicresources.cel.errors import Failure, no_such_overload
from koordsched.plugins.dynamicresources.cel.frame import Frame
from koordsched.plugins.dynamicresources.cel.lists import insert
from koordsched.plugins.dynamicresources.cel.syntax import Loop
from koordsched.plugins.dynamicresources.cel.values import MISSING, Map, Value, go_name

_CONDITION = {Loop.ALL: 2, Loop.EXISTS: 3}
"""What the condition of the loop costs: whether the accumulator has decided it."""

_COLLECT = {Loop.LIST: 12, Loop.MAP: 3, Loop.ENTRIES: 2}
"""What it costs to add to the accumulator, without what is added."""

_NEW_LIST = 10


def _iterated(value: Value) -> Iterable[Value]:
    if type(value) is tuple:
        return value
    if isinstance(value, Map):
        return value.keys()
    raise Failure(f"got '{go_name(value)}', expected iterable type")


def _pairs(value: Value) -> Iterable[tuple[Value, Value]]:
    if type(value) is tuple:
        return enumerate(value)
    if isinstance(value, Map):
        return value.items()
    raise Failure(f"unsupported comprehension range type: {go_name(value)}")


def _steps(frame: Frame, over: Value, first: int, second: int | None) -> Iterable[Value]:
    """Sets the variables for each element, and yields what the first of them is."""
    variables = frame.variables
    if second is None:
        for each in _iterated(over):
            variables[first] = each
            yield each
    else:
        for key, value in _pairs(over):
            variables[first], variables[second] = key, value
            yield key


def quantifier(loop: Loop, over: Run, first: int, second: int | None, keep: Run, weight: int) -> Run:
    """all(), exists() and exists_one(); `weight` is that of the body."""
    if loop is Loop.EXISTS_ONE:
        return _exists_one(over, first, second, keep, weight)
    decisive = loop is Loop.EXISTS
    step = _CONDITION[loop] + 1

    def run(frame: Frame) -> Value:
        failure: Failure | None = None
        decided = False
        for _ in _steps(frame, over(frame), first, second):
            if decided:
                # The condition is looked at once more, if there is one more element.
                frame.cost += step - 1
                break
            frame.tick(step, weight)
            try:
                value = keep(frame)
            except Failure as error:
                failure = failure or error
                continue
            if value is decisive:
                decided = True
            elif type(value) is not bool:
                failure = failure or no_such_overload()
        frame.cost += 1
        if decided:
            return decisive
        if failure is not None:
            raise failure
        return not decisive

    return run


def _exists_one(over: Run, first: int, second: int | None, keep: Run, weight: int) -> Run:
    def run(frame: Frame) -> Value:
        found = 0
        for _ in _steps(frame, over(frame), first, second):
            frame.tick(0, weight)
            value = keep(frame)
            if value is True:
                found += 1
                frame.cost += 2
            elif value is not False:
                raise no_such_overload()
        frame.cost += 2
        return found == 1

    return run


def collector(
    loop: Loop,
    over: Run,
    first: int,
    second: int | None,
    keep: Run | None,
    yields: Run,
    weight: int,
    *,
    free: bool,
) -> Run:
    """map(), filter() and the transform macros; `free`: what is collected is a constant."""
    cost = _COLLECT[loop] - (_NEW_LIST if free else 0)

    def run(frame: Frame) -> Value:
        elements: list[Value] = []
        entries = Map()
        for key in _steps(frame, over(frame), first, second):
            frame.tick(0, weight)
            if keep is not None:
                kept = keep(frame)
                if kept is False:
                    continue
                if kept is not True:
                    raise no_such_overload()
            value = yields(frame)
            frame.charge(cost)
            if loop is Loop.LIST:
                elements.append(value)
            elif loop is Loop.MAP:
                insert(entries, ((key, value),))
            elif isinstance(value, Map):
                insert(entries, value.items())
            else:
                raise no_such_overload()
        frame.cost += 1
        return tuple(elements) if loop is Loop.LIST else entries

    return run


class _Raised(NamedTuple):
    """A bound value that could not be had."""

    failure: Failure


def bind(slot: int, result: Run) -> Run:
    """cel.bind(): the value is computed when it is first used."""

    def run(frame: Frame) -> Value:
        frame.variables[slot] = MISSING
        frame.tick(0, 1)
        return result(frame)

    return run


def bound(slot: int, initial: Run) -> Run:
    """A use of the bound variable."""

    def read(frame: Frame) -> Value:
        frame.cost += 1
        value = frame.variables[slot]
        if value is MISSING:
            try:
                value = initial(frame)
            except Failure as failure:
                frame.variables[slot] = _Raised(failure)
                raise
            frame.variables[slot] = value
        elif type(value) is _Raised:
            raise value.failure
        return value

    return read

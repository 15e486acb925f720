"""Expressions, compiled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from koordsched.plugins.dynamicresources.cel import types
from koordsched.plugins.dynamicresources.cel.calls import Run
from koordsched.plugins.dynamicresources.cel.checker import check
from koordsched.plugins.dynamicresources.cel.device import Device
from koordsched.plugins.dynamicresources.cel.environment import Features, environment
from koordsched.plugins.dynamicresources.cel.errors import CompileError, CostExceeded, EvaluationError
from koordsched.plugins.dynamicresources.cel.frame import Frame
from koordsched.plugins.dynamicresources.cel.nesting import check_depth, room
from koordsched.plugins.dynamicresources.cel.parser import parse
from koordsched.plugins.dynamicresources.cel.planner import plan
from koordsched.plugins.dynamicresources.cel.source import Issues
from koordsched.plugins.dynamicresources.cel.types import Type
from koordsched.plugins.dynamicresources.cel.validation import validate
from koordsched.plugins.dynamicresources.cel.values import Value, type_name
from koordsched.plugins.dynamicresources.cel.work import WORK

_SHALLOW = 50
"""Levels of a tree that is evaluated within Python's usual limit."""

_NOT_BOOL = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "null_type": "type conversion error from 'null_type' to 'bool'",
    "type": "type conversion not supported for 'type'",
    "kubernetes.Semver": "type conversion error from 'Semver' to 'bool'",
    "kubernetes.Quantity": "type conversion error from 'Quantity' to 'bool'",
    "kubernetes.URL": "type conversion error from 'URL' to 'bool'",
    "kubernetes.NamedFormat": "type conversion error from 'Format' to 'bool'",
    "net.IP": "type conversion error from 'IP' to 'bool'",
    "net.CIDR": "type conversion error from 'CIDR' to 'bool'",
    "google.protobuf.Duration": "type conversion error from 'Duration' to 'bool'",
    "google.protobuf.Timestamp": "type conversion error from 'Timestamp' to 'bool'",
    "optional_type": "optional.none() dereference",
}
"""What upstream says of a result that is no bool, by its type."""


class Program:
    """A compiled expression."""

    __slots__ = ("_deep", "_run", "_slots")

    def __init__(self, run: Run, slots: int, *, deep: bool) -> None:
        self._run = run
        self._slots = slots
        self._deep = deep

    def evaluate(self, device: Device, expired: Callable[[], bool] | None = None) -> bool:
        """Whether the device is selected.

        Raises EvaluationError; Interrupted, which is one, when `expired` says that the time is over.
        """
        return self._decide(Frame(device.value, self._slots, expired))

    def evaluate_within(self, device: Device, most: int) -> tuple[bool, int]:
        """As `evaluate`, for at most that cost, and what it cost. Raises CostExceeded beyond it."""
        frame = Frame(device.value, self._slots, most=most)
        return self._decide(frame), frame.cost

    def _decide(self, frame: Frame) -> bool:
        result = self._result(frame)
        if result is True or result is False:
            return bool(result)
        name = type_name(result)
        raise EvaluationError(f"CEL result of type {name} could not be converted to bool: {_NOT_BOOL[name]}")

    def cost(self, device: Device) -> int:
        """What an evaluation costs. Raises EvaluationError as `evaluate` does."""
        frame = Frame(device.value, self._slots)
        self._result(frame)
        return frame.cost

    def _result(self, frame: Frame) -> Value:
        WORK.begin()
        try:
            if self._deep:
                with room():
                    result = self._run(frame)
            else:
                result = self._run(frame)
        except RecursionError:
            # Values nested more deeply than can be compared: there is no other way to get here.
            raise CostExceeded from None
        if frame.cost > frame.most:
            raise CostExceeded
        return result


def _compiled(text: str, features: Features) -> Program:
    issues = Issues(text)
    with room():
        tree = parse(text, issues)
        issues.raise_any()
        assert tree is not None
        depth = check_depth(tree, issues)
        issues.raise_any()
        result = check(tree, environment(features), issues)
        issues.raise_any()
        validate(tree, issues)
        issues.raise_any()
        if not _allowed(result, features):
            raise CompileError(f"must evaluate to bool or the unknown type, not {result}")
        WORK.begin()
        try:
            run, slots = plan(tree, environment(features))
        except EvaluationError as error:
            raise CompileError(f"program instantiation failed: {error}") from None
    return Program(run, slots, deep=depth > _SHALLOW)


def _allowed(result: Type, features: Features) -> bool:
    return result in (types.BOOL, types.ANY) or (result == types.DYN and features.list_type_attributes)


class _Programs:
    """The programs that were used last, bounded by the characters of their texts."""

    def __init__(self, most_characters: int) -> None:
        self._most = most_characters
        self._programs: OrderedDict[tuple[str, Features], Program] = OrderedDict()
        self._characters = 0

    def get(self, text: str, features: Features) -> Program:
        key = text, features
        found = self._programs.get(key)
        if found is not None:
            self._programs.move_to_end(key)
            return found
        program = self._programs[key] = _compiled(text, features)
        self._characters += len(text) + _EACH
        while self._characters > self._most and len(self._programs) > 1:
            (oldest, _), _ = self._programs.popitem(last=False)
            self._characters -= len(oldest) + _EACH
        return program


_EACH = 64
"""Characters that a program counts besides its own: even the shortest takes some memory."""

MOST_CHARACTERS = 256 * 1024
_PROGRAMS: Final = _Programs(MOST_CHARACTERS)


def compile(text: str, features: Features = Features()) -> Program:  # noqa: B008
    """The program of an expression; those used last are kept, errors are not.

    Raises CompileError with upstream's text.
    """
    return _PROGRAMS.get(text, features)

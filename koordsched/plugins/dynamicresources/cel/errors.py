"""What can go wrong with an expression."""

from __future__ import annotations

from typing import Final


class CompileError(Exception):
    """The expression is none of this environment; the text is what upstream puts behind `CEL compile error: `."""


class EvaluationError(Exception):
    """An evaluation without a result; the text is what upstream puts behind `CEL runtime error: `."""


class Interrupted(EvaluationError):
    """The evaluation was ended because its time was over."""


class Failure(EvaluationError):
    """An error that is a value of the language: `||`, `&&` and some macros do without it."""


NO_SUCH_OVERLOAD: Final = "no such overload"


def no_such_overload() -> Failure:
    """The error of an operation that is not defined for its operands."""
    return Failure(NO_SUCH_OVERLOAD)


class CostExceeded(EvaluationError):
    """The evaluation costs more than it may."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")

"""What work costs, counted instead of timed: the same number on every machine and in every run."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Steps:
    """`count`: lines of Python that ran, each round of a loop anew. What runs inside C counts as one."""

    def __init__(self) -> None:
        self.count = 0

    def _line(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        self.count += event == "line"
        return self._line


@contextmanager
def counted() -> Iterator[Steps]:
    """Counts the steps that this thread takes meanwhile, in functions that are called meanwhile.

    Garbage is not collected meanwhile: what that runs is no step of the work.
    """
    steps, before, collects = Steps(), sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(steps._line)
    try:
        yield steps
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()

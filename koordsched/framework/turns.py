"""Long searches in steps, so that the event loop has its turn in between.

A search is a generator that yields after about as much work as placing one pod, and returns its result. Who runs it
decides whether anything else happens between two steps: the scheduling cycle of a job pauses
(`scheduling.memberplacing`), explanations and benchmarks do not. The cluster state must be the same at the next step:
changes wait meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

Turns = Generator[None, None, T]
Pause = Callable[[], Awaitable[None]]
"""Lets others have the loop, if it is time."""

STEP = 16
"""Pods taken away or put back in one step."""

_SORTED = 128
"""Elements sorted in one step."""


def at_once(turns: Generator[Any, Any, T]) -> T:
    """The result, without pauses."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            result: T = end.value
            return result


async def with_pauses(turns: Generator[Any, Any, T], pause: Pause) -> T:
    """The result; `pause` is awaited between steps. If it raises, the search ends there."""
    with closing(turns):
        while True:
            try:
                next(turns)
            except StopIteration as end:
                result: T = end.value
                return result
            await pause()


def batches(things: Iterable[T], size: int = STEP) -> Iterator[list[T]]:
    """Lists of so many things, in order."""
    left = iter(things)
    while batch := list(islice(left, size)):
        yield batch


def ordered(things: Sequence[T], key: Callable[[T], Any]) -> Turns[list[T]]:
    """Sorted by the key, as by `sorted`."""
    runs: list[list[tuple[Any, int, T]]] = []
    for start in range(0, len(things), _SORTED):
        if start:
            yield
        some = things[start : start + _SORTED]
        runs.append(sorted((key(thing), start + at, thing) for at, thing in enumerate(some)))
    found: list[T] = []
    for batch in batches(merge(*runs), _SORTED):
        if found:
            yield
        found.extend(thing for _, _, thing in batch)
    return found

"""What-ifs: the live table reads for a moment as if pods were on other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod


class WhatIf:
    """Hypothetical changes to the pods on rows, undone in reverse order at the end: a context."""

    __slots__ = ("_account", "_add", "_done", "_table")

    def __init__(
        self, table: NodeTable, account: Callable[[Pod, int, int], int], add: Iterable[tuple[int, Pod]]
    ) -> None:
        self._table = table
        self._account = account
        self._add = add
        self._done: list[tuple[Pod, int, int]] = []

    @property
    def level(self) -> int:
        """How many of them are under way, this one included."""
        return self._table.hypothetical

    def __enter__(self) -> Self:
        self._table.hypothetical += 1
        try:
            for row, pod in self._add:
                self.add(pod, row)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.undo()
        finally:
            self._table.hypothetical -= 1

    def add(self, pod: Pod, row: int) -> int:
        """As if the pod were on the row. Returns the facets that differ."""
        self._done.append((pod, row, 1))
        return self._account(pod, row, 1)

    def remove(self, pod: Pod, row: int) -> int:
        """As if the pod, which is on the row, were not. Returns the facets that differ."""
        self._done.append((pod, row, -1))
        return self._account(pod, row, -1)

    def undo(self) -> None:
        """Takes everything back."""
        while self._done:
            pod, row, sign = self._done.pop()
            self._account(pod, row, -sign)

"""Which resources of a node do not suffice for a pod.

Every shortage of a node is reported, so a verdict is a set of shortages; distinct sets are few, and each is
interned as one reason. An extended resource that a DeviceClass stands for is no shortage where the node has nothing
allocatable of it: DynamicResources decides there (dra spec 3.10).

Source: upstream `noderesources/fit.go` fitsRequest.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import numpy.typing as npt

from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.resources import FIRST_SCALAR
from koordsched.framework.status import PASS, Code, Codes, HeldReason, ReasonTable

TOO_MANY_PODS = "Too many pods"

_PATTERN_BITS = 62
"""Shortages, beside the final bit, that fit a pattern of int64."""


class Insufficiency:
    """The test of one set of requests.

    `amounts`: (resource index, amount > 0), in the order of the reasons. A *pattern* has bit 0 for too many
    pods, bit k + 1 for `amounts[k]`, and the bit above those when a request exceeds the node's allocatable,
    so that removing pods cannot help. `classes`: the resources with a DeviceClass at the time of a question.
    """

    __slots__ = ("_by_index", "_classes", "_codes", "_final", "_held", "_plugin", "_reasons", "_texts", "amounts")

    def __init__(
        self,
        plugin: str,
        amounts: tuple[tuple[int, int], ...],
        names: list[str],
        reasons: ReasonTable,
        classes: Container[str] = (),
    ) -> None:
        cpu_to_storage = [a for a in amounts if a[0] < FIRST_SCALAR]
        scalars = sorted((a for a in amounts if a[0] >= FIRST_SCALAR), key=lambda a: names[a[0]])
        self.amounts = (*cpu_to_storage, *scalars)
        self._by_index = {index: names[index] for index, _ in scalars}
        self._classes = classes
        self._plugin = plugin
        self._texts = (TOO_MANY_PODS, *(f"Insufficient {names[index]}" for index, _ in self.amounts))
        self._final = 1 << len(self._texts)
        self._reasons = reasons
        self._codes = {0: PASS}
        self._held: list[HeldReason] = []

    def has_class(self, index: int) -> bool:
        """Whether a DeviceClass stands for the resource: nodes without any allocatable may have devices instead."""
        return index in self._by_index and self._by_index[index] in self._classes

    def of_row(self, table: NodeTable, row: int) -> int:
        """The reason number for one row, PASS if the pod fits."""
        pattern = 1 if table.pods_count.data.item(row) >= table.pods_allocatable.data.item(row) else 0
        bit = 2
        for index, amount in self.amounts:
            allocatable = table.allocatable[index].data.item(row)
            if amount > allocatable - table.requested[index].data.item(row) and (
                allocatable or not self.has_class(index)
            ):
                pattern |= bit
                if amount > allocatable:
                    pattern |= self._final
            bit <<= 1
        return self._code(pattern) if pattern else PASS

    def of_rows(self, table: NodeTable, rows: Rows) -> Codes | None:
        """The same for many rows; None if the pod fits on all."""
        if len(self._texts) > _PATTERN_BITS:
            return self._of_rows_wide(table, rows)
        full = table.pods_count.data[rows] >= table.pods_allocatable.data[rows]
        enough = not full.any()
        free = []
        for index, amount in self.amounts:
            allocatable = table.allocatable[index].data[rows]
            left = allocatable - table.requested[index].data[rows]
            if self.has_class(index):
                left[allocatable == 0] = amount
            free.append(left)
            enough = enough and bool(left.min(initial=amount) >= amount)
        if enough:
            return None
        shortages = [full]
        shortages.extend(left < amount for left, (_, amount) in zip(free, self.amounts, strict=True))
        final = np.zeros(len(full), dtype=np.bool_)
        for (index, amount), short in zip(self.amounts, shortages[1:], strict=True):
            if short.any():
                final |= short & (table.allocatable[index].data[rows] < amount)
        shortages.append(final)
        patterns = np.zeros(len(full), dtype=np.int64)
        for bit, short in enumerate(shortages):
            patterns |= short.astype(np.int64) << bit
        distinct, which = np.unique(patterns, return_inverse=True)
        return np.array([self._code(pattern) for pattern in distinct.tolist()], dtype=np.int32)[which]

    def _of_rows_wide(self, table: NodeTable, rows: Rows) -> Codes | None:
        """For patterns of any width, kept as bytes, resource by resource.

        Such pods only exist as attacks; they should cost little time and memory.
        """
        full = table.pods_count.data[rows] >= table.pods_allocatable.data[rows]
        last = len(self._texts)
        patterns = np.zeros((last // 8 + 1, len(full)), dtype=np.uint8)
        final = np.zeros(len(full), dtype=np.bool_)

        def mark(bit: int, where: npt.NDArray[np.bool_]) -> None:
            patterns[bit >> 3] |= where.view(np.uint8) << (bit & 7)

        mark(0, full)
        for bit, (index, amount) in enumerate(self.amounts, start=1):
            allocatable = table.allocatable[index].data[rows]
            short = allocatable - table.requested[index].data[rows] < amount
            if self.has_class(index):
                short &= allocatable > 0
            if short.any():
                mark(bit, short)
                final |= short & (allocatable < amount)
        mark(last, final)
        if not patterns.any():
            return None
        by_row = np.ascontiguousarray(patterns.T).view(np.dtype((np.void, len(patterns)))).ravel()
        distinct, which = np.unique(by_row, return_inverse=True)
        codes = [self._code(int.from_bytes(pattern.tobytes(), "little")) for pattern in distinct]
        return np.array(codes, dtype=np.int32)[which]

    def _code(self, pattern: int) -> int:
        code = self._codes.get(pattern)
        if code is None:
            status = Code.UNRESOLVABLE if pattern & self._final else Code.UNSCHEDULABLE
            texts = [text for text, bit in zip(self._texts, reversed(f"{pattern:b}"), strict=False) if bit == "1"]
            held = self._reasons.hold(self._plugin, status, *texts)
            self._held.append(held)
            code = self._codes[pattern] = held.number
        return code

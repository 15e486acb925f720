"""The waiting groups whose requests a node can hold, found by comparing columns of requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import FIRST_SCALAR

Amounts = tuple[tuple[int, int], ...]
"""(resource index, amount > 0)."""

NO_SCALAR = -1


class Offer(NamedTuple):
    """What a node has allocatable, by resource index. `before`: the same before the event, None if only now it can hold
    as many pods."""

    allocatable: Mapping[int, int]
    before: Mapping[int, int] | None


class _Block:
    """Groups that request the same scalar resource, or none, with what they request: int64[groups, resources], of which
    the first are those with an index below FIRST_SCALAR, and the last is the scalar resource.
    """

    def __init__(self) -> None:
        self.groups: list[Hashable] = []
        self.requests = np.zeros((4, FIRST_SCALAR + 1), dtype=np.int64)
        self.others = np.zeros(4, dtype=np.bool_)
        """Whether a group requests other scalar resources, too."""

    def append(self, group: Hashable, amounts: Amounts, scalar: int, others: bool) -> int:
        position = len(self.groups)
        if position == len(self.requests):
            self.requests = np.vstack([self.requests, np.zeros_like(self.requests)])
            self.others = np.concatenate([self.others, np.zeros_like(self.others)])
        self.groups.append(group)
        requests = [0] * (FIRST_SCALAR + 1)
        for index, amount in amounts:
            if index < FIRST_SCALAR:
                requests[index] = amount
            elif index == scalar:
                requests[FIRST_SCALAR] = amount
        self.requests[position] = requests
        self.others[position] = others
        return position

    def remove(self, position: int) -> Hashable | None:
        """Returns the group that has this position from now on, None if none has."""
        last = len(self.groups) - 1
        moved = self.groups.pop()
        if position == last:
            return None
        self.groups[position] = moved
        self.requests[position], self.others[position] = self.requests[last], self.others[last]
        return moved

    def helped(self, offer: Offer, scalar: int, delegated: bool) -> Iterator[Hashable]:
        """`delegated`: others decide about the scalar resource where the node has none."""
        count = len(self.groups)
        requests = self.requests[:count]
        allocatable = _amounts(offer.allocatable, scalar)
        delegated = delegated and not allocatable[FIRST_SCALAR]
        if delegated or scalar == NO_SCALAR:
            allocatable[FIRST_SCALAR] = np.iinfo(np.int64).max
        fits = (requests <= allocatable).all(axis=1)
        if offer.before is not None and not delegated:
            before = _amounts(offer.before, scalar)
            grown = allocatable > before
            fits &= ((requests > 0) & grown).any(axis=1) | self.others[:count]
        return (self.groups[position] for position in np.flatnonzero(fits).tolist())


def _amounts(found: Mapping[int, int], scalar: int) -> npt.NDArray[np.int64]:
    return np.array([found.get(index, 0) for index in (*range(FIRST_SCALAR), scalar)], dtype=np.int64)


class WaitingRequests:
    """A GroupIndex. `amounts_of(pod)`: what the pod requests; `offer(old, new)`: of a node.

    `has_class(resource index)`: whether a DeviceClass stands for the resource.
    """

    def __init__(
        self,
        amounts_of: Callable[[Pod], Amounts],
        offer: Callable[[Any, Any], Offer],
        has_class: Callable[[int], bool],
    ) -> None:
        self._amounts_of = amounts_of
        self._offer = offer
        self._has_class = has_class
        self._blocks: dict[int, _Block] = {}
        self._places: dict[Hashable, tuple[int, int]] = {}
        """By group: the scalar resource of its block, and its position there."""

    def add(self, group: Hashable, pod: Pod) -> None:
        """See GroupIndex."""
        amounts = self._amounts_of(pod)
        scalars = [index for index, _ in amounts if index >= FIRST_SCALAR]
        # The rarest: an event on a node that has it is about few groups.
        scalar = min(scalars, key=self._size) if scalars else NO_SCALAR
        block = self._blocks.get(scalar)
        if block is None:
            block = self._blocks[scalar] = _Block()
        self._places[group] = scalar, block.append(group, amounts, scalar, len(scalars) > 1)

    def _size(self, scalar: int) -> int:
        block = self._blocks.get(scalar)
        return len(block.groups) if block is not None else 0

    def remove(self, group: Hashable) -> None:
        """See GroupIndex."""
        scalar, position = self._places.pop(group)
        block = self._blocks[scalar]
        moved = block.remove(position)
        if moved is not None:
            self._places[moved] = scalar, position
        if not block.groups:
            del self._blocks[scalar]

    def concerned(self, old: Any, new: Any) -> Collection[Hashable]:
        """See GroupIndex."""
        if not self._blocks:
            return ()
        offer = self._offer(old, new)
        found: list[Hashable] = []
        for scalar, block in self._blocks.items():
            delegated = scalar != NO_SCALAR and self._has_class(scalar)
            if scalar == NO_SCALAR or delegated or offer.allocatable.get(scalar):
                found.extend(block.helped(offer, scalar, delegated))
        return found

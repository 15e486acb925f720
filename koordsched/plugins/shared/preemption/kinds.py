"""Pods that count alike, numbered, so that what a dry run needs of thousands of pods is looked up in arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import shape_ports
from koordsched.framework.dryruns import Amounts, Tally
from koordsched.plugins.shared.matching.lookup import Lookup

KindArray = npt.NDArray[np.int32]

_TALLIES_KEPT = 128


class PodKinds:
    """Numbers from 1; 0 is no pod. Pods of a kind have the same shape, namespace, labels and requests, and all are
    being deleted or none is. `examples[number]` is one of them.
    """

    def __init__(self) -> None:
        self.examples: list[Pod | None] = [None]
        self._numbers: dict[tuple[object, ...], int] = {}
        self._priorities = self.lookup(lambda pod: pod.priority)
        self._with_ports = self.lookup(lambda pod: bool(shape_ports(pod.shape)), np.bool_)
        self._amounts: dict[int, Lookup[Pod | None]] = {}
        self._tallied: OrderedDict[Hashable, Lookup[Pod | None]] = OrderedDict()

    def of(self, pod: Pod) -> int:
        """The number of a pod's kind."""
        resized = None if pod.requests is pod.shape.requests else pod.requests
        identity = (pod.shape, pod.labels, pod.namespace, pod.deleting, resized)
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = len(self.examples)
            example = pod
            if pod.wire is not None:
                example = copy(pod)
                example.wire = None  # may be large, and examples stay
            self.examples.append(example)
        return number

    def lookup(self, judge: Callable[[Pod], int], dtype: npt.DTypeLike = np.int64) -> Lookup[Pod | None]:
        """A judgement per kind; no pod is judged 0."""
        return Lookup(self.examples, lambda pod: 0 if pod is None else judge(pod), dtype)

    @property
    def priorities(self) -> Amounts:
        """By kind."""
        return _current(self._priorities)

    @property
    def with_ports(self) -> npt.NDArray[np.bool_]:
        """By kind, whether it holds host ports."""
        return _current(self._with_ports)

    def amounts(self, resource: int) -> Amounts:
        """By kind, what it requests of a resource."""
        found = self._amounts.get(resource)
        if found is None:
            found = self._amounts[resource] = self.lookup(lambda pod: pod.requests.get(resource))
        return _current(found)

    def tallied(self, tally: Tally) -> Amounts:
        """By kind, how much it adds to a tally."""
        found = self._tallied.get(tally.identity)
        if found is None:
            found = self._tallied[tally.identity] = self.lookup(tally.of)
            if len(self._tallied) > _TALLIES_KEPT:
                self._tallied.popitem(last=False)
        else:
            self._tallied.move_to_end(tally.identity)
        return _current(found)

    def __len__(self) -> int:
        return len(self._numbers)


def _current(lookup: Lookup[Pod | None]) -> npt.NDArray[Any]:
    lookup.refresh()
    return lookup.verdicts

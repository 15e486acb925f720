"""One evaluation: its variables, and what it has cost so far.

Costs are cel-go's (runtime cost, `interpreter/runtimecost.go`) with Kubernetes' for its own functions. What takes time
and has no cost there is bounded here as well: sizes of results, comparisons inside of collections, patterns that are
compiled during evaluation. An expression that goes beyond is refused as one whose cost limit is exceeded.
"""

from __future__ import annotations

from collections.abc import Callable

from koordsched.plugins.dynamicresources.cel.errors import CostExceeded, Interrupted
from koordsched.plugins.dynamicresources.cel.values import Value

COST_LIMIT = 1_000_000
"""Cost of one evaluation (resource.k8s.io: CELSelectorExpressionMaxCost); and iterations, of loops with a short body:
constants, conditionals and && have no cost, so it may be that none has.
"""

MOST_ELEMENTS = 1_000_000
"""Elements of a list: going through a longer one costs too much anyway."""

MOST_CHARACTERS = 10_000_000
"""Characters of a string: going through a longer one costs too much anyway."""

MOST_PATTERNS = 64
"""Regular expressions that one evaluation may compile, and that an expression may have as literals."""

CHECK_EVERY = 100
"""Iterations between two looks at the clock, as upstream."""


class Frame:
    """`variables` are the slots of loops and bindings; `device` is the device. `most`: cost, and iterations."""

    __slots__ = ("_expired", "_patterns", "_steps", "_ticks", "cost", "device", "most", "variables")

    def __init__(
        self, device: Value, slots: int, expired: Callable[[], bool] | None = None, most: int = COST_LIMIT
    ) -> None:
        self.most = most
        self.device = device
        self.variables: list[Value] = [None] * slots
        self.cost = 0
        self._expired = expired
        self._ticks = 0
        self._steps = 0
        self._patterns = 0

    def charge(self, cost: int) -> None:
        """Adds a cost. Raises CostExceeded if that is too much."""
        self.cost += cost
        if self.cost > self.most:
            raise CostExceeded

    def tick(self, cost: int, weight: int) -> None:
        """As `charge`, for an iteration of a loop whose body has that weight. Raises Interrupted if time is over."""
        self.cost += cost
        self._steps += weight
        if self.cost > self.most or self._steps > self.most:
            raise CostExceeded
        self._ticks += 1
        if self._ticks >= CHECK_EVERY:
            self._ticks = 0
            if self._expired is not None and self._expired():
                raise Interrupted("operation interrupted")

    def bound_elements(self, count: int) -> None:
        """Raises CostExceeded for a list that is too long."""
        if count > MOST_ELEMENTS:
            raise CostExceeded

    def bound_characters(self, count: int) -> None:
        """Raises CostExceeded for a string that is too long."""
        if count > MOST_CHARACTERS:
            raise CostExceeded

    def compile_pattern(self) -> None:
        """Counts a regular expression that is compiled. Raises CostExceeded if there are too many."""
        self._patterns += 1
        if self._patterns > MOST_PATTERNS:
            raise CostExceeded

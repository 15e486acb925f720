"""What a preemptor needs besides a node, and its victims hold: a share of a quota.

Both are about dry runs in which first all potential victims of a node are gone, and what the preemptor needs
is there; then they come back one by one.
"""

from __future__ import annotations

from typing import Protocol

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.plugins.shared.preemption.victims import Mask


class Holdings(Protocol):
    """The books of one dry run."""

    def spare(self, pod: Pod) -> bool:
        """Whether the preemptor would still have what it needs with this one back."""

    def put_back(self, pod: Pod) -> None:
        """This one is back."""


class DryRunHoldings(Protocol):
    """The books of one dry run per row. `at`: positions among these; `step`: in the order of the potential victims."""

    def spare(self, step: int, at: RowArray) -> Mask:
        """In which of these dry runs the preemptor would still have what it needs with the pod of a step back."""

    def put_back(self, step: int, at: RowArray) -> None:
        """The pods of a step are back in these dry runs."""

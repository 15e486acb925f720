"""Pods that count alike, counted together."""

from __future__ import annotations

from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts
from koordsched.plugins.elasticquota.arithmetic.quota import Quota


class Tally:
    """Pods in one quota that count the same there: `asked` of them, of which `placed` have a node.

    `amounts`: what each requests of the resources that the quota counts. `counted_asked`, `counted_placed`: how many of
    them the numbers of the quotas contain; the rest is added when they are read (`QuotaTree.settle`). To be changed
    by `accounting` alone.
    """

    __slots__ = ("amounts", "asked", "counted_asked", "counted_placed", "non_preemptible", "placed", "quota")

    def __init__(self, quota: Quota, amounts: Amounts, *, non_preemptible: bool = False) -> None:
        self.quota = quota
        self.amounts = amounts
        self.non_preemptible = non_preemptible
        self.asked = 0
        self.placed = 0
        self.counted_asked = 0
        self.counted_placed = 0

    def __repr__(self) -> str:
        return f"Tally({self.placed}/{self.asked} in {self.quota})"

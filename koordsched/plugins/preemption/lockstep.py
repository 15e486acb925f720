"""The dry run on many nodes at once, when nothing but resources decides.

Every row is a world of its own: in all of them all victims go, and in step k each row gets its k-th victim
back and is filtered again. That is the same as the dry run node by node (`dryrun`), as long as no filter
that takes part reads anything of other pods but what they request. Budgets only change the order of the victims.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.filtering import Filtering
from koordsched.framework.interface import Cycle
from koordsched.framework.status import PASS
from koordsched.plugins.preemption.candidates import Candidate, by_importance
from koordsched.plugins.preemption.holdings import Holdings

_INDEPENDENT = (
    Facet.RESOURCES | Facet.LABELS | Facet.TAINTS | Facet.IMAGES | Facet.CONDITIONS | Facet.FEATURES | Facet.ANNOTATIONS
)
"""Facets that pods leave alone, and resources, which are stepped here."""

_REMEMBERED = 1 << 16


class VictimLists:
    """The pods of lower priority on a row, most important first; kept as long as the row's pods are the same."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._kept: OrderedDict[tuple[int, int], tuple[int, list[Pod]]] = OrderedDict()

    def on(self, row: int, priority: int, now: float) -> list[Pod]:
        """The pods on the row with a priority lower than this."""
        stamp = self._cluster.table.log.stamp(row, Facet.RESOURCES)
        kept = self._kept.get((priority, row))
        if kept is not None and kept[0] == stamp:
            return kept[1]
        lower = [pod for pod in self._cluster.pods_on(row).values() if pod.priority < priority]
        lower = by_importance(lower, now)
        if all(pod.start_time is not None for pod in lower):
            # A pod that has not started counts as starting now, so its place in the order changes with time.
            self._kept[priority, row] = (stamp, lower)
            if len(self._kept) > _REMEMBERED:
                self._kept.popitem(last=False)
        return lower


class Lockstep:
    """Dry runs on arrays of rows."""

    def __init__(self, cluster: ClusterState, filtering: Filtering) -> None:
        self._cluster = cluster
        self._filtering = filtering

    def applies(self, cycle: Cycle) -> bool:
        """Whether nothing but resources of other pods matters to the filters of this pod."""
        return not self._filtering.pod_filters(cycle) and all(
            plugin.facets & ~_INDEPENDENT == 0 for plugin in self._filtering.node_filters(cycle)
        )

    def on(
        self, cycle: Cycle, rows: list[int], lower: list[list[Pod]], holdings: Sequence[Holdings] | None = None
    ) -> list[Candidate | int]:
        """Per row a candidate or the code that refuses the pod even with all lower pods gone.

        `lower[i]`: the pods on `rows[i]` that may go, in the order in which they are put back, which is also that of
        the victims; `holdings[i]`: what the preemptor needs of theirs besides the node, which must suffice with all
        of them gone.
        """
        at = np.array(rows, dtype=np.intp)
        counts = np.array([len(pods) for pods in lower], dtype=np.int64)
        depth = int(counts.max(initial=0))
        table = self._cluster.table
        columns = [table.pods_count.data] + [
            table.requested[index].data for index, _ in cycle.pod.requests.amounts if index < len(table.requested)
        ]
        weights = [np.zeros((depth, len(rows)), dtype=np.int64) for _ in columns]
        resources = [index for index, _ in cycle.pod.requests.amounts if index < len(table.requested)]
        for column, pods in enumerate(lower):
            for step, pod in enumerate(pods):
                weights[0][step, column] = 1
                for k, index in enumerate(resources, start=1):
                    weights[k][step, column] = pod.requests.get(index)
        before = [data[at] for data in columns]
        try:
            for data, weight in zip(columns, weights, strict=True):
                data[at] -= weight.sum(axis=0)
            codes = self._filtering.chain_on(cycle, at)
            stays_out = self._put_back(cycle, at, counts, codes == PASS, columns, weights, lower, holdings)
        finally:
            for data, values in zip(columns, before, strict=True):
                data[at] = values
        results: list[Candidate | int] = []
        for i, row in enumerate(rows):
            if codes[i] != PASS:
                results.append(int(codes[i]))
            else:
                results.append(Candidate(row, tuple(lower[i][k] for k in np.flatnonzero(stays_out[:, i])), 0))
        return results

    def _put_back(
        self,
        cycle: Cycle,
        at: RowArray,
        counts: npt.NDArray[np.int64],
        passing: npt.NDArray[np.bool_],
        columns: list[npt.NDArray[np.int64]],
        weights: list[npt.NDArray[np.int64]],
        lower: list[list[Pod]],
        holdings: Sequence[Holdings] | None,
    ) -> npt.NDArray[np.bool_]:
        """bool[depth, rows]: which victims did not fit back."""
        depth = len(weights[0])
        stays_out = np.zeros((depth, len(at)), dtype=np.bool_)
        for step in range(depth):
            active = np.flatnonzero(passing & (counts > step))
            if not len(active):
                break
            if holdings is not None:
                spared = np.array([holdings[i].spare(lower[i][step]) for i in active.tolist()], dtype=np.bool_)
                stays_out[step, active[~spared]] = True
                active = active[spared]
                if not len(active):
                    continue
            rows = at[active]
            for data, weight in zip(columns, weights, strict=True):
                data[rows] += weight[step, active]
            refused = self._filtering.chain_on(cycle, rows, Facet.RESOURCES) != PASS
            if refused.any():
                back = active[refused]
                for data, weight in zip(columns, weights, strict=True):
                    data[at[back]] -= weight[step, back]
                stays_out[step, back] = True
            if holdings is not None:
                for i in active[~refused].tolist():
                    holdings[i].put_back(lower[i][step])
        return stays_out

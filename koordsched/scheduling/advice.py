"""What a user can do about a pending pod: whether it waits for room, whether it could ever fit, and what would have to
change.

Every answer is an evaluation by the profile's own plugins: of the nodes as they are, plugin by plugin, and of nodes
as they would be without the pods on them. Nothing is changed and nothing enters the caches.
"""

from __future__ import annotations

from collections.abc import Set

import msgspec
import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import Facet, RowArray
from koordsched.cluster.nodetable import ALL_FACETS
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.explain import Explanation
from koordsched.framework.explaining import ExplainsNodes, ExplainsVerdicts
from koordsched.framework.interface import (
    CycleState,
    MeasuringFilter,
    PodFilter,
    ShapeFilter,
)
from koordsched.framework.profile import Profile
from koordsched.framework.status import PASS, Code
from koordsched.scheduling.remedies import REMEDIES

FITS, WAITS, NEVER, GATED, REFUSED, FAILED = "fits", "waits", "never", "gated", "refused", "failed"

MOST_REMEDIES = 5

_POD_INDEPENDENT = (
    Facet.RESOURCES | Facet.LABELS | Facet.TAINTS | Facet.IMAGES | Facet.CONDITIONS | Facet.FEATURES | Facet.ANNOTATIONS
)
"""Facets that pods leave alone, and resources, which can be given back for all rows at once."""


class Change(msgspec.Struct, rename="camel"):
    """One thing that would have to change, for this plugin to let the pod in."""

    plugin: str
    text: str


class Remedy(msgspec.Struct, rename="camel"):
    """Everything that keeps the pod off the nodes of one group: `nodes` of them, of which `node` is the closest."""

    node: str
    nodes: int
    changes: list[Change]


class Advice(msgspec.Struct, rename="camel"):
    """The answer.

    `verdict`: `fits` (now), `waits` (for room: a node that exists would take it if it were empty), `never` (no node
    that exists could take it, even empty), `gated`, `refused` (by a plugin, before any node was looked at) or
    `failed` (an error, no answer). `empty_node`: one that would take the pod if it were empty. `remedies`: those
    that time may bring first, then fewest changes, then smallest shortage.
    """

    verdict: str
    text: str
    empty_node: str = ""
    remedies: list[Remedy] = []


class Advised(Explanation, rename="camel"):
    """An explanation with advice, where it was asked for."""

    advice: Advice | None = None


def with_advice(profile: Profile, cluster: ClusterState, pod: Pod, explanation: Explanation) -> Advised:
    """The explanation and the advice that follows from it, as one answer."""
    fields = {name: getattr(explanation, name) for name in explanation.__struct_fields__}
    return Advised(**fields, advice=advise(profile, cluster, pod, explanation))


def advise(
    profile: Profile, cluster: ClusterState, pod: Pod, explanation: Explanation, members: Set[str] = frozenset()
) -> Advice:
    """The advice that follows from the explanation of a pod. The explanation must be of the cluster as it is.

    `members`: uids of the pods of its job that have their places there, the pod included.
    """
    if explanation.any_of:
        count = len(explanation.any_of)
        have = "has" if count == 1 else "have"
        return Advice(FITS, f"It fits: {count} of the feasible nodes {have} the highest score.")
    if explanation.gated_by:
        return Advice(GATED, f"{explanation.gated_by} keeps it out of the queue: {explanation.message}.")
    if explanation.reason == "SchedulerError":
        return Advice(FAILED, f"No answer because of an error: {explanation.message}")
    if not cluster.table.count:
        return Advice(NEVER, "The cluster has no nodes.")
    if explanation.rejected_by:
        for_now = any(node.status == Code.UNSCHEDULABLE.text for node in explanation.nodes)
        remedy = "it waits for room" if for_now else "the pod itself has to change"
        return Advice(REFUSED, f"{explanation.rejected_by} rejects the pod, whatever the node: {remedy}.")
    cycle = CycleState(pod, job_members=members)
    codes = profile.filtering.filter(cycle, all_nodes=True).codes
    reasons = profile.handle.reasons
    candidates = np.array(
        [row for row in cluster.table.row_of.values() if codes[row] == PASS or reasons[int(codes[row])].plugin],
        dtype=np.intp,
    )
    curable = np.array(
        [row for row in candidates if reasons[int(codes[row])].code is Code.UNSCHEDULABLE], dtype=np.intp
    )
    remedies = _remedies(profile, cluster, cycle, candidates, curable)
    near = [row for row in (cluster.table.row_of[remedy.node] for remedy in remedies) if row in curable]
    order = np.array([*near, *(row for row in curable.tolist() if row not in near)], dtype=np.intp)
    empty = _first_if_empty(profile, cluster, cycle, order)
    return _worded(explanation, cluster, empty, remedies, _waits_for(profile, cluster, cycle, remedies))


def remedy_of(profile: Profile, cluster: ClusterState, pod: Pod, members: Set[str]) -> str:
    """The advice for a member of a job that no node takes, in a sentence or two. `members`: see `advise`."""
    advice = advise(profile, cluster, pod, Explanation(pod.title, profile.name, [], []), members)
    return " ".join([advice.text, *(closest(remedy) for remedy in advice.remedies[:1])])


def closest(remedy: Remedy) -> str:
    """The node that is closest, and what it would take there."""
    return f"Closest: {remedy.node}, needed: {'; '.join(change.text for change in remedy.changes)}"


def _waits_for(profile: Profile, cluster: ClusterState, cycle: CycleState, remedies: list[Remedy]) -> str:
    """What time alone may bring where one plugin stands between the pod and a node; "" if nothing can."""
    for remedy in remedies:
        plugin = profile.plugins[remedy.changes[0].plugin]
        if len(remedy.changes) == 1 and isinstance(plugin, ExplainsVerdicts):
            text = plugin.waits_for(cycle, cluster.table.row_of[remedy.node])
            if text:
                return text
    return ""


def _worded(
    explanation: Explanation, cluster: ClusterState, empty: int, remedies: list[Remedy], waits_for: str
) -> Advice:
    if empty < 0 and waits_for:
        return Advice(WAITS, f"It waits for {waits_for}.", remedies=remedies)
    if empty < 0:
        return Advice(NEVER, "No node could run this pod, even if empty.", remedies=remedies)
    node = cluster.table.names[empty]
    text = f"It waits for room: {node} could run this pod if it were empty."
    if explanation.nominated_node:
        victims = f"{len(explanation.victims)} pod{'s' if len(explanation.victims) > 1 else ''}"
        text += f" Preemption would evict {victims} of lower priority from {explanation.nominated_node}."
    return Advice(WAITS, text, node, remedies)


# --- all obstacles of a node, not only the first ---------------------------------------------------------


def _remedies(
    profile: Profile, cluster: ClusterState, cycle: CycleState, rows: RowArray, curable: RowArray
) -> list[Remedy]:
    """Groups the rows by the set of plugins that refuse them; of each group the row that is closest.

    Groups with curable rows come first: there, what has to change is something that changes by itself.
    """
    if not len(rows):
        return []
    plugins: list[ShapeFilter | PodFilter] = [
        *profile.filtering.node_filters(cycle),
        *profile.filtering.pod_filters(cycle),
    ]
    refusals = np.stack([_refuses(plugin, cluster, cycle, rows) for plugin in plugins], axis=1)
    patterns, which = np.unique(refusals, axis=0, return_inverse=True)
    shortage = relative_shortage(cluster, cycle.pod, rows)
    waits = np.isin(rows, curable)
    ranked: list[tuple[bool, int, float, Remedy]] = []
    for number, pattern in enumerate(patterns):
        members = np.flatnonzero(which.reshape(-1) == number)
        if not pattern.any():
            continue
        may_wait = bool(waits[members].any())
        closest = members[int(np.argmin(np.where(waits[members] == may_wait, shortage[members], np.inf)))]
        refusing = [plugin.name for plugin, refuses in zip(plugins, pattern, strict=True) if refuses]
        judge = next((each for name in refusing if isinstance(each := profile.plugins[name], ExplainsVerdicts)), None)
        if judge is not None and not may_wait:
            closest = members[judge.nearest(cycle, rows[members])]
        row = int(rows[closest])
        changes = [Change(name, _text(profile, name, cycle, cluster, row)) for name in refusing]
        remedy = Remedy(cluster.table.names[row], len(members), changes)
        ranked.append((not may_wait, len(changes), float(shortage[closest]), remedy))
    ranked.sort(key=lambda entry: (*entry[:3], entry[3].node))
    return [entry[3] for entry in ranked[:MOST_REMEDIES]]


def _refuses(
    plugin: ShapeFilter | PodFilter, cluster: ClusterState, cycle: CycleState, rows: RowArray
) -> npt.NDArray[np.bool_]:
    if isinstance(plugin, ShapeFilter):
        codes = plugin.filter_rows(cycle.pod.shape, cluster.table, rows)
    else:
        codes = plugin.filter(cycle, cycle.pod, cluster.table, rows)
    return np.zeros(len(rows), dtype=np.bool_) if codes is None else np.asarray(codes != PASS)


def relative_shortage(cluster: ClusterState, pod: Pod, rows: RowArray) -> npt.NDArray[np.float64]:
    """How much of its requests the pod would not get on each row: 0 = nothing is missing, per resource at most 1."""
    table = cluster.table
    total = np.zeros(len(rows), dtype=np.float64)
    for index, amount in pod.shape.requests.amounts:
        if index < len(table.allocatable):
            allocatable = table.allocatable[index].data[rows]
            short = np.clip(amount - allocatable + table.requested[index].data[rows], 0, amount)
            if table.resource_names.names[index] in table.served_otherwise:
                short[allocatable == 0] = 0
            total += short / amount
    return total


def _text(profile: Profile, name: str, cycle: CycleState, cluster: ClusterState, row: int) -> str:
    plugin, remedy = profile.plugins[name], REMEDIES.get(name)
    if isinstance(plugin, ExplainsNodes):
        return plugin.remedy(cycle.pod.shape, row)
    if isinstance(plugin, ExplainsVerdicts):
        return plugin.remedy_of(cycle, row)
    return remedy(cycle.pod, cluster.table, row) if remedy is not None else f"{name} satisfied"


# --- empty nodes ---------------------------------------------------------------------------------------------


def _first_if_empty(profile: Profile, cluster: ClusterState, cycle: CycleState, rows: RowArray) -> int:
    """The first of the rows that would take the pod without the pods on it, each row for itself; -1 if none."""
    filtering = profile.filtering
    facets, independent = ALL_FACETS, _POD_INDEPENDENT
    for plugin in filtering.node_filters(cycle):
        if isinstance(plugin, MeasuringFilter):
            facets &= ~plugin.facets
            independent |= plugin.facets
            rows = rows[[not plugin.refuses_idle(cycle.pod.shape, row) for row in rows.tolist()]]
    if not len(rows):
        return -1
    if not filtering.pod_filters(cycle) and all(
        plugin.facets & ~independent == 0 for plugin in filtering.node_filters(cycle)
    ):
        return _first_without_requests(profile, cluster, cycle, rows, facets)
    for row in rows.tolist():
        if _takes_if_empty(profile, cluster, cycle, row, facets):
            return int(row)
    return -1


def _first_without_requests(
    profile: Profile, cluster: ClusterState, cycle: CycleState, rows: RowArray, facets: int
) -> int:
    """All rows at once, where nothing but resources depends on pods."""
    table = cluster.table
    columns = [table.pods_count, *table.requested]
    before = [column.data[rows] for column in columns]
    try:
        for column in columns:
            column.data[rows] = 0
        passing = np.flatnonzero(profile.filtering.chain_on(cycle, rows, facets) == PASS)
    finally:
        for column, values in zip(columns, before, strict=True):
            column.data[rows] = values
    return int(rows[passing[0]]) if len(passing) else -1


def _takes_if_empty(profile: Profile, cluster: ClusterState, cycle: CycleState, row: int, facets: int) -> bool:
    filters = profile.filtering.pod_filters(cycle)
    gone: list[Pod] = []
    with cluster.what_if() as hypothesis:
        try:
            for other in list(cluster.pods_on(row).values()):
                hypothesis.remove(other, row)
                gone.append(other)
                for plugin in filters:
                    plugin.remove_pod(cycle, cycle.pod, other, row)
            return profile.filtering.dry_run(cycle, row, facets) == PASS
        finally:
            for other in reversed(gone):
                for plugin in filters:
                    plugin.add_pod(cycle, cycle.pod, other, row)

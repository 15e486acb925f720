"""The topology manager: one choice of NUMA nodes out of the hints of all providers (nodenumaresource spec 3.3).

Source: koordinator `pkg/scheduler/frameworkext/topologymanager`. Upstream goes through all combinations of hints, one
per resource. With policies Restricted and SingleNUMANode only preferred choices count, and these are the subsets that
all resources prefer: so they are found on arrays, for many nodes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from koordsched.framework.topologyhints import Amounts, Flags, NUMAPolicy, ResourceHints, Subsets

NO_AFFINITY = 0
"""Instead of the mask of the chosen NUMA nodes: any NUMA nodes."""

IDLE, SINGLE, SHARED = 0, 1, 2
"""State of a NUMA node: no pods with exclusive CPUs; only pods with all of them there; some with others elsewhere."""

_COMBINATIONS = 100_000
"""More combinations of hints are not evaluated; the pod then gets all NUMA nodes."""


@dataclass(frozen=True, slots=True)
class Admission:
    """`masks`: int64[rows], the NUMA nodes chosen, NO_AFFINITY for any; `admitted`: bool[rows]."""

    masks: Amounts
    admitted: Flags


def admit(
    policy: NUMAPolicy, hints: Sequence[ResourceHints], subsets: Subsets, rows: int, statuses: Amounts | None
) -> Admission:
    """The choice for each row, by a policy that requires preferred hints.

    `statuses`: int[rows, NUMA nodes], the status of each for a pod that must not share NUMA nodes with pods of the
    other kind; None for pods that may. Subsets of one size are enough, if those of smaller sizes were tried before:
    the narrowest choice wins.
    """
    everything = (1 << subsets.count) - 1
    applies = np.zeros(rows, dtype=np.bool_)
    candidates: Flags = np.ones((rows, len(subsets)), dtype=np.bool_)
    score = np.zeros((rows, len(subsets)), dtype=np.int64)
    for hint in hints:
        if hint.applies.all():
            applies[:] = True
            candidates &= hint.preferred
            score += hint.score
        elif hint.applies.any():
            applies |= hint.applies
            candidates &= hint.preferred | ~hint.applies[:, None]
            score += hint.score * hint.applies[:, None]
    if policy is NUMAPolicy.SINGLE_NUMA_NODE:
        candidates &= subsets.sizes == 1
    if statuses is not None:
        candidates &= _may_share(subsets, statuses)
    chosen = _best(candidates, score, subsets)
    admitted = chosen >= 0
    masks = np.where(admitted, subsets.masks[chosen], NO_AFFINITY)
    if not applies.all():
        masks[~applies] = everything
        if statuses is not None:
            crowded = SINGLE if subsets.count > 1 else SHARED
            admitted[~applies] = (statuses[~applies] != crowded).all(axis=1)
    if policy is NUMAPolicy.SINGLE_NUMA_NODE:
        masks[masks == everything] = NO_AFFINITY
    return Admission(masks, admitted)


def _may_share(subsets: Subsets, statuses: Amounts) -> Flags:
    """bool[rows, subsets]: several NUMA nodes without pods that use a single one, or one without pods that use more."""
    single = (statuses == SINGLE) @ subsets.members.T
    shared = (statuses == SHARED) @ subsets.members.T
    found: Flags = np.where(subsets.sizes > 1, ~single, ~shared)
    return found


def _best(candidates: Flags, score: Amounts, subsets: Subsets) -> npt.NDArray[np.intp]:
    """Per row the subset that upstream ends with, -1 if there is no candidate.

    It replaces a choice by a later one that is narrower (fewer NUMA nodes, or as many and a smaller mask), whatever its
    score, and by one as narrow of a better score.
    """
    best = np.full(len(candidates), -1, dtype=np.intp)
    best_score = np.zeros(len(candidates), dtype=np.int64)
    masks, sizes = subsets.masks, subsets.sizes
    for at in range(len(subsets)):
        same_size = sizes[best] == sizes[at]
        better = same_size & ((masks[at] < masks[best]) | (score[:, at] > best_score))
        taken = candidates[:, at] & ((best < 0) | better)
        best[taken] = at
        best_score[taken] = score[taken, at]
    return best


def refusal(policy: NUMAPolicy, hints: Sequence[ResourceHints], subsets: Subsets, row: int) -> tuple[str, ...]:
    """Why a row is not admitted, with the hints for all subsets."""
    applying = [hint for hint in hints if hint.applies[row]]
    unsatisfied = [hint.resource for hint in applying if not hint.possible[row].any()]
    if unsatisfied:
        return tuple(f"Unsatisfied NUMA {resource}" for resource in sorted(unsatisfied))
    masks = [shown(mask) for mask in subsets.masks.tolist()]
    summary = []
    for hint in applying:
        preferred = " ".join(masks[at] for at in np.flatnonzero(hint.preferred[row]).tolist())
        possible = " ".join(masks[at] for at in np.flatnonzero(hint.possible[row]).tolist())
        summary.append(f"{hint.resource} prefer [{preferred}] among [{possible}]")
    joined = ("," if policy is NUMAPolicy.SINGLE_NUMA_NODE else " & ").join(sorted(summary))
    return (f"Unaligned NUMA Hint cause {joined}",)


def shown(mask: int) -> str:
    """A set of NUMA nodes as upstream writes it: in binary, the width a multiple of two."""
    width = 2
    for shift in range(62, 0, -2):
        if mask > 1 << shift:
            width = shift + 2
            break
    return f"{mask:0{width}b}"


def best_effort(hints: Sequence[ResourceHints], subsets: Subsets, statuses: Amounts | None) -> int:
    """The mask chosen for the only row of these hints where every pod is admitted.

    `statuses`: int[NUMA nodes], as for `admit`.
    """
    everything = (1 << subsets.count) - 1
    lists: list[list[tuple[int, bool, int]]] = []
    combinations = 1
    for hint in hints:
        if not hint.applies[0]:
            continue
        possible = np.flatnonzero(hint.possible[0]).tolist()
        if not possible:
            return everything  # if a resource cannot be satisfied, all preferences are dropped
        masks, preferred, score = subsets.masks, hint.preferred[0], hint.score[0]
        lists.append([(int(masks[at]), bool(preferred[at]), int(score[at])) for at in possible])
        combinations *= len(possible)
    if combinations > _COMBINATIONS:
        return everything
    best, best_preferred, best_score, satisfied = everything, False, 0, True
    for chosen in product(*lists):
        merged = everything
        for mask, _, _ in chosen:
            merged &= mask
        if not merged:
            continue
        preferred = all(liked and mask == merged for mask, liked, _ in chosen)
        if preferred and statuses is not None and not _shares(merged, statuses):
            preferred = False
        score = sum(points for mask, _, points in chosen if mask == merged)
        if best_preferred and not preferred:
            continue
        if preferred == best_preferred:
            size, best_size = merged.bit_count(), best.bit_count()
            narrower = size < best_size or (size == best_size and merged < best)
            if not narrower and not (size == best_size and score > best_score):
                continue
        best, best_preferred, best_score = merged, preferred, score
        satisfied = all(mask.bit_count() <= merged.bit_count() for mask, _, _ in chosen)
    return best if satisfied else everything


def _shares(mask: int, statuses: Amounts) -> bool:
    found = [status for node, status in enumerate(statuses.tolist()) if mask >> node & 1]
    return SINGLE not in found if len(found) > 1 else SHARED not in found

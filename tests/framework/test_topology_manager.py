"""The topology manager chooses as upstream, which walks over all combinations of hints (nodenumaresource spec 3.3)."""

from itertools import product
from random import Random

import numpy as np
import pytest

from koordsched.framework.topologyhints import NUMAPolicy, ResourceHints, subsets_of, subsets_of_size
from koordsched.framework.topologymanager import (
    IDLE,
    NO_AFFINITY,
    SHARED,
    SINGLE,
    admit,
    best_effort,
    refusal,
    shown,
)

SINGLE_NUMA_NODE, RESTRICTED, BEST_EFFORT = (
    NUMAPolicy.SINGLE_NUMA_NODE,
    NUMAPolicy.RESTRICTED,
    NUMAPolicy.BEST_EFFORT,
)


@pytest.mark.parametrize(
    "mask, text", [(1, "01"), (2, "10"), (3, "11"), (4, "100"), (5, "0101"), (8, "1000"), (16, "10000")]
)
def test_masks_are_written_as_upstream_does(mask, text):
    assert shown(mask) == text


def drawn(rng, count, policy):
    """Hints about one row: two or three resources, of which some have no preference, or nothing possible."""
    subsets, hints = subsets_of(count), []
    for name in ("cpu", "gpu", "memory")[: rng.randint(1, 3)]:
        if rng.random() < 0.1:
            possible = np.zeros(len(subsets), dtype=np.bool_)
        else:
            possible = np.array([rng.random() < 0.6 for _ in range(len(subsets))])
        sizes = [size for size, fits in zip(subsets.sizes.tolist(), possible.tolist(), strict=True) if fits]
        fewest = possible & (subsets.sizes == min(sizes, default=0))
        preferred = possible if policy is RESTRICTED else fewest
        score = np.array([rng.choice([0, 10, 10, 50, 90]) for _ in range(len(subsets))])
        applies = np.array([rng.random() < 0.85])
        hints.append(ResourceHints(name, applies, possible[None], preferred[None], score[None]))
    return hints


def walked(hints, count, policy, statuses):
    """(mask, preferred, unsatisfied) by upstream's walk; masks as sets of numbers."""
    subsets, everything = subsets_of(count), (1 << count) - 1
    lists = []
    for hint in hints:
        if not hint.applies[0]:
            lists.append([(None, True, 0, False)])
            continue
        found = [
            (int(subsets.masks[at]), bool(hint.preferred[0, at]), int(hint.score[0, at]), False)
            for at in np.flatnonzero(hint.possible[0]).tolist()
        ]
        found = found or [(None, False, 0, True)]
        if policy is SINGLE_NUMA_NODE:
            found = [each for each in found if each[1] and (each[0] is None or each[0].bit_count() == 1)]
        lists.append(found)
    best = (everything, False, 0, False)
    for chosen in product(*lists or [[(None, True, 0, False)]]):
        masks = [mask for mask, _, _, _ in chosen if mask is not None]
        merged = everything
        for mask in masks:
            merged &= mask
        if not merged:
            continue
        preferred = all(liked for _, liked, _, _ in chosen) and len(set(masks)) <= 1
        of_merged = [statuses[node] for node in range(count) if merged >> node & 1] if statuses is not None else []
        if of_merged == [SHARED] or (len(of_merged) > 1 and SINGLE in of_merged):
            preferred = False
        wider = any(mask.bit_count() > merged.bit_count() for mask in masks)
        unsatisfied = wider or any(nothing for _, _, _, nothing in chosen)
        new = (merged, preferred, sum(points for mask, _, points, _ in chosen if mask == merged), unsatisfied)
        narrower = (merged.bit_count(), merged) < (best[0].bit_count(), best[0])
        scores_more = merged.bit_count() == best[0].bit_count() and new[2] > best[2]
        if new[1] != best[1]:
            best = new if new[1] else best
        elif narrower or scores_more:
            best = new
    return best[0], best[1], best[3]


@pytest.mark.parametrize("seed", range(40))
def test_the_same_choice_as_by_walking_over_all_combinations(seed):
    rng = Random(seed)
    for _ in range(25):
        count = rng.randint(1, 4)
        policy = rng.choice([SINGLE_NUMA_NODE, RESTRICTED, BEST_EFFORT])
        statuses = [rng.choice([IDLE, SINGLE, SHARED]) for _ in range(count)] if rng.random() < 0.5 else None
        hints, subsets = drawn(rng, count, policy), subsets_of(count)
        array = np.array([statuses]) if statuses is not None else None
        mask, preferred, unsatisfied = walked(hints, count, policy, statuses)
        if policy is BEST_EFFORT:
            everything = (1 << count) - 1
            found = best_effort(hints, subsets, array[0] if array is not None else None)
            assert found == (everything if unsatisfied else mask)
            continue
        nothing = [hint.resource for hint in hints if hint.applies[0] and not hint.possible[0].any()]
        admission = admit(policy, hints, subsets, 1, array)
        assert bool(admission.admitted[0]) == (preferred and not nothing)
        if admission.admitted[0]:
            any_node = policy is SINGLE_NUMA_NODE and mask == (1 << count) - 1
            assert admission.masks[0] == (NO_AFFINITY if any_node else mask)
        elif nothing:
            assert refusal(policy, hints, subsets, 0) == tuple(f"Unsatisfied NUMA {name}" for name in sorted(nothing))
        else:
            assert refusal(policy, hints, subsets, 0)[0].startswith("Unaligned NUMA Hint cause ")


def test_smaller_subsets_alone_are_enough_where_they_will_do():
    rng = Random(7)
    for _ in range(200):
        count = rng.randint(2, 4)
        hints, subsets = drawn(rng, count, RESTRICTED), subsets_of(count)
        whole = admit(RESTRICTED, hints, subsets, 1, None)
        for size in range(1, count + 1):
            at = np.flatnonzero(subsets.sizes == size)
            part = [
                ResourceHints(h.resource, h.applies, h.possible[:, at], h.preferred[:, at], h.score[:, at])
                for h in hints
            ]
            found = admit(RESTRICTED, part, subsets_of_size(count, size), 1, None)
            if found.admitted[0]:
                assert found.masks[0] == whole.masks[0]
                break
        else:
            assert not whole.admitted[0]

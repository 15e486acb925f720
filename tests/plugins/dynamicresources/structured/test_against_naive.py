"""The allocator against the spec written down without skill, on clusters at random."""

from __future__ import annotations

from random import Random

import pytest

from koordsched.api.resource import ResourceClaim
from koordsched.plugins.dynamicresources.structured import AllocationError, InvalidPools
from tests.depth import quick_first
from tests.plugins.dynamicresources.structured import randomworlds
from tests.plugins.dynamicresources.structured.naive import Failed, Naive, Pick, TooHard
from tests.plugins.dynamicresources.structured.world import World, selects


def naive(
    world: World, node: str, claims: list[ResourceClaim], search: type[Naive] = Naive
) -> tuple[list[Pick], int] | str:
    """Devices and score, or how it ends."""
    reference = search(
        world.features,
        world.wire_slices(),
        list(world.in_use._held.values()),
        world.classes,
        selects,
        node,
        world.nodes[node],
    )
    try:
        found = reference.allocate(claims)
    except Failed:
        return "failed"
    except TooHard:
        return "too hard"
    if found is None:
        return "invalid" if any(pool.state == "invalid" for pool in reference.pools) else "none"
    return found


def ours(world: World, node: str, claims: list[ResourceClaim]) -> tuple[list[Pick], int] | str:
    """The same of the package."""
    try:
        found = world.allocate(*claims, node=node)
    except AllocationError:
        return "failed"
    except InvalidPools:
        return "invalid"
    if found is None:
        return "none"
    picks = [
        (number, each.request, each.driver, each.pool, each.device)
        for number, result in enumerate(found.results)
        for each in result.devices.results
    ]
    return picks, found.score


def play(seed: int) -> dict[str, int]:
    """A cluster that changes, with questions in between. Returns how often each outcome was seen."""
    rng = Random(seed)
    world = randomworlds.world(rng)
    seen: dict[str, int] = {}
    kept = [randomworlds.claims(rng) for _ in range(2)]
    for step in range(6):
        asked = [*kept, randomworlds.with_capacity(rng, randomworlds.claims(rng), world)]
        for node in world.nodes:
            for claims in asked:
                expected = naive(world, node, claims)
                found = ours(world, node, claims)
                assert expected in (found, "too hard"), (seed, step, node)
                key = expected if isinstance(expected, str) else "found"
                seen[key] = seen.get(key, 0) + 1
        change(rng, world, step)
    return seen


def change(rng: Random, world: World, step: int) -> None:
    """Something else is in use, or published, or a label changes."""
    kind = rng.random()
    if kind < 0.4:
        randomworlds.use(rng, world)
    elif kind < 0.6 and world.in_use._held:
        world.in_use.drop(rng.choice(list(world.in_use._held)))
    elif kind < 0.75:
        randomworlds.add_pool(rng, world, 10 + step)
    elif kind < 0.85 and world.slices:
        world.remove(rng.choice(list(world.slices)))
    else:
        world.node(rng.choice(list(world.nodes)), {"z": rng.choice("ab")})


@pytest.mark.parametrize("start", quick_first(range(0, 200, 20), 4))
def test_same_devices_as_the_naive_search(start: int) -> None:
    total: dict[str, int] = {}
    for seed in range(start, start + 20):
        for key, number in play(seed).items():
            total[key] = total.get(key, 0) + number
    assert total.keys() >= {"found", "none", "failed", "invalid"}


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 5000, 500))
def test_same_devices_as_the_naive_search_many_times(start: int) -> None:
    for seed in range(start, start + 500):
        play(seed)

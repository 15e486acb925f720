"""Which waiting groups a node can hold, compared with a plain reading of their requests (core spec 3.4)."""

from random import Random
from types import SimpleNamespace

import pytest

from koordsched.cluster.resources import FIRST_SCALAR
from koordsched.plugins.noderesourcesfit.waiting import Offer, WaitingRequests

CPU, MEMORY = 0, 1
SCALARS = (FIRST_SCALAR, FIRST_SCALAR + 1, FIRST_SCALAR + 2)
MOST = 4


def index_of(with_class=()):
    return WaitingRequests(
        lambda pod: tuple(pod.amounts.items()), lambda old, new: Offer(new, old), lambda index: index in with_class
    )


def asking(**amounts):
    names = {"cpu": CPU, "memory": MEMORY, "a": SCALARS[0], "b": SCALARS[1], "c": SCALARS[2]}
    return SimpleNamespace(amounts={names[name]: amount for name, amount in amounts.items()})


def helped(amounts, old, new, with_class):
    """Whether a group fits on a node that has `new` allocatable, and did not before for lack of what has grown."""
    delegated = {index for index in amounts if index in with_class and not new.get(index)}
    if any(new.get(index, 0) < amount for index, amount in amounts.items() if index not in delegated):
        return False
    return bool(delegated) or old is None or any(new.get(index, 0) > old.get(index, 0) for index in amounts)


def random_amounts(rng, scalars):
    chosen = [index for index in (CPU, MEMORY) if rng.random() < 0.6] + rng.sample(SCALARS, scalars)
    return {index: rng.randint(1, MOST) for index in chosen}


def random_offer(rng):
    return {index: rng.randint(0, MOST) for index in (CPU, MEMORY, *SCALARS) if rng.random() < 0.8}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("scalars", [0, 1, 2])
def test_as_a_plain_reading_of_the_requests(scalars, seed):
    """With several scalar resources more groups may be found: only one is compared, and any may have grown."""
    rng = Random(f"{scalars} {seed}")
    with_class = {index for index in SCALARS if rng.random() < 0.3}
    index, filed = index_of(with_class), {}
    for number in range(60):
        if filed and rng.random() < 0.3:
            gone = rng.choice(list(filed))
            index.remove(gone)
            del filed[gone]
        else:
            amounts = random_amounts(rng, scalars)
            index.add(number, SimpleNamespace(amounts=amounts))
            filed[number] = amounts
        new = random_offer(rng)
        old = None if rng.random() < 0.3 else random_offer(rng)
        found, expected = (
            set(index.concerned(old, new)),
            {number for number, amounts in filed.items() if helped(amounts, old, new, with_class)},
        )
        assert found >= expected
        if scalars < 2:
            assert found == expected
    for number in filed:
        index.remove(number)
    assert index.concerned(None, dict.fromkeys((CPU, MEMORY, *SCALARS), MOST)) == ()


def test_of_several_scalar_resources_the_rarest_counts():
    index = index_of()
    for number in range(3):
        index.add(number, asking(a=1))
    index.add("both", asking(a=1, b=1))
    assert set(index.concerned(None, {SCALARS[0]: 1})) == {0, 1, 2}
    assert set(index.concerned(None, {SCALARS[1]: 1})) == {"both"}


def test_the_growth_of_another_scalar_resource_counts_too():
    index = index_of()
    index.add("both", asking(a=1, b=1))
    assert list(index.concerned({SCALARS[0]: 1}, {SCALARS[0]: 1, SCALARS[1]: 1})) == ["both"]
    assert list(index.concerned({SCALARS[1]: 1}, {SCALARS[0]: 1, SCALARS[1]: 1})) == ["both"]

"""Sets and numbers of members as bits, against one by one."""

from random import Random

import pytest

from koordsched.plugins.shared.podcounts.bits import BitIndex, Counters


@pytest.mark.parametrize("members", [2, 64, 65, 66, 200])
@pytest.mark.parametrize("asked", [False, True], ids=["not asked before", "asked before"])
def test_a_member_that_was_removed_is_not_found_any_more(members, asked):
    index = BitIndex()
    for member in range(members):
        index.add("a", member)
    if asked:
        assert index.of("a") == (1 << members) - 1
    index.remove("a", 1)
    assert index.of("ab") == (1 << members) - 1 - 2
    index.add("a", members)
    assert index.of("ab") == (1 << members + 1) - 1 - 2


@pytest.mark.parametrize("seed", range(10))
def test_the_least_is_the_smallest_number_of_the_members(seed):
    rng = Random(seed)
    counters, numbers = Counters(), [0] * 20
    for _ in range(100):
        member = rng.randrange(20)
        numbers[member] = rng.choice((0, 1, 5, 6, 7, 8, 1000))
        counters.set(member, numbers[member])
        some = rng.sample(range(20), rng.randint(1, 4))
        assert counters.least(sum(1 << each for each in some)) == min(numbers[each] for each in some)

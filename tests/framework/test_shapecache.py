"""What is kept per shape: the budget, the order, and what a larger table does."""

from random import Random

from koordsched.framework.shapecache import ShapeCache


class Thing:
    """Takes as many bytes as it says."""

    def __init__(self, nbytes):
        self.nbytes = nbytes


def test_the_least_recently_used_go_first():
    cache = ShapeCache(lambda shape: Thing(10), 30)
    for name in "abcad":
        cache.of(name)
    assert list(cache) == ["c", "a", "d"]
    cache.of("c")
    cache["c"].nbytes = 25
    cache.resized(15)
    assert list(cache) == ["c"]


def test_the_latest_stays_whatever_it_takes():
    cache = ShapeCache(lambda shape: Thing(100), 30)
    for name in "ab":
        assert cache.of(name) is cache.of(name)
    assert list(cache) == ["b"]


def test_a_larger_table_makes_everything_anew():
    cache = ShapeCache(lambda shape: Thing(10), 25)
    first = cache.of("a", 5)
    cache.of("b", 5)
    assert cache.of("a", 5) is first
    assert cache.of("a", 6) is not first
    assert list(cache) == ["a"]
    cache.of("b", 6)
    assert list(cache) == ["a", "b"], "what is forgotten takes nothing"


def test_bytes_are_those_of_what_is_kept():
    rng = Random(1)
    cache = ShapeCache(lambda shape: Thing(rng.randrange(20)), 100)
    for _ in range(2000):
        found = cache.of(rng.randrange(40), rng.choice([7] * 50 + [8]))
        more = rng.choice([0, 0, rng.randrange(30)])
        found.nbytes += more
        cache.resized(more)
        assert cache._bytes == sum(thing.nbytes for thing in cache.values())
        assert cache._bytes <= 100 or len(cache) == 1

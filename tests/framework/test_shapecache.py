"""What is kept per shape: the budget, the order, and what a larger table does."""

from random import Random

from koordsched.framework.shapecache import LARGE, ShapeCache


class Thing:
    """Takes as many bytes as it says."""

    def __init__(self, nbytes):
        self.nbytes = nbytes


class Shape(str):
    """A shape by its name."""

    nbytes = 100


class LargeShape(Shape):
    """One that takes much by itself."""

    nbytes = LARGE + 1


def test_the_least_recently_used_go_first():
    cache = ShapeCache(lambda shape: Thing(10), 30)
    for name in "abcad":
        cache.of(Shape(name))
    assert list(cache) == ["c", "a", "d"]
    cache.of(Shape("c"))
    cache["c"].nbytes = 25
    cache.resized(15)
    assert list(cache) == ["c"]


def test_the_latest_stays_whatever_it_takes():
    cache = ShapeCache(lambda shape: Thing(100), 30)
    for name in "ab":
        assert cache.of(Shape(name)) is cache.of(Shape(name))
    assert list(cache) == ["b"]


def test_a_larger_table_makes_everything_anew():
    cache = ShapeCache(lambda shape: Thing(10), 25)
    first = cache.of(Shape("a"), 5)
    cache.of(Shape("b"), 5)
    assert cache.of(Shape("a"), 5) is first
    assert cache.of(Shape("a"), 6) is not first
    assert list(cache) == ["a"]
    cache.of(Shape("b"), 6)
    assert list(cache) == ["a", "b"], "what is forgotten takes nothing"


def test_a_large_shape_goes_when_the_next_one_comes():
    cache = ShapeCache(lambda shape: Thing(10), 1000)
    cache.of(Shape("a"))
    first = cache.of(LargeShape("b"))
    assert cache.of(Shape("a"))
    assert cache.of(LargeShape("b")) is first
    cache.of(LargeShape("c"))
    assert list(cache) == ["a", "c"]
    cache.of(Shape("d"))
    assert list(cache) == ["a", "d"]
    cache.of(LargeShape("e"), 1)
    cache.of(LargeShape("e"), 2)
    cache.of(Shape("f"), 2)
    assert list(cache) == ["f"]


def test_bytes_are_those_of_what_is_kept():
    rng = Random(1)
    cache = ShapeCache(lambda shape: Thing(rng.randrange(20)), 100)
    for _ in range(2000):
        name = str(rng.randrange(40))
        found = cache.of(LargeShape(name) if name.endswith("7") else Shape(name), rng.choice([7] * 50 + [8]))
        more = rng.choice([0, 0, rng.randrange(30)])
        found.nbytes += more
        cache.resized(more)
        assert cache._bytes == sum(thing.nbytes for thing in cache.values())
        assert cache._bytes <= 100 or len(cache) == 1

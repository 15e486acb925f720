"""Values that are kept under a budget of bytes."""

import sys
import tracemalloc

import numpy as np
import pytest

from koordsched.api.meta import OwnerReference
from koordsched.cluster.facts import PodFacts
from koordsched.cluster.interning import LabelSet
from koordsched.cluster.kept import Kept, kept, size_of
from koordsched.cluster.pod import References


def numbers(count):
    return tuple((f"name-{i}", i << 70) for i in range(count))


def owners(count):
    made = [
        {"api_version": f"v{i}", "kind": f"kind-{i}", "name": "x" * (1000 + i), "uid": f"{i}"} for i in range(count)
    ]
    return References(OwnerReference(**each) for each in made)


def table(count):
    return (np.zeros(count, dtype=np.int64), [{f"{i}": "x" * i for i in range(100)}])


@pytest.mark.parametrize("make", [numbers, owners, table])
def test_size_with_everything_inside(make):
    tracemalloc.start()
    try:
        value = make(1000)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.8 * taken < size_of(value) < 1.5 * taken


def test_classes_are_no_part_of_a_size():
    assert size_of(References()) < 100


def test_counting_ends():
    assert 1 << 12 < size_of([numbers(3)] * 1_000, 1 << 12) < size_of([numbers(3)] * 1_000)


def test_small_values_are_kept():
    kept = Kept(1 << 20)
    made = [kept.put(i, (i,)) for i in range(1000)]
    assert all(kept.get(i) is made[i] for i in range(1000))
    assert kept.get(1000) is None


def test_values_are_forgotten_beyond_the_budget():
    kept, size = Kept(1 << 16), sys.getsizeof("x" * 1000)
    times = 0
    for i in range(1000):
        before = len(kept)
        assert kept.put(i, "x" * 1000) == kept.get(i)
        assert size * len(kept) <= kept.nbytes <= 1 << 16
        times += len(kept) <= before
        assert kept.forgotten == times
    assert times > 10


@pytest.mark.parametrize("key, value", [("k", "v" * 50_000), ("k" * 50_000, "v")])
def test_a_large_value_is_not_kept_and_makes_no_other_forgotten(key, value):
    kept = Kept(1 << 16)
    kept.put("other", "value")
    assert kept.put(key, value) is value
    assert kept.get(key) is None
    assert kept.get("other") == "value"


def test_the_last_fact_of_a_pod_may_go():
    facts = PodFacts(set())
    fact = facts.declare("example.com/number", int, str)
    held = facts.shared(fact.put((), 7, len(facts)))
    assert held == (7,)
    assert facts.shared(fact.put(held, None, len(facts))) == ()


def test_results_of_a_function_are_kept():
    asked = []

    @kept(100_000)
    def twice(text):
        asked.append(len(text))
        if text == "bad":
            raise ValueError(text)
        return text * 2 if text else None

    for text in ("", "ab", "x" * 50_000):
        assert twice(text) == twice(text) == (text * 2 or None)
    with pytest.raises(ValueError, match="bad"):
        twice("bad")
    assert asked == [0, 2, 50_000, 50_000, 3], "what is large is not kept"


def test_labels_take_what_they_list():
    few, many = (LabelSet({f"key-{i}": "x" * 60 for i in range(count)}) for count in (3, 3000))
    for labels in (few, many):
        assert size_of(labels) <= labels.nbytes <= 3 * size_of(labels)

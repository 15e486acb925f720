"""How many writes may be under way, and how many per second."""

import pytest

from koordsched.client.ratelimit import COOLDOWN, LATENCY_TARGET, AdaptiveLimit, TokenBucket


def test_it_grows_by_a_slot_per_answer_until_the_first_sign_of_overload():
    limit = AdaptiveLimit(initial=4, largest=7)
    for expected in (5, 6, 7, 7):
        limit.succeeded(0.0, 0.1, True)
        assert limit.current == expected


def test_afterwards_it_grows_by_a_slot_per_round():
    limit = AdaptiveLimit(initial=10)
    limit.overloaded(0.0)
    assert limit.current == 7
    for _ in range(8):
        limit.succeeded(1.0, 0.1, True)
    assert limit.current == 8


def test_it_does_not_grow_while_slots_are_free():
    limit = AdaptiveLimit(initial=4)
    limit.succeeded(0.0, 0.1, False)
    assert limit.current == 4


def test_one_jam_counts_once():
    limit = AdaptiveLimit(initial=100)
    for now, expected in ((0.0, 70), (COOLDOWN / 2, 70), (COOLDOWN, 49), (1.5 * COOLDOWN, 49), (2 * COOLDOWN, 34)):
        limit.overloaded(now)
        assert limit.current == expected
    assert limit.decreases == 3


@pytest.mark.parametrize(("latency", "expected"), [(LATENCY_TARGET, 11), (LATENCY_TARGET + 0.01, 7)])
def test_a_slow_answer_is_a_sign_of_overload(latency, expected):
    limit = AdaptiveLimit(initial=10)
    limit.succeeded(0.0, latency, True)
    assert limit.current == expected


def test_some_slots_are_left():
    limit = AdaptiveLimit(initial=3, smallest=2)
    for now in range(10):
        limit.overloaded(now)
    assert limit.current == 2


def test_tokens_are_saved_up_and_then_come_one_by_one():
    bucket = TokenBucket(4.0, 2, 100.0)
    assert [bucket.take(100.0) for _ in range(3)] == [0.0, 0.0, 0.25]
    assert bucket.take(100.1) == pytest.approx(0.15)
    assert [bucket.take(100.25), bucket.take(100.25)] == [0.0, 0.25]
    assert [bucket.take(200.0) for _ in range(3)] == [0.0, 0.0, 0.25]


@pytest.mark.parametrize(("qps", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_a_rate_of_nothing_is_refused(qps, burst):
    with pytest.raises(ValueError, match="qps > 0 and burst >= 1"):
        TokenBucket(qps, burst, 0.0)

"""Which pods of a node have a claim that takes something of it."""

import pytest

from koordsched.plugins.dynamicresources.allocatable.consumers import Consumers
from tests.plugins.dynamicresources.allocatable.test_over_the_api import placed
from tests.plugins.harness import Bench
from tests.plugins.objects import pod

KEY = "default", "c"


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def consumers(bench):
    return Consumers(bench.cluster.count_claimed())


def test_a_claim_is_in_use_until_its_last_pod_leaves(bench, consumers):
    first, second = (bench.pod(placed(name, cpu="1")) for name in ("a", "b"))
    for each in (first, second, bench.pod(pod("without"))):
        consumers.pod_added(3, each)
    assert dict(consumers.rows_of(KEY)) == {3: [first.uid, second.uid]}
    consumers.pod_removed(3, first)
    assert dict(consumers.rows_of(KEY)) == {3: [second.uid]}
    consumers.pod_removed(3, second)
    assert dict(consumers.rows_of(KEY)) == {}
    assert not consumers._of


def test_verdicts_on_the_node_stay(bench, consumers):
    there = bench.pod(placed("a", cpu="1"))
    assert consumers.pod_added(3, there) == consumers.facets == 0
    assert consumers.pod_removed(3, there) == 0

"""Quotas that get less than they request although all requests fit: what is kept must say so, too.

Whether everybody gets what it requests is mostly told from sums of requests (`QuotaTree.is_calm_for`). These are the
cases in which sums say too little.
"""

import pytest

from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import World

TREES = ("MultiQuotaTree",)


def min_outside_max():
    """Two mins for one cpu: both are scaled to half; without weight (that is max) no more comes to it."""
    yield node("n", cpu=1)
    yield quota("a", {"memory": 0}, {"cpu": 1}, allow_lent_resource="false")
    yield quota("b", {"cpu": 1}, {"cpu": 1})


def lends_no_more():
    """The same, but that it does not lend comes later."""
    yield node("n", cpu=1)
    yield quota("a", {"memory": 0}, {"cpu": 1})
    yield quota("b", {"cpu": 1}, {"cpu": 1})
    yield quota("a", {"memory": 0}, {"cpu": 1}, allow_lent_resource="false")


def max_without_what_children_request():
    """A parent requests for its child what it has no weight for any more."""
    yield node("n", cpu=10, memory=20)
    yield quota("a", {"cpu": 10, "memory": 10}, is_parent="true")
    yield quota("b", {"memory": 10}, parent="a")
    yield pod("p", {"memory": 5}, "b")
    yield quota("a", {"cpu": 10}, is_parent="true")


def parts_of_a_step_move_to_another_tree():
    """Half a milli-CPU counts as one when shares are worked out."""
    yield node("n", cpu=1)
    yield quota("a", {"cpu": 10}, tree_id="t")
    yield quota("b", {"cpu": 10}, tree_id="t")
    yield pod("half", {"cpu": "500u"}, "a")
    yield pod("rest", {"cpu": "999500u"}, "b")
    yield quota("a", {"cpu": 10})
    yield quota("b", {"cpu": 10})


@pytest.mark.parametrize(
    ("objects", "resource", "expected"),
    [
        (min_outside_max, "cpu", ["500m", "0"]),
        (lends_no_more, "cpu", ["500m", "0"]),
        (max_without_what_children_request, "memory", ["0", None]),
        (parts_of_a_step_move_to_another_tree, "cpu", ["1m", "999m"]),
    ],
)
def test_runtimes(objects, resource, expected):
    world = World(*objects(), gates=TREES)
    assert world.runtime("a", "b", resource=resource) == expected

"""Filters that read columns of an accountant: members count there as they come."""

import numpy as np
import pytest

from koordsched.cluster.accounting import ColumnAccountant
from koordsched.framework.interface import ShapeFilter
from koordsched.framework.status import Code
from koordsched.plugins import IN_TREE
from tests.plugins.coscheduling.topology.test_offers import same_as_one_by_one
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod

SIDES, SEATS = 2, 3


class Seats(ColumnAccountant):
    """Each pod takes a seat on one side of its node, large ones on the left, and two of the others."""

    def __init__(self, cluster):
        self.facets = cluster.table.add_facet()
        self.taken = cluster.table.column(np.int64, width=1)
        self.pods = cluster.table.column(np.int64)
        cluster.add_accountant(self)

    def columns(self):
        return (self.taken, self.pods)

    def amounts(self, pod):
        if pod.shape.requests.get(0) == 0:
            return None
        self.taken.widen(SIDES)
        return (np.array([1, 0]) if pod.shape.requests.get(0) >= 1000 else np.array([0, 2]), 1)


class Seated(ShapeFilter):
    """Refuses nodes without a seat. It stands in for NodeUnschedulable."""

    name = "NodeUnschedulable"

    def __init__(self, args, handle):
        self.books = handle.cluster.shared(self.kind)
        self.facets = self.books.facets
        self.code = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, "no seat")

    def filter_rows(self, shape, table, rows):
        full = self.books.taken.data[rows].max(axis=1) >= SEATS
        return np.where(full, np.int32(self.code), np.int32(0))

    kind = Seats


class OneAfterTheOther(Seats):
    """What it reads is no sum, it says."""

    def sums_decide(self, shape):
        return False


class TriedOneByOne(Seated):
    kind = OneAfterTheOther


@pytest.mark.parametrize("plugin", [Seated, TriedOneByOne])
@pytest.mark.parametrize(
    ("cpus", "fit"), [(["1"] * 5, 3), (["1m"] * 5, 2), (["1", "1m", "1", "1m", "1"], 4), ([None] * 5, 5)]
)
def test_members_take_seats(plugin, cpus, fit):
    offline = scheduler(
        [node("n1"), node("n2"), pod("p", container(cpu="1"), on="n2")],
        registry={**IN_TREE, "NodeUnschedulable": plugin},
    )
    pods = [offline.add(pod(f"m{at}", container(cpu=cpu))) for at, cpu in enumerate(cpus)]
    assert same_as_one_by_one(offline, pods, np.array([0, 1]))[0] == fit

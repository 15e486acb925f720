"""Pods with thousands of everything: the work grows with what they list, not with its square."""

from random import Random

import numpy as np
import pytest

from koordsched.framework.interface import Cycle
from koordsched.framework.status import ReasonTable
from koordsched.plugins.noderesourcesfit.insufficiency import Insufficiency
from koordsched.plugins.podcounts.topology import Topology
from tests.plugins.harness import Bench, scheduler
from tests.plugins.objects import node, pod


@pytest.mark.parametrize("resources", [1, 60, 61, 62, 63, 64, 300])
def test_shortages_of_any_number_of_resources_row_by_row_and_all_at_once(resources):
    """Around the widths at which patterns stop to fit an integer of 64 bits."""
    rng = Random(resources)
    names = [f"ex.com/r{i}" for i in range(resources)]
    bench = Bench(
        *(
            node(f"n{i}", pods=str(rng.choice([0, 110])), **{name: str(rng.randrange(4)) for name in names})
            for i in range(20)
        )
    )
    table = bench.cluster.table
    known = table.resource_names
    asked = tuple((known.intern(name), rng.randrange(1, 4)) for name in names)
    reasons = ReasonTable()
    insufficiency = Insufficiency("Fit", asked, known.names, reasons)
    codes = insufficiency.of_rows(table, table.all_rows)
    assert codes.tolist() == [insufficiency.of_row(table, row) for row in range(table.size)]
    for name, row in table.row_of.items():
        lacking = {f"Insufficient {known.names[i]}" for i, amount in asked if table.allocatable[i].data[row] < amount}
        if not table.pods_allocatable.data[row]:
            lacking.add("Too many pods")
        assert set(reasons[int(codes[row])].texts) == lacking, name


@pytest.mark.parametrize("resources", [1, 62, 300])
def test_nothing_is_short(resources):
    names = [f"ex.com/r{i}" for i in range(resources)]
    table = Bench(*(node(f"n{i}", **dict.fromkeys(names, "3")) for i in range(3))).cluster.table
    known = table.resource_names
    insufficiency = Insufficiency("Fit", tuple((known.intern(n), 3) for n in names), known.names, ReasonTable())
    assert insufficiency.of_rows(table, table.all_rows) is None


def test_nodes_that_constraints_look_at_are_determined_once_for_all_of_them(monkeypatch):
    asked = []
    eligible = Topology.eligible

    def counting(self, keys, shape, **policies):
        asked.append(len(keys))
        return eligible(self, keys, shape, **policies)

    monkeypatch.setattr(Topology, "eligible", counting)
    labels = {f"k{i}": "v" for i in range(50)}
    constraints = [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {}, "nodeTaintsPolicy": taints}
        for key in labels
        for when, taints in (("DoNotSchedule", "Honor"), ("ScheduleAnyway", "Ignore"))
    ]
    offline = scheduler([node("n1", labels=labels), node("n2"), pod("p", topologySpreadConstraints=constraints)])
    verdicts = offline.profiles["default-scheduler"].filtering.filter(Cycle(offline.pending["default/p"]))
    assert asked == [50, 50]
    assert np.count_nonzero(verdicts.codes == 0) == 1

"""Groups of rows, and capacities by row, follow nodes that are replaced and topologies that come and go."""

from random import Random

import numpy as np
import pytest

from koordsched.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordsched.api.decoding import convert
from koordsched.api.storage import CSIStorageCapacity
from koordsched.cluster.builtinkinds import CSI_STORAGE_CAPACITIES
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.objects import Objects
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors
from koordsched.plugins.volumebinding.capacity import NOTHING, StorageCapacities
from koordsched.plugins.volumebinding.rowgroups import RowGroups
from tests.cluster.objects import wire_node
from tests.plugins.volumes.objects import capacity

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def selector(key, operator, *values):
    return NodeSelector((NodeSelectorTerm((NodeSelectorRequirement(key, operator, values),)),))


def partition(groups):
    """Which rows are together, and which selectors select them."""
    selecting = [frozenset() for _ in range(groups.count)]
    for group, number in zip(*(array.tolist() for array in groups.matches), strict=True):
        selecting[group] |= {number}
    return [selecting[group] for group in groups.of_row.tolist()]


@pytest.mark.parametrize("seed", range(6))
def test_groups_of_replaced_nodes_are_those_of_a_new_table(seed):
    rng = Random(seed)
    table, serial = NodeTable(), 0
    kept = RowGroups(table, NodeSelectors())
    selectors = []
    for step in range(60):
        action = rng.random()
        if action < 0.25 or table.count < 3:
            serial += 1
            table.add(wire_node(f"n{serial}", labels={ZONE: rng.choice("abc")}))
        elif action < 0.75:
            table.remove(rng.choice(sorted(table.row_of)))
            serial += 1
            table.add(wire_node(f"n{serial}", labels={ZONE: f"z{serial % 5}"}))
        else:
            key = rng.choice((HOSTNAME, ZONE))
            values = [f"n{rng.randint(1, serial)}", rng.choice("abc"), f"z{serial % 5}"]
            selectors.append(selector(key, rng.choice(("In", "In", "NotIn")), *rng.sample(values, 2)))
            assert kept.add(selectors[-1]) == selectors.index(selectors[-1])
        if step % 3 == 0 and selectors:
            fresh = RowGroups(table, NodeSelectors())
            for each in dict.fromkeys(selectors):
                fresh.add(each)
            kept.refresh()
            fresh.refresh()
            assert partition(kept) == partition(fresh)
            nobody = [row for row in range(table.size) if row not in table.row_of.values()]
            assert len({partition(kept)[row] for row in nobody}) <= 1


def test_topologies_of_nodes_that_are_gone_are_forgotten():
    table = NodeTable()
    store = Objects().of(CSI_STORAGE_CAPACITIES)
    capacities = StorageCapacities(table, store)

    def local(i):
        topology = {"matchLabels": {HOSTNAME: f"n{i}"}}
        return convert(capacity(f"c{i}", "local", topology, capacity=f"{i + 1}"), CSIStorageCapacity)

    def limits():
        by_row = capacities.by_row("local")
        return {name: int(by_row[row]) for name, row in table.row_of.items()}

    store.upsert(convert(capacity("anywhere", "local", {}, capacity="3"), CSIStorageCapacity))
    for i in range(1000):
        table.add(wire_node(f"n{i}"))
        store.upsert(local(i))
        if i >= 5:
            table.remove(f"n{i - 5}")
            store.delete("kube-system", f"c{i - 5}")
        if i % 50 == 0:
            assert limits() == {f"n{j}": max(3, j + 1) for j in range(max(0, i - 4), i + 1)}
    groups = capacities._classes["local"]._groups
    assert len(groups) <= 2 * 6 + 64
    store.delete("kube-system", "anywhere")
    store.delete("kube-system", "c999")
    assert limits() == {**{f"n{j}": j + 1 for j in range(995, 999)}, "n999": NOTHING}
    store.delete("kube-system", "c998")
    assert limits() == {**{f"n{j}": j + 1 for j in range(995, 998)}, "n998": NOTHING, "n999": NOTHING}
    assert np.all(capacities.by_row("remote") == NOTHING)

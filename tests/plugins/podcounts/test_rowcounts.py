"""Counts per domain while pods come and go, against adding up anew."""

from random import Random

import numpy as np
import pytest

from koordsched.plugins.shared.podcounts.rowcounts import _MAX_DOMAINS, RowCounts
from koordsched.plugins.shared.podcounts.topology import Topology
from tests.plugins.harness import Bench
from tests.plugins.objects import node

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def counting(*nodes):
    topology = Topology(Bench(*nodes).cluster)
    topology.refresh()
    return topology, RowCounts(topology)


@pytest.mark.parametrize("zones", ["", "a", "aab", "aabbc", "abcdef"])
def test_sums_and_dry_runs_follow_the_pods(zones):
    rng = Random(zones)
    topology, counts = counting(node("nowhere"), *(node(f"n{i}", labels={ZONE: zone}) for i, zone in enumerate(zones)))
    zone_of = [None, *zones]
    pods, rows = [0] * len(zone_of), np.arange(len(zone_of))
    ids = topology.table.label_column(ZONE).ids.data.take(rows)
    domains = counts.domains(ZONE, topology.everywhere)
    for _ in range(300):
        row = rng.randrange(len(pods))
        change = rng.choice((-1, 1, 2)) if pods[row] else 1
        pods[row] += change
        counts.add(row, change)
        sums = {zone: sum(n for n, of in zip(pods, zone_of, strict=True) if of == zone) for zone in zones}
        if rng.random() < 0.5:
            assert domains.lowest == min(sums.values(), default=0)
        if rng.random() < 0.5:
            changes = np.array([rng.randint(-count, 2) for count in pods])
            own, lowest = domains.in_dry_runs(ids, rows, changes)
            for there, zone in enumerate(zone_of):
                after = {key: sums[key] + (int(changes[there]) if key == zone else 0) for key in sums}
                assert lowest[there] == min(after.values(), default=0)
                assert zone is None or own[there] == after[zone]


def test_sums_by_few_label_keys_are_kept():
    topology, counts = counting(node("n1"), node("n2"))
    counts.domains(HOSTNAME, topology.everywhere)
    sizes = []
    for i in range(3 * _MAX_DOMAINS):
        counts.domains(f"k{i}", topology.everywhere)
        sizes.append(counts.nbytes)
    assert max(sizes) == sizes[_MAX_DOMAINS - 2]
    counts.add(1, 3)
    domains = counts.domains(HOSTNAME, topology.everywhere)
    assert domains.counts.take(domains.present).tolist() == [0, 3]

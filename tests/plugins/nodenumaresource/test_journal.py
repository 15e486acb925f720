"""Decisions about CPUs and NUMA nodes are the same wherever they are made: live, replayed, from a snapshot."""

from functools import partial
from random import Random

import pytest

from tests.depth import quick_first
from tests.journal.busycluster import BusyCluster, check_replays, check_snapshots
from tests.plugins.nodenumaresource.cluster import NAME, configuration, row_state
from tests.plugins.nodenumaresource.naivemachine import SCHEDULING
from tests.plugins.nodenumaresource.randomstates import HINT, Draw

NODES = ("m0", "m1", "m2", "m3")
FREE = ("cpu", "memory")
"""Of anything else there must be a limit."""


class Busy(BusyCluster):
    """Nodes with NodeResourceTopologies."""

    PLUGIN = NAME
    KINDS = {"Node": "v1", "NodeResourceTopology": "topology.node.k8s.io/v1alpha1"}
    ALLOCATION, FOREIGN = f"{SCHEDULING}resource-status", '{"cpuset":"0,3"}'
    QUIET, LOSS = 2, 0.03

    def __init__(self, seed):
        super().__init__()
        self.rng = Random(seed)
        self.draw = Draw(self.rng, 0, 0)
        self.args = self.draw.args()
        for name in NODES:
            self.machine(name)

    def configuration(self):
        return configuration(self.args)

    def machine(self, name=None):
        """A node and its report, in any order."""
        node, report, _ = self.draw.node(name or self.rng.choice(NODES))
        things = [node, *([report] if report is not None else [])]
        for thing in self.rng.sample(things, len(things)):
            self.put(thing)

    def drawn_pod(self, name):
        pod = self.draw.pod(name, Random(self.rng.random()))
        pod["metadata"]["annotations"].pop(HINT, None)
        resources = pod["spec"]["containers"][0]["resources"]
        resources["limits"] = {name: text for name, text in resources["requests"].items() if name not in FREE}
        return pod


@pytest.mark.parametrize("seed", quick_first([1, 2, 3, 4], 1))
def test_a_journal_is_replayed_equal(seed):
    check_replays(partial(Busy, seed), row_state)


@pytest.mark.parametrize("seed", [5, 6])
def test_a_snapshot_is_explained_as_the_live_scheduler_would(seed):
    check_snapshots(partial(Busy, seed), row_state)

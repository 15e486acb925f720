"""Decisions about devices are the same wherever they are made: live, replayed, from a snapshot."""

from functools import partial
from random import Random

import pytest

from tests.depth import quick_first
from tests.journal.busycluster import PROFILE, BusyCluster, check_replays, check_snapshots
from tests.plugins.deviceshare.columns import row_state
from tests.plugins.deviceshare.naive.request import ALLOCATED, SCHEDULING_HINTS
from tests.plugins.deviceshare.randomstates import Draw
from tests.plugins.deviceshare.world import DEVICES, configuration, profile

NODES = ("n0", "n1", "n2", "n3")


class Busy(BusyCluster, Draw):
    """Nodes with Devices."""

    PLUGIN = DEVICES
    KINDS = {"Node": "v1", "Device": "scheduling.koordinator.sh/v1alpha1"}
    ALLOCATION = ALLOCATED
    FOREIGN = '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory-ratio":"40"}}]}'

    def __init__(self, seed, lost=("Node", "Device", "Device"), priorities=(0, 0, 10)):
        """`priorities`: of pods."""
        BusyCluster.__init__(self)
        self.lost, self.priorities = lost, priorities
        Draw.__init__(self, Random(seed), 0, 0, odd=True)
        for name in NODES:
            self.node(name)

    def fill(self, name, device):
        """Pods come by themselves."""

    def configuration(self):
        return configuration(profile(self.state.args, {}, name=PROFILE))

    def machine(self):
        self.node(self.rng.choice(NODES))

    def drawn_pod(self, name):
        pod = self.pod(name, self.rng.choice(self.priorities))
        for key in SCHEDULING_HINTS:
            pod["metadata"]["annotations"].pop(key, None)
        return pod


@pytest.mark.parametrize("seed", quick_first([3, 1, 2, 4, 5, 6], 2))
def test_a_journal_is_replayed_equal(seed):
    check_replays(partial(Busy, seed), row_state)


@pytest.mark.parametrize("seed", [7, 8])
def test_a_snapshot_is_explained_as_the_live_scheduler_would(seed):
    """Of Devices that are gone there is nothing in a snapshot, as after a restart; nor of nominations that are not
    written yet."""
    check_snapshots(partial(Busy, seed, lost=["Node"], priorities=[0]), row_state)

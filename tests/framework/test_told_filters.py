"""A filter that keeps a count of its own: it hears of each hypothetical pod that comes, and of each that goes."""

from random import Random

import numpy as np

from koordsched.framework.interface import PodFilter, PreFilter
from koordsched.framework.status import PASS, SUCCESS, Code
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG
from tests.extraplugins import registry_with, resolved_with
from tests.framework.test_overlay import Lens
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import node, pod


class Census(PreFilter, PodFilter):
    """Refuses nodes with a pod, as PreFilter has counted them."""

    name = "Census"

    def __init__(self, args, handle):
        self.cluster = handle.cluster
        self.code = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, "taken")

    def pre_filter(self, cycle, pod):
        table = self.cluster.table
        cycle.state[self] = {name: table.pods_count.data.item(row) for name, row in table.row_of.items()}
        return SUCCESS

    def filter(self, cycle, pod, table, rows):
        counted = cycle.state[self]
        return np.array([self.code if counted[table.names[row]] else PASS for row in rows.tolist()], dtype=np.int32)

    def add_pod(self, cycle, pod, other, row):
        cycle.state[self][self.cluster.table.names[row]] += 1

    def remove_pod(self, cycle, pod, other, row):
        cycle.state[self][self.cluster.table.names[row]] -= 1


def attempted(*objects, away=()):
    """(the scheduler, the cycle, the nodes that `p` fits)."""
    plugins = [Lens, Census]
    resolved = resolved_with(DEFAULT_CONFIG, plugins)
    offline = OfflineScheduler(resolved, registry_with(plugins), objects, clock=StoppedClock(), rng=Random(7))
    profile = offline.profiles["default-scheduler"]
    profile.plugins["Lens"].away = away
    attempt = offline.attempt("default/p")
    attempt.filter()
    feasible = {offline.cluster.table.names[row] for row in attempt.verdicts.rows.tolist()}
    return profile, attempt.cycle, feasible


NODES = (node("a"), node("b"))


def test_pods_that_are_nominated_count():
    promised = pod("promised", priority=9, schedulingGates=[{"name": "g"}])
    promised["status"]["nominatedNodeName"] = "b"
    profile, cycle, feasible = attempted(*NODES, promised, pod("p"))
    assert feasible == {"a"}
    assert cycle.state[profile.plugins["Census"]] == {"a": 0, "b": 0}


def test_pods_that_are_away_for_one_pod_count_beside_what_it_has_read_differently():
    profile, cycle, feasible = attempted(*NODES, pod("there", on="a"), pod("p"), away=("default/there",))
    assert feasible == {"a", "b"}
    counted = cycle.state[profile.plugins["Census"]]
    assert counted == {"a": 1, "b": 0}
    with profile.filtering.overlaid(cycle):
        assert counted == {"a": 0, "b": 0}
    assert counted == {"a": 1, "b": 0}

"""PreFilter and Filter: which plugins are asked about which nodes, and which pods count there."""

from random import Random

import numpy as np
import pytest

from koordsched.framework.interface import PodFilter, PreFilter
from koordsched.framework.overlay import Overlay
from koordsched.framework.status import SKIP, SUCCESS, Code
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG
from tests.extraplugins import registry_with, resolved_with
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term

NODES = (node("a"), node("b"), node("c"))


class Stern(PreFilter, PodFilter):
    """Refuses every node to pods that its PreFilter, which answers as told, does not skip."""

    name = "Stern"

    def __init__(self, args, handle):
        self.answer = SUCCESS
        self.code = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, "no")

    def pre_filter(self, cycle, pod):
        return self.answer

    def filter(self, cycle, pod, table, rows):
        return np.full(len(rows), self.code, dtype=np.int32)


class Lender(PreFilter, PodFilter):
    """Has the nodes `a` and `b` read as empty, in one overlay for all cycles.

    `prepared`: how often its PreFilter was asked; `read`: by call of its Filter, which nodes read that way.
    """

    name = "Lender"

    def __init__(self, args, handle):
        self.cluster = handle.cluster
        self.overlay = Overlay(self.name)
        self.overlay.lasting = True
        self.prepared, self.read = 0, []

    def pre_filter(self, cycle, pod):
        self.prepared += 1
        if not self.overlay:
            for other in self.cluster.assigned.values():
                self.overlay.without(other.row, other)
        cycle.overlay = self.overlay.added_to(cycle.overlay)
        return SUCCESS

    def filter(self, cycle, pod, table, rows):
        self.read.append([table.names[row] for row in self.overlay.rows.tolist() if self.overlay.covers(row)])
        return None


def offline_with(plugins, *objects):
    resolved = resolved_with(DEFAULT_CONFIG, plugins)
    return OfflineScheduler(resolved, registry_with(plugins), objects, clock=StoppedClock(), rng=Random(7))


def fitting(offline):
    """The names of the nodes that `p` fits."""
    verdicts = offline.attempt("default/p").filter()
    return [offline.cluster.table.names[row] for row in verdicts.rows.tolist()]


@pytest.mark.parametrize(("answer", "names"), [(SUCCESS, []), (SKIP, ["a", "b", "c"])])
def test_a_filter_is_not_asked_about_a_pod_that_its_pre_filter_skips(answer, names):
    offline = offline_with([Stern], *NODES, pod("p"))
    offline.profiles["default-scheduler"].plugins["Stern"].answer = answer
    assert fitting(offline) == names


def test_of_a_lasting_overlay_only_rows_that_changed_are_applied_again():
    full = [pod(f"full-{name}", container(cpu="4"), on=name) for name in ("a", "b")]
    offline = offline_with([Lender], *NODES, *full, pod("p", container(cpu="3")), pod("more", container(cpu="2")))
    lender = offline.profiles["default-scheduler"].plugins["Lender"]
    assert fitting(offline) == fitting(offline) == ["a", "b", "c"]
    assert lender.read == [["a", "b"], []]
    offline.place("default/more", "b")
    lender.read.clear()
    assert fitting(offline) == ["a", "c"]
    assert lender.read == [["b"]]


def test_where_none_but_the_plugin_of_an_overlay_filters_pre_filter_is_asked_once():
    offline = offline_with([Lender], *NODES, pod("full", container(cpu="4"), on="a"), pod("p", container(cpu="3")))
    assert fitting(offline) == ["a", "b", "c"]
    assert offline.profiles["default-scheduler"].plugins["Lender"].prepared == 1


def test_the_disks_of_nominated_pods_are_taken():
    disk = [{"name": "data", "gcePersistentDisk": {"pdName": "disk"}}]
    promised = pod("promised", priority=9, schedulingGates=[{"name": "g"}], volumes=disk)
    promised["status"]["nominatedNodeName"] = "b"
    offline = offline_with([], *NODES, promised, pod("p", volumes=disk))
    assert fitting(offline) == ["a", "c"]


def test_a_node_that_fits_only_with_its_nominated_pods_is_refused_until_they_are_there():
    promised = pod("promised", priority=9, schedulingGates=[{"name": "g"}], labels={"app": "db"})
    promised["status"]["nominatedNodeName"] = "b"
    company = pod_affinity(required=[pod_term("kubernetes.io/hostname", {"app": "db"})])
    offline = offline_with([], *NODES, promised, pod("p", affinity=company))
    assert fitting(offline) == []
    offline.place("default/promised", "b")
    assert fitting(offline) == ["b"]

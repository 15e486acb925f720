"""Rows that read differently for one pod: everything about them is as in a cluster in which the difference is real."""

from random import Random

import numpy as np
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.resources import CPU
from koordsched.cluster.state import ClusterState
from koordsched.framework.interface import CycleState, PodFilter, PreFilter
from koordsched.framework.overlay import Overlay
from koordsched.framework.status import SUCCESS
from koordsched.plugins.noderesourcesfit.plugin import NodeResourcesFit
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG
from tests.extraplugins import registry_with, resolved_with
from tests.parity.fresh import fresh_seeds
from tests.plugins.harness import StoppedClock, totals
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term, spread
from tests.reference.randomstate import RandomState

HOST, ZONE = "kubernetes.io/hostname", "zone"


class Lens(PreFilter, PodFilter):
    """Overlays what a test says: for pods named `p`, takes some pods away and puts others on nodes."""

    name = "Lens"

    def __init__(self, args, handle):
        self.cluster = handle.cluster
        self.away, self.there = (), ()

    def pre_filter(self, cycle, pod):
        if pod.name == "p":
            for other in [*self.cluster.assigned.values()]:
                if other.key in self.away:
                    cycle.overlaid().without(other.row, other)
            for thing in self.there:
                other = self.cluster.pods.build(convert(thing, core.Pod))
                cycle.overlaid().with_pod(self.cluster.table.row_of[other.node], other)
        return SUCCESS

    def filter(self, cycle, pod, table, rows):
        return None


def offline_with(objects, away=(), there=()):
    registry = registry_with([Lens])
    offline = OfflineScheduler(
        resolved_with(DEFAULT_CONFIG, [Lens]), registry, objects, clock=StoppedClock(), rng=Random(7)
    )
    lens = offline.profiles["default-scheduler"].plugins["Lens"]
    lens.away, lens.there = away, there
    return offline


def key(thing):
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"


def made_real(objects, away, there):
    return [thing for thing in objects if thing["kind"] != "Pod" or key(thing) not in away] + list(there)


def compared(objects, wanted, away=(), there=()):
    """The explanation with the overlay, which is that of a cluster in which it is real."""
    overlaid = offline_with([*objects, wanted], away, there)
    real = offline_with([*made_real(objects, away, there), wanted])
    found, expected = overlaid.explain(key(wanted)), real.explain(key(wanted))
    assert found == expected
    return overlaid, found


def feasible(explanation):
    return [each.name for each in explanation.nodes if each.feasible]


def test_the_covered_rows_are_asked_again_and_the_others_are_not(monkeypatch):
    asked = []
    original = NodeResourcesFit.filter_rows

    def counting(self, shape, table, rows):
        asked.append(rows)
        return original(self, shape, table, rows)

    monkeypatch.setattr(NodeResourcesFit, "filter_rows", counting)
    full = pod("full", container(cpu="4"), on="alder")
    offline = offline_with([node("alder"), node("beech"), node("cedar"), full, pod("q", container(cpu="3"))])
    offline.add(pod("p", container(cpu="3")))
    offline.profiles["default-scheduler"].plugins["Lens"].away = ("default/full",)
    plain = offline.explain("default/q")
    assert feasible(plain) == ["beech", "cedar"]
    asked.clear()
    assert feasible(offline.explain("default/p")) == ["alder", "beech", "cedar"]
    row = offline.cluster.table.row_of["alder"]
    assert asked == [slice(row, row + 1)]
    asked.clear()
    # Nothing of it is kept: a pod of the same shape finds what was found before, and asks about no row.
    assert offline.explain("default/q").nodes == plain.nodes
    assert asked == []


def test_pods_that_are_there_take_room_and_scores():
    objects = [node("alder"), node("beech"), node("cedar", cpu="8")]
    there = [pod("big", container(cpu="3"), on="beech"), pod("small", container(cpu="1"), on="cedar")]
    _, found = compared(objects, pod("p", container(cpu="2")), there=there)
    assert feasible(found) == ["alder", "cedar"]
    assert len(totals(found)) == 2


def test_topology_spread_and_affinity_see_it():
    nodes = [node(f"n{i}", labels={ZONE: f"z{i % 2}"}) for i in range(4)]
    web = {"app": "web"}
    on = [pod(f"w{i}", container(cpu="1"), on=f"n{i}", labels=web) for i in (0, 1)]
    wanted = pod("p", container(cpu="1"), labels=web, topologySpreadConstraints=[spread(ZONE, 1, web)])
    _, found = compared([*nodes, *on], wanted, away=("default/w0",))
    assert feasible(found) == ["n0", "n2"]
    wanted = pod("p", container(cpu="1"), affinity=pod_affinity(required_anti=[pod_term(ZONE, web)]))
    _, found = compared([*nodes, *on], wanted, away=("default/w0",))
    assert feasible(found) == ["n0", "n2"]
    wanted = pod("p", container(cpu="1"), affinity=pod_affinity(required=[pod_term(HOST, web)]))
    there = [pod("w3", container(cpu="1"), on="n3", labels=web)]
    _, found = compared([*nodes, *on], wanted, away=("default/w0",), there=there)
    assert feasible(found) == ["n1", "n3"]


@pytest.mark.parametrize("affinity", [None, pod_affinity(required_anti=[pod_term(HOST, {"app": "web"})])])
def test_nominated_pods_count_on_covered_rows(affinity):
    full = pod("full", container(cpu="4"), on="alder")
    promised = pod("promised", container(cpu="2"), priority=10, labels={"app": "db"})
    promised["status"]["nominatedNodeName"] = "alder"
    more = {"affinity": affinity} if affinity else {}
    objects = [node("alder"), node("beech", cpu="1"), full, promised]
    wanted = pod("p", container(cpu="3"), priority=5, preemptionPolicy="Never", **more)
    _, found = compared(objects, wanted, away=("default/full",))
    assert feasible(found) == []
    small = pod("p", container(cpu="2"), priority=5, **more)
    _, found = compared(objects, small, away=("default/full",))
    assert feasible(found) == ["alder"]


@pytest.mark.parametrize("affinity", [None, pod_affinity(required_anti=[pod_term(HOST, {"app": "db"})])])
def test_a_pod_that_is_away_is_no_victim(affinity):
    label = {"app": "db"} if affinity else {}
    placed = [pod(f"v{i}", container(cpu="2"), on="alder", priority=i, labels=label) for i in (0, 1)]
    more = {"affinity": affinity} if affinity else {}
    wanted = pod("p", container(cpu="4"), priority=100, **more)
    _, found = compared([node("alder"), *placed], wanted, away=("default/v0",))
    assert (found.nominated_node, found.victims) == ("alder", ["default/v1"])
    # Where all lower pods are away, none can leave.
    placed.append(pod("kept", container(cpu="1"), on="alder", priority=100))
    _, found = compared([node("alder"), *placed], wanted, away=("default/v0", "default/v1"))
    assert found.victims == []
    assert "No preemption victims found" in found.message


def test_preemption_counts_what_is_there():
    placed = [pod(f"v{i}", container(cpu="1"), on="alder", priority=i) for i in range(4)]
    there = [pod("kept", container(cpu="2"), on="beech", priority=200)]
    placed.append(pod("w", container(cpu="4"), on="beech"))
    objects = [node("alder"), node("beech", cpu="6"), *placed]
    _, found = compared(objects, pod("p", container(cpu="3"), priority=100), there=there)
    assert found.victims == ["default/w"]


def test_the_table_reads_as_before():
    full = pod("full", container(cpu="4"), on="alder")
    offline = offline_with([node("alder"), full, pod("p", container(cpu="5"), priority=1)], ("default/full",))
    table = offline.cluster.table
    before = [column.data[: table.size].copy() for column in table.requested]
    offline.explain("default/p")
    assert table.hypothetical == 0
    assert all((column.data[: table.size] == b).all() for column, b in zip(table.requested, before, strict=True))


def test_the_node_is_chosen_as_if_it_were_real():
    company = pod_affinity(preferred=[(100, pod_term(HOST, {"app": "web"}))])
    names = [f"n{i}" for i in range(8)]
    web = [pod(name, container(cpu="1"), on=on, labels={"app": "web"}) for name, on in (("old", "n0"), ("new", "n5"))]
    wanted = pod("p", container(cpu="1"), affinity=company)
    offline = offline_with([*map(node, names), web[0], wanted], ["default/old"], [web[1]])
    assert offline.schedule("default/p").node == "n5"


@pytest.mark.parametrize("rows", [1, 9])
def test_a_pod_that_is_alike_finds_scores_and_verdicts_as_they_were(rows):
    nodes = [node(f"n{i}", cpu=str(8 + i)) for i in range(12)]
    there = [pod(f"v{i}", container(cpu="7" if i % 2 else "2"), on=f"n{i}") for i in range(12)]
    offline = offline_with([*nodes, *there, *(pod(name, container(cpu="2")) for name in "pq")])
    before = offline.explain("default/q")
    offline.profiles["default-scheduler"].plugins["Lens"].away = [f"default/v{i}" for i in range(rows)]
    assert offline.explain("default/p").nodes != before.nodes
    assert offline.explain("default/q") == before


@pytest.mark.parametrize("seed", fresh_seeds("overlays", 60))
def test_random_differences(seed):
    rng = Random(seed)
    state = RandomState(rng, ("default",))
    names = [f"n{i}" for i in range(rng.randint(2, 8))]
    placed = [state.pod(f"e{i}", on=rng.choice(names)) for i in range(3 * len(names))]
    objects = [*(state.node(name) for name in names), *placed]
    away = tuple(key(thing) for thing in rng.sample(placed, rng.randint(0, 6)))
    there = [state.pod(f"t{i}", on=rng.choice(names)) for i in range(rng.randint(0, 4))]
    for thing in there:
        thing["spec"]["priority"] = 1000  # pods that are not real cannot be evicted
        thing["metadata"].pop("deletionTimestamp", None)
    for i in range(rng.randint(0, 2)):
        promised = state.pod(f"nominated{i}")
        promised["status"]["nominatedNodeName"] = rng.choice(names)
        objects.append(promised)
    wanted = state.pod("p")
    wanted["spec"]["priority"] = rng.choice([0, 20])
    compared(objects, wanted, away, there)


class Ledger:
    """A filter that notes which pods it is told of."""

    def __init__(self):
        self.told = []

    def add_pod(self, cycle, pod, other, row):
        self.told.append(("add", other.name, row))

    def remove_pod(self, cycle, pod, other, row):
        self.told.append(("remove", other.name, row))


def test_filters_are_told_of_every_difference_and_of_its_end():
    offline = offline_with([node("a"), node("b"), pod("there", container(cpu="1"), on="a")])
    cluster, ledger = offline.cluster, Ledger()
    own, coming = (cluster.pods.build(convert(pod(name, container(cpu="2")), core.Pod)) for name in ("own", "coming"))
    (there,) = cluster.assigned.values()
    cycle, overlay = CycleState(own), Overlay()
    overlay.without(0, there)
    overlay.with_pod(1, coming)
    assert (overlay.away(0), overlay.away(1), overlay.rows.tolist()) == ({there.uid}, set(), [0, 1])
    begin = [("remove", "there", 0), ("add", "coming", 1)]
    end = [("remove", "coming", 1), ("add", "there", 0)]
    assert not overlay.active
    with overlay.applied(cluster, cycle, [ledger]):
        assert overlay.active
        assert ledger.told == begin
        assert cluster.table.requested[CPU].data[:2].tolist() == [0, 2000]
    assert ledger.told == begin + end
    assert not overlay.active
    assert overlay.facets.keys() == {0, 1}
    assert all(overlay.facets.values())
    assert cluster.table.requested[CPU].data[:2].tolist() == [1000, 0]
    ledger.told.clear()
    overlay.take_back(cycle, [ledger])
    assert ledger.told == [("add", "there", 0), ("remove", "coming", 1)]
    for row, requested in ((0, [0, 0]), (1, [1000, 2000])):
        with overlay.on_row(row, cluster):
            assert overlay.active
            assert cluster.table.requested[CPU].data[:2].tolist() == requested
        assert not overlay.active
        assert cluster.table.requested[CPU].data[:2].tolist() == [1000, 0]


def test_an_overlay_is_disturbed_by_a_what_if_that_is_not_its_own():
    offline = offline_with([node("a"), pod("there", container(cpu="1"), on="a")])
    cluster = offline.cluster
    (there,) = cluster.assigned.values()
    overlay = Overlay()
    overlay.without(0, there)
    with overlay.applied(cluster, CycleState(there)):
        assert overlay.undisturbed(cluster)
        with cluster.what_if():
            assert not overlay.undisturbed(cluster)
        assert overlay.undisturbed(cluster)
    with cluster.what_if():
        assert not overlay.undisturbed(cluster)


def test_numbers_of_rows_follow_when_rows_come_and_go():
    cluster = ClusterState()
    one, other = (cluster.pods.build(convert(pod(name), core.Pod)) for name in "ab")
    overlay = Overlay()
    overlay.without(3, one)
    overlay.with_pod(7, one)
    kept, wide = overlay.column(np.int64), overlay.column(np.int32, width=2)
    kept.data[:], wide.data[:] = [30, 70], [[3, 33], [7, 77]]

    def numbers():
        return overlay.rows.tolist(), kept.data.tolist(), wide.data.tolist()

    overlay.without(5, one)
    overlay.without(1, one)
    assert numbers() == ([1, 3, 5, 7], [0, 30, 0, 70], [[0, 0], [3, 33], [0, 0], [7, 77]])
    overlay.without(5, other)
    overlay.renew(7, [other])
    assert numbers()[0] == [1, 3, 5, 7]
    assert overlay.away(5) == {one.uid, other.uid}
    assert overlay.away(7) == {other.uid}
    overlay.renew(3, [])
    overlay.renew(9, [one])
    assert numbers() == ([1, 5, 7, 9], [0, 0, 70, 0], [[0, 0], [0, 0], [7, 77], [0, 0]])
    overlay.renew(2, [])
    assert numbers()[0] == [1, 5, 7, 9]

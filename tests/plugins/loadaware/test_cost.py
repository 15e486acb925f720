"""What loads cost, counted: a report concerns one row, a pod concerns itself."""

import pytest

from koordsched.framework.interface import CycleState
from tests.plugins.loadaware.objects import measured, metric, node, pod
from tests.plugins.loadaware.world import NOW, World
from tests.steps import counted

SMALL = {"cpu": "10m", "memory": "1Mi"}


def a_cluster(nodes, pods_each=0, own=None):
    """Nodes with reports, and pods on them that are measured; `own`: how many on `mine`, the last node."""
    world = World()
    for i in range(nodes):
        world.put(node(f"n{i}"))
    world.put(node("mine"))
    for name in (*(f"n{i}" for i in range(nodes)), "mine"):
        names = [f"{name}-p{i}" for i in range(pods_each if own is None or name != "mine" else own)]
        for each in names:
            world.put(pod(each, SMALL, on=name, placed=NOW - 600))
        world.put(metric(name, ("10", "1Gi"), at=NOW, pods=[measured(each, "10m", "1Mi") for each in names]))
    return world


def steps_of(action):
    with counted() as steps:
        action()
    return steps.count


def report(world):
    return steps_of(lambda: world.put(metric("mine", ("20", "1Gi"), at=NOW + 1)))


def placing(world):
    own = world.pod(pod("new", SMALL))
    row = world.table.row_of["mine"]
    return steps_of(lambda: world.cluster.assume(own, row))


def removing_node(world):
    return steps_of(lambda: world.cluster.remove_node("mine"))


def expiry(world):
    world.put(metric("mine", ("20", "1Gi"), at=NOW - 100))
    return steps_of(lambda: world.pass_time(100))


@pytest.mark.parametrize("action", [report, placing, removing_node, expiry])
def test_the_number_of_nodes_and_of_pods_on_others_makes_no_difference(action):
    small, large = a_cluster(3, 1, own=10), a_cluster(60, 10, own=10)
    action(a_cluster(1, own=10))  # what is computed once for the whole process
    assert action(large) == action(small)


def test_placing_a_pod_looks_at_no_other_pod():
    """Nor at those on its node, unless thresholds or scores of production make all of them count."""
    steps = {count: placing(a_cluster(2, count)) for count in (1, 50)}
    assert steps[1] == steps[50]


def test_a_report_touches_one_row_in_one_facet():
    world = a_cluster(5, 3)
    log, facet = world.table.log, world.columns.facet
    before, serial = {row: log.stamp(row, facet) for row in range(6)}, log.serial
    world.put(metric("n3", ("30", "1Gi"), at=NOW + 5))
    changed = {row for row in range(6) if log.stamp(row, facet) != before[row]}
    assert (changed, log.serial) == ({world.table.row_of["n3"]}, serial + 1)


def test_a_report_of_the_same_touches_none():
    world = a_cluster(5, 3)
    serial = world.table.log.serial
    names = [f"n3-p{i}" for i in range(3)]
    world.put(metric("n3", ("10", "1Gi"), at=NOW + 5, pods=[measured(each, "10m", "1Mi") for each in names]))
    assert world.table.log.serial == serial


def test_only_rows_that_changed_are_judged_and_scored_again(monkeypatch):
    world, asked = a_cluster(40), []
    for name in ("filter_rows", "score_rows"):
        original = getattr(world.plugin, name)

        def counting(shape, table, rows, original=original):
            asked.append(rows.stop - rows.start if isinstance(rows, slice) else len(rows))
            return original(shape, table, rows)

        monkeypatch.setattr(world.plugin, name, counting)

    def decide(name):
        world.put(pod(name, SMALL))
        attempt = world.offline.attempt(f"default/{name}")
        attempt.filter()
        attempt.score()
        found, asked[:] = list(asked), []
        return found

    assert max(decide("first")) >= 40
    assert sum(decide("second")) == 0
    world.put(metric("n7", ("30", "1Gi"), at=NOW + 5))
    assert 1 <= sum(decide("third")) <= 2
    world.assume(pod("placed", SMALL), "n9")
    assert 1 <= sum(decide("fourth")) <= 2


def test_equal_shapes_are_estimated_once(monkeypatch):
    world, estimated = a_cluster(1), []
    original = world.loads.estimator._estimate
    monkeypatch.setattr(world.loads.estimator, "_estimate", lambda shape: estimated.append(shape) or original(shape))
    for i in range(20):
        world.assume(pod(f"replica{i}", {"cpu": "33m"}), "mine")
    assert len(estimated) <= 1


def test_expired_reports_are_looked_at_when_they_expire():
    world = a_cluster(30)
    world.pass_time(179)
    assert steps_of(lambda: world.pass_time(0)) < 60
    cycle = CycleState(world.pod(pod("new")))
    assert world.profile.filtering.filter(cycle).feasible == 31
    world.pass_time(1)
    assert world.profile.filtering.filter(CycleState(world.pod(pod("new")))).feasible == 0


def test_pods_that_are_reported_again_are_not_looked_at_again(monkeypatch):
    world, names, looked_at = a_cluster(1, own=20), [f"mine-p{i}" for i in range(20)], []
    times = world.loads._times

    class Watched:
        def of(self, each):
            looked_at.append(each.name)
            return times.of(each)

    monkeypatch.setattr(world.loads, "_times", Watched())

    def looked_at_for(at, *which):
        looked_at.clear()
        world.put(metric("mine", ("20", "1Gi"), at=at, pods=[measured(each, "10m", "1Mi") for each in which]))
        return len(set(looked_at))

    assert looked_at_for(NOW + 1, *names) == 0
    world.put(pod(names[3], SMALL, on="mine", placed=NOW - 600, labels={"seen": "again"}))
    assert looked_at_for(NOW + 2, *names, "elsewhere") == 0
    assert looked_at_for(NOW + 3, *names) == 20, "one is missing, which might be on the node"
    assert looked_at_for(NOW + 4, *names[1:]) == 20
    assert looked_at_for(NOW + 5, *names) == 1, "the one that was not reported"
    world.put(pod("young", SMALL, on="mine", placed=NOW))
    assert looked_at_for(NOW + 6, *names, "young") == 1
    assert looked_at_for(NOW + 7, *names, "young") == 1, "it counts until a report can contain it"
    younger = world.assume(pod("younger", SMALL), "mine")
    assert looked_at_for(NOW + 8, *names, "young") == 2
    world.cluster.forget(younger)
    assert [looked_at_for(NOW + seconds, *names, "young") for seconds in (70, 71)] == [1, 0]
    assert world.sums("mine")["node_delta"] == {}


def test_a_report_is_read_again_only_where_it_is_asked_for(monkeypatch):
    """Not for pods that are measured and change, or come; numbers are the same before and after."""
    world, read = a_cluster(1, own=3), []
    store = world.loads._reports
    original = type(store).get

    def get(self, namespace, name):
        read.append(name)
        return original(self, namespace, name)

    monkeypatch.setattr(type(store), "get", get)
    world.put(pod("mine-p1", SMALL, on="mine", placed=NOW - 600, labels={"seen": "again"}))
    world.put(pod("mine-new", SMALL, on="mine", placed=NOW - 5))
    world.put(metric("mine", ("20", "1Gi"), at=NOW + 1, pods=[measured("mine-p1", "30m", "1Mi")]))
    assert read == []
    assert world.sums("mine")["prod_usage"] == {"cpu": 30, "memory": 1 << 20}
    assert read == ["mine"]

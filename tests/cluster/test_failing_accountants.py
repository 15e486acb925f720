"""Accountants that fail: the pod counts against its node, the others count it, and their books are balanced later."""

from types import SimpleNamespace

import pytest

from koordsched.cluster.events import ASSIGNED_POD_DELETE
from koordsched.cluster.resources import CPU, Requests
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod


class Books:
    """Counts pods by row. `unable`: "add" or "remove", what it cannot do for the moment."""

    def __init__(self, cluster, *unable, **how):
        self.unable, self.on = set(unable), {}
        self.facets = cluster.table.add_facet()
        cluster.add_accountant(self, **how)

    def pod_added(self, row, pod_):
        return self.change("add", row, pod_, 1)

    def pod_removed(self, row, pod_):
        return self.change("remove", row, pod_, -1)

    def change(self, what, row, pod_, sign):
        if what in self.unable:
            raise KeyError(pod_.name)
        key = row, pod_.name, pod_.requests.get(CPU)
        self.on[key] = self.on.get(key, 0) + sign
        assert self.on[key] in (0, 1), "never counted twice, never taken away twice"
        if not self.on[key]:
            del self.on[key]
        return self.facets

    def recovers(self, cluster):
        self.unable.clear()
        cluster.listener_errors.retry_some()
        assert not cluster.listener_errors.owed


@pytest.fixture
def bench():
    return Bench(node("n", cpu="4"), node("m", cpu="4"))


def test_a_pod_that_an_accountant_cannot_add_counts_and_is_added_later(bench):
    cluster, table = bench.cluster, bench.cluster.table
    failing, other = Books(cluster, "add"), Books(cluster)
    row = table.row_of["n"]
    stamps = [table.log.stamp(row, facets) for facets in (1, failing.facets)]
    cluster.set_pod(bench.pod(pod("p", container(cpu="2"), on="n")))
    assert (table.requested[CPU].data.item(row), table.pods_count.data.item(row)) == (2000, 1)
    assert all(
        table.log.stamp(row, facets) > before for facets, before in zip((1, failing.facets), stamps, strict=True)
    )
    assert (failing.on, other.on) == ({}, {(row, "p", 2000): 1})
    cluster.listener_errors.retry_some()
    assert cluster.listener_errors.count == 2
    before = table.log.stamp(row, failing.facets)
    failing.recovers(cluster)
    assert failing.on == other.on
    assert table.log.stamp(row, failing.facets) > before, "verdicts were made without it"
    cluster.remove_pod("uid-default-p")
    assert failing.on == other.on == {}


def test_a_pod_that_was_never_added_is_not_removed(bench):
    cluster = bench.cluster
    failing = Books(cluster, "add")
    cluster.set_pod(bench.pod(pod("p", on="n")))
    failing.unable = {"remove"}
    cluster.remove_pod("uid-default-p")
    assert not cluster.listener_errors.owed
    assert cluster.listener_errors.count == 1


def test_a_pod_that_could_not_be_removed_is_removed_before_it_is_added_elsewhere(bench):
    cluster, table = bench.cluster, bench.cluster.table
    failing = Books(cluster)
    cluster.set_pod(bench.pod(pod("p", container(cpu="1"), on="n")))
    failing.unable = {"remove"}
    cluster.set_pod(bench.pod(pod("p", container(cpu="1"), on="m")))
    assert failing.on == {(table.row_of["n"], "p", 1000): 1}
    assert table.pods_count.data[:2].sum() == 1
    failing.recovers(cluster)
    assert failing.on == {(table.row_of["m"], "p", 1000): 1}


def test_what_is_free_once_a_pod_is_removed_at_last_is_announced(bench):
    """The end of the pod itself woke those who found no room because it still counted."""
    cluster, announced = bench.cluster, []
    failing = Books(cluster)
    cluster.set_pod(bench.pod(pod("p", on="n")))
    cluster.on_event(lambda event, old, new: announced.append((event, old.name, old.node, new)))
    failing.unable = {"remove"}
    cluster.remove_pod("uid-default-p")
    assert announced == []
    failing.recovers(cluster)
    assert announced == [(ASSIGNED_POD_DELETE, "p", "n", None)]


def test_the_next_change_of_the_pod_settles_what_failed(bench):
    cluster, table = bench.cluster, bench.cluster.table
    failing = Books(cluster, "add")
    cluster.set_pod(bench.pod(pod("p", container(cpu="1"), on="n")))
    failing.unable.clear()
    cluster.set_pod(bench.pod(pod("p", container(cpu="2"), on="n")))
    assert failing.on == {(table.row_of["n"], "p", 2000): 1}
    assert not cluster.listener_errors.owed


@pytest.mark.parametrize("unable", ["add", "remove"])
def test_an_amended_pod_is_counted_by_what_it_has_in_the_end(bench, unable):
    cluster = bench.cluster
    failing = Books(cluster)
    there = bench.pod(pod("p", container(cpu="2"), on="n"))
    cluster.set_pod(there)
    failing.unable = {unable}
    assert cluster.amend(there, Requests(((CPU, 500),), (500, 0), there.requests.names), ()) & failing.facets
    failing.recovers(cluster)
    assert failing.on == {(there.row, "p", 500): 1}


def test_a_node_that_goes_takes_along_what_was_counted_on_its_row(bench):
    cluster, table = bench.cluster, bench.cluster.table
    failing = Books(cluster)
    cluster.set_pod(bench.pod(pod("p", container(cpu="1"), on="n")))
    row = table.row_of["n"]
    failing.unable = {"remove"}
    cluster.remove_node("n")
    assert not cluster.listener_errors.owed
    failing.on.clear()  # as its columns are
    bench.add(node("k"))
    assert table.row_of["k"] == row
    failing.recovers(cluster)
    assert failing.on == {}


@pytest.mark.parametrize("unable", ["add", "remove"])
def test_what_ifs_leave_no_trace(bench, unable):
    cluster, table = bench.cluster, bench.cluster.table
    failing, other = Books(cluster), Books(cluster)
    there, new = (bench.pod(pod(name, container(cpu="1"), on="n")) for name in ("there", "new"))
    cluster.set_pod(there)
    failing.unable = {unable}
    before = dict(other.on)
    with cluster.what_if(add=[(there.row, new)]) as hypothesis:
        assert len(other.on) == 2
        hypothesis.remove(there, there.row)
        assert set(other.on) == {(there.row, "new", 1000)}
    failing.recovers(cluster)
    assert failing.on == other.on == before
    assert table.pods_count.data.item(there.row) == 1


def test_a_pod_that_cannot_be_counted_in_a_what_if_leaves_nothing_behind(bench):
    cluster = bench.cluster
    failing = Books(cluster, "add")
    with cluster.what_if(add=[(0, bench.pod(pod("new")))]):
        pass
    assert not cluster.listener_errors.owed
    assert failing.on == {}


def test_what_failed_before_stays_to_be_made_up_for_after_a_what_if(bench):
    cluster = bench.cluster
    failing = Books(cluster, "add")
    there = bench.pod(pod("there", container(cpu="1"), on="n"))
    cluster.set_pod(there)
    failing.unable.clear()
    with cluster.what_if() as hypothesis:
        hypothesis.remove(there, there.row)
        assert failing.on == {}
    assert failing.on == {}
    stamp = cluster.table.log.stamp(there.row, failing.facets)
    failing.recovers(cluster)
    assert cluster.table.log.stamp(there.row, failing.facets) > stamp
    assert failing.on == {(there.row, "there", 1000): 1}


def test_accountants_that_join_late_and_those_that_do_not_know_what_concerns_them(bench):
    cluster = bench.cluster
    cluster.set_pod(bench.pod(pod("p", container(cpu="1"), on="n")))

    def broken(shape):
        raise KeyError(shape)

    late, unsure = Books(cluster, "add"), Books(cluster, concerns=broken)
    assert late.on == {}
    late.recovers(cluster)
    cluster.set_pod(bench.pod(pod("q", container(cpu="1"), on="n")))
    assert len(late.on) == len(unsure.on) == 2


def test_the_calls_of_many_objects_are_made_in_turn(bench, monkeypatch):
    cluster = bench.cluster
    monkeypatch.setattr("koordsched.cluster.listeners.AT_ONCE", 2)
    failing = Books(cluster, "add")
    for name in "qrs":
        cluster.set_pod(bench.pod(pod(name, container(cpu="1"), on="n")))
    cluster.listener_errors.retry_some()
    failing.unable.clear()
    cluster.listener_errors.retry_some()
    assert {name for _, name, _ in failing.on} == {"s", "q"}


def test_the_oldest_calls_are_forgotten_but_for_those_without_which_columns_would_be_wrong(bench, monkeypatch):
    cluster = bench.cluster
    monkeypatch.setattr("koordsched.cluster.listeners.MOST_CALLS", 3)

    def seen(pod_, assigned):
        raise KeyError(pod_.name)

    cluster.add_observer(SimpleNamespace(pod_seen=seen, pod_assigned=seen, pod_gone=lambda uid: None))
    failing = Books(cluster, "add")
    for name in "ab":
        cluster.pod_seen(bench.pod(pod(name, container(cpu="1"))))
    for name in "pqrs":
        cluster.set_pod(bench.pod(pod(name, container(cpu="1"), on="n")))
    for name in "cd":
        cluster.pod_seen(bench.pod(pod(name, container(cpu="1"))))
    assert not {"uid-default-a", "uid-default-b"} & cluster.listener_errors.owed.keys()
    failing.unable.clear()
    cluster.listener_errors.retry_some()
    for name in "pqrs":
        cluster.remove_pod(f"uid-default-{name}")
    assert failing.on == {}

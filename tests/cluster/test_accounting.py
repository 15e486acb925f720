"""Accountants whose books are sums over pods."""

from random import Random

import numpy as np
import pytest

from koordsched.cluster.accounting import ColumnAccountant
from koordsched.cluster.changelog import MAX_FACETS, Facet
from koordsched.cluster.nodetable import ALL_FACETS
from koordsched.cluster.resources import CPU, Requests
from koordsched.cluster.state import ClusterState
from tests.cluster.objects import wire_node
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod


class Books(ColumnAccountant):
    """Counts the pods with a label `minor`, and what they have of it."""

    def __init__(self, cluster):
        self.facets = cluster.table.add_facet()
        self.count = cluster.table.column(np.int64)
        self.used = cluster.table.column(np.int16, width=2)
        cluster.add_accountant(self)

    def columns(self):
        return self.count, self.used

    def amounts(self, pod):
        minor = pod.labels.labels.get("minor")
        if minor is None:
            return None
        amounts = np.zeros(int(minor) + 1, dtype=np.int64)
        amounts[-1] = 50
        self.used.widen(len(amounts))
        return 1, amounts


def books_of(bench):
    books = bench.cluster.shared(Books)
    size = bench.cluster.table.size
    return books.count.data[:size].tolist(), books.used.data[:size].tolist()


def test_books_follow_the_pods_and_what_ifs_leave_no_trace():
    rng = Random(4)
    bench = Bench(*[node(f"n{i}") for i in range(5)], pod("early", on="n1", labels={"minor": "1"}))
    cluster = bench.cluster
    books = cluster.shared(Books)
    assert books_of(bench)[1][1] == [0, 50], "pods that were there before are counted"
    for i in range(200):
        minor = rng.choice([None, "0", "1", "5", "3"])
        item = pod(f"p{rng.randrange(20)}", on=f"n{rng.randrange(5)}", labels={"minor": minor} if minor else {})
        other = bench.pod(item)
        row = cluster.table.row_of[other.node]
        books.amounts(other)
        before = books.count.data.copy(), books.used.data.copy()
        with cluster.what_if(add=[(row, other)]) as world:
            assert (books.count.data != before[0]).any() == (minor is not None)
            for there in list(cluster.pods_on(row).values()):
                world.remove(there, row)
        assert np.array_equal(books.count.data, before[0])
        assert np.array_equal(books.used.data, before[1])
        stamp = cluster.table.log.stamp(row, books.facets)
        if rng.random() < 0.4:
            cluster.remove_pod(other.uid)
        elif other.uid not in cluster.assigned:
            cluster.set_pod(other)
            assert (cluster.table.log.stamp(row, books.facets) > stamp) == (minor is not None)
        counts, used = [0] * 5, np.zeros((5, books.used.data.shape[1]), dtype=np.int64)
        for there in cluster.assigned.values():
            if "minor" in there.labels.labels:
                counts[there.row] += 1
                used[there.row, int(there.labels.labels["minor"])] += 50
        assert books_of(bench) == (counts, used.tolist()), i


def test_a_column_that_is_too_narrow_is_an_error():
    """A part of the amounts is never left out in silence."""

    class Narrow(Books):
        def amounts(self, pod):
            return 1, np.ones(3, dtype=np.int64)

    cluster = ClusterState()
    books = Narrow(cluster)
    row = cluster.upsert_node(wire_node("alder")) and 0
    with pytest.raises(ValueError, match="broadcast"):
        books.pod_added(row, object())


class Seen:
    """What it is told, in order."""

    facets = 0

    def __init__(self):
        self.told = []

    def pod_added(self, row, pod):
        self.told.append((pod.name, 1))
        return 0

    def pod_removed(self, row, pod):
        self.told.append((pod.name, -1))
        return 0


def test_an_amended_pod_is_counted_anew_by_those_that_count_by_amounts():
    bench = Bench(node("n"), pod("p", container(cpu="2"), on="n"))
    cluster, table = bench.cluster, bench.cluster.table
    by_amounts, by_labels = Seen(), Seen()
    cluster.add_accountant(by_amounts)
    cluster.add_accountant(by_labels, amendable=False)
    there = cluster.assigned["uid-default-p"]
    assert cluster.amend(there, Requests(((CPU, 500),), (500, 0), there.requests.names), ())
    assert table.requested[CPU].data.item(there.row) == 500
    assert by_amounts.told == [("p", 1), ("p", -1), ("p", 1)]
    assert by_labels.told == [("p", 1)]


def test_a_pod_that_is_amended_to_what_it_has_is_not_counted_anew():
    bench = Bench(node("n"), pod("p", container(cpu="2"), on="n"))
    accountant = Seen()
    bench.cluster.add_accountant(accountant)
    there = bench.cluster.assigned["uid-default-p"]
    assert bench.cluster.amend(there, there.requests, there.facts) == 0
    assert accountant.told == [("p", 1)]


def test_facets_of_plugins_are_bits_of_their_own_of_which_there_are_so_many():
    table = Bench().cluster.table
    first = table.add_facet().bit_length()
    bits = [table.add_facet() for _ in range(MAX_FACETS - first)]
    assert bits == [1 << number for number in range(first, MAX_FACETS)]
    assert bits[0] > Facet.FACTS
    with pytest.raises(OverflowError, match=f"no more than {MAX_FACETS} facets"):
        table.add_facet()


def test_an_accountant_gets_pods_of_the_shapes_that_concern_it_whenever_it_joins():
    bench = Bench(node("n"), pod("before", container(cpu="2"), on="n"))
    cluster = bench.cluster
    there = cluster.assigned["uid-default-before"]
    of_large, of_all = Seen(), Seen()
    cluster.add_accountant(of_large, concerns=lambda shape: shape.requests.get(CPU) > 1000)
    cluster.add_accountant(of_all)
    with cluster.what_if() as hypothesis:
        hypothesis.remove(there, there.row)
    small = bench.pod(pod("small", container(cpu="1")))
    cluster.assume(small, there.row)
    assert of_large.told == [("before", 1), ("before", -1), ("before", 1)]
    assert of_all.told == [*of_large.told, ("small", 1)]


def test_a_what_if_that_cannot_be_made_leaves_no_trace():
    bench = Bench(node("n"))
    cluster, table = bench.cluster, bench.cluster.table
    row = table.row_of["n"]

    def coming():
        yield row, bench.pod(pod("p"))
        raise RuntimeError("q")

    with pytest.raises(RuntimeError, match="q"), cluster.what_if(add=coming()):
        pass
    assert (table.hypothetical, table.pods_count.data.item(row)) == (0, 0)


def changed_since(cluster, serial):
    """{row: facets} of what changed."""
    return dict(cluster.table.log.since(serial, ALL_FACETS, cluster.table.size))


def test_rows_that_are_counted_by_one_that_joins_later_have_changed():
    bench = Bench(node("n"), node("m"), pod("p", labels={"minor": "0"}, on="n"))
    serial = bench.cluster.table.log.serial
    books = bench.cluster.shared(Books)
    assert changed_since(bench.cluster, serial) == {bench.cluster.table.row_of["n"]: books.facets}


class Numbers:
    """Counts pods by a fact; only a pod that goes changes a row."""

    def __init__(self, cluster, fact):
        self.facets = cluster.table.add_facet()
        cluster.add_accountant(self, reads=(fact,))

    def pod_added(self, row, pod):
        return 0

    def pod_removed(self, row, pod):
        return self.facets


def test_a_fact_that_is_taken_away_changes_the_row_of_the_pod():
    bench = Bench(node("n"))
    cluster = bench.cluster
    fact = cluster.pod_facts.declare("example.com/number", int, str)
    numbers = Numbers(cluster, fact)
    placed = bench.pod(pod("p"))
    cluster.assume(placed, cluster.table.row_of["n"])
    for value in (7, None):
        serial = cluster.table.log.serial
        cluster.allocate(placed, fact, value)
        assert changed_since(cluster, serial)[placed.row] & numbers.facets
        assert fact.of(placed) == value


def test_other_images_are_a_change_of_a_node():
    bench = Bench(node("n", images={"a": 1}))
    serial = bench.cluster.table.log.serial
    bench.add(node("n", images={"a": 1, "b": 2}))
    assert changed_since(bench.cluster, serial) == {0: Facet.IMAGES}
    serial = bench.cluster.table.log.serial
    bench.add(node("n", images={"a": 1, "b": 2}))
    assert changed_since(bench.cluster, serial) == {}

"""What users can name without end (label keys, namespaces, selectors) is forgotten with the pods that named it."""

import gc

import pytest

from koordsched.plugins.interpodaffinity.existing import ExistingTerms
from koordsched.plugins.podtopologyspread.owners import OwnerSelectors
from koordsched.plugins.shared.podcounts import index
from koordsched.plugins.shared.podcounts.index import PodIndex
from koordsched.plugins.shared.podcounts.query import PodQuery
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod
from tests.plugins.podcounts.test_replaced_nodes import HOSTNAME, company

ZONE = "topology.kubernetes.io/zone"


def query(key, operator="In", *values):
    return PodQuery(frozenset(("default",)), ((key, operator, values),))


@pytest.fixture
def bench():
    return Bench(node("n1"), node("n2"), pod("p", labels={"app": "web", "k7": "v"}, on="n1"))


@pytest.fixture
def little_room(monkeypatch):
    monkeypatch.setattr(index, "_ALWAYS_KEPT", 8)
    monkeypatch.setattr(index, "_BUDGET", 16 * 3000)


def test_label_keys_that_no_counter_asks_for_any_more_are_not_indexed(bench, little_room):
    counted = PodIndex(bench.cluster)
    for i in range(400):
        counter = counted.counter(query(f"k{i}", "In", "v"), count_deleting=True)
        assert counter.by_row.sum() == (i == 7)
        assert len(counted) <= 24
        assert len(counted._groups_by) <= 24
        assert len(counted._counters_by) <= 24


def test_a_counter_that_was_dropped_takes_nothing_and_has_a_successor(bench, little_room):
    counted = PodIndex(bench.cluster)
    first = counted.counter(query("app", "In", "web"), count_deleting=True)
    first.domains(HOSTNAME, counted.topology.everywhere)
    for i in range(40):
        counted.counter(query(f"k{i}", "In", "v"), count_deleting=True)
    assert first.dropped
    assert first.nbytes == index.RowCounts(counted.topology).nbytes
    bench.add(pod("q", labels={"app": "web"}, on="n2"))
    assert counted.used(first).by_row.sum() == 2


def test_counters_that_every_new_group_is_asked_about_are_few(bench, monkeypatch):
    monkeypatch.setattr(index, "_WITHOUT_EQUALITY", 16)
    counted = PodIndex(bench.cluster)
    for i in range(200):
        counted.counter(query(f"k{i}", "Exists"), count_deleting=True)
        assert len(counted._other_counters) <= 16
    bench.add(pod("q", labels={"k199": "x"}, on="n2"))
    assert counted.counter(query("k199", "Exists"), count_deleting=True).by_row.sum() == 1


def test_counters_that_ask_for_thousands_of_values_are_few(bench, monkeypatch):
    monkeypatch.setattr(index, "_LARGE_BUDGET", 1 << 20)
    counted = PodIndex(bench.cluster)
    values = [f"v{i}" for i in range(3000)]
    for i in range(20):
        counted.counter(query(f"k{i}", "In", *values), count_deleting=True)
        assert len(counted) <= 3


def test_sizes_are_not_added_up_for_every_counter_that_is_made(bench, monkeypatch):
    looks = []
    monkeypatch.setattr(index, "_ALWAYS_KEPT", 8)
    monkeypatch.setattr(index.Counter, "nbytes", property(lambda self: looks.append(self) or 0))
    counted = PodIndex(bench.cluster)
    for i in range(200):
        counted.counter(query(f"k{i}", "In", "v"), count_deleting=True)
    assert len(counted) == 200
    assert 200 <= len(looks) < 20 * 200


def test_terms_of_pods_in_namespaces_that_are_gone_are_forgotten():
    bench = Bench(node("n1", labels={ZONE: "a"}))
    terms = bench.cluster.shared(ExistingTerms)

    def lonely(namespace):
        return pod("p", container(), on="n1", namespace=namespace, affinity=company("podAntiAffinity", ZONE, "web"))

    stays = bench.pod(lonely("stays"))
    bench.cluster.set_pod(stays)
    for i in range(1000):
        item = lonely(f"build-{i}")
        bench.add(item)
        assert len(terms._terms_of(stays)) == 1
        bench.cluster.remove_pod(item["metadata"]["uid"])
    gc.collect()
    assert len(terms._interned) <= 65
    asked = bench.pod(pod("web", labels={"app": "web"}, namespace="stays"))
    assert [(term.total, times) for term, times in terms.matching(asked)[0][ZONE]] == [(1, 1)]


def test_terms_that_a_what_if_took_away_come_back_as_they_were():
    bench = Bench(node("n1", labels={ZONE: "a"}))
    terms = bench.cluster.shared(ExistingTerms)
    affinity = company("podAntiAffinity", ZONE, "web")
    on_node = [bench.pod(pod("p", on="n1", namespace=f"ns-{i}", affinity=affinity)) for i in range(128)]
    for each in on_node:
        bench.cluster.set_pod(each)
    before = [terms._terms_of(each) for each in on_node]
    with bench.cluster.what_if() as hypothesis:
        for each in on_node:
            hypothesis.remove(each, each.row)
        assert [term.total for found in before for term in found] == [0] * 128
        another = bench.pod(pod("p", namespace="another", affinity=affinity))
        assert another.shape is on_node[0].shape
        hypothesis.add(another, 0)
        assert len(another.shape.compiled(terms, dict)) == 1, "the others are not kept any more"
    after = [terms._terms_of(each) for each in on_node]
    assert [term.total for found in after for term in found] == [1] * 128
    assert all(a[0] is b[0] for a, b in zip(after, before, strict=True)), "who looked at them has not looked in vain"


def test_services_that_are_gone_leave_no_trace():
    bench = Bench(node("n1"))
    owners = OwnerSelectors(bench.cluster)

    def service(i):
        return {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {"name": f"s{i}", "namespace": f"build-{i % 50}"},
            "spec": {"selector": {"app": f"a{i}"}},
        }

    for i in range(100):
        bench.add(service(i))
    found = owners.requirements(bench.pod(pod("p", labels={"app": "a7"}, namespace="build-7")))
    assert found == (("app", "In", ("a7",)),)
    for i in range(100):
        bench.remove(service(i))
    assert owners._services == {}
    assert owners.requirements(bench.pod(pod("p", labels={"app": "a7"}, namespace="build-7"))) == ()


def test_counters_that_were_used_last_stay(bench, little_room):
    counted = PodIndex(bench.cluster)
    kept = counted.counter(query("app", "In", "web"), count_deleting=True)
    for i in range(100):
        counted.counter(query(f"k{i}", "In", "v"), count_deleting=True)
        counted.used(kept)
    assert len(counted) < 50
    assert not kept.dropped


def test_of_counters_that_ask_for_thousands_of_values_those_used_last_stay(bench, monkeypatch):
    values = [f"v{i}" for i in range(3000)]
    monkeypatch.setattr(index, "_LARGE_BUDGET", int(2.5 * query("a", "In", *values).nbytes))
    counted = PodIndex(bench.cluster)
    first, second = (counted.counter(query(key, "In", *values), count_deleting=True) for key in "ab")
    counted.used(first)
    third = counted.counter(query("c", "In", *values), count_deleting=True)
    assert [each.dropped for each in (first, second, third)] == [False, True, False]

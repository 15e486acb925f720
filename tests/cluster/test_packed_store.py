"""Stores of kinds whose objects are kept encoded: what is read is what was put."""

import pytest

from koordsched.api.decoding import convert
from koordsched.api.meta import ObjectMeta
from koordsched.cluster.builtinkinds import SERVICES
from koordsched.cluster.listeners import ListenerErrors
from koordsched.cluster.objects import Objects, PackedStore, Store
from koordsched.plugins.loadaware.kinds import NODE_METRICS, NodeMetric


def report(name, cpu="1", version="1", namespace=""):
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": version}
    usage = {"podUsage": {"resources": {"cpu": cpu}}, "namespace": "a", "name": "p", "priority": "koord-prod"}
    return convert({"metadata": meta, "status": {"podsMetric": [usage, usage]}}, NodeMetric)


@pytest.fixture
def store():
    return Objects().of(NODE_METRICS)


def test_the_kind_says_how_its_objects_are_kept(store):
    assert type(store) is PackedStore
    assert type(Objects().of(SERVICES)) is Store


def test_what_is_read_is_what_was_put(store):
    things = [report("n"), report("m"), report("m", namespace="x")]
    for thing in things:
        store.upsert(thing)
    assert store.get("", "n") == things[0]
    assert store.get("", "n") is not things[0], "which is kept encoded"
    assert (store.get("", "o"), store.get("y", "n")) == (None, None)
    assert (list(store), len(store), list(store.in_namespace("x"))) == (things, 3, things[2:])
    assert store.metadata() == [thing.metadata for thing in things]
    assert store.metadata_of("x", "m") == things[2].metadata
    assert store.metadata_of("", "o") is None
    assert isinstance(store.metadata_of("", "m"), ObjectMeta)


def test_subscribers_get_what_is_new_and_what_is_gone(store):
    told, late = [], []
    first, second = report("n"), report("n", "2", "2")
    store.subscribe(lambda old, new: told.append((old, new)))
    store.upsert(first)
    store.upsert(second)
    store.subscribe(lambda old, new: late.append((old, new)))
    assert store.delete("", "o") is None
    assert store.delete("", "n") == second
    assert told == [(None, first), (None, second), (second, None)]
    assert late == [(None, second), (second, None)]
    assert (len(store), list(store), store.version) == (0, [], 3)


def test_objects_as_of_a_time_stay_as_they_were(store):
    for name in ("n", "m"):
        store.upsert(report(name))
    seen = store.as_of_now()
    store.upsert(report("n", "2"))
    store.delete("", "m")
    store.upsert(report("o"))
    assert list(seen) == [report("n"), report("m")]


def test_nothing_is_kept_of_namespaces_that_are_empty_again(store):
    for number in range(3):
        store.upsert(report("n", namespace=f"job-{number}"))
        store.upsert(report("m", namespace=f"job-{number}"))
        store.delete(f"job-{number}", "n")
        assert list(store) == [report("m", namespace=f"job-{number}")]
        store.delete(f"job-{number}", "m")
    assert store._kept == {}


def test_what_no_encoding_has_is_kept_all_the_same(store):
    thing = report("n", cpu=2**70)
    store.upsert(thing)
    assert (store.get("", "n"), store.metadata()) == (thing, [thing.metadata])
    assert store.delete("", "n") == thing


def test_a_subscriber_that_failed_for_the_last_change_hears_of_the_end():
    errors, told, ill = ListenerErrors(), [], []

    def subscriber(old, new):
        if ill:
            raise KeyError
        told.append((old and old.metadata.name, new and new.metadata.resource_version))

    store = Objects(errors).of(NODE_METRICS)
    store.subscribe(subscriber)
    store.upsert(report("n"))
    ill.append(True)
    store.upsert(report("n", "2", "2"))
    ill.clear()
    store.delete("", "n")
    assert told == [(None, "1"), ("n", None)]
    assert not errors.owed

"""Reservations found by labels."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.plugins.reservation.args import SelectorIndexConfig
from koordsched.plugins.reservation.selectorindex import SelectorIndex
from tests.depth import examples

CONFIG = SelectorIndexConfig(enabled=True, key_prefixes=("quota-",), keys=("team",))


def index_of_case_29(*, omit_node_labels=True):
    index = SelectorIndex(CONFIG, omit_node_labels=omit_node_labels)
    index.put("R1", "n-a", {"quota-q": "1", "team": "alpha"})
    index.put("R2", "n-b", {"quota-q": "2"})
    index.put("R3", "n-c", {"team": "alpha"})
    index.put("R4", "n-d", {"team": "beta"})
    return index


@pytest.mark.parametrize(
    "selector, nodes",
    [
        ({"quota-x": "1"}, {"n-a", "n-b"}),
        ({"team": "alpha"}, {"n-a", "n-c"}),
        ({"quota-x": "1", "team": "gamma"}, set()),
        ({"foo": "bar"}, None),
        ({}, None),
        ({"team": "beta", "quota-x": "1"}, {"n-d"}),
        ({"foo": "bar", "team": "beta"}, {"n-d"}),
    ],
)
def test_reservation_case_29_index(selector, nodes):
    found = index_of_case_29().candidates(selector)
    assert (None if found is None else set(found)) == nodes


def test_nothing_is_found_where_labels_of_nodes_count():
    """A Reservation may be selected by what is not in the index."""
    assert index_of_case_29(omit_node_labels=False).candidates({"team": "alpha"}) is None


@pytest.mark.parametrize("config", [None, SelectorIndexConfig(keys=("team",)), SelectorIndexConfig(enabled=True)])
def test_an_index_that_is_off(config):
    index = SelectorIndex(config, omit_node_labels=True)
    index.put("R1", "n", {"team": "alpha"})
    assert index.candidates({"team": "alpha"}) is None
    assert not index.enabled
    assert index.snapshot(detail=True) == {"enabled": False, "prefixes": None, "indexedReservations": 0}


def test_an_exact_key_comes_before_a_prefix_of_it():
    index = SelectorIndex(
        SelectorIndexConfig(enabled=True, key_prefixes=("te", "t"), keys=("team",)), omit_node_labels=True
    )
    index.put("R1", "n-a", {"team": "alpha"})
    index.put("R2", "n-b", {"tenant": "x"})
    index.put("R3", "n-c", {"tier": "x"})
    assert set(index.candidates({"team": "beta"})) == set()
    assert set(index.candidates({"test": "x"})) == {"n-a", "n-b"}
    assert set(index.candidates({"town": "x"})) == {"n-c"}


def test_snapshot():
    index = index_of_case_29()
    index.put("R5", "n-a", {"team": "beta", "quota-a": "1", "quota-b": "1"})
    assert index.snapshot(detail=False) == {
        "enabled": True,
        "prefixes": ["quota-"],
        "keys": ["team"],
        "indexedReservations": 5,
        "byPrefix": {"quota-": {"nodes": 2, "reservations": 3}},
        "byKey": {"team": {"nodes": 3, "reservations": 4}},
    }
    detailed = index.snapshot(detail=True)
    assert detailed["byPrefix"]["quota-"]["byNode"] == {"n-a": ["R1", "R5"], "n-b": ["R2"]}
    assert detailed["byKeyValue"]["team"]["beta"] == {
        "nodes": 2,
        "reservations": 2,
        "byNode": {"n-a": ["R5"], "n-d": ["R4"]},
    }


UIDS, NODES = st.sampled_from("123"), st.sampled_from(["", "m", "n"])
LABELS = st.dictionaries(st.sampled_from(["team", "team-a", "quota-a", "quota-b", "other"]), st.sampled_from("xy"))
STEPS = st.lists(st.tuples(UIDS, NODES, LABELS) | st.tuples(UIDS), max_size=12)


@given(STEPS, LABELS)
@settings(max_examples=examples(400), deadline=None)
def test_every_reservation_with_the_labels_is_found(steps, selector):
    index = SelectorIndex(
        SelectorIndexConfig(enabled=True, key_prefixes=("quota-", "team"), keys=("team", "quota-b")),
        omit_node_labels=True,
    )
    known = {}
    for uid, *place in steps:
        if place:
            index.put(uid, *place)
            known[uid] = place
        else:
            index.remove(uid)
            known.pop(uid, None)
    found = index.candidates(selector)
    matching = {uid for uid, (node, labels) in known.items() if node and selector.items() <= labels.items()}
    if found is None:
        assert set(selector) <= {"other"}
    else:
        assert matching <= {uid for uids in found.values() for uid in uids}
        assert all(known[uid][0] == node for node, uids in found.items() for uid in uids)
    for uid in known:
        index.remove(uid)
    assert index.snapshot(detail=True)["indexedReservations"] == 0
    assert not index._by_key
    assert not index._by_prefix

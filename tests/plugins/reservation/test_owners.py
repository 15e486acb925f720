"""Which pods may use a Reservation, and how they are found."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from koordsched.api.meta import OwnerReference
from koordsched.plugins.reservation.malformed import MalformedReservation
from koordsched.plugins.reservation.owners import OwnerIndex, Owners
from tests.depth import examples
from tests.plugins.reservation.hostile import nested, values
from tests.plugins.reservation.objects import pod, reference

WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}
OBJECT = {"uid": "uid-a-p", "name": "p", "namespace": "a"}
POD = pod("p", "a", labels={"app": "web", "tier": "back"}, owners=[reference("rs"), reference("job", controller=False)])

MATCHING = [
    [{}],
    [{"object": {}}],
    [{"object": OBJECT}],
    [{"object": {"uid": "uid-a-p"}}],
    [{"object": {"name": "p"}}],
    [{"object": {"namespace": "a"}}],
    [{"object": {"apiVersion": "v1", "name": "p"}}],
    [{"object": {"name": "p", "kind": "Sheep", "resourceVersion": "1", "fieldPath": "x"}}],
    [{"controller": {}}],
    [{"controller": {"name": "rs"}}],
    [{"controller": {"name": "rs", "namespace": "a", "kind": "ReplicaSet", "apiVersion": "apps/v1", "uid": "uid-rs"}}],
    [{"controller": {"name": "rs", "controller": True, "blockOwnerDeletion": True}}],
    [{"controller": {"name": "job", "controller": False}}],
    [{"controller": {"name": "job", "controller": None}}],
    [WEB],
    [{"labelSelector": {}}],
    [{"labelSelector": None}],
    [{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}}],
    [{"labelSelector": {"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]}}],
    [{"object": OBJECT, "controller": {"name": "rs"}, **WEB}],
    [{"object": {"name": "other"}}, WEB],
]
OTHERS = [
    None,
    [],
    [{"object": OBJECT | {"uid": "other"}}],
    [{"object": OBJECT | {"name": "other"}}],
    [{"object": OBJECT | {"namespace": "other"}}],
    [{"object": OBJECT | {"apiVersion": "v2"}}],
    [{"controller": {"name": "rs", "namespace": "b"}}],
    [{"controller": {"name": "rs", "uid": "uid-job"}}],
    [{"controller": {"name": "rs", "kind": "Job"}}],
    [{"controller": {"name": "rs", "apiVersion": "apps/v2"}}],
    [{"controller": {"name": "rs", "controller": False}}],
    [{"controller": {"name": "job", "controller": True}}],
    [{"labelSelector": {"matchLabels": {"app": "db"}}}],
    [{"labelSelector": {"matchLabels": {"app": "web", "tier": "front"}}}],
    [{"object": OBJECT, "controller": {"name": "other"}, **WEB}],
    [{"object": {"name": "other"}}, {"controller": {"name": "other"}}],
]
MALFORMED = [
    ("x", "spec.owners: "),
    ({}, "spec.owners: "),
    (5, "spec.owners: "),
    ([5], "$[0]"),
    ([{"object": {"name": 5}}], "$[0].object.name"),
    ([{}, {"controller": {"controller": "yes"}}], "$[1].controller.controller"),
    ([{"labelSelector": {"matchLabels": {"a": 5}}}], "matchLabels"),
    ([{"labelSelector": {"matchExpressions": [{"key": "a"}]}}], "operator"),
    ([{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}], "spec.owners[0]"),
    ([{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}}], "at least one value"),
    ([{"labelSelector": {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}}], "not a label key: 'a b'"),
    ([WEB, {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["?"]}]}}], "owners[1]"),
    ([{"object": {"name": nested(5000)}}], "spec.owners: "),
]


@pytest.mark.parametrize("raw", MATCHING)
def test_matches(raw):
    assert Owners(raw).matches(POD)


@pytest.mark.parametrize("raw", OTHERS)
def test_does_not_match(raw):
    assert not Owners(raw).matches(POD)


@pytest.mark.parametrize("raw, said", MALFORMED)
def test_what_cannot_be_read_is_named(raw, said):
    with pytest.raises(MalformedReservation) as error:
        Owners(raw)
    assert said in str(error.value)
    assert str(error.value).startswith("spec.owners")


def test_controller_false_is_not_the_same_as_unset():
    unset = reference("rs")
    del unset["controller"]
    for wanted, given_, matches in [
        (False, {"controller": False}, True),
        (False, {}, False),
        (True, {}, False),
        (None, {}, True),
        (None, {"controller": False}, True),
    ]:
        owners = Owners([{"controller": {"name": "rs", "controller": wanted}}])
        assert owners.matches(pod(owners=[unset | given_])) is matches


def test_a_pod_on_a_node_is_known_by_its_controller():
    bound = pod(owners=[reference("job", controller=False), reference("rs")], bound=True)
    assert bound.wire is None
    assert Owners([{"controller": {"name": "rs", "controller": True}}]).matches(bound)
    assert not Owners([{"controller": {"name": "job"}}]).matches(bound)
    assert not Owners([{"controller": {}}]).matches(pod(bound=True))


@given(values("object", "controller", "labelSelector", "matchLabels", "matchExpressions", "key", "operator", "values"))
@example([{"controller": {"controller": 1}}])
@settings(max_examples=examples(600), deadline=None)
def test_any_json_gives_owners_or_a_message(raw):
    with suppress(MalformedReservation):
        assert Owners(raw).matches(POD) in (True, False)


LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2)
NAMES = st.sampled_from(["", "m", "n"])
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "object": st.fixed_dictionaries({}, optional={"uid": NAMES, "name": NAMES, "namespace": NAMES}),
        "controller": st.fixed_dictionaries({}, optional={"uid": NAMES, "name": NAMES, "namespace": NAMES}),
        "labelSelector": st.fixed_dictionaries({"matchLabels": LABELS}),
    },
)
PODS = st.builds(
    lambda name, namespace, labels, owners: pod(name, namespace, uid=name, labels=labels, owners=owners),
    st.sampled_from("mn"),
    st.sampled_from("mn"),
    LABELS,
    st.lists(st.sampled_from("mn").map(lambda name: reference(name, uid=name)), max_size=2),
)


@given(st.lists(st.lists(ENTRIES, max_size=3), max_size=8), PODS, st.randoms(use_true_random=False))
@settings(max_examples=examples(600), deadline=None)
def test_the_index_finds_every_match_in_the_order_of_adding(all_owners, asking, random):
    index, added = OwnerIndex(), {}
    for uid, raw in enumerate(all_owners):
        if not index.concerns(asking):
            index.add_non_owner(asking)
        added[str(uid)] = Owners(raw)
        index.add(str(uid), added[str(uid)])
    for uid in random.sample(list(added), len(added) // 2):
        if random.random() < 0.5:
            del added[uid]
            index.remove(uid)
        else:
            added[uid] = Owners(random.choice(all_owners))
            index.add(uid, added[uid])
    found = list(index.candidates(asking))
    assert {uid for uid, owners in added.items() if owners.matches(asking)} <= set(found) <= set(added)
    assert found == sorted(found, key=int)
    assert index.concerns(asking) == bool(found)
    assert not (found and asking.labels in index.non_owners) or index.concerns_otherwise(asking)


def test_the_index_looks_at_no_foreign_reservation():
    index = OwnerIndex()
    random = Random(1)
    for number in range(3000):
        kind = random.choice(
            [
                {"object": {"uid": f"u-{number}"}},
                {"object": {"name": f"p-{number}", "namespace": "a"}},
                {"controller": {"name": f"rs-{number}", "namespace": "a"}},
                {"controller": {"uid": f"c-{number}"}},
                {"labelSelector": {"matchLabels": {"app": "web", "team": f"t-{number}"}}},
            ]
        )
        index.add(f"foreign-{number}", Owners([kind]))
    index.add("mine", Owners([{"labelSelector": {"matchLabels": {"app": "web", "tier": "back"}}}]))
    index.add("all", Owners([{}]))
    assert len(list(index.candidates(POD))) <= 4
    assert {"mine", "all"} <= set(index.candidates(POD))


def test_the_index_keeps_nothing_of_what_is_gone():
    index = OwnerIndex()
    for number in range(10):
        index.add(str(number), Owners([{"object": {"uid": str(number)}}, WEB, {}]))
        index.remove(str(number))
    index.remove("unknown")
    assert not list(index.candidates(POD))
    assert not index._by_key
    assert not index._keys
    assert not index._places
    assert not index._objects
    assert not index._naming


def test_pods_that_are_named_themselves():
    index, named = OwnerIndex(), pod("p", "a", uid="u")
    index.add("label", Owners([WEB]))
    assert not index.names(named)
    for number, owner in enumerate(({"uid": "u"}, {"name": "p"}, {"name": "p", "namespace": "a"})):
        others = [{"controller": {"uid": "c"}}, {"object": {"name": "q"}}]
        index.add(f"r-{number}", Owners([{"object": owner, "controller": {"uid": f"c-{number}"}}, *others]))
        assert index.names(named)
        assert not index.names(pod("o", "a"))
        index.add(f"r-{number}", Owners(others))
        assert not index.names(named)
    assert index.names(pod("q", "b"))


def test_whether_an_owner_controls_may_be_left_open():
    assert OwnerReference("ReplicaSet").controller is None

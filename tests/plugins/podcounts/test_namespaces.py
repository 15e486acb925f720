"""Sets of namespaces that terms mean."""

import pytest

from koordsched.plugins.shared.podcounts.namespaces import Namespaces, NamespaceScopes
from koordsched.plugins.shared.podcounts.query import PodQuery
from tests.plugins.harness import Bench


def namespace(name, **labels):
    return {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}


@pytest.fixture
def namespaces():
    spaces = namespace("a", team="blue"), namespace("b", team="blue", old=""), namespace("c", old="")
    return Namespaces(Bench(*spaces).cluster)


@pytest.mark.parametrize("listed", [(), ("a", "unknown"), ("c", "unknown")])
def test_what_matches_several_terms_is_in_a_namespace_that_each_of_them_means(namespaces, listed):
    blue = namespaces.meant(frozenset(listed), (("team", "In", ("blue",)),))
    old = namespaces.meant(frozenset(("unknown",)), (("old", "Exists", ()),))
    for meant, names in ((blue, {"a", "b", *listed}), (old, {"b", "c", "unknown"})):
        assert set(meant) == names
        assert len(meant) == len(names)
    names = frozenset(("b", "c", "elsewhere"))
    for terms in ((blue, old), (old, blue), (blue, names), (names, blue), (blue, old, names), (None, blue, old)):
        query = PodQuery.all_of(PodQuery(each, ()) for each in terms)
        expected = set.intersection(*(set(each) for each in terms if each is not None))
        assert set(query.namespaces) == expected
        assert {name for name in ("a", "b", "c", "unknown", "elsewhere") if query.covers(name)} == expected


def test_a_namespace_is_meant_from_its_first_day():
    bench = Bench()
    namespaces = Namespaces(bench.cluster)
    for name in "ab":
        bench.add(namespace(name, team="blue"))
        assert name in namespaces.meant(frozenset(), (("team", "In", ("blue",)),))


def test_sets_that_were_numbered_differently_have_in_common_what_both_mean():
    blue = (("team", "In", ("blue",)),)
    one, other = (
        Namespaces(Bench(*(namespace(name, team="blue") for name in names)).cluster).meant(frozenset(), blue)
        for names in ("abc", "dcb")
    )
    assert set(one & other) == set(other & one) == {"b", "c"}


def test_namespaces_that_came_after_those_of_a_scope_are_not_in_it():
    names = [f"n{number:02}" for number in range(40)]
    spaces = Namespaces(Bench(*(namespace(name, first=str(name < "n03")) for name in names)).cluster)
    scopes = NamespaceScopes([spaces.meant(frozenset(), (("first", "In", ("True",)),)), None])
    assert [scopes.of(name) for name in names] == [0b11 if name < "n03" else 0b10 for name in names]

"""Sets of namespaces that terms mean."""

import pytest

from koordsched.plugins.shared.podcounts.namespaces import Namespaces
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
    assert set(blue) == {"a", "b", *listed}
    assert set(old) == {"b", "c", "unknown"}
    names = frozenset(("b", "c", "elsewhere"))
    for terms in ((blue, old), (old, blue), (blue, names), (names, blue), (blue, old, names), (None, blue, old)):
        query = PodQuery.all_of(PodQuery(each, ()) for each in terms)
        expected = set.intersection(*(set(each) for each in terms if each is not None))
        assert set(query.namespaces) == expected
        assert {name for name in ("a", "b", "c", "unknown", "elsewhere") if query.covers(name)} == expected

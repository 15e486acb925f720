"""The annotation that says how a job is to be gathered."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordsched.plugins.coscheduling.topology.gathering import Gathering, MalformedGathering, gathering_of


def written(*rules):
    return json.dumps({"gatherStrategy": list(rules)})


def rule(layer, strategy, multiple=None):
    return {"layer": layer, "strategy": strategy} | ({} if multiple is None else {"podCountMultiple": multiple})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("{}", Gathering()),
        ("null", Gathering()),
        (' {"gatherStrategy": null, "more": 1}', Gathering()),
        (written(rule("Rack", "MustGather")), Gathering(("Rack",))),
        (written(rule("Rack", "PreferGather")), Gathering()),
        (written(rule("Rack", "Scatter")), Gathering()),
        (written(rule("Rack", "MustGather"), rule("Hall", "MustGather")), Gathering(("Rack", "Hall"))),
        (written(rule("Rack", "PreferGather", 4)), Gathering((), {"Rack": 4})),
        (written(rule("Rack", "MustGather", 1), rule("Hall", "MustGather", -2)), Gathering(("Rack", "Hall"))),
        (written(rule("Rack", "MustGather", 4), rule("Rack", "MustGather", 2)), Gathering(("Rack",), {"Rack": 2})),
        (written({"strategy": "MustGather"}), Gathering(("",))),
    ],
)
def test_what_is_read(text, expected):
    assert gathering_of(text) == expected


ANNOTATION = "annotation gang.scheduling.koordinator.sh/network-topology-spec: "


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "unexpected end of JSON input"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("[]", "json: cannot unmarshal array into Go value of type extension.NetworkTopologySpec"),
        ("5", "json: cannot unmarshal number into Go value of type extension.NetworkTopologySpec"),
        ('{"gatherStrategy": {}}', "Expected `array`, got `object` - at `$.gatherStrategy`"),
        (written(rule(5, "MustGather")), "Expected `str`, got `int` - at `$.gatherStrategy[0].layer`"),
        (written(rule("a", "b", "4")), "Expected `int`, got `str` - at `$.gatherStrategy[0].podCountMultiple`"),
        (
            written(rule("a", "b", 1 << 63)),
            "Expected `int` <= 9223372036854775807 - at `$.gatherStrategy[0].podCountMultiple`",
        ),
    ],
)
def test_what_cannot_be_read(text, problem):
    with pytest.raises(MalformedGathering) as error:
        gathering_of(text)
    assert str(error.value) == ANNOTATION + problem


FIELDS = st.sampled_from(["gatherStrategy", "layer", "strategy", "podCountMultiple"])
VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text() | st.sampled_from(["MustGather", "PreferGather"]),
    lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner),
)


@given(st.text() | VALUES.map(json.dumps))
def test_nothing_else_is_raised(text):
    try:
        found = gathering_of(text)
    except MalformedGathering as raised:
        found = raised
    assert found is None or isinstance(found, Gathering) or str(found).startswith(ANNOTATION)


def test_layers_that_are_not_there():
    gathering = Gathering(("Rack", "Hall"), {"Row": 2, "Rack": 3})
    assert gathering.unknown(("Hall", "Root")) == ["Rack", "Row"]

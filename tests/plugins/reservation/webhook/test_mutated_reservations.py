"""What profiles make of new Reservations."""

import copy

import pytest
import yaml

from koordsched.api.decoding import convert
from koordsched.fakecluster.schemas import PREFIX, definitions
from koordsched.plugins.reservation.webhook.colocation import ColocationProfile, Failed, PriorityClass
from koordsched.plugins.reservation.webhook.reservations import POD_TEMPLATE, mutated

PROD = "koord-prod"
CLASSES = {
    PROD: PriorityClass(value=9000, preemption_policy="Never"),
    "silent": PriorityClass(value=5),
}
SCHEMA = "io.k8s.api.core.v1.PodTemplateSpec"


def profile(name="p", **spec):
    return convert({"metadata": {"name": name}, "spec": spec}, ColocationProfile)


def reservation(labels=None, annotations=None, **pod):
    meta = (
        {"name": "r"} | ({"labels": labels} if labels else {}) | ({"annotations": annotations} if annotations else {})
    )
    return {"metadata": meta, "spec": {"template": {"spec": pod}, "owners": [{}]}}


def never():
    raise AssertionError("nothing is left to chance")


def apply(given, *profiles, draw=never):
    kept = copy.deepcopy(given)
    result = mutated(given, profiles, CLASSES, draw)
    assert given == kept
    return result


def test_everything_that_a_profile_gives():
    result = apply(
        reservation({"old": "1", "name": "x"}, {"note": "n"}, containers=[], preemptionPolicy="PreemptLowerPriority"),
        profile(
            labels={"a": "b"},
            annotations={"c": "d"},
            labelKeysMapping={"old": "new", "missing": "empty"},
            annotationKeysMapping={"note": "copy"},
            labelSuffixes={"name": "-1", "unknown": "-2"},
            qosClass="LSR",
            koordinatorPriority=1111,
            schedulerName="koord-scheduler",
            priorityClassName=PROD,
        ),
    )
    assert result["metadata"] == {
        "name": "r",
        "labels": {
            "old": "1",
            "name": "x-1",
            "a": "b",
            "new": "1",
            "empty": "",
            "koordinator.sh/qosClass": "LSR",
            "koordinator.sh/priority": "1111",
        },
        "annotations": {"note": "n", "c": "d", "copy": "n"},
    }
    assert result["spec"] == {
        "template": {
            "spec": {
                "containers": [],
                "schedulerName": "koord-scheduler",
                "priorityClassName": PROD,
                "priority": 9000,
                "preemptionPolicy": "Never",
            }
        },
        "owners": [{}],
    }


def test_a_class_without_policy_takes_it_away():
    result = apply(reservation(preemptionPolicy="Never"), profile(priorityClassName="silent"))
    assert result["spec"]["template"]["spec"] == {"priorityClassName": "silent", "priority": 5}


def test_a_class_has_to_exist():
    with pytest.raises(Failed, match=r'^PriorityClass\.scheduling\.k8s\.io "none" not found$'):
        apply(reservation(), profile(priorityClassName="none"))


@pytest.mark.parametrize("template", [None, 5, [], {}])
def test_odd_templates(template):
    given = {"metadata": {}, "spec": {"template": template}}
    result = apply(given, profile(schedulerName="s"))
    assert result["spec"]["template"] == ({"spec": {"schedulerName": "s"}} if template == {} else template)


@pytest.mark.parametrize("given", [{}, {"metadata": None}, {"metadata": {"labels": None}, "spec": None}])
def test_little_is_given(given):
    assert apply(given, profile(labels={"a": "b"}))["metadata"]["labels"] == {"a": "b"}
    assert apply(given, profile(schedulerName="s")) == given


@pytest.mark.parametrize(
    "selector, selected",
    [
        (None, True),
        ({}, True),
        ({"matchLabels": {"a": "b"}}, True),
        ({"matchLabels": {"a": "c"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Sometimes"}]}, True),
        ({"matchExpressions": [{"key": "?", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "z", "operator": "Exists"}]}, False),
    ],
)
def test_selectors(selector, selected):
    result = apply(reservation({"a": "b"}), profile(selector=selector, annotations={"seen": "1"}))
    assert ("annotations" in result["metadata"]) is selected


def test_profiles_come_in_the_order_of_their_names_and_select_what_was_asked_for():
    first = profile("a", labels={"x": "1", "added": "1"})
    second = profile("b", labels={"x": "2"}, labelSuffixes={"added": "!"})
    third = profile("c", selector={"matchLabels": {"added": "1!"}}, labels={"x": "3"})
    assert apply(reservation(), third, second, first)["metadata"]["labels"] == {"x": "2", "added": "1!"}


@pytest.mark.parametrize(
    "probability, applied",
    [(5, 5), ("5%", 5), ("0%", 0), (0, 0), ("100%", 100), (100, 100), (None, 100), ("120%", 100), (-3, 0)],
)
def test_probability_is_that_many_of_a_hundred(probability, applied):
    one = profile(probability=probability, labels={"a": "b"})
    results = [apply(reservation(), one, draw=lambda drawn=drawn: drawn) for drawn in range(100)]
    assert sum("labels" in result["metadata"] for result in results) == applied


@pytest.mark.parametrize(
    "probability, said",
    [("5", "string is not a percentage"), ("", "not a percentage"), ("x%", 'invalid value "x%"')],
)
def test_a_probability_that_is_none(probability, said):
    with pytest.raises(Failed, match=said):
        apply(reservation(), profile(probability=probability))


def test_patch():
    given = reservation({"a": "b", "gone": "1"}, containers=[{"name": "c", "image": "i"}, {"name": "d"}])
    patch = yaml.safe_load(
        """
        metadata: {labels: {gone: null, new: "1"}, finalizers: [f]}
        spec:
          owners: [{object: {name: p}}]
          template:
            spec:
              containers:
              - {name: c, env: [{name: e, value: "1"}]}
              - {name: d, $patch: delete}
              tolerations: [{operator: Exists}]
        """
    )
    result = apply(given, profile(patch=patch, labels={"gone": "2"}))
    assert result["metadata"] == {"name": "r", "labels": {"a": "b", "new": "1"}, "finalizers": ["f"]}
    assert result["spec"]["owners"] == [{"object": {"name": "p"}}]
    assert result["spec"]["template"]["spec"] == {
        "containers": [{"name": "c", "image": "i", "env": [{"name": "e", "value": "1"}]}],
        "tolerations": [{"operator": "Exists"}],
    }


@pytest.mark.parametrize(
    "patch, said",
    [
        ({"$patch": "shuffle"}, "Unknown patch type: shuffle"),
        ({"spec": {"template": {"spec": {"containers": [{"image": "i"}]}}}}, "merge key: name"),
    ],
)
def test_a_patch_that_does_not_apply(patch, said):
    with pytest.raises(Failed, match=said):
        apply(reservation(), profile(patch=patch))


def _merges(schema, refers, path=()):
    """(path, merge key) of the lists that a schema says are merged."""
    reference = schema.get("$ref")
    if reference is not None:
        name = reference.removeprefix(PREFIX)
        if name in refers:
            return
        schema, refers = definitions().get(name, {}), refers | {name}
    for name, member in schema.get("properties", {}).items():
        if "merge" in member.get("x-kubernetes-patch-strategy", ""):
            yield (*path, name), member.get("x-kubernetes-patch-merge-key")
        yield from _merges(member.get("items") or member, refers, (*path, name))


def test_lists_are_merged_as_those_of_pods():
    published = set(_merges({"$ref": PREFIX + SCHEMA}, frozenset()))
    assert set(_merges(POD_TEMPLATE, frozenset())) == published
    assert (("spec", "containers", "env"), "name") in published

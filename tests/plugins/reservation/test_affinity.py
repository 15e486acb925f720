"""What pods say about the Reservations that they may use."""

import json
import re
from contextlib import suppress

import pytest
from hypothesis import example, given, settings

from koordsched.api.core import Taint
from koordsched.plugins.reservation.affinity import ExactMatch, ReservationAffinity
from koordsched.plugins.reservation.owners import Owners
from tests.depth import examples
from tests.plugins.reservation.hostile import nested, values
from tests.plugins.reservation.objects import pod

KV = Taint(key="k", value="v", effect="NoSchedule")
LABELS = {"lane": "one", "size": "7"}
NODE_LABELS = {"lane": "node's", "zone": "z"}


def affinity(**given_):
    return ReservationAffinity(json.dumps(given_))


def terms(*given_):
    return affinity(requiredDuringSchedulingIgnoredDuringExecution={"reservationSelectorTerms": list(given_)})


def expression(key, operator, *values_):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values_)}]}


def named(operator, *names):
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(names)}]}


def selects(wanted, *, omit=False):
    return wanted.selects("r-a", NODE_LABELS, LABELS, omit)


@pytest.mark.parametrize("text", ["", "{}", "null", ' {"name": null, "tolerations": null}'])
def test_the_empty_annotation_selects_every_owned_one(text):
    wanted = ReservationAffinity(text)
    assert wanted.name == ""
    assert wanted.selector == {}
    assert not wanted.tolerates_unschedulable
    assert selects(wanted)
    assert wanted.untolerated([KV]) == "{k: v}"


def test_reservation_case_20_taints():
    owners = Owners([{"labelSelector": {"matchLabels": {"app": "web"}}}])
    assert owners.matches(pod(labels={"app": "web"}))  # without the annotation nothing else is asked
    assert affinity().untolerated([KV]) == "{k: v}"
    assert affinity(tolerations=[{"key": "k", "operator": "Exists"}]).untolerated([KV]) is None
    assert affinity(name="r-a").name == "r-a"


@pytest.mark.parametrize(
    "taints, tolerations, found",
    [
        ([], [], None),
        ([Taint(key="k", effect="PreferNoSchedule")], [], None),
        ([Taint(key="k", effect="NoExecute")], [], "{k: }"),
        ([Taint(key="a", value="1", effect="NoExecute"), KV], [], "{a: 1}"),
        ([Taint(key="a", value="1", effect="NoExecute"), KV], [{"key": "a", "value": "1"}], "{k: v}"),
        ([KV], [{"key": "k", "operator": "Equal", "value": "other"}], "{k: v}"),
        ([KV], [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}], "{k: v}"),
        ([KV], [{"operator": "Exists"}], None),
    ],
)
def test_the_first_untolerated_taint(taints, tolerations, found):
    assert affinity(tolerations=tolerations).untolerated(taints) == found


@pytest.mark.parametrize(
    "toleration, tolerates",
    [
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoExecute", "operator": "Exists"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
    ],
)
def test_unschedulable_ones_may_be_tolerated(toleration, tolerates):
    assert affinity(tolerations=[toleration]).tolerates_unschedulable is tolerates


@pytest.mark.parametrize(
    "wanted, selected, selected_without_node_labels",
    [
        (affinity(reservationSelector={"lane": "one"}), True, True),
        (affinity(reservationSelector={"lane": "node's"}), False, False),
        (affinity(reservationSelector={"zone": "z"}), True, False),
        (affinity(reservationSelector={"zone": "z", "lane": "two"}), False, False),
        (terms(), False, False),
        (terms({}), False, False),
        (terms({}, expression("lane", "In", "one", "two")), True, True),
        (terms(expression("lane", "In", "two"), named("In", "r-a")), True, True),
        (terms(expression("lane", "In", "two") | named("In", "r-a")), False, False),
        (terms(named("NotIn", "r-a")), False, False),
        (terms(expression("size", "Gt", "6")), True, True),
        (terms(expression("size", "Lt", "6")), False, False),
        (terms(expression("zone", "Exists")), True, False),
        (terms(expression("zone", "NotIn", "z")), False, True),
        (
            affinity(
                reservationSelector={"lane": "one"},
                requiredDuringSchedulingIgnoredDuringExecution={
                    "reservationSelectorTerms": [expression("zone", "DoesNotExist")]
                },
            ),
            False,
            True,
        ),
    ],
)
def test_selection(wanted, selected, selected_without_node_labels):
    assert selects(wanted) is selected
    assert selects(wanted, omit=True) is selected_without_node_labels


def test_a_label_that_is_empty_is_there():
    assert not affinity(reservationSelector={"zone": "z"}).selects("r", {"zone": "z"}, {"zone": ""}, False)


@pytest.mark.parametrize(
    "text, said",
    [
        ("x", "invalid character 'x' looking for beginning of value"),
        (" ", "unexpected end of JSON input"),
        ('{"name": "r"', "unexpected end of JSON input"),
        ("[]", "json: cannot unmarshal array into Go value of type extension.ReservationAffinity"),
        ('{"name": 5}', "$.name"),
        ('{"tolerations": [{"key": []}]}', "$.tolerations[0].key"),
        ('{"reservationSelector": {"a": 1}}', "reservationSelector"),
    ],
)
def test_what_cannot_be_read_is_named(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        ReservationAffinity(text)


@pytest.mark.parametrize(
    "term, said",
    [
        (expression("a", "Sometimes"), "'Sometimes' is not a valid selector operator"),
        (expression("a b", "Exists"), "not a label key: 'a b'"),
        (expression("a", "In", "no label value"), "not a label value"),
        (expression("a", "In"), "at least one value"),
        (expression("a", "Gt", "x"), "must be an integer"),
        ({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["r"]}]}, "field selector key"),
        (named("In", "r", "s"), "exactly one value"),
    ],
)
def test_a_term_that_is_not_valid_is_refused(term, said):
    with pytest.raises(ValueError, match=said):
        terms(expression("lane", "Exists"), term)


NAMES = (
    "name",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "reservationSelectorTerms",
    "reservationSelector",
    "tolerations",
    "matchExpressions",
    "matchFields",
    "key",
    "operator",
    "values",
    "resourceNames",
)


@given(values(*NAMES))
@example({"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": [{"matchFields": [{}]}]}})
@settings(max_examples=examples(600), deadline=None)
def test_any_json_is_read_or_refused(value):
    with suppress(ValueError):
        wanted = ReservationAffinity(json.dumps(value))
        assert selects(wanted) in (True, False)
        assert wanted.untolerated([KV]) in (None, "{k: v}")
    with suppress(ValueError):
        assert ExactMatch(json.dumps(value)).matches({"a": "1"}, {"a": "2"}) in (True, False)


@pytest.mark.parametrize("kind, name", [(ReservationAffinity, "name"), (ExactMatch, "resourceNames")])
@pytest.mark.parametrize("value", ["[" * 100_000, json.dumps(nested(500)), "[" * 5000 + "]" * 5000])
def test_deep_json_is_refused(kind, name, value):
    for text in (value, f'{{"{name}": {value}}}'):
        with pytest.raises(ValueError, match=r"json|JSON|depth|recursion|Expected"):
            kind(text)


def exact(*names):
    return ExactMatch(json.dumps({"resourceNames": list(names)}))


def test_reservation_case_19_exact_match():
    reserved = {"cpu": "1", "memory": "2Gi"}
    assert not exact("cpu", "memory").matches({"cpu": "1", "memory": "1Gi"}, reserved)
    assert exact("cpu").matches({"cpu": "1", "memory": "1Gi"}, reserved)
    assert exact("cpu", "memory").matches({"cpu": "1"}, {"cpu": "1"})


@pytest.mark.parametrize(
    "names, requests, allocatable, matches",
    [
        ([], {"cpu": "1"}, {}, True),
        (["gpu", "cpu"], {"cpu": "1"}, {"cpu": "2"}, True),  # nothing is looked at behind a name that is in neither
        (["cpu", "gpu"], {"cpu": "1"}, {"cpu": "2"}, False),
        (["cpu"], {"cpu": "1"}, {}, False),
        (["cpu"], {}, {"cpu": "1"}, False),
        (["cpu"], {"cpu": "1"}, {"cpu": "1000m"}, True),
        (["memory"], {"memory": "1Gi"}, {"memory": 1 << 30}, True),
        (["memory"], {"memory": 0}, {}, False),
        (["memory"], {"memory": 0}, {"memory": "0"}, True),
    ],
)
def test_exact_match(names, requests, allocatable, matches):
    assert exact(*names).matches(requests, allocatable) is matches


@pytest.mark.parametrize("text", ["", "{}", "null", '{"resourceNames": null}'])
def test_no_names_match_all(text):
    assert ExactMatch(text).matches({"cpu": "1"}, {"cpu": "2"})


@pytest.mark.parametrize(
    "text, said",
    [
        ("[]", "json: cannot unmarshal array into Go value of type extension.ExactMatchReservationSpec"),
        ('{"resourceNames": "cpu"}', "$.resourceNames"),
        ('{"resourceNames": [5]}', "$.resourceNames[0]"),
        ("x", "invalid character 'x'"),
    ],
)
def test_an_exact_match_that_cannot_be_read_is_refused(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        ExactMatch(text)

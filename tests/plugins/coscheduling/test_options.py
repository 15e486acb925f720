"""Which gang a pod belongs to, and the options of gangs (coscheduling spec 2.1, 2.2; cases 1 to 3)."""

import pytest

from koordsched.api.meta import ObjectMeta
from koordsched.config.duration import Duration
from koordsched.plugins.coscheduling import options
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.kinds import PodGroup, PodGroupSpec
from koordsched.plugins.coscheduling.options import GangOptions, Membership, membership
from koordsched.plugins.coscheduling.topology.members import index_of

ARGS = CoschedulingArgs()
GANG = "gang.scheduling.koordinator.sh/"
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
HUGE = "9" * 400
THREE = PodGroupSpec(min_member=3)


def annotated(**values: str) -> dict[str, str]:
    return {GANG + key.replace("_", "-"): value for key, value in values.items()}


def from_pod(labels: dict[str, str] | None = None, /, args: CoschedulingArgs = ARGS, **values: str) -> GangOptions:
    found = options.from_pod("default/g", labels or {}, annotated(**values), args)
    assert found is not None
    return found


def from_object(spec: PodGroupSpec = THREE, **values: str) -> GangOptions:
    meta = ObjectMeta(namespace="default", name="g", annotations=annotated(**values))
    return options.from_pod_group(PodGroup(metadata=meta, spec=spec), ARGS)


def test_case_1_a_pod_with_an_illegal_minimum_defines_nothing():
    assert options.from_pod("default/gangb", {}, annotated(name="gangb", min_available="xxx"), ARGS) is None


def test_case_1_other_illegal_values_count_as_absent():
    found = options.from_pod(
        "default/gangb",
        {},
        annotated(min_available="2", total_number="1", mode="wrong", waiting_time="wrong", groups="ganga,gangx"),
        ARGS,
    )
    assert found == GangOptions(
        min=2,
        total=2,
        mode="Strict",
        timeout=Duration.of(600),
        groups=("default/gangb",),
        match_policy="once-satisfied",
        topology_spec="",
        origin="GangFromPodAnnotation",
    )
    assert (found.waiting_time, found.group_id, found.strict) == (600.0, "default/gangb", True)


def test_case_1_groups_are_sorted():
    found = from_pod(min_available="2", groups='["b/y","a/z"]')
    assert found.groups == ("a/z", "b/y")
    assert found.group_id == "a/z,b/y"


def test_case_2_options_of_the_first_pod():
    found = from_pod(
        min_available="2", waiting_time="30s", mode="NonStrict", groups='["default/ganga","default/gangb"]'
    )
    assert (found.waiting_time, found.mode, found.strict) == (30.0, "NonStrict", False)


LABEL = {POD_GROUP: "a"}
DEPRECATED = {f"{POD_GROUP}/name": "c"}
ANNOTATION = {GANG + "name": "b"}


@pytest.mark.parametrize(
    "labels, annotations, expected",
    [
        (LABEL, ANNOTATION, Membership("ns/a", True)),
        (LABEL | DEPRECATED, ANNOTATION, Membership("ns/a", True)),
        (DEPRECATED, ANNOTATION, Membership("ns/c", False)),
        ({}, ANNOTATION, Membership("ns/b", False)),
        ({POD_GROUP: ""}, ANNOTATION, Membership("ns/b", False)),
        ({POD_GROUP: "", f"{POD_GROUP}/name": ""}, ANNOTATION, Membership("ns/b", False)),
        ({POD_GROUP: ""}, {GANG + "name": ""}, None),
        ({}, {}, None),
        ({"scheduling.x-k8s.io/pod-group": "x"}, {"scheduling.k8s.io/group-name": "y"}, None),
        ({f"{POD_GROUP}/min-available": "2"}, {GANG + "min-available": "2"}, None),
    ],
)
def test_case_3_which_gang(labels, annotations, expected):
    assert membership("ns", labels, annotations) == expected


@pytest.mark.parametrize(
    "text, minimum",
    [
        ("2", 2),
        ("+2", 2),
        ("0", 0),
        ("-3", -3),
        ("0002", 2),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("2147483648", None),
        ("", None),
        (" 2", None),
        ("2.0", None),
        ("1_000", None),
        ("0x2", None),
        ("٢", None),
        (HUGE, None),
    ],
)
def test_minimum(text, minimum):
    found = options.from_pod("default/g", {}, annotated(min_available=text), ARGS)
    assert (None if found is None else found.min) == minimum


def test_the_deprecated_label_for_the_minimum_wins_even_if_it_is_illegal():
    label = f"{POD_GROUP}/min-available"
    assert from_pod({label: "3"}, min_available="2").min == 3
    assert from_pod({label: ""}, min_available="2").min == 2
    assert options.from_pod("default/g", {label: "x"}, annotated(min_available="2"), ARGS) is None
    assert options.from_pod("default/g", {}, {}, ARGS) is None


@pytest.mark.parametrize(
    "text, total", [("5", 5), ("3", 3), ("2", 3), ("0", 3), ("-1", 3), ("", 3), ("x", 3), ("99999999999", 3)]
)
def test_total(text, total):
    assert from_pod(min_available="3", total_number=text).total == total
    assert from_object(total_number=text).total == total


def test_a_minimum_of_zero_has_total_zero():
    found = from_pod(min_available="0")
    assert (found.min, found.total) == (0, 0)


@pytest.mark.parametrize(
    "text, nanoseconds",
    [
        ("30s", 30 * 10**9),
        ("1h1m1.5s", 3661 * 10**9 + 5 * 10**8),
        ("1ns", 1),
        ("0", None),
        ("0s", None),
        ("-5s", None),
        ("", None),
        ("30", None),
        ("30x", None),
        (HUGE + "s", None),
    ],
)
def test_waiting_time(text, nanoseconds):
    expected = 600 * 10**9 if nanoseconds is None else nanoseconds
    assert int(from_pod(min_available="1", waiting_time=text).timeout) == expected


@pytest.mark.parametrize(
    "main, alias, policy",
    [
        ("only-waiting", "", "only-waiting"),
        ("waiting-and-running", "only-waiting", "waiting-and-running"),
        ("", "only-waiting", "only-waiting"),
        ("wrong", "only-waiting", "once-satisfied"),
        ("", "wrong", "once-satisfied"),
        ("", "", "once-satisfied"),
    ],
)
def test_match_policy(main, alias, policy):
    annotations = annotated(min_available="1", match_policy=main) | {f"{POD_GROUP}/match-policy": alias}
    found = options.from_pod("default/g", {}, annotations, ARGS)
    assert found is not None
    assert found.match_policy == policy
    meta = ObjectMeta(namespace="default", name="g", annotations=annotations)
    assert options.from_pod_group(PodGroup(metadata=meta), ARGS).match_policy == policy


def test_the_default_policy_is_an_argument():
    args = CoschedulingArgs(default_match_policy="only-waiting", default_timeout=Duration.of(7))
    found = from_pod(args=args, min_available="1", match_policy="wrong")
    assert (found.match_policy, found.waiting_time) == ("only-waiting", 7.0)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", "1", '"a/b"', '["a/b",1]', '["a/b",null]', "[", '["a/b"] x', "[" * 5000, '["\\ud800"]'],
)
def test_illegal_groups_mean_the_gang_alone(text):
    assert from_pod(min_available="1", groups=text).groups == ("default/g",)
    assert from_object(groups=text).groups == ("default/g",)


def test_the_gang_itself_is_not_added_to_groups():
    assert from_pod(min_available="1", groups='["other/x"]').groups == ("other/x",)


def test_options_of_a_pod_group():
    spec = PodGroupSpec(min_member=3, schedule_timeout_seconds=10)
    found = from_object(
        spec, mode="NonStrict", total_number="4", waiting_time="30s", network_topology_spec="{", groups='["a/b"]'
    )
    assert found == GangOptions(
        min=3,
        total=4,
        mode="NonStrict",
        timeout=Duration.of(10),
        groups=("a/b",),
        match_policy="once-satisfied",
        topology_spec="{",
        origin="GangFromPodGroupCrd",
    )


@pytest.mark.parametrize(("seconds", "expected"), [(None, 600.0), (0, 600.0), (-1, 600.0), (1, 1.0)])
def test_the_timeout_of_a_pod_group_or_the_default(seconds, expected):
    assert from_object(PodGroupSpec(min_member=1, schedule_timeout_seconds=seconds)).waiting_time == expected


@pytest.mark.parametrize("text, index", [("0", 0), ("7", 7), ("-1", None), ("x", None), ("", None), (HUGE, None)])
def test_topology_index(text, index):
    assert index_of(annotated(network_topology_index=text)) == index


def test_topology_index_is_optional():
    assert index_of({}) is None

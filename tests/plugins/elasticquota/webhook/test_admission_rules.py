"""The rules of the webhooks, case by case (elasticquota spec 3.18, 5.1 and section 7, cases 27, 28, 31)."""

import json

import pytest

from koordsched.api.decoding import convert
from koordsched.api.quantity import NANO
from koordsched.plugins.elasticquota import kinds as api
from koordsched.plugins.elasticquota.webhook.declared import DeclaredQuotas, Refused
from koordsched.plugins.elasticquota.webhook.defaults import filled_in, weight_is_defaulted
from koordsched.plugins.elasticquota.webhook.evaluation import admitted
from koordsched.plugins.elasticquota.webhook.pods import check_pod_create, check_pod_update, kept_to_its_tree
from koordsched.plugins.elasticquota.webhook.quotas import Gates, QuotaRules

FLAGS = {
    "parent": api.PARENT,
    "tree": api.TREE_ID,
    "is_parent": api.IS_PARENT,
    "is_root": api.IS_ROOT,
    "forced": api.ALLOW_FORCE_UPDATE,
}


def eq(name, maximum=None, minimum=None, used=None, annotations=None, **labels):
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {FLAGS[key]: "true" if value is True else value for key, value in labels.items()},
        "annotations": {api.PREFIX + key: value for key, value in (annotations or {}).items()},
    }
    spec = {"max": maximum or {}, "min": minimum or {}}
    return convert({"metadata": metadata, "spec": spec, "status": {"used": used or {}}}, api.ElasticQuota)


class Pods:
    def __init__(self, labels=None, namespaces=()):
        self._labels, self._namespaces = labels or {}, namespaces

    def labelled(self, quota):
        return self._labels.get(quota, [])

    def any_in(self, namespace):
        return namespace in self._namespaces


def rules(*quotas, pods=None, **gates):
    return QuotaRules(DeclaredQuotas(quotas), pods or Pods(), Gates(**gates))


def refusal(check, *arguments):
    try:
        check(*arguments)
    except Refused as refused:
        return str(refused)
    return None


P10 = eq("p", {"cpu": "100", "memory": "100"}, {"cpu": 10}, is_parent=True)
P19 = eq("p", {"cpu": "100", "memory": "100"}, {"cpu": 19, "memory": 5}, is_parent=True)
NO_MIN = eq("p", {"cpu": "100", "memory": "100"}, is_parent=True)
LOW = eq("p", {"cpu": "10"}, {"cpu": 10}, is_parent=True)
LEAF = eq("p", {"cpu": "10"})
BOTH = {"cpu": "50", "memory": "50"}
NOT_INCLUDED = "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: "
SUMS = "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: p"


@pytest.mark.parametrize(
    ("existing", "quota", "gates", "expected"),
    [
        ([P10], eq("a", BOTH, {"cpu": 16}, parent="p"), {}, SUMS),
        ([P19], eq("a", BOTH, {"cpu": 16}, parent="p"), {}, None),
        ([P19, eq("b", BOTH, {"cpu": 4}, parent="p")], eq("a", BOTH, {"cpu": 16}, parent="p"), {}, SUMS),
        ([P10], eq("a", BOTH, {"cpu": 16}, parent="p", forced=True), {}, None),
        ([P10], eq("a", BOTH, {"cpu": 16}, parent="p", is_root=True), {}, None),
        (
            [NO_MIN],
            eq("a", BOTH, {"cpu": 19}, parent="p"),
            {},
            NOT_INCLUDED + "a's min keys are not all included in p's",
        ),
        (
            [P10],
            eq("a", {"cpu": 5}, parent="p"),
            {},
            NOT_INCLUDED + "p's max keys are not the same with a's",
        ),
        ([P10], eq("a", {"cpu": 5}, parent="p"), {"update_resource_key": True}, None),
        (
            [P10],
            eq("a", {"gpu": 5}, parent="p"),
            {"update_resource_key": True},
            NOT_INCLUDED + "a's max keys are not all included in p's",
        ),
        ([LOW], eq("a", {"cpu": 120}, parent="p"), {}, None),
        ([LEAF], eq("a", {"cpu": 1}, parent="p"), {}, "a has parentName p but the parentQuotaInfo's IsParent is false"),
        ([], eq("a", {"cpu": 1}, parent="p"), {}, "a has parentName p but not find parentInfo in quotaInfoMap"),
        ([P10], eq("p", BOTH), {}, "AddQuota quota already exist:p"),
        (
            [eq("o", annotations={"namespaces": '["x","y"]'})],
            eq("a", annotations={"namespaces": '["z","y"]'}),
            {},
            "AddQuota quota a's annotation namespace y is already bound to quota o",
        ),
        (
            [eq("p", {"cpu": 1}, tree="t1", is_parent=True)],
            eq("a", {"cpu": 1}, parent="p", tree="t2"),
            {},
            "a tree id is different from parent p, [t2] vs [t1]",
        ),
        ([], eq("a", {"cpu": "x"}), {}, "a quota.Spec.Max: cpu: quantity 'x' must match"),
        (
            [],
            eq("a", {"cpu": 1}, used={"cpu": 2}, annotations={"max-strict-check-resource-keys": '["cpu"]'}),
            {},
            "resourceKey cpu of quota a max 1 < used 2",
        ),
        ([], eq("a", {"cpu": 1}, used={"cpu": 2}), {}, None),
        # Nothing above has room to guarantee 5, then p has.
        (
            [eq("r", BOTH, is_parent=True, tree="t"), eq("p", BOTH, {"cpu": 5}, is_parent=True, parent="r", tree="t")],
            eq("a", BOTH, {"cpu": 5}, parent="p", tree="t"),
            {"guarantee_usage": True},
            "tree root quota r can't guarantee for min a",
        ),
        (
            [
                eq("r", BOTH, is_parent=True, tree="t"),
                eq(
                    "p",
                    BOTH,
                    {"cpu": 5},
                    is_parent=True,
                    parent="r",
                    tree="t",
                    annotations={"guaranteed": '{"cpu":"5"}'},
                ),
            ],
            eq("a", BOTH, {"cpu": 5}, parent="p", tree="t"),
            {"guarantee_usage": True},
            None,
        ),
    ],
)
def test_elasticquota_case_27_create(existing, quota, gates, expected):
    said = refusal(rules(*existing, **gates).check_create, quota)
    assert said == expected or (expected and expected.endswith("must match") and said.startswith(expected))


CHILD = eq("a", {"cpu": 5}, {"cpu": 5}, parent="p")
PARENT = eq("p", {"cpu": "10"}, is_parent=True)
HAS_CHILDREN = "quota has children, isParent is forbidden to modify as false, quotaName:p"
HAS_PODS = "quota has bound pods, isParent is forbidden to modify as true, quotaName: p"
CHILD_MINS = "checkMinQuotaSum all children's MinQuota > current MinQuota, current: p"


@pytest.mark.parametrize(
    ("before", "after", "others", "pods", "expected"),
    [
        (LOW, eq("p", {"cpu": "10"}, {"cpu": 10}), [CHILD], None, HAS_CHILDREN),
        (LOW, eq("p", {"cpu": "10"}, {"cpu": 10}), [], None, None),
        (LEAF, PARENT, [], Pods({"p": ["x"]}), HAS_PODS),
        (LEAF, PARENT, [], Pods(namespaces=["p"]), HAS_PODS),
        (LEAF, PARENT, [], Pods(namespaces=["q"]), None),
        (LOW, eq("p", {"cpu": "10"}, {"cpu": 4}, is_parent=True), [CHILD], None, CHILD_MINS),
        (eq("p", tree="t1"), eq("p", tree="t2"), [], None, "p tree id changed [t1] vs [t2]"),
        # Only weight changed: nothing is looked at, wrong as it is.
        (LEAF, eq("p", {"cpu": "10"}, annotations={"shared-weight": '{"cpu":"-1"}'}), [], None, None),
        (eq(api.SYSTEM_QUOTA), eq(api.SYSTEM_QUOTA, {"cpu": 1}), [], None, f"invalid quota {api.SYSTEM_QUOTA}"),
        (
            LEAF,
            eq("p", {"cpu": "10"}, annotations={"namespaces": '["n"]'}),
            [eq("o", annotations={"namespaces": '["n"]'})],
            None,
            "UpdadteQuota, quota p update namespaces, but namespace n is already bound to quota o",
        ),
    ],
)
def test_update(before, after, others, pods, expected):
    assert refusal(rules(before, *others, pods=pods).check_update, after, before) == expected


def test_update_of_an_unknown_quota():
    said = refusal(rules().check_update, eq("p", {"cpu": 1}), LEAF)
    assert said == "UpdateQuota quota not exist in quotaInfoMap:p"


@pytest.mark.parametrize(
    ("name", "quotas", "labelled", "expected"),
    [
        ("p", [LOW, CHILD], {}, "delete quota failed, quota p has 1 child quotas"),
        ("p", [LOW], {"p": ["a", "b"]}, "delete quota failed, quota p has 2 child pods: a, b"),
        ("p", [LOW], {"p": ["a", "b", "c"]}, "delete quota failed, quota p has 3 child pods: a, b, ..."),
        ("p", [LOW], {"q": ["a"]}, None),
        (api.ROOT_QUOTA, [], {}, f"can not delete quotaGroup :{api.ROOT_QUOTA}"),
    ],
)
def test_delete(name, quotas, labelled, expected):
    assert refusal(rules(*quotas, pods=Pods(labelled)).check_delete, name) == expected


@pytest.mark.parametrize(
    ("maximum", "given", "expected"),
    [
        ({"cpu": 120, "memory": 1048576}, None, {"cpu": "120", "memory": "1048576"}),
        ({"cpu": 120, "memory": 1048576}, '{"cpu":0}', {"cpu": "0", "memory": "1048576"}),
        ({"memory": 1048576}, '{"cpu":0,"memory":0}', {"memory": "0"}),
        ({"cpu": "4000m", "memory": "8192Mi"}, "", {"cpu": "4", "memory": "8Gi"}),
        ({}, None, None),
    ],
)
def test_elasticquota_case_28_weight(maximum, given, expected):
    quota = eq("a", maximum, annotations={} if given is None else {"shared-weight": given})
    assert weight_is_defaulted(quota) is not bool(given)
    assert json.loads(filled_in(quota, DeclaredQuotas()).metadata.annotations[api.SHARED_WEIGHT]) == expected


def test_a_child_gets_the_tree_of_its_parent():
    quotas = DeclaredQuotas([eq("p", tree="t", is_parent=True)])
    assert filled_in(eq("a", parent="p"), quotas).metadata.labels[api.TREE_ID] == "t"
    assert filled_in(eq("a", parent="p", tree="u"), quotas).metadata.labels[api.TREE_ID] == "u"


@pytest.mark.parametrize(
    ("quota", "request_", "expected"),
    [
        (
            eq("q", {"cpu": 20}, annotations={"child-request": '{"cpu":"19"}'}),
            {"cpu": 2 * NANO},
            "exceeded quota: default/q, requested: cpu=2, used: cpu=19, limited: cpu=20",
        ),
        (
            eq("q", {"nvidia.com/gpu": 4}),
            {"cpu": 2 * NANO, "memory": 4 << 30, "nvidia.com/gpu": NANO},
            {"nvidia.com/gpu": "1"},
        ),
        (eq("q", {"cpu": 20}), {"memory": NANO}, None),
        (eq("q", {"example.com/x": 1}), {"example.com/x": 7 * NANO}, None),
    ],
)
def test_elasticquota_case_31_counting_at_admission(quota, request_, expected):
    if isinstance(expected, str):
        assert refusal(admitted, "q", [quota], request_) == expected
        return
    changed = admitted("q", [quota], request_)
    shown = None if changed is None else json.loads(changed.metadata.annotations[api.CHILD_REQUEST])
    assert shown == expected


@pytest.mark.parametrize("name", ["", api.ROOT_QUOTA, api.DEFAULT_QUOTA, api.SYSTEM_QUOTA])
def test_built_in_quotas_are_not_counted(name):
    assert admitted(name, [], {"cpu": NANO}) is None


def test_pods():
    quotas = DeclaredQuotas([LOW, eq("team", {"cpu": 1})])
    linked = "pod can not be linked to a parentQuotaGroup,quota:p, pod:x"
    assert refusal(check_pod_create, "ns", "x", {api.QUOTA_NAME: "p"}, quotas) == linked
    assert refusal(check_pod_create, "p", "x", {}, quotas) == linked
    assert refusal(check_pod_create, "p", "x", {api.QUOTA_NAME: "team"}, quotas) is None
    assert refusal(check_pod_create, "ns", "x", {api.QUOTA_NAME: "nobody"}, quotas) is None
    forbidden = "Preemptible label is forbidden modify now."
    assert refusal(check_pod_update, {api.PREEMPTIBLE: "false"}, {}) == forbidden
    assert refusal(check_pod_update, {}, {api.PREEMPTIBLE: "true"}) == forbidden
    assert refusal(check_pod_update, {api.PREEMPTIBLE: "false"}, {api.PREEMPTIBLE: "false"}) is None


@pytest.mark.parametrize("profiles", [[], [{}], [{"nodeSelector": {}}]])
def test_a_pod_whose_tree_names_no_nodes_may_go_anywhere(profiles):
    labels = {api.TREE_ID: "t"}
    profiles = [
        convert({"metadata": {"name": "p", "labels": labels}, "spec": spec}, api.ElasticQuotaProfile)
        for spec in profiles
    ]
    new = {"metadata": {"namespace": "ns", "labels": {api.QUOTA_NAME: "q"}}}
    assert kept_to_its_tree(new, DeclaredQuotas([eq("q", tree="t")]), profiles) == new

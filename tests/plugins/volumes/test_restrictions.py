"""VolumeRestrictions, rule by rule (default-plugins spec 3.11)."""

import pytest

from tests.plugins.harness import Bench, explain
from tests.plugins.volumes.asking import pre_filter
from tests.plugins.volumes.objects import (
    bound,
    claim,
    ebs,
    gce,
    iscsi,
    node,
    pod,
    rbd,
    storage_class,
)


@pytest.mark.parametrize(
    "one, other, conflict",
    [
        (gce("a"), gce("a"), True),
        (gce("a"), gce("b"), False),
        (gce("a", True), gce("a"), True),
        (gce("a"), gce("a", True), True),
        (gce("a", True), gce("a", True), False),
        (ebs("a", True), ebs("a", True), True),
        (ebs("a"), ebs("b"), False),
        (ebs("a"), gce("a"), False),
        (iscsi("a"), iscsi("a", True), True),
        (iscsi("a", True), iscsi("a", True), False),
        (iscsi("a"), iscsi("b"), False),
        (rbd("m1", "m2"), rbd("m2", "m3"), True),
        (rbd("m1"), rbd("m2"), False),
        (rbd("m1"), rbd("m1", image="j"), False),
        (rbd("m1"), rbd("m1", pool="q"), False),
        (rbd("m1", read_only=True), rbd("m1", read_only=True), False),
        ({"emptyDir": {}}, {"emptyDir": {}}, None),
    ],
)
def test_inline_disks(one, other, conflict):
    bench = Bench(node("n1"), node("n2"), pod("e", inline=[other], on="n1", namespace="elsewhere"))
    verdict = ("Unschedulable", "node(s) had no available disk") if conflict else None
    found = bench.filter(bench.plugin("VolumeRestrictions"), pod("p", inline=[one]))
    assert found == (None if conflict is None else {"n1": verdict, "n2": None})


@pytest.mark.parametrize(
    "mode, users, expected",
    [
        ("ReadWriteOncePod", [], "SKIP"),
        ("ReadWriteOncePod", [pod("e", "other", on="n1")], "SKIP"),
        ("ReadWriteOncePod", [pod("e", "c", on="n1")], None),
        ("ReadWriteOncePod", [pod("e", "c", on="n1", namespace="elsewhere")], "SKIP"),
        ("ReadWriteOncePod", [pod("e", "c", on="gone")], "SKIP"),
        ("ReadWriteOnce", [pod("e", "c", on="n1")], "SKIP"),
    ],
)
def test_claims_for_one_pod(mode, users, expected):
    objects = [node("n1"), claim("c", accessModes=[mode]), *users]
    assert pre_filter("VolumeRestrictions", objects, pod("p", "c")) == expected


def test_a_claim_for_one_pod_frees_up_in_a_dry_run_wherever_its_user_is():
    pv, pvc = bound("c")
    pvc["spec"]["accessModes"] = ["ReadWriteOncePod"]
    state = [node("n1"), node("n2"), storage_class(), pv, pvc, pod("e", "c", on="n2", priority=1)]
    # A pod of the same name of claim elsewhere is nobody's victim (default-plugins spec 6.9).
    state.append(pod("f", "c", on="n1", priority=1, namespace="elsewhere"))
    found = explain(state, pod("p", "c", priority=10))
    assert (found.nominated_node, found.victims) == ("n2", ["default/e"])

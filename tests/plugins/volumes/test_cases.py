"""Section 7 of the default-plugins specification, cases 29 to 32."""

import pytest

from tests.plugins.harness import Bench, explain, scheduler
from tests.plugins.volumes.objects import (
    BETA_ZONE,
    HOSTNAME,
    LOCAL,
    ZONE,
    attachment,
    bound,
    claim,
    csi_node,
    node,
    pod,
    storage_class,
    volume,
)

SINGLE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
FULL = ("Unschedulable", "node(s) exceed max volume count")
NO_ZONE = ("UnschedulableAndUnresolvable", "node(s) had no available volume zone")


def test_default_plugins_case_29_unbound_immediate_claim():
    found = explain(
        [node("n1"), node("n2"), storage_class("now", "Immediate"), claim("c", class_name="now")], pod("p", "c")
    )
    assert found.message == "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    assert found.rejected_by == "VolumeBinding"


def test_default_plugins_case_29_claim_for_one_pod_in_use():
    pv, pvc = bound("c")
    pvc["spec"]["accessModes"] = ["ReadWriteOncePod"]
    found = explain([node("n1"), node("n2"), storage_class(), pv, pvc, pod("e", "c", on="n1")], pod("p", "c"))
    assert found.message == (
        f"0/2 nodes are available: 2 {SINGLE_POD}. no new claims to deallocate, preemption: 0/2 nodes are available: "
        "2 No preemption victims found for incoming pod."
    )


@pytest.mark.parametrize(
    "limit, wanted, expected",
    [
        (2, "new", FULL),
        (3, "new", None),
        (2, "used", None),
        # Attached, but used by no pod there: counts once more (6.8).
        (2, "attached", FULL),
        (3, "attached", None),
    ],
)
def test_default_plugins_case_30_csi_limits(limit, wanted, expected):
    objects = [thing for name in ("used", "attached", "new") for thing in bound(name)]
    bench = Bench(
        node("n"),
        storage_class(),
        csi_node("n", disk_test=limit),
        *objects,
        pod("e", "used", on="n"),
        attachment("a1", "n", "pv-used"),
        attachment("a2", "n", "pv-attached"),
    )
    assert bench.filter(bench.plugin("NodeVolumeLimits"), pod("p", wanted)) == {"n": expected}


@pytest.mark.parametrize(
    "label, zone, refused",
    [
        (ZONE, "a__b", {"c"}),
        (BETA_ZONE, "a", {"b", "c"}),  # a node that has only the general label is known by that
    ],
)
def test_default_plugins_case_31_zones_of_a_volume(label, zone, refused):
    pv, pvc = bound("c", labels={label: zone})
    bench = Bench(node("a", "a"), node("b", "b"), node("c", "c"), node("none"), storage_class(), pv, pvc)
    found = bench.filter(bench.plugin("VolumeZone"), pod("p", "c"))
    assert found == {name: NO_ZONE if name in refused else None for name in ("a", "b", "c", "none")}


def test_default_plugins_case_32_two_local_claims():
    here = {HOSTNAME: ["n"]}
    state = [node("n"), LOCAL, volume("small", "5Gi", "local", at=here), volume("big", "10Gi", "local", at=here)]
    claims = [claim("eight", "8Gi", "local"), claim("three", "3Gi", "local")]
    offline = scheduler([*state, *claims, pod("p", "eight", "three")])
    assert offline.schedule("default/p").node == "n"
    # What was reserved is what others see: both volumes are taken now.
    for name in ("q", "r"):
        offline.add(claim(name, "1Gi", "local"))
        offline.add(pod(name, name))
        assert (
            "1 node(s) didn't find available persistent volumes to bind." in offline.explain(f"default/{name}").message
        )


def test_default_plugins_case_32_only_the_small_volume():
    state = [node("n"), LOCAL, volume("small", "5Gi", "local", at={HOSTNAME: ["n"]})]
    found = explain(
        [*state, claim("eight", "8Gi", "local"), claim("three", "3Gi", "local")], pod("p", "eight", "three")
    )
    assert found.message.startswith(
        "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
    )

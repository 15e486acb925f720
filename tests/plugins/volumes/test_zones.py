"""VolumeZone, rule by rule (default-plugins spec 3.11)."""

import pytest

from tests.plugins.harness import explain
from tests.plugins.objects import container
from tests.plugins.volumes.asking import pre_filter, refused
from tests.plugins.volumes.objects import (
    BETA_ZONE,
    REGION,
    ZONE,
    bound,
    claim,
    node,
    pod,
    storage_class,
)


@pytest.mark.parametrize(
    "state, expected",
    [
        ([], 'persistentvolumeclaim "c" not found'),
        ([claim("c", bound_to="v")], 'persistentvolume "v" not found'),
        ([claim("c", class_name=None)], "PersistentVolumeClaim had no pv name and storageClass name"),
        ([claim("c", class_name="x")], 'storageclass.storage.k8s.io "x" not found'),
        ([claim("c"), storage_class(mode=None)], 'VolumeBindingMode not set for StorageClass "late"'),
        ([claim("c"), storage_class(mode="Immediate")], "PersistentVolume had no name"),
        ([claim("c"), storage_class()], "SKIP"),
        (bound("c"), "SKIP"),
        (bound("c", labels={ZONE: "a"}), None),
        (bound("c", labels={REGION: "a"}), None),
        (bound("c", labels={ZONE: "a__"}), "SKIP"),
        (bound("c", labels={"zone": "a"}), "SKIP"),
    ],
)
def test_zones_before_any_node(state, expected):
    assert pre_filter("VolumeZone", [node("n"), *state], pod("p", "c")) == expected


def test_zones_need_a_claim():
    assert pre_filter("VolumeZone", [], pod("p", ephemeral=["e"])) == "SKIP"
    assert pre_filter("VolumeZone", [], pod("p", "")) == "PersistentVolumeClaim had no name"


@pytest.mark.parametrize(
    "volume_labels, node_labels, fits",
    [
        ({ZONE: "a"}, {ZONE: "a"}, True),
        ({ZONE: "a"}, {ZONE: "b"}, False),
        ({ZONE: "a"}, {}, True),
        ({ZONE: "a"}, {REGION: "r"}, False),
        ({ZONE: "a"}, {BETA_ZONE: "a"}, False),
        ({BETA_ZONE: "a"}, {BETA_ZONE: "a"}, True),
        ({BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, False),
        ({ZONE: " a __ b "}, {ZONE: "b"}, True),
        ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "r"}, True),
        ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, False),
    ],
)
def test_zones_of_nodes(volume_labels, node_labels, fits):
    found = refused("VolumeZone", [node("n", **node_labels), *bound("c", labels=volume_labels)], pod("p", "c"))
    assert found == ({} if fits else {"n": ("node(s) had no available volume zone",)})


def test_a_victim_makes_room_in_the_zone_of_a_volume():
    state = [node("n1", "a"), node("n2", "b"), storage_class(), *bound("c", labels={ZONE: "b"})]
    state += [pod(f"on-{name}", containers=[container(cpu="4")], on=name, priority=1) for name in ("n1", "n2")]
    found = explain(state, pod("p", "c", containers=[container(cpu="4")], priority=10))
    assert (found.nominated_node, found.victims) == ("n2", ["default/on-n2"])

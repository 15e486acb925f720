"""NodeVolumeLimits, rule by rule (default-plugins spec 3.11)."""

import pytest

from tests.plugins.harness import Bench, explain
from tests.plugins.objects import container
from tests.plugins.volumes.asking import refused
from tests.plugins.volumes.objects import (
    attachment,
    bound,
    claim,
    csi_driver,
    csi_node,
    ebs,
    iscsi,
    node,
    pod,
    storage_class,
)

EBS_PV = {"csi": None, "awsElasticBlockStore": {"volumeID": "aws://za/vol-1"}}


@pytest.mark.parametrize(
    "state, wanted, full",
    [
        pytest.param([csi_node("n", disk_test=1), *bound("a")], pod("p", "a"), False, id="fits"),
        pytest.param([csi_node("n", disk_test=0), *bound("a")], pod("p", "a"), True, id="limit of none"),
        pytest.param([csi_node("n", disk_test=None), *bound("a")], pod("p", "a"), False, id="no limit"),
        pytest.param([csi_node("other", disk_test=0), *bound("a")], pod("p", "a"), False, id="no CSINode"),
        pytest.param([csi_node("n", file_test=0), *bound("a")], pod("p", "a"), False, id="limit of another driver"),
        pytest.param(
            [csi_node("n", disk_test=1), *bound("a"), *bound("b", handle="h-pv-a")],
            pod("p", "a", "b"),
            False,
            id="same handle",
        ),
        pytest.param(
            [csi_node("n", disk_test=1), *bound("a"), *bound("b")], pod("p", "a", "b"), True, id="two at once"
        ),
        pytest.param(
            [csi_node("n", disk_test=1), *bound("a"), *bound("b"), pod("e", "a", on="n")],
            pod("p", "a", "b"),
            True,
            id="two at once, one of which is in use",
        ),
        pytest.param(
            [csi_node("n", disk_test=0), *bound("a", csi={"driver": "disk.test", "volumeHandle": ""})],
            pod("p", "a"),
            False,
            id="no handle",
        ),
        pytest.param([csi_node("n", disk_test=0), claim("a")], pod("p", "a"), True, id="class of an unbound claim"),
        pytest.param(
            [csi_node("n", disk_test=0), claim("a", class_name="x")], pod("p", "a"), False, id="unknown class"
        ),
        pytest.param(
            [csi_node("n", disk_test=0), claim("a", bound_to="ghost")],
            pod("p", "a"),
            True,
            id="class if the volume is gone",
        ),
        pytest.param(
            [csi_node("n", disk_test=0), claim("p-e", owner="uid-default-p")],
            pod("p", ephemeral=["e"]),
            True,
            id="ephemeral",
        ),
        pytest.param([csi_node("n", ebs_csi_aws_com=0)], pod("p", inline=[ebs("vol-1")]), True, id="migrated inline"),
        pytest.param(
            [csi_node("n", ebs_csi_aws_com=0), *bound("a", **EBS_PV)], pod("p", "a"), True, id="migrated volume"
        ),
        pytest.param(
            [csi_node("n", ebs_csi_aws_com=1), *bound("a", **EBS_PV)],
            pod("p", "a", inline=[ebs("vol-1")]),
            False,
            id="the same migrated volume twice",
        ),
        pytest.param(
            [
                csi_node("n", ebs_csi_aws_com=0),
                storage_class("ebs", provisioner="kubernetes.io/aws-ebs"),
                claim("a", class_name="ebs"),
            ],
            pod("p", "a"),
            True,
            id="migrated class",
        ),
        pytest.param([csi_node("n", disk_test=0)], pod("p", inline=[iscsi("a")]), None, id="volumes that never count"),
        pytest.param(
            [csi_node("n", disk_test=1), *bound("a"), *bound("b"), attachment("x", "n", "pv-b", attacher="file.test")],
            pod("p", "a"),
            False,
            id="attached by another driver",
        ),
        pytest.param(
            [csi_node("n", disk_test=1), *bound("a"), *bound("b"), attachment("x", "m", "pv-b")],
            pod("p", "a"),
            False,
            id="attached elsewhere",
        ),
        pytest.param(
            [csi_node("n", disk_test=1), *bound("a"), attachment("x", "n", "ghost")],
            pod("p", "a"),
            False,
            id="attached ghost",
        ),
    ],
)
def test_volume_limits(state, wanted, full):
    bench = Bench(node("n"), storage_class(), *state)
    found = bench.filter(bench.plugin("NodeVolumeLimits"), wanted)
    verdict = ("Unschedulable", "node(s) exceed max volume count") if full else None
    assert found == (None if full is None else {"n": verdict})


def test_limits_with_claims_that_cannot_be_looked_up():
    objects = [node("n"), claim("p-e", owner="other")]
    assert refused("NodeVolumeLimits", objects, pod("p", "x")) == {
        "n": ('looking up PVC default/x: persistentvolumeclaim "x" not found',)
    }
    assert refused("NodeVolumeLimits", objects, pod("p", ephemeral=["e"])) == {
        "n": ("PVC default/p-e was not created for pod default/p (pod is not owner)",)
    }


def test_a_victim_makes_room_for_a_volume():
    state = [node("n1"), node("n2"), storage_class(), csi_node("n1", disk_test=1), csi_node("n2", disk_test=1)]
    state += [*bound("a"), *bound("b"), *bound("c")]
    state += [pod("e", "a", on="n1", priority=20), pod("f", "b", on="n2", priority=1)]
    found = explain(state, pod("p", "c", priority=10))
    assert (found.nominated_node, found.victims) == ("n2", ["default/f"])


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("gate", [True, False])
def test_nodes_without_the_driver(gate, required):
    state = [node("has"), node("full"), node("lacks"), node("bare"), storage_class(), *bound("a")]
    state += [csi_node("has", disk_test=None), csi_node("full", disk_test=0), csi_node("lacks", file_test=1)]
    bench = Bench(*state, csi_driver(preventPodSchedulingIfMissing=required))
    bench.handle.features = frozenset({"VolumeLimitScaling"} if gate else ())
    found = bench.filter(bench.plugin("NodeVolumeLimits"), pod("p", "a"))
    full = ("Unschedulable", "node(s) exceed max volume count")
    missing = ("Unschedulable", "disk.test CSI driver is not installed on the node") if gate and required else None
    assert found == {"has": None, "full": full, "lacks": missing, "bare": missing}


def test_a_driver_that_is_installed_after_the_nodes_came():
    bench = Bench(storage_class(), *bound("a"), csi_driver(preventPodSchedulingIfMissing=True))
    bench.handle.features = frozenset({"VolumeLimitScaling"})
    plugin = bench.plugin("NodeVolumeLimits")
    for thing in (node("lacks"), node("has"), csi_node("has", disk_test=None)):
        bench.add(thing)
    missing = ("Unschedulable", "disk.test CSI driver is not installed on the node")
    assert bench.filter(plugin, pod("p", "a")) == {"lacks": missing, "has": None}


@pytest.mark.parametrize(("owner", "counts"), [("uid-default-e", True), ("other", False), (None, False)])
def test_claims_that_were_not_made_for_the_pod_that_names_them_do_not_count(owner, counts):
    state = [node("n"), csi_node("n", disk_test=1), storage_class(), *bound("a"), claim("e-x", owner=owner)]
    bench = Bench(*state, pod("e", ephemeral=["x"], on="n"))
    found = bench.filter(bench.plugin("NodeVolumeLimits"), pod("p", "a"))
    assert found == {"n": ("Unschedulable", "node(s) exceed max volume count") if counts else None}


def test_volumes_that_come_and_change_after_the_pods_that_use_them():
    full = {"n": ("Unschedulable", "node(s) exceed max volume count")}
    bench = Bench(node("n"), csi_node("n", disk_test=1), storage_class(), *bound("b"))
    plugin, wanted = bench.plugin("NodeVolumeLimits"), pod("p", "b")
    for thing in (claim("a", bound_to="pv-a"), pod("e", "a", on="n")):
        bench.add(thing)
    assert bench.filter(plugin, wanted) == full
    local, _ = bound("a", csi=None, hostPath={"path": "/a"})
    bench.add(local)
    assert bench.filter(plugin, wanted) == {"n": None}
    same, _ = bound("a", handle="h-pv-b")
    other, _ = bound("a", handle="h-other")
    for thing, expected in ((other, full), (same, {"n": None}), (other, full)):
        bench.add(thing)
        assert bench.filter(plugin, wanted) == expected


def test_a_class_that_comes_again_with_another_driver():
    bench = Bench(node("n"), csi_node("n", disk_test=1), storage_class(), *bound("b"), claim("a"))
    plugin = bench.plugin("NodeVolumeLimits")
    bench.add(pod("e", "a", on="n"))
    assert bench.filter(plugin, pod("p", "b")) == {"n": ("Unschedulable", "node(s) exceed max volume count")}
    bench.add(storage_class(provisioner="file.test"))
    assert bench.filter(plugin, pod("p", "b")) == {"n": None}


def test_a_victim_whose_volume_stays_attached_makes_less_room():
    """It counts as attached and for the pod, so that another pod has to leave (default-plugins spec 6.8)."""
    state = [node("n"), csi_node("n", disk_test=2), storage_class(), *bound("a"), *bound("b")]
    state += [attachment("x", "n", "pv-a")]
    state += [
        pod("e", "a", containers=[container(cpu="3")], on="n", priority=1),
        pod("f", "b", containers=[container(cpu="100m")], on="n", priority=1),
    ]
    found = explain(state, pod("p", "a", containers=[container(cpu="3")], priority=10))
    assert (found.nominated_node, sorted(found.victims)) == ("n", ["default/e", "default/f"])

"""VolumeBinding on nodes (default-plugins spec 3.11)."""

import pytest

from koordsched.framework.interface import CycleState
from tests.plugins.harness import Bench, explain, scheduler
from tests.plugins.volumes.asking import refused
from tests.plugins.volumes.objects import (
    BETA_ZONE,
    HOSTNAME,
    LOCAL,
    REGION,
    ZONE,
    bound,
    capacity,
    claim,
    csi_driver,
    csi_node,
    node,
    pod,
    storage_class,
    volume,
)

CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NOTHING = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


NODES = [node("a1", "a"), node("a2", "a"), node("b1", "b")]
IN_A, ON_A1 = {ZONE: ["a"]}, {HOSTNAME: ["a1"]}
NOWHERE = {"a1": (NOTHING,), "a2": (NOTHING,), "b1": (NOTHING,)}
ONLY_A = {"b1": (NOTHING,)}
ONLY_A1 = {"a2": (NOTHING,), "b1": (NOTHING,)}


@pytest.mark.parametrize(
    "state, claims, expected",
    [
        pytest.param(bound("c"), ["c"], {}, id="bound, usable everywhere"),
        pytest.param(bound("c", at=IN_A), ["c"], {"b1": (CONFLICT,)}, id="bound in a zone"),
        pytest.param(
            [claim("c", bound_to="v")], ["c"], dict.fromkeys(["a1", "a2", "b1"], (MISSING,)), id="volume missing"
        ),
        pytest.param(
            [*bound("c", at=IN_A), claim("d", bound_to="v")],
            ["c", "d"],
            {"a1": (MISSING,), "a2": (MISSING,), "b1": (CONFLICT,)},
            id="the first claim that does not suit decides",
        ),
        pytest.param(
            [*bound("c", at=IN_A), LOCAL, claim("d", class_name="local")],
            ["c", "d"],
            {"a1": (NOTHING,), "a2": (NOTHING,), "b1": (CONFLICT, NOTHING)},
            id="bound and unbound problems are told together",
        ),
        pytest.param([LOCAL, claim("c", class_name="local")], ["c"], NOWHERE, id="no volume, no provisioner"),
        pytest.param([storage_class(), claim("c")], ["c"], {}, id="provisioned anywhere"),
        pytest.param([storage_class(provisioner=""), claim("c")], ["c"], NOWHERE, id="no provisioner named"),
        pytest.param([storage_class(zones=["a"]), claim("c")], ["c"], ONLY_A, id="allowed topologies"),
        pytest.param([storage_class(zones=["x"]), claim("c")], ["c"], NOWHERE, id="allowed topologies nowhere"),
        pytest.param(
            [storage_class(zones=["b"]), claim("c"), volume("v", at=ON_A1)],
            ["c"],
            {"a2": (NOTHING,)},
            id="a free volume here, provisioning there",
        ),
        pytest.param(
            [storage_class(), claim("c", annotations={"volume.kubernetes.io/selected-node": "a1"})],
            ["c"],
            ONLY_A1,
            id="node chosen before",
        ),
        pytest.param(
            [storage_class(), claim("c", annotations={"volume.kubernetes.io/selected-node": "gone"})],
            ["c"],
            NOWHERE,
            id="node chosen before is gone",
        ),
        pytest.param(
            [
                LOCAL,
                claim("c", class_name="local", annotations={"volume.kubernetes.io/selected-node": "a1"}),
                volume("v", class_name="local"),
            ],
            ["c"],
            NOWHERE,
            id="a node chosen means provisioning, whatever is free",
        ),
        pytest.param(
            [LOCAL, claim("c", class_name="local"), volume("v", "5Gi", "local", at=IN_A)], ["c"], ONLY_A, id="static"
        ),
        pytest.param([LOCAL, claim("c", "5Gi", "local"), volume("v", "4Gi", "local")], ["c"], NOWHERE, id="too small"),
        pytest.param(
            [LOCAL, claim("c", "5Gi", "local"), volume("v", "9Gi", "other")], ["c"], NOWHERE, id="other class"
        ),
        pytest.param(
            [LOCAL, claim("c", "5Gi", "local"), volume("v", "9Gi", "local", phase="Released")],
            ["c"],
            NOWHERE,
            id="released",
        ),
        pytest.param(
            [LOCAL, claim("c", "5Gi", "local"), volume("v", "9Gi", "local", claim="d")],
            ["c"],
            NOWHERE,
            id="meant for another",
        ),
        pytest.param(
            [LOCAL, claim("c", "5Gi", "local"), volume("v", "9Gi", "local", volumeMode="Block")],
            ["c"],
            NOWHERE,
            id="block",
        ),
        pytest.param(
            [LOCAL, claim("c", "5Gi", "local"), volume("v", "9Gi", "local", volumeAttributesClassName="x")],
            ["c"],
            NOWHERE,
            id="attributes",
        ),
        pytest.param(
            [LOCAL, claim("c", "5Gi", "local", accessModes=["ReadWriteMany"]), volume("v", "9Gi", "local")],
            ["c"],
            NOWHERE,
            id="access",
        ),
        pytest.param(
            [
                LOCAL,
                claim("c", "5Gi", "local", selector={"matchLabels": {"k": "v"}}),
                volume("v", "9Gi", "local"),
                volume("w", "9Gi", "local", at=ON_A1, labels={"k": "v"}),
            ],
            ["c"],
            ONLY_A1,
            id="selector",
        ),
        pytest.param(
            [
                LOCAL,
                claim("c", "5Gi", "local"),
                volume("v", "5Gi", "local", claim="c", phase="Available", at=ON_A1),
                volume("w", "5Gi", "local"),
            ],
            ["c"],
            ONLY_A1,
            id="a volume meant for the claim is the only one",
        ),
        pytest.param(
            [
                LOCAL,
                claim("c", "5Gi", "local"),
                volume("v", "4Gi", "local", claim="c", at=ON_A1),
                volume("w", "5Gi", "local", at=IN_A),
            ],
            ["c"],
            ONLY_A,
            id="unless it is too small",
        ),
        pytest.param(
            [
                LOCAL,
                claim("c", "3Gi", "local"),
                claim("d", "4Gi", "local"),
                volume("v", "4Gi", "local"),
                volume("w", "4Gi", "local", at=IN_A),
            ],
            ["c", "d"],
            ONLY_A,
            id="each claim needs its own",
        ),
        pytest.param(
            [
                LOCAL,
                claim("big", "8Gi", "local"),
                claim("small", "3Gi", "local"),
                volume("v", "10Gi", "local"),
                volume("w", "5Gi", "local", at=ON_A1),
            ],
            ["big", "small"],
            ONLY_A1,
            id="the small claim chooses first",
        ),
        pytest.param(
            [LOCAL, claim("c", "3Gi", "local"), volume("v", "4Gi", "local")],
            ["c", "c"],
            {},
            id="one claim mounted twice is one claim",
        ),
    ],
)
def test_binding_on_nodes(state, claims, expected):
    assert refused("VolumeBinding", [*NODES, *state], pod("p", *claims)) == expected


IN_ZONE_A = {"matchLabels": {ZONE: "a"}}


@pytest.mark.parametrize(
    "state, expected",
    [
        ([csi_driver()], {"a1", "a2", "b1"}),
        ([csi_driver(storage_capacity=False)], set()),
        ([csi_driver("file.test")], set()),
        ([csi_driver(), capacity("x", topology=IN_ZONE_A, capacity="5Gi")], {"b1"}),
        ([csi_driver(), capacity("x", topology=IN_ZONE_A, capacity="4Gi")], {"a1", "a2", "b1"}),
        (
            [csi_driver(), capacity("x", topology=IN_ZONE_A, capacity="9Gi", maximumVolumeSize="4Gi")],
            {"a1", "a2", "b1"},
        ),
        ([csi_driver(), capacity("x", topology=IN_ZONE_A, capacity="1Gi", maximumVolumeSize="5Gi")], {"b1"}),
        ([csi_driver(), capacity("x", topology=IN_ZONE_A)], {"a1", "a2", "b1"}),
        ([csi_driver(), capacity("x", topology=IN_ZONE_A, capacity="much")], {"a1", "a2", "b1"}),
        ([csi_driver(), capacity("x", capacity="9Gi")], {"a1", "a2", "b1"}),
        ([csi_driver(), capacity("x", topology={}, capacity="9Gi")], set()),
        ([csi_driver(), capacity("x", "other", topology={}, capacity="9Gi")], {"a1", "a2", "b1"}),
        (
            [
                csi_driver(),
                capacity("x", topology=IN_ZONE_A, capacity="9Gi"),
                capacity(
                    "y",
                    topology={"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["b1"]}]},
                    capacity="6Gi",
                ),
            ],
            set(),
        ),
    ],
)
def test_storage_capacity(state, expected):
    found = refused("VolumeBinding", [*NODES, storage_class(), claim("c", "5Gi"), *state], pod("p", "c"))
    assert found == dict.fromkeys(expected, (NO_SPACE,))


def test_a_claim_that_asks_for_no_size_needs_no_capacity():
    asked = claim("c", resources={})
    assert refused("VolumeBinding", [*NODES, storage_class(), csi_driver(), asked], pod("p", "c")) == {}


def test_capacities_and_labels_may_change_at_any_time():
    bench = Bench(*NODES, storage_class(), csi_driver(), claim("c", "5Gi"))
    plugin = bench.plugin("VolumeBinding")

    def refuses():
        return {name for name, verdict in bench.filter(plugin, pod("p", "c")).items() if verdict}

    assert refuses() == {"a1", "a2", "b1"}
    bench.add(capacity("x", topology=IN_ZONE_A, capacity="5Gi"))
    assert refuses() == {"b1"}
    bench.add(node("b1", "a"))
    assert refuses() == set()
    bench.add(node("c1", "c"))
    assert refuses() == {"c1"}
    bench.add(capacity("x", topology=IN_ZONE_A, capacity="4Gi"))
    assert refuses() == {"a1", "a2", "b1", "c1"}
    bench.add(capacity("x", topology={}, capacity="5Gi"))
    assert refuses() == set()


def test_a_node_that_comes_between_two_questions_of_a_cycle():
    """While an extender is asked the cycle waits, and nodes may come."""
    bench = Bench(*NODES, LOCAL, claim("c", class_name="local"), volume("v", class_name="local", at=ON_A1))
    plugin, waiting, table = bench.plugin("VolumeBinding"), bench.pod(pod("p", "c")), bench.cluster.table
    cycle, refusing = CycleState(waiting), []
    assert plugin.pre_filter(cycle, waiting).ok
    for _ in range(2):
        codes = plugin.filter(cycle, waiting, table, bench.rows)
        refusing.append([table.names[row] for row in bench.rows[codes != 0].tolist()])
        bench.add(node("late"))
    assert refusing == [["a2", "b1"], ["a2", "b1", "late"]]


def test_the_profile_hides_a_missing_volume_behind_the_zone():
    found = explain([*NODES, storage_class(), claim("c", bound_to="ghost")], pod("p", "c"))
    assert found.message == '0/3 nodes are available: persistentvolume "ghost" not found. not found'
    assert found.rejected_by == "VolumeZone"


def test_pods_without_volumes_never_reach_these_plugins():
    offline = scheduler([*NODES, storage_class(), claim("c"), pod("p", inline=[{"emptyDir": {}}])])
    profile = offline.profiles["default-scheduler"]
    plan = profile.evaluations.plan_of(offline.pending["default/p"].shape)
    assert {"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"} <= plan.skipped


EBS_ZONE = "topology.ebs.csi.aws.com/zone"
EBS = {"csi": None, "awsElasticBlockStore": {"volumeID": "vol-1"}}
TAKEN_OVER = csi_node("n", migrated="kubernetes.io/gce-pd,kubernetes.io/aws-ebs")


@pytest.mark.parametrize(
    "csi, node_labels, pv, fits",
    [
        pytest.param(
            None, {ZONE: "a"}, {"at": {ZONE: ["a"]}, **EBS}, True, id="without a CSINode the general label counts"
        ),
        pytest.param(TAKEN_OVER, {ZONE: "a"}, {"at": {ZONE: ["a"]}, **EBS}, False, id="otherwise the driver's"),
        pytest.param(TAKEN_OVER, {EBS_ZONE: "a"}, {"at": {ZONE: ["a"]}, **EBS}, True, id="which may be all there is"),
        pytest.param(
            TAKEN_OVER, {EBS_ZONE: "a"}, {"at": {BETA_ZONE: ["a"]}, **EBS}, True, id="for the beta label, too"
        ),
        pytest.param(
            TAKEN_OVER, {EBS_ZONE: "b"}, {"labels": {ZONE: "a__b"}, **EBS}, True, id="from the volume's labels"
        ),
        pytest.param(TAKEN_OVER, {EBS_ZONE: "c"}, {"labels": {ZONE: "a__b"}, **EBS}, False, id="or outside of them"),
        pytest.param(
            TAKEN_OVER,
            {EBS_ZONE: "b", "disk": "x"},
            {"labels": {ZONE: "a__b"}, "at": {"disk": ["x"]}, **EBS},
            True,
            id="in addition to its affinity",
        ),
        pytest.param(
            TAKEN_OVER,
            {EBS_ZONE: "b", REGION: "r"},
            {"at": {BETA_ZONE: ["b"], "failure-domain.beta.kubernetes.io/region": ["r"]}, **EBS},
            True,
            id="the beta region becomes the general one",
        ),
        pytest.param(TAKEN_OVER, {ZONE: "a"}, {**EBS}, True, id="a volume without any zone"),
        pytest.param(TAKEN_OVER, {ZONE: "a"}, {"at": {ZONE: ["a"]}}, True, id="a CSI volume is what it says"),
        pytest.param(
            csi_node("n", migrated="kubernetes.io/gce-pd"),
            {ZONE: "a"},
            {"at": {ZONE: ["a"]}, **EBS},
            True,
            id="another plugin",
        ),
    ],
)
def test_in_tree_volumes_of_migrated_plugins(csi, node_labels, pv, fits):
    state = [node("n", **node_labels), *bound("c", **pv), *([csi] if csi else [])]
    assert refused("VolumeBinding", state, pod("p", "c")) == ({} if fits else {"n": (CONFLICT,)})
    late = Bench(*state[1:])  # the node comes last
    plugin = late.plugin("VolumeBinding")
    late.add(state[0])
    assert (late.filter(plugin, pod("p", "c"))["n"] is None) == fits

"""VolumeBinding before any node is looked at (default-plugins spec 3.11)."""

import pytest

from tests.plugins.harness import explain
from tests.plugins.volumes.asking import pre_filter
from tests.plugins.volumes.objects import (
    bound,
    claim,
    node,
    pod,
    storage_class,
)

UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


@pytest.mark.parametrize(
    "state, expected",
    [
        ([], 'persistentvolumeclaim "c" not found'),
        (bound("c"), None),
        (
            [claim("c", bound_to="v", phase="Lost")],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
        ),
        ([claim("c", class_name="x")], UNBOUND),
        ([claim("c", class_name=None)], UNBOUND),
        ([claim("c"), storage_class(mode="Immediate")], UNBOUND),
        ([claim("c"), storage_class()], None),
        # The annotation wins over the field, even when it is empty.
        ([claim("c", annotations={"volume.beta.kubernetes.io/storage-class": ""}), storage_class()], UNBOUND),
        (
            [claim("c", "1Gi", "x", annotations={"volume.beta.kubernetes.io/storage-class": "late"}), storage_class()],
            None,
        ),
        # A volume without the binder's mark is for the binder to finish.
        ([claim("c", volumeName="v"), storage_class()], UNBOUND),
    ],
)
def test_claims_before_any_node(state, expected):
    assert pre_filter("VolumeBinding", [node("n"), *state], pod("p", "c")) == expected


def test_a_claim_that_is_being_deleted():
    going = claim("c")
    going["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    expected = 'persistentvolumeclaim "c" is being deleted'
    assert pre_filter("VolumeBinding", [storage_class(), going], pod("p", "c")) == expected


def test_ephemeral_claims():
    wanted = pod("p", ephemeral=["e"])
    waiting = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-e"'
    foreign = "PVC default/p-e was not created for pod default/p (pod is not owner)"
    assert pre_filter("VolumeBinding", [], wanted) == waiting
    assert pre_filter("VolumeBinding", [storage_class(), claim("p-e")], wanted) == foreign
    assert pre_filter("VolumeBinding", [storage_class(), claim("p-e", owner="uid-default-q")], wanted) == foreign
    assert pre_filter("VolumeBinding", [storage_class(), claim("p-e", owner="uid-default-p")], wanted) is None


@pytest.mark.parametrize(
    "broken, message",
    [
        (claim("c", "much"), "persistentvolumeclaim \"c\": quantity 'much' must match"),
        (
            claim("c", selector={"matchExpressions": [{"key": "k", "operator": "Like", "values": ["v"]}]}),
            "persistentvolumeclaim \"c\": 'Like' is not a valid label selector operator",
        ),
        (claim("c", class_name="unset"), 'VolumeBindingMode not set for StorageClass "unset"'),
    ],
)
def test_claims_that_cannot_be_understood_say_so(broken, message):
    found = explain([node("n"), storage_class(), storage_class("unset", mode=None), broken], pod("p", "c"))
    message = f'running PreFilter plugin "VolumeBinding": {message}'
    assert (found.reason, found.message.startswith(message)) == ("SchedulerError", True), found.message

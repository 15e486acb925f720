"""Which changes are worth an attempt to a pod that a volume plugin rejected (core spec 3.4)."""

import pytest

from koordsched.api.decoding import convert
from koordsched.cluster.events import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
    ActionType,
)
from koordsched.plugins import KINDS
from koordsched.queue.hints import ByKey, QueueingHint
from tests.plugins.harness import Bench
from tests.plugins.volumes.objects import (
    REGION,
    ZONE,
    attachment,
    bound,
    capacity,
    claim,
    csi_driver,
    csi_node,
    ebs,
    gce,
    iscsi,
    pod,
    storage_class,
    volume,
)

ADD, UPDATE, DELETE = ActionType.ADD, ActionType.UPDATE, ActionType.DELETE
LABEL = ActionType.UPDATE_NODE_LABEL


def typed(bench, resource, item):
    if item is None or resource == NODE:
        return item
    return bench.pod(item) if resource == POD else convert(item, KINDS[item["apiVersion"], item["kind"]].type)


def ask(plugin, resource, action, waiting, old, new):
    """The answer of the registration that covers the action; None if there is none."""
    bench = Bench()
    waiting = bench.pod(waiting)
    old, new = typed(bench, resource, old), typed(bench, resource, new)
    for registration in bench.plugin(plugin).events_to_register():
        if registration.event.resource == resource and registration.event.action & action:
            scope = registration.scope
            if isinstance(scope, ByKey) and not scope.concerns(waiting, old, new):
                return False
            if registration.fn is None:
                return True
            return {QueueingHint.QUEUE: True, QueueingHint.SKIP: False}[registration.fn(waiting, old, new)]
    return None


PV, PVC = bound("c")
EBS = "ebs.csi.aws.com"
INLINE_ATTACHMENT = attachment("a", "n", None, EBS, inlineVolumeSpec={"csi": {"driver": EBS, "volumeHandle": "vol-1"}})
ZONED = volume("v", labels={ZONE: "a"})


@pytest.mark.parametrize(
    "plugin, resource, action, waiting, old, new, expected",
    [
        ("VolumeRestrictions", NODE, ADD, pod("p", "c"), None, None, True),
        ("VolumeRestrictions", NODE, LABEL, pod("p", "c"), None, None, None),
        ("VolumeRestrictions", POD, DELETE, pod("p", "c"), pod("e", "c", on="n"), None, True),
        ("VolumeRestrictions", POD, DELETE, pod("p", "c"), pod("e", "c", on="n", namespace="x"), None, False),
        ("VolumeRestrictions", POD, DELETE, pod("p", "c"), pod("e", "d", on="n"), None, False),
        ("VolumeRestrictions", POD, DELETE, pod("p", inline=[gce("a")]), pod("e", inline=[gce("a", True)]), None, True),
        ("VolumeRestrictions", POD, DELETE, pod("p", inline=[gce("a")]), pod("e", inline=[gce("b")]), None, False),
        ("VolumeRestrictions", PERSISTENT_VOLUME_CLAIM, ADD, pod("p", "c"), None, claim("c"), True),
        ("VolumeRestrictions", PERSISTENT_VOLUME_CLAIM, ADD, pod("p", "c"), None, claim("d"), False),
        ("VolumeRestrictions", PERSISTENT_VOLUME_CLAIM, ADD, pod("p", "c", namespace="x"), None, claim("c"), False),
        ("VolumeRestrictions", PERSISTENT_VOLUME_CLAIM, UPDATE, pod("p", "c"), claim("c"), claim("c"), None),
        ("NodeVolumeLimits", CSI_NODE, ADD, pod("p", "c"), None, csi_node("n"), True),
        ("NodeVolumeLimits", CSI_NODE, UPDATE, pod("p", "c"), csi_node("n", a=1), csi_node("n", a=2), True),
        ("NodeVolumeLimits", CSI_NODE, UPDATE, pod("p", "c"), csi_node("n", a=2), csi_node("n", a=1), False),
        ("NodeVolumeLimits", CSI_NODE, UPDATE, pod("p", "c"), csi_node("n", a=1, b=2), csi_node("n", a=1, b=1), False),
        ("NodeVolumeLimits", CSI_NODE, UPDATE, pod("p", "c"), csi_node("n"), csi_node("n", a=1), True),
        ("NodeVolumeLimits", CSI_NODE, UPDATE, pod("p", "c"), csi_node("n", a=1), csi_node("n", a=None), True),
        ("NodeVolumeLimits", CSI_NODE, UPDATE, pod("p", "c"), csi_node("n", a=None), csi_node("n"), False),
        ("NodeVolumeLimits", CSI_NODE, DELETE, pod("p", "c"), csi_node("n", a=1), None, True),
        ("NodeVolumeLimits", CSI_NODE, DELETE, pod("p", "c"), csi_node("n"), None, False),
        ("NodeVolumeLimits", NODE, ADD, pod("p", "c"), None, None, True),
        ("NodeVolumeLimits", POD, DELETE, pod("p", "c"), pod("e", "x", on="n"), None, True),
        ("NodeVolumeLimits", POD, DELETE, pod("p", "c"), pod("e", ephemeral=["x"], on="n"), None, True),
        ("NodeVolumeLimits", POD, DELETE, pod("p", "c"), pod("e", inline=[ebs("vol-1")], on="n"), None, True),
        ("NodeVolumeLimits", POD, DELETE, pod("p", "c"), pod("e", inline=[iscsi("a")], on="n"), None, False),
        ("NodeVolumeLimits", POD, DELETE, pod("p", "c"), pod("e", "x"), None, False),
        ("NodeVolumeLimits", PERSISTENT_VOLUME_CLAIM, ADD, pod("p", "c"), None, claim("c"), True),
        ("NodeVolumeLimits", PERSISTENT_VOLUME_CLAIM, ADD, pod("p", "c"), None, claim("d"), False),
        ("NodeVolumeLimits", PERSISTENT_VOLUME_CLAIM, ADD, pod("p", ephemeral=["e"]), None, claim("p-e"), True),
        ("NodeVolumeLimits", VOLUME_ATTACHMENT, DELETE, pod("p", "c"), attachment("a", "n", "v"), None, True),
        ("NodeVolumeLimits", VOLUME_ATTACHMENT, DELETE, pod("p", inline=[ebs("vol-1")]), INLINE_ATTACHMENT, None, True),
        ("NodeVolumeLimits", VOLUME_ATTACHMENT, DELETE, pod("p", inline=[ebs("vol-2")]), INLINE_ATTACHMENT, None, True),
        (
            "NodeVolumeLimits",
            VOLUME_ATTACHMENT,
            DELETE,
            pod("p", inline=[ebs("vol-1")]),
            attachment("a", "n", "v", EBS),
            None,
            True,
        ),
        (
            "NodeVolumeLimits",
            VOLUME_ATTACHMENT,
            DELETE,
            pod("p", inline=[ebs("vol-1")]),
            attachment("a", "n", "v"),
            None,
            False,
        ),
        ("VolumeBinding", STORAGE_CLASS, ADD, pod("p", "c"), None, storage_class(), True),
        ("VolumeBinding", STORAGE_CLASS, UPDATE, pod("p", "c"), storage_class(), storage_class(zones=["a"]), True),
        ("VolumeBinding", STORAGE_CLASS, UPDATE, pod("p", "c"), storage_class(), storage_class(), False),
        ("VolumeBinding", PERSISTENT_VOLUME_CLAIM, ADD, pod("p", "c"), None, claim("c"), True),
        ("VolumeBinding", PERSISTENT_VOLUME_CLAIM, UPDATE, pod("p", "c"), claim("c"), PVC, True),
        ("VolumeBinding", PERSISTENT_VOLUME_CLAIM, UPDATE, pod("p", "c"), claim("d"), claim("d"), False),
        ("VolumeBinding", PERSISTENT_VOLUME_CLAIM, UPDATE, pod("p", "c", namespace="x"), claim("c"), PVC, False),
        ("VolumeBinding", PERSISTENT_VOLUME_CLAIM, ADD, pod("p", ephemeral=["e"]), None, claim("p-e"), True),
        ("VolumeBinding", PERSISTENT_VOLUME, ADD, pod("p", "c"), None, PV, True),
        ("VolumeBinding", PERSISTENT_VOLUME, UPDATE, pod("p", "c"), PV, PV, True),
        ("VolumeBinding", PERSISTENT_VOLUME, DELETE, pod("p", "c"), PV, None, None),
        ("VolumeBinding", NODE, ADD, pod("p", "c"), None, None, True),
        ("VolumeBinding", NODE, LABEL, pod("p", "c"), None, None, True),
        ("VolumeBinding", CSI_NODE, ADD, pod("p", "c"), None, csi_node("n"), True),
        ("VolumeBinding", CSI_NODE, UPDATE, pod("p", "c"), csi_node("n"), csi_node("n", a=1), False),
        ("VolumeBinding", CSI_NODE, UPDATE, pod("p", "c"), csi_node("n"), csi_node("n", migrated="x"), True),
        (
            "VolumeBinding",
            CSI_DRIVER,
            UPDATE,
            pod("p", inline=[{"csi": {"driver": "disk.test"}}]),
            csi_driver(),
            csi_driver(storage_capacity=False),
            True,
        ),
        (
            "VolumeBinding",
            CSI_DRIVER,
            UPDATE,
            pod("p", inline=[{"csi": {"driver": "disk.test"}}]),
            csi_driver(storage_capacity=False),
            csi_driver(),
            False,
        ),
        ("VolumeBinding", CSI_DRIVER, UPDATE, pod("p", "c"), csi_driver(), csi_driver(storage_capacity=False), False),
        ("VolumeBinding", CSI_STORAGE_CAPACITY, ADD, pod("p", "c"), None, capacity("x"), True),
        (
            "VolumeBinding",
            CSI_STORAGE_CAPACITY,
            UPDATE,
            pod("p", "c"),
            capacity("x", capacity="1Gi"),
            capacity("x", capacity="2Gi"),
            True,
        ),
        (
            "VolumeBinding",
            CSI_STORAGE_CAPACITY,
            UPDATE,
            pod("p", "c"),
            capacity("x", capacity="2Gi"),
            capacity("x", capacity="1Gi"),
            False,
        ),
        (
            "VolumeBinding",
            CSI_STORAGE_CAPACITY,
            UPDATE,
            pod("p", "c"),
            capacity("x"),
            capacity("x", capacity="1Gi"),
            True,
        ),
        (
            "VolumeBinding",
            CSI_STORAGE_CAPACITY,
            UPDATE,
            pod("p", "c"),
            capacity("x", capacity="1Gi"),
            capacity("x"),
            False,
        ),
        ("VolumeZone", STORAGE_CLASS, ADD, pod("p", "c"), None, storage_class(), True),
        ("VolumeZone", STORAGE_CLASS, ADD, pod("p", "c"), None, storage_class(mode="Immediate"), False),
        ("VolumeZone", NODE, ADD, pod("p", "c"), None, None, True),
        ("VolumeZone", NODE, LABEL, pod("p", "c"), None, None, True),
        ("VolumeZone", PERSISTENT_VOLUME_CLAIM, UPDATE, pod("p", "c"), claim("c"), PVC, True),
        ("VolumeZone", PERSISTENT_VOLUME_CLAIM, UPDATE, pod("p", "c"), claim("d"), claim("d"), False),
        ("VolumeZone", PERSISTENT_VOLUME, ADD, pod("p", "c"), None, ZONED, True),
        ("VolumeZone", PERSISTENT_VOLUME, UPDATE, pod("p", "c"), ZONED, volume("v", labels={ZONE: "b"}), True),
        (
            "VolumeZone",
            PERSISTENT_VOLUME,
            UPDATE,
            pod("p", "c"),
            ZONED,
            volume("v", labels={ZONE: "a", "x": "y"}),
            False,
        ),
        (
            "VolumeZone",
            PERSISTENT_VOLUME,
            UPDATE,
            pod("p", "c"),
            ZONED,
            volume("v", labels={ZONE: "a", REGION: "r"}),
            True,
        ),
    ],
)
def test_events(plugin, resource, action, waiting, old, new, expected):
    assert ask(plugin, resource, action, waiting, old, new) is expected

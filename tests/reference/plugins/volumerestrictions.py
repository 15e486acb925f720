"""Default-plugins spec 3.11."""

from tests.reference.status import SKIP, unresolvable, unschedulable
from tests.reference.volumes import claim_of, named_claims, volumes_of
from tests.reference.world import namespace_of

DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi")


def exclusive_claims(pod, world):
    """Names of the ReadWriteOncePod claims of the pod."""
    return [
        n for n in named_claims(pod) if "ReadWriteOncePod" in claim_of(world, pod, n)["spec"].get("accessModes", [])
    ]


def in_use(pod, world):
    """Whether a pod on some node uses one of them."""
    wanted = exclusive_claims(pod, world)
    return any(
        name in wanted and namespace_of(other) == namespace_of(pod)
        for other, _ in world.placed_with_node()
        for name in named_claims(other)
    )


def same_disk(one, other):
    """Whether two volumes cannot be on one node."""

    def both_read_only(kind):
        return one[kind].get("readOnly") and other[kind].get("readOnly")

    shared = [kind for kind in DISKS if one.get(kind) and other.get(kind)]
    for kind in shared:
        a, b = one[kind], other[kind]
        if kind == "awsElasticBlockStore" and a["volumeID"] == b["volumeID"]:
            return True
        if kind == "gcePersistentDisk" and a["pdName"] == b["pdName"] and not both_read_only(kind):
            return True
        if kind == "iscsi" and a["iqn"] == b["iqn"] and not both_read_only(kind):
            return True
        if (
            kind == "rbd"
            and set(a["monitors"]) & set(b["monitors"])
            and (a.get("pool", "rbd"), a["image"]) == (b.get("pool", "rbd"), b["image"])
            and not both_read_only(kind)
        ):
            return True
    return False


class VolumeRestrictions:
    def __init__(self, args):
        pass

    def pre_filter(self, pod, world):
        for name in named_claims(pod):
            if claim_of(world, pod, name) is None:
                return unresolvable(f'persistentvolumeclaim "{name}" not found')
        inline = any(volume.get(kind) for volume in volumes_of(pod) for kind in DISKS)
        return None if inline or in_use(pod, world) else SKIP

    def filter(self, pod, node, world):
        for other in world.pods_on(node):
            if any(same_disk(a, b) for a in volumes_of(pod) for b in volumes_of(other)):
                return unschedulable("node(s) had no available disk")
        if in_use(pod, world):
            return unschedulable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
                "another pod"
            )
        return None

"""Default-plugins spec 3.11."""

from tests.reference.status import ERROR, SKIP, Status, unresolvable, unschedulable
from tests.reference.volumes import IN_TREE, all_claims, claim_of, class_of, find, owned_by, volumes_of
from tests.reference.world import namespace_of


def in_tree_volume(spec):
    """(driver, handle) of an inline or persistent in-tree volume."""
    for kind, (_, driver, field) in IN_TREE.items():
        if spec.get(kind):
            return driver, spec[kind][field]
    return None


def volume_of_claim(claim, world):
    """(driver, handle); made up while the claim has no volume; None if not counted."""
    name = claim["spec"].get("volumeName")
    volume = find(world, "PersistentVolume", name) if name else None
    if volume is not None:
        csi = volume["spec"].get("csi")
        return (csi["driver"], csi["volumeHandle"]) if csi else in_tree_volume(volume["spec"])
    storage_class = class_of(world, claim)
    if storage_class is None:
        return None
    by_provisioner = {provisioner: driver for provisioner, driver, _ in IN_TREE.values()}
    provisioner = storage_class["provisioner"]
    handle = f"synthetic-{namespace_of(claim)}/{claim['metadata']['name']}"
    return by_provisioner.get(provisioner, provisioner), handle


class NodeVolumeLimits:
    def __init__(self, args):
        pass

    def pre_filter(self, pod, world):
        return None if all_claims(pod) or any(in_tree_volume(v) for v in volumes_of(pod)) else SKIP

    def filter(self, pod, node, world):
        wanted = set()
        problem = self._collect(pod, world, wanted)
        if problem is not None:
            return problem
        limits = self._limits(node, world)
        there = set()
        for other in world.pods_on(node):
            for volume in self._existing(other, world):
                there.add(volume)
        attached = self._attached(node, world) - there
        for driver in {driver for driver, _ in wanted}:
            new = {volume for volume in wanted - there if volume[0] == driver}
            current = sum(volume[0] == driver for volume in there) + sum(volume[0] == driver for volume in attached)
            if new and driver in limits and current + len(new) > limits[driver]:
                return unschedulable("node(s) exceed max volume count")
        return None

    def _collect(self, pod, world, wanted):
        wanted |= {volume for v in volumes_of(pod) if (volume := in_tree_volume(v))}
        for name, ephemeral in all_claims(pod):
            claim = claim_of(world, pod, name)
            if claim is None:
                where = f"{namespace_of(pod)}/{name}"
                return unresolvable(f'looking up PVC {where}: persistentvolumeclaim "{name}" not found')
            if ephemeral and not owned_by(claim, pod):
                key = f"{namespace_of(pod)}/{pod['metadata']['name']}"
                text = f"PVC {namespace_of(pod)}/{name} was not created for pod {key} (pod is not owner)"
                return Status(ERROR, (text,))
            volume = volume_of_claim(claim, world)
            if volume is not None:
                wanted.add(volume)
        return None

    def _existing(self, pod, world):
        yield from (volume for v in volumes_of(pod) if (volume := in_tree_volume(v)))
        for name, ephemeral in all_claims(pod):
            claim = claim_of(world, pod, name)
            if claim is None or (ephemeral and not owned_by(claim, pod)):
                continue
            volume = volume_of_claim(claim, world)
            if volume is not None:
                yield volume

    def _limits(self, node, world):
        csi_node = find(world, "CSINode", node["metadata"]["name"])
        drivers = csi_node["spec"]["drivers"] if csi_node else []
        return {
            d["name"]: d["allocatable"]["count"]
            for d in drivers
            if (d.get("allocatable") or {}).get("count") is not None
        }

    def _attached(self, node, world):
        found = set()
        for attachment in world.kind("VolumeAttachment"):
            spec = attachment["spec"]
            if spec["nodeName"] != node["metadata"]["name"]:
                continue
            volume = find(world, "PersistentVolume", spec["source"].get("persistentVolumeName"))
            if volume is not None and volume["spec"].get("csi"):
                found.add((spec["attacher"], volume["spec"]["csi"]["volumeHandle"]))
        return found

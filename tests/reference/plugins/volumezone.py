"""Default-plugins spec 3.11."""

from tests.reference.status import SKIP, Status, unresolvable
from tests.reference.volumes import claim_of, class_name, find, named_claims
from tests.reference.world import labels_of

BETA = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
KEYS = [*BETA, *BETA.values()]


class VolumeZone:
    def __init__(self, args):
        pass

    def pre_filter(self, pod, world):
        found = self._labels(pod, world)
        if isinstance(found, Status):
            return found
        return None if found else SKIP

    def _labels(self, pod, world):
        """(key, set of values) of all bound volumes, or why they cannot be told."""
        found = []
        for name in named_claims(pod):
            if not name:
                return unresolvable("PersistentVolumeClaim had no name")
            claim = claim_of(world, pod, name)
            if claim is None:
                return unresolvable(f'persistentvolumeclaim "{name}" not found')
            bound_to = claim["spec"].get("volumeName")
            if not bound_to:
                wanted = class_name(claim)
                if not wanted:
                    return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
                storage_class = find(world, "StorageClass", wanted)
                if storage_class is None:
                    return unresolvable(f'storageclass.storage.k8s.io "{wanted}" not found')
                if storage_class.get("volumeBindingMode") is None:
                    return unresolvable(f'VolumeBindingMode not set for StorageClass "{wanted}"')
                if storage_class["volumeBindingMode"] != "WaitForFirstConsumer":
                    return unresolvable("PersistentVolume had no name")
                continue
            volume = find(world, "PersistentVolume", bound_to)
            if volume is None:
                return unresolvable(f'persistentvolume "{bound_to}" not found')
            for key in KEYS:
                values = [value.strip() for value in labels_of(volume).get(key, "").split("__")]
                if key in labels_of(volume) and "" not in values:
                    found.append((key, set(values)))
        return found

    def filter(self, pod, node, world):
        labels = labels_of(node)
        if not any(key in labels for key in KEYS):
            return None
        for key, values in self._labels(pod, world):
            value = labels.get(key, labels.get(BETA.get(key, key)))
            if value not in values:
                return unresolvable("node(s) had no available volume zone")
        return None

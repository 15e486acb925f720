"""Claims, volumes and classes as default-plugins spec 3.11 speaks of them."""

from tests.reference.quantity import parse
from tests.reference.world import namespace_of

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
IN_TREE = {
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volumeID"),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pdName"),
    "azureDisk": ("kubernetes.io/azure-disk", "disk.csi.azure.com", "diskURI"),
    "cinder": ("kubernetes.io/cinder", "cinder.csi.openstack.org", "volumeID"),
}


def annotations_of(item):
    return item["metadata"].get("annotations") or {}


def volumes_of(pod):
    return pod["spec"].get("volumes") or []


def named_claims(pod):
    """Names of the claims that the spec names."""
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes_of(pod) if v.get("persistentVolumeClaim")]


def all_claims(pod):
    """(claim name, is ephemeral) per volume with a claim."""
    found = []
    for volume in volumes_of(pod):
        if volume.get("persistentVolumeClaim"):
            found.append((volume["persistentVolumeClaim"]["claimName"], False))
        elif volume.get("ephemeral") is not None:
            found.append((f"{pod['metadata']['name']}-{volume['name']}", True))
    return found


def find(world, kind, name, namespace=None):
    for item in world.kind(kind):
        if item["metadata"]["name"] == name and (namespace is None or namespace_of(item) == namespace):
            return item
    return None


def claim_of(world, pod, name):
    return find(world, "PersistentVolumeClaim", name, namespace_of(pod))


def class_name(item):
    """Of a claim or a volume."""
    annotated = annotations_of(item).get(BETA_CLASS)
    return annotated if annotated is not None else item["spec"].get("storageClassName") or ""


def class_of(world, claim):
    name = class_name(claim)
    return find(world, "StorageClass", name) if name else None


def owned_by(claim, pod):
    owners = claim["metadata"].get("ownerReferences") or []
    return any(o.get("controller") and o["uid"] == pod["metadata"]["uid"] for o in owners)


def is_bound(claim):
    return bool(claim["spec"].get("volumeName")) and "pv.kubernetes.io/bind-completed" in annotations_of(claim)


def requested(claim):
    """The storage requested, None if nothing is."""
    amount = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    return None if amount is None else parse(amount)

"""Short ways to write storage objects, and pods that use them, as JSON."""

from tests.plugins import objects

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
DRIVER = "disk.test"


def claim(name, size="5Gi", class_name="late", *, bound_to=None, annotations=None, phase=None, owner=None, **spec):
    """A claim, completely bound if `bound_to` names its volume; `owner` is the uid of the pod it was made for."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    metadata["annotations"] = {**(BOUND if bound_to else {}), **(annotations or {})}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}
        ]
    made = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "volumeMode": "Filesystem",
        **({} if class_name is None else {"storageClassName": class_name}),
        **({"volumeName": bound_to} if bound_to else {}),
        **spec,
    }
    status = {"phase": phase or ("Bound" if bound_to else "Pending")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": made, "status": status}


def volume(name, size="5Gi", class_name="late", *, at=None, claim=None, labels=None, phase=None, handle=None, **spec):
    """A CSI volume; `at` maps a node label to the values it is restricted to, `claim` is the name of its claim."""
    made = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "storageClassName": class_name,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": DRIVER, "volumeHandle": handle or f"h-{name}"},
        **spec,
    }
    if at:
        expressions = [{"key": key, "operator": "In", "values": list(values)} for key, values in at.items()]
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    if claim:
        made["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": "default",
            "name": claim,
            "uid": f"uid-{claim}",
        }
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels or {}}
    status = {"phase": phase or ("Bound" if claim else "Available")}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": made, "status": status}


def bound(name, class_name="late", **more):
    """A volume, and the claim of the same name that is bound to it."""
    return volume(f"pv-{name}", class_name=class_name, claim=name, **more), claim(
        name, "1Gi", class_name, bound_to=f"pv-{name}"
    )


def storage_class(name="late", mode="WaitForFirstConsumer", provisioner=DRIVER, zones=()):
    made = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
    }
    if mode is not None:
        made["volumeBindingMode"] = mode
    if zones:
        made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]
    return made


LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")


def csi_node(name, migrated=None, **limits):
    """`limits`: driver with dots as underscores -> count, None for no limit."""
    drivers = []
    for driver, count in limits.items():
        entry = {"name": driver.replace("_", "."), "nodeID": name, "topologyKeys": []}
        if count is not None:
            entry["allocatable"] = {"count": count}
        drivers.append(entry)
    metadata = {"name": name}
    if migrated is not None:
        metadata["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": drivers}}


def csi_driver(name=DRIVER, storage_capacity=True, **spec):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": {"storageCapacity": storage_capacity, **spec},
    }


def capacity(name, class_name="late", topology=None, **limits):
    """`limits`: capacity and maximumVolumeSize."""
    made = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": class_name,
        **limits,
    }
    if topology is not None:
        made["nodeTopology"] = topology
    return made


def attachment(name, node, pv, attacher=DRIVER, **source):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": pv} if pv else source},
    }


def pod(name, *claims, inline=(), ephemeral=(), **more):
    """A pod that uses the named claims, inline volumes ({kind: source}) and ephemeral volumes of these names."""
    volumes = [{"persistentVolumeClaim": {"claimName": name}} for name in claims]
    volumes += list(inline)
    named = [{"name": f"v{i}", **source} for i, source in enumerate(volumes)]
    named += [{"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}} for name in ephemeral]
    return objects.pod(name, volumes=named, **more)


def node(name, zone=None, **labels):
    """A node in a zone."""
    return objects.node(name, labels={**({ZONE: zone} if zone else {}), **labels})


def gce(name, read_only=False):
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def ebs(name, read_only=False):
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": read_only}}


def iscsi(iqn, read_only=False):
    return {"iscsi": {"iqn": iqn, "targetPortal": "t", "lun": 1, "readOnly": read_only}}


def rbd(*monitors, image="i", pool="rbd", read_only=False):
    return {"rbd": {"monitors": list(monitors), "image": image, "pool": pool, "readOnly": read_only}}

"""The volume that a CSI provisioner would make for a claim."""

from __future__ import annotations

from koordsched.fakecluster.controllers.nodes import NodeRecord
from koordsched.fakecluster.controllers.ownership import Object, key_of


def provisioned_volume(
    claim: Object, storage_class: Object, node: NodeRecord | None, csi_node: Object | None
) -> Object:
    """A PersistentVolume already meant for `claim`.

    It can be reached from where the chosen node is, in terms of the topology keys that the node's CSINode states for
    the provisioner's driver (external-provisioner's strict topology); without such keys, from everywhere.
    """
    metadata, spec, provisioner = claim["metadata"], claim["spec"], storage_class["provisioner"]
    name = f"pvc-{metadata['uid']}"
    namespace, claim_name = key_of(claim)
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": provisioner}},
        "spec": {
            "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
            "capacity": {"storage": ((spec.get("resources") or {}).get("requests") or {}).get("storage", "0")},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": claim_name,
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "csi": {"driver": provisioner, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": spec.get("volumeMode") or "Filesystem",
        },
    }
    if storage_class.get("mountOptions"):
        volume["spec"]["mountOptions"] = storage_class["mountOptions"]
    labels = node.labels if node is not None else {}
    expressions = [
        {"key": key, "operator": "In", "values": [labels[key]]}
        for key in _topology_keys(csi_node, provisioner)
        if key in labels
    ]
    if expressions:
        terms = [{"matchExpressions": expressions}]
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return volume


def _topology_keys(csi_node: Object | None, driver: str) -> list[str]:
    for entry in (csi_node or {}).get("spec", {}).get("drivers") or ():
        if entry.get("name") == driver:
            return list(entry.get("topologyKeys") or ())
    return []

"""The recorded decisions of the real scheduler (`golden/`), and what of them each test can use."""

import json
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"

# What a record is about beyond filtering and scoring one pod after the other.
VOLUME_KINDS = {"PersistentVolume", "PersistentVolumeClaim", "CSINode", "CSIDriver", "CSIStorageCapacity"}
INLINE_DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi")


def load(name):
    """The record of that name."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


DEVICES = "d-"
"""What the names of records begin with that are about claims to devices."""


def names():
    """All records but those about devices."""
    return sorted(path.stem for path in GOLDEN.glob("*.json") if not path.stem.startswith(DEVICES))


def device_names():
    """The records about devices."""
    return sorted(path.stem for path in GOLDEN.glob(f"{DEVICES}*.json"))


def one_shot(record):
    """Whether the record is a cluster state with pending pods, without steps afterwards."""
    return not record.get("steps")


def needs(record):
    """The plugins, beyond those that read one node and the pod's spec, that the record needs to be decided right."""
    needed = set()
    for profile in record["config"].get("profiles", []):
        for config in profile.get("pluginConfig", []):
            if config["name"] == "PodTopologySpread":
                needed.add("PodTopologySpread")
    for item in record["objects"]:
        if item["kind"] in VOLUME_KINDS:
            needed.add("volumes")
        if item["kind"] in ("Service", "ReplicaSet", "ReplicationController", "StatefulSet"):
            needed.add("PodTopologySpread")
        if item["kind"] != "Pod":
            continue
        spec = item["spec"]
        if spec.get("topologySpreadConstraints"):
            needed.add("PodTopologySpread")
        affinity = spec.get("affinity") or {}
        if affinity.get("podAffinity") or affinity.get("podAntiAffinity"):
            needed.add("InterPodAffinity")
        if any(disk in volume for volume in spec.get("volumes", []) for disk in INLINE_DISKS):
            needed.add("volumes")
    return needed


def pending_pods(record):
    """The pods to be scheduled, in order."""
    return [item for item in record["objects"] if item["kind"] == "Pod" and not item["spec"].get("nodeName")]


def placed(record):
    """All other objects."""
    return [item for item in record["objects"] if item["kind"] != "Pod" or item["spec"].get("nodeName")]


def key(pod):
    """`namespace/name`."""
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def preempted_for(expected):
    """Whether the decision was made after victims had gone: no statement about the recorded cluster state."""
    return bool(expected["bound"] and expected["victims"])


PLUGINS_FOR = {
    "volumes": ("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"),
    "PodTopologySpread": ("PodTopologySpread",),
    "InterPodAffinity": ("InterPodAffinity",),
}


def buildable(record, registry):
    """Whether every plugin that the record needs, in its state or in its steps, is in the registry."""
    steps = [step["create"] for step in record.get("steps", []) if "create" in step]
    needed = needs({**record, "objects": [*record["objects"], *steps]})
    return all(plugin in registry for need in needed for plugin in PLUGINS_FOR[need])

"""What device plugins of vendors want to read on pods: deviceshare spec 3.9. Times are placeholders."""

import json
from datetime import datetime

from tests.plugins.deviceshare.naive.books import MODEL, VENDOR
from tests.plugins.deviceshare.naive.request import CORE, ERROR, MEMORY, Refused

NOW = "<nanoseconds>"
"""Stands for the time of the binding."""
CLOCK = 1_900_000_000
"""Seconds: when all this happens."""
LOCKED_FOR = 300
LOCKS = {"cambricon": "cambricon.com/dsmlu.lock", "metax": "hami.io/mutex.lock"}
UNITS = {"cambricon": 256 << 20, "metax": 1 << 20}


def adapted(written, pod, node, device, gpus, pods):
    """Adds to what PreBind writes. Raises Refused."""
    annotations = written["annotations"]
    annotations["scheduling.koordinator.sh/bind-timestamp"] = NOW
    if not gpus:
        return
    minors = [str(each["minor"]) for each in gpus]
    annotations["scheduling.koordinator.sh/gpu-minors"] = ",".join(minors)
    if (pod["metadata"].get("labels") or {}).get("koordinator.sh/gpu-isolation-provider") == "HAMi-core":
        written["labels"]["hami.io/vgpu-node"] = node["metadata"]["name"]
    labels = device["metadata"].get("labels") or {}
    vendor = labels.get(VENDOR)
    if vendor == "huawei":
        annotations["predicate-time"] = NOW
        template = gpus[0].get("extension", {}).get("gpuSharedResourceTemplate")
        if labels.get(MODEL) == "Ascend-310P3-300I-DUO":
            annotations["huawei.com/Ascend310P"] = ",".join(f"Ascend310P-{minor}" for minor in minors)
        else:
            annotations["huawei.com/npu-core"] = f"{minors[0]}-{template}" if template else ",".join(minors)
    elif vendor == "cambricon":
        if len(gpus) > 1:
            raise failed(vendor, "multiple gpu share is not supported on device side")
        core, units = share(vendor, gpus[0])
        annotations["CAMBRICON_DSMLU_ASSIGHED"] = "false"
        annotations["CAMBRICON_DSMLU_PROFILE"] = f"{minors[0]}_{core}_{units}"
        lock(vendor, node, pods)
    elif vendor == "metax":
        shares = [(each.get("id", ""), *share(vendor, each)) for each in gpus]
        listed = [[{"uuid": uuid, "compute": core, "vRam": units} for uuid, core, units in shares]]
        annotations["metax-tech.com/gpu-devices-allocated"] = json.dumps(listed, separators=(",", ":"))
        lock(vendor, node, pods)


def share(vendor, gpu):
    """(core, memory in the vendor's unit). Raises Refused."""
    if CORE not in gpu["resources"]:
        raise failed(vendor, "gpu core resource is required")
    memory = int(gpu["resources"].get(MEMORY, 0))
    if memory < UNITS[vendor]:
        raise failed(vendor, f"gpu memory must not be less than {UNITS[vendor]} bytes")
    return int(gpu["resources"][CORE]), memory // UNITS[vendor]


def lock(vendor, node, pods):
    """A lock is in force for a while, unless its pod is gone. Raises Refused."""
    text = (node["metadata"].get("annotations") or {}).get(LOCKS[vendor])
    if text is None:
        return
    parts = text.split(",")
    if len(parts) != 3:
        raise failed(vendor, f'failed to lock node: invalid node lock value "{text}"')
    age = CLOCK - datetime.fromisoformat(parts[0].replace("Z", "+00:00")).timestamp()
    if age <= LOCKED_FOR and f"{parts[1]}/{parts[2]}" in pods:
        raise failed(vendor, f'failed to lock node: node "{node["metadata"]["name"]}" has been locked')


def failed(vendor, text):
    return Refused(ERROR, f'failed to adapt for GPU device plugin of vendor "{vendor}": {text}')

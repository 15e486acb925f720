"""What a pod asks of devices: deviceshare spec 2.3 and 3.2."""

import json
from dataclasses import dataclass, field

from tests.plugins.deviceshare.naive.amounts import read, renamed
from tests.plugins.nodenumaresource.naive import ERROR, SUCCESS, UAU, Refused, U
from tests.reference.podrequests import requests
from tests.reference.quantity import parse
from tests.reference.selectors import label_selector_matches

__all__ = ["ERROR", "SUCCESS", "UAU", "Refused", "U"]

SCHEDULING = "scheduling.koordinator.sh/"
ALLOCATED = f"{SCHEDULING}device-allocated"
HINT = f"{SCHEDULING}device-allocate-hint"
JOINT = f"{SCHEDULING}device-joint-allocate"
PARTITION = f"{SCHEDULING}gpu-partition-spec"
SCHEDULING_HINTS = (f"internal.{SCHEDULING}scheduling-hint", f"{SCHEDULING}scheduling-hint")

CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{name}" for name in ("core", "memory", "memory-ratio"))
GPU, SHARED, RDMA, FPGA = (f"koordinator.sh/{name}" for name in ("gpu", "gpu.shared", "rdma", "fpga"))
NPU_CORE, NPU_CPU, NPU_DVPP = (f"huawei.com/npu-{name}" for name in ("core", "cpu", "dvpp"))
VENDORS = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")

NAMES = {
    "gpu": (*VENDORS, GPU, SHARED, CORE, MEMORY, RATIO, NPU_CORE, NPU_CPU, NPU_DVPP),
    "rdma": (RDMA,),
    "fpga": (FPGA,),
}
"""Device types in the order in which everything goes through them."""

LEVELS = {"Node": 1, "NUMANode": 2, "PCIe": 3, "Device": 4}
NO_TEMPLATE = "no matched GPU shared resource template"
JSON_ERROR = "<what the decoder says>"
"""Stands for the part of a message that is upstream's JSON library's."""


class Malformed(Exception):
    """An annotation that is not what it should be."""


@dataclass
class Gpus:
    """What a pod asks of GPUs. `templates`: {vendor-model: [names]} that equal the request, None if none is needed."""

    count: int
    each: dict
    shared: bool
    honour: bool = False
    restricted: bool = False
    bandwidth: int | None = None
    scope: str = ""
    templates: dict | None = None


@dataclass
class Asked:
    """What PreFilter finds out about a pod. `requests`: {device type: amounts}."""

    pod: dict
    requests: dict
    hints: dict = field(default_factory=dict)
    joint: list = field(default_factory=list)
    same_pcie: bool = False
    gpus: Gpus | None = None
    designated: dict | None = None

    @property
    def skip(self):
        return not self.requests

    @property
    def primary(self):
        return self.joint[0] if self.joint else None

    def hint(self, kind):
        return self.hints.get(kind) or {}


def annotation(thing, key, expected=dict):
    """The JSON of an annotation, None without it or for null. Raises Malformed."""
    text = (thing["metadata"].get("annotations") or {}).get(key)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Malformed(str(error)) from error
    if found is not None and not isinstance(found, expected):
        raise Malformed(f"{key} is {found}")
    return found


def asked_of(pod, templates, matched):
    """The Asked of a pod. `templates`: {vendor-model: {name: amounts}}. Raises Refused."""
    wanted = device_requests(pod)
    try:
        designated = allocations_of(pod)
    except Malformed:
        raise Refused(UAU, JSON_ERROR) from None
    asked = Asked(pod, wanted)
    if asked.skip:
        return asked
    asked.designated = designated if is_hinted(pod) and any((designated or {}).values()) else None
    asked.hints = read_annotation(pod, HINT, "DeviceAllocateHint", check_hints) or {}
    joint = read_annotation(pod, JOINT, "DeviceJointAllocate", check_joint) or {}
    asked.joint = [
        kind
        for kind in joint.get("deviceTypes") or ()
        if kind in wanted and asked.hint(kind).get("allocateStrategy") != "ApplyForAll"
    ]
    asked.same_pcie = joint.get("requiredScope") == "SamePCIe"
    if "gpu" in wanted:
        asked.gpus = gpus_of(pod, wanted["gpu"], asked.hint("gpu"), templates, matched)
    return asked


def read_annotation(pod, key, name, check):
    try:
        found = annotation(pod, key)
        check(found or {})
    except Malformed:
        raise Refused(UAU, f"invalid {name} annotation, err: {JSON_ERROR}") from None
    return found


def check_hints(hints):
    for hint in hints.values():
        expect(hint, dict)
        if hint is not None:
            for name in ("allocateStrategy", "requiredTopologyScope", "exclusivePolicy"):
                expect(hint.get(name), str)
            for name in ("selector", "vfSelector"):
                expect(hint.get(name), dict)


def check_joint(joint):
    expect(joint.get("deviceTypes"), list)
    for kind in joint.get("deviceTypes") or ():
        expect(kind, str)
    expect(joint.get("requiredScope"), str)


def check_partition(spec):
    expect(spec.get("allocatePolicy"), str)
    bandwidth_of(spec)


def expect(value, kind):
    """Raises Malformed unless the value is of the kind, or null."""
    if value is not None and not isinstance(value, kind):
        raise Malformed(f"{value} is no {kind}")


def bandwidth_of(thing):
    """The ring bandwidth as a number, None without one. Raises Malformed."""
    text = thing.get("ringBusBandwidth")
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise Malformed(thing) from error


def is_hinted(pod):
    """Whether the scheduling hint has a part for this plugin."""
    for key in SCHEDULING_HINTS:
        found = annotation(pod, key)
        if found is not None:
            return "DeviceShare" in (found.get("extensions") or {})
    return False


def allocations_of(pod):
    """{device type: [{minor, resources, vfs}]} of the annotation, None without it. Raises Malformed."""
    found = annotation(pod, ALLOCATED)
    if found is None:
        return None
    try:
        return {
            kind: [
                {
                    "minor": entry.get("minor", 0),
                    "resources": read(entry.get("resources")),
                    "vfs": [vf.get("busID", "") for vf in (entry.get("extension") or {}).get("vfs") or ()],
                }
                for entry in entries or ()
            ]
            for kind, entries in found.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise Malformed(str(error)) from error


def pod_requests(pod):
    """What the pod requests of everything, under the names of today."""

    def today(container):
        resources = container.get("resources") or {}
        return {**container, "resources": {**resources, "requests": renamed(resources.get("requests") or {})}}

    spec = dict(pod["spec"])
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [today(container) for container in spec[key]]
    if "overhead" in spec:
        spec["overhead"] = renamed(spec["overhead"])
    return requests({**pod, "spec": spec})


def device_requests(pod):
    """{device type: normalised amounts}. Raises Refused."""
    total, found = pod_requests(pod), {}
    for kind, names in NAMES.items():
        wanted = {name: total[name] for name in names if name in total}
        if wanted:
            check(wanted)
            found[kind] = normalised(wanted)
    return found


def is_percentage(amount):
    return amount <= 100 or amount % 100 == 0


def check(wanted):
    for name in (GPU, RDMA, FPGA):
        if name in wanted and not is_percentage(wanted[name]):
            raise Refused(UAU, f"invalid resource unit {name}: {wanted[name]}")
    if not is_valid(wanted):
        raise Refused(UAU, f"invalid resource device requests: [{' '.join(sorted(wanted))}]")


def is_valid(wanted):
    names = set(wanted)
    if len(names) == 1 and names <= {*VENDORS, GPU, RDMA, FPGA}:
        return True
    if names in ({MEMORY}, {RATIO}, {CORE, MEMORY}, {CORE, RATIO}, {NPU_CORE, RATIO}):
        return is_percentage(wanted.get(CORE, 0)) and is_percentage(wanted.get(RATIO, 0))
    if names - {CORE} in ({SHARED, MEMORY}, {SHARED, RATIO}):
        parts = [wanted[name] for name in (CORE, RATIO) if name in wanted]
        return all(part % wanted[SHARED] == 0 and part // wanted[SHARED] <= 100 for part in parts)
    if names - {NPU_DVPP} == {SHARED, NPU_CORE, NPU_CPU, MEMORY}:
        return wanted[SHARED] <= 1 and wanted.get(NPU_DVPP, 0) <= 100
    return False


def normalised(wanted):
    for vendor in VENDORS:
        if vendor in wanted:
            return {CORE: 100 * wanted[vendor], RATIO: 100 * wanted[vendor]}
    if GPU in wanted:
        return {CORE: wanted[GPU], RATIO: wanted[GPU]}
    return wanted


def gpus_of(pod, wanted, hint, templates, matched):
    """The Gpus of normalised requests. Raises Refused."""
    spec = read_annotation(pod, PARTITION, "GPUPartitionSpec", check_partition)
    honour = PARTITION in (pod["metadata"].get("annotations") or {})
    count = wanted.get(SHARED, 0)
    if not count:
        ratio = wanted.get(RATIO, 0)
        count = ratio // 100 if ratio > 100 and ratio % 100 == 0 else 1
    each = {name: wanted[name] // count for name in (CORE, NPU_CORE, NPU_CPU, NPU_DVPP, RATIO) if name in wanted}
    if RATIO not in wanted and MEMORY in wanted:
        each[MEMORY] = wanted[MEMORY] // count
    shared = each[RATIO] < 100 if RATIO in each else MEMORY in each
    gpus = Gpus(count, each, shared, honour, scope=hint.get("requiredTopologyScope") or "")
    if spec:
        gpus.restricted = spec.get("allocatePolicy") == "Restricted"
        gpus.bandwidth = bandwidth_of(spec)
    if shared and set(each) & set(matched):
        gpus.templates = {}
        for model, listed in templates.items():
            equal = [name for name, amounts in listed.items() if amounts == each]
            if equal:
                gpus.templates[model] = equal
        if not gpus.templates:
            raise Refused(UAU, NO_TEMPLATE)
    return gpus


def counted(kind, asked, node):
    """(amounts per instance, number of instances) of a type on a node. Raises Refused."""
    if not node.total.get(kind):
        raise Refused(UAU, f"Insufficient {kind} devices")
    if kind == "gpu":
        return asked.gpus.each, asked.gpus.count
    (name,) = NAMES[kind]
    amount, hint = asked.requests[kind][name], asked.hint(kind)
    if amount > 100:
        return {name: 100}, amount // 100
    strategy = hint.get("allocateStrategy")
    if strategy == "ApplyForAll":
        number = len(node.total[kind])
        if hint.get("selector") is not None:
            number = len([entry for entry in node.infos.get(kind, ()) if selected(hint["selector"], entry)])
        if not number:
            raise Refused(UAU, f"Insufficient {kind} devices")
        return {name: amount}, number
    if strategy == "RequestsAsCount":
        return {name: 100 if hint.get("exclusivePolicy") == "DeviceLevel" else 1}, amount
    return {name: amount}, 1


def selected(selector, entry):
    """Whether a selector matches the labels of a device or a group of virtual functions; an empty one matches all."""
    return label_selector_matches(selector, entry.get("labels") or {})

"""Device classes, requests and devices of worlds with claims, as JSON."""

from tests.reference.quantity import parse

API_VERSION = "resource.k8s.io/v1"
GPU, NIC, TPU = "gpu.test", "nic.test", "tpu.test"
"""Drivers."""
RESOURCE = "ex.com/tpu"
"""An extended resource: of some nodes by a device plugin, of others by DRA."""
FINALIZER = "resource.kubernetes.io/delete-protection"
READY, FAILED = "ready.test/ok", "failed.test/no"
"""Conditions that a binding waits for, or that end it."""
TAINT = "maintenance"
GI = 1 << 30


def _kind(kind):
    return f'device.attributes["{GPU}"].kind == "{kind}"'


CLASSES = {
    "gpu": (f'device.driver == "{GPU}"', _kind("plain")),
    "fast": (f'device.driver == "{GPU}"', _kind("plain"), f'device.attributes["{GPU}"].model == "fast"'),
    "part": (f'device.driver == "{GPU}"', _kind("part")),
    "share": (f'device.driver == "{GPU}"', _kind("share")),
    "slow": (f'device.driver == "{GPU}"', _kind("slow")),
    "nic": (f'device.driver == "{NIC}"',),
    "tpu": (f'device.driver == "{TPU}"',),
    "quick": (f'device.driver == "{GPU}"', f'device.attributes["{GPU}"].model == "fast"'),
}
"""Name -> expressions of the selectors: CEL that is Python, too. That of "quick" fails on GPUs that name no model."""


def device_class(name, expressions=None):
    """A DeviceClass; that of TPUs stands for the extended resource."""
    selectors = [{"cel": {"expression": text}} for text in (CLASSES[name] if expressions is None else expressions)]
    spec = {"selectors": selectors, **({"extendedResourceName": RESOURCE} if name == "tpu" else {})}
    return {"apiVersion": API_VERSION, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def exactly(of, count=1, **more):
    """What a request asks for."""
    amount = {"allocationMode": "ExactCount", "count": count} if count else {"allocationMode": "All"}
    return {"deviceClassName": of, **amount, **more}


def _select(text):
    return [{"cel": {"expression": text}}]


def _part(memory):
    return exactly("part", selectors=_select(f'device.attributes["{GPU}"].memory == {memory}'))


TOLERATION = {"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}
PATIENCE = {"key": TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 4}

CLAIMS = {
    "one": {"requests": [{"name": "r", "exactly": exactly("gpu")}]},
    "two": {"requests": [{"name": "r", "exactly": exactly("gpu", 2)}]},
    "fast": {"requests": [{"name": "r", "exactly": exactly("fast")}]},
    "pair": {
        "requests": [{"name": "a", "exactly": exactly("gpu")}, {"name": "b", "exactly": exactly("gpu")}],
        "constraints": [{"requests": ["a", "b"], "matchAttribute": f"{GPU}/numa"}],
    },
    "either": {
        "requests": [
            {
                "name": "r",
                "firstAvailable": [{"name": "big", **exactly("fast", 2)}, {"name": "small", **exactly("gpu")}],
            }
        ]
    },
    "whole": {"requests": [{"name": "r", "exactly": _part(40)}]},
    "half": {"requests": [{"name": "r", "exactly": _part(20)}]},
    "quarter": {"requests": [{"name": "r", "exactly": _part(10)}]},
    "slice": {"requests": [{"name": "r", "exactly": exactly("share", capacity={"requests": {"memory": "10Gi"}})}]},
    "slices": {"requests": [{"name": "r", "exactly": exactly("share", capacity={"requests": {"memory": "25Gi"}})}]},
    "slow": {"requests": [{"name": "r", "exactly": exactly("slow")}]},
    "nic": {"requests": [{"name": "n", "exactly": exactly("nic")}]},
    "both": {
        "requests": [{"name": "g", "exactly": exactly("gpu")}, {"name": "n", "exactly": exactly("nic")}],
    },
    "tolerant": {"requests": [{"name": "r", "exactly": exactly("gpu", tolerations=[TOLERATION])}]},
    "watch": {"requests": [{"name": "r", "exactly": exactly("gpu", adminAccess=True)}]},
    "patient": {"requests": [{"name": "r", "exactly": exactly("gpu", tolerations=[TOLERATION, PATIENCE])}]},
    "quick": {"requests": [{"name": "r", "exactly": exactly("quick")}]},
    "all-gpus": {"requests": [{"name": "r", "exactly": exactly("gpu", 0)}]},
    "all-tpus": {"requests": [{"name": "t", "exactly": exactly("tpu", 0)}]},
    "watch-all": {"requests": [{"name": "r", "exactly": exactly("gpu", 0, adminAccess=True)}]},
    "any": {
        "requests": [
            {
                "name": "r",
                "firstAvailable": [
                    {"name": "tpus", **exactly("tpu", 0)},
                    {"name": "part", **_part(20)},
                    {"name": "gpu", **exactly("gpu", tolerations=[TOLERATION])},
                ],
            },
            {"name": "n", "exactly": exactly("nic")},
        ]
    },
}
"""Name of a template -> what its claims ask for."""

KINDS = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
    "DeviceClass": "deviceclasses",
}
PATHS = {kind: f"/apis/{API_VERSION}/{plural}" for kind, plural in KINDS.items()}


def results_of(claim):
    """The devices of a claim's allocation."""
    return ((((claim.get("status") or {}).get("allocation")) or {}).get("devices") or {}).get("results") or []


def allocation_of(claim):
    """The allocation, or None."""
    return (claim.get("status") or {}).get("allocation")


def reserved_for(claim):
    """uids of those that the claim is reserved for."""
    return [each["uid"] for each in (claim.get("status") or {}).get("reservedFor") or ()]


def claims_named(pod):
    """Names of the claims of a pod as far as they are known, that of its extended resources included; None among them
    for one that is not made yet."""
    status = pod.get("status") or {}
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for entry in pod["spec"].get("resourceClaims") or ():
        yield entry.get("resourceClaimName") or made.get(entry["name"])
    special = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if special:
        yield special


def wants_extended(pod):
    """How many devices the pod asks for as an extended resource."""
    requests = [each.get("resources", {}).get("requests", {}) for each in pod["spec"]["containers"]]
    return sum(int(parse(each.get(RESOURCE, 0))) for each in requests)


def tolerated(taint, asked):
    """Whether a request, or the result for it, tolerates a taint of a device."""
    return any(
        each.get("effect", "") in ("", taint["effect"])
        and each.get("key", "") in ("", taint["key"])
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in asked.get("tolerations") or ()
    )


def gpu(name, kind, **attributes):
    """A device of the driver of GPUs."""
    values = {"kind": kind, **attributes}
    return {"name": name, "attributes": {key: _value(value) for key, value in values.items()}}


def _value(value):
    return {"int": value} if isinstance(value, int) else {"string": value}


def partitions(number):
    """(a counter set, the devices that share it) of a GPU that can be divided."""
    name, found = f"part{number}", []
    for kind, memory, count in (("full", 40, 1), ("half", 20, 2), ("quarter", 10, 2)):
        for index in range(count):
            counters = {"memory": {"value": str(memory)}}
            more = {"consumesCounters": [{"counterSet": name, "counters": counters}]}
            found.append({**gpu(f"{name}-{kind}{index}", "part", memory=memory), **more})
    return {"name": name, "counters": {"memory": {"value": "40"}}}, found


def shared_gpu(name, gib):
    """A GPU whose memory is given out in parts."""
    more = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": f"{gib}Gi"}}}
    return {**gpu(name, "share"), **more}


def slow_gpu(name):
    """A GPU that becomes ready, or fails, after it was allocated."""
    return {**gpu(name, "slow"), "bindingConditions": [READY], "bindingFailureConditions": [FAILED]}

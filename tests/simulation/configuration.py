"""The configuration that the replicas of a world run with."""

import json
from functools import lru_cache
from random import Random

from koordsched import config, plugins
from koordsched.api.protobuf.fields import MEDIA_TYPE as PROTOBUF
from koordsched.config import catalog, resolving
from koordsched.config.extension_points import ExtensionPoint
from koordsched.plugins import CONTROLLERS, IN_TREE
from tests.simulation import extenders
from tests.simulation.gangoptions import ONCE_SATISFIED, Defaults
from tests.simulation.permits import Gatekeeper

API_VERSION = "kubescheduler.config.k8s.io/v1"
PLAIN = {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration"}
PROFILE = "default-scheduler"
LOADS = "LoadAwareScheduling"
BREAKER, QUARANTINE = "NodeCircuitBreaker", "WorkloadQuarantine"
NUMA, DEVICES, RESERVATION = "NodeNUMAResource", "DeviceShare", "Reservation"
GANGS = "Coscheduling"
CLAIMS = "DynamicResources"
GANG_POINTS = ("preEnqueue", "preFilter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "postBind")
_AFTER_GANGS = {"preFilter": ("ElasticQuota",), "postFilter": ("ElasticQuota", "DefaultPreemption")}
ALLOCATING_POINTS = ("preFilter", "filter", "score", "reserve", "preBind")

REVOCATION_DELAY = 2.0
"""Seconds for which a quota may use too much before pods are evicted, where that is done."""

RESERVING_POINTS = ("preFilter", "filter", "preScore", "score", "reserve", "preBind")

GATES = ("DRAExtendedResource=false",)
"""In worlds without DeviceClasses, where it decides nothing."""

RESERVATION_GATES = {
    "CleanExpiredReservationAllocated": 0.4,
    "OmitNodeLabelsForReservation": 0.2,
    "SkipReservationFitsNode": 0.2,
}
"""Name -> in which share of the worlds with Reservations it is on."""

RULES = "DRADeviceTaintRules=true"
"""The gate with which DeviceTaintRules count."""

NATIVE = ("GenericWorkload=true", "GangScheduling=true")
"""The gates of Kubernetes' own PodGroups."""

ADAPTION = "DevicePluginAdaption=true"
"""The gate with which allocations are written for vendors' device plugins, too."""

BINDING_VOLUMES = 20
"""Seconds that volumes may take to be bound."""


def resolved(plan):
    """What `koordsched run` would make of the configuration file."""
    return _resolved(json.dumps(document(plan)), gates(plan))


def gates(plan):
    """The feature gates as they are set."""
    found = [] if "claims" in plan.features else list(GATES)
    if heeds_rules(plan):
        found.append(RULES)
    if has_native_groups(plan):
        found += NATIVE
    if "reservations" in plan.features:
        rng = Random(f"{plan.seed} reservation gates")
        found += [f"{name}=true" for name, chance in RESERVATION_GATES.items() if rng.random() < chance]
    if has_vendors(plan) and Random(f"{plan.seed} device plugins").random() < 0.6:
        found.append(ADAPTION)
    return tuple(found)


def heeds_rules(plan):
    """Whether DeviceTaintRules count."""
    return "claims" in plan.features and Random(f"{plan.seed} taint rules").random() < 0.7


def has_native_groups(plan):
    """Whether pods are placed together by Kubernetes' own PodGroup, too."""
    return {"gangs", "claims"} <= set(plan.features) and Random(f"{plan.seed} native groups").random() < 0.5


def has_vendors(plan):
    """Whether some nodes have NPUs, or GPUs of vendors with device plugins of their own."""
    return "devices" in plan.features and Random(f"{plan.seed} vendors of devices").random() < 0.5


CATALOG = plugins.CATALOG.extended({Gatekeeper.name: catalog.PluginEntry(frozenset({ExtensionPoint.PERMIT}))})

PLUGINS = {**IN_TREE, Gatekeeper.name: Gatekeeper}
"""Factories by name."""


def controllers(plan):
    """What runs beside scheduling."""
    return CONTROLLERS if {"quotas", "breakers", "reservations", "gangs", "claims"} & set(plan.features) else {}


@lru_cache
def _resolved(text, gates):
    parsed = config.FeatureGates.parse(list(gates))
    return resolving.resolve(config.load(text, catalog=CATALOG, gates=parsed), catalog=CATALOG, gates=parsed)


def document(plan):
    """The configuration file."""
    basis = {**PLAIN, "clientConnection": {"acceptContentTypes": PROTOBUF}} if plan.in_protobuf else PLAIN
    if not plan.features:
        return basis
    plugins, args = {}, []
    if "quotas" in plan.features:
        plugins |= {point: {"enabled": [{"name": "ElasticQuota"}]} for point in ("preFilter", "reserve")}
        both = [{"name": "ElasticQuota"}, {"name": "DefaultPreemption"}]
        plugins["postFilter"] = {"disabled": [{"name": "DefaultPreemption"}], "enabled": both}
        args.append({"name": "ElasticQuota", "args": _quota_args(plan)})
    if "loads" in plan.features:
        own = {"name": LOADS}
        plugins |= {point: {"enabled": [own]} for point in ("filter", "score")}
        plugins["reserve"] = {"enabled": [*plugins.get("reserve", {"enabled": []})["enabled"], own]}
        kind = {"apiVersion": API_VERSION, "kind": f"{LOADS}Args"}
        args.append({**own, "args": {**kind, **load_args(plan)}})
    if "breakers" in plan.features:
        plugins["multiPoint"] = {"enabled": [{"name": BREAKER}, {"name": QUARANTINE}]}
        for name, own_args in ((BREAKER, breaker_args(plan)), (QUARANTINE, quarantine_args(plan))):
            args.append({"name": name, "args": {"apiVersion": API_VERSION, "kind": f"{name}Args", **own_args}})
    for feature, name, made in (("numa", NUMA, numa_args), ("devices", DEVICES, device_args)):
        if feature in plan.features:
            own = {"name": name}
            for point in ALLOCATING_POINTS:
                plugins[point] = {"enabled": [*plugins.get(point, {"enabled": []})["enabled"], own]}
            kind = {"apiVersion": API_VERSION, "kind": f"{name}Args"}
            args.append({**own, "args": {**kind, **made(plan)}})
    if "reservations" in plan.features:
        _reserve(plan, plugins, args)
    if "permits" in plan.features:
        plugins["permit"] = {"enabled": [{"name": Gatekeeper.name}]}
    if "gangs" in plan.features:
        _enable_gangs(plugins, plan)
        kind = {"apiVersion": API_VERSION, "kind": f"{GANGS}Args"}
        args.append({"name": GANGS, "args": {**kind, **gang_args(plan)}})
    if "volumes" in plan.features:
        bounds = {"apiVersion": API_VERSION, "kind": "VolumeBindingArgs", "bindTimeoutSeconds": BINDING_VOLUMES}
        args.append({"name": "VolumeBinding", "args": bounds})
    if "claims" in plan.features:
        kind = {"apiVersion": API_VERSION, "kind": f"{CLAIMS}Args"}
        if {"name": "*"} in plugins.get("postFilter", {}).get("disabled", ()):
            plugins["postFilter"]["enabled"].insert(0, {"name": CLAIMS})
        args.append({"name": CLAIMS, "args": {**kind, **claim_args(plan)}})
    more = {"extenders": [extenders.settings(plan.seed)]} if "extenders" in plan.features else {}
    return {**basis, **more, "profiles": [{"schedulerName": PROFILE, "plugins": plugins, "pluginConfig": args}]}


def _reserve(plan, plugins, args):
    own = {"name": RESERVATION}
    for point in RESERVING_POINTS:
        plugins[point] = {"enabled": [*plugins.get(point, {"enabled": []})["enabled"], own]}
    chain = plugins.get("postFilter", {"enabled": [{"name": "DefaultPreemption"}]})["enabled"]
    plugins["postFilter"] = {"disabled": [{"name": "*"}], "enabled": [own, *chain]}
    plugins["bind"] = {"disabled": [{"name": "*"}], "enabled": [own, {"name": "DefaultBinder"}]}
    kind = {"apiVersion": API_VERSION, "kind": f"{RESERVATION}Args"}
    args.append({**own, "args": {**kind, **reservation_args(plan)}})


def reservation_args(plan):
    """The arguments of Reservation: what is over goes soon in some worlds."""
    rng = Random(f"{plan.seed} reservation args")
    args = {"gcDurationSeconds": rng.choice([4, 86400]), "gcIntervalSeconds": rng.choice([2, 7])}
    pre_allocation = {"enableClusterMode": rng.random() < 0.7, "preferNoPreAllocatedPods": rng.random() < 0.3}
    if rng.random() < 0.8:
        args["preAllocationConfig"] = pre_allocation
    if rng.random() < 0.25:
        args["enablePreemption"] = True
    return args


def _enable_gangs(plugins, plan):
    """As Koordinator does it: in PreFilter between devices and quotas, in PostFilter first (coscheduling spec 2.5)."""
    for point in GANG_POINTS:
        default = [{"name": "DefaultPreemption"}] if point == "postFilter" else []
        others = [each["name"] for each in plugins.get(point, {"enabled": default})["enabled"]]
        after = [name for name in others if name in _AFTER_GANGS.get(point, ())]
        before = [name for name in others if name not in after]
        if not preempts_by_pod(plan):
            after = [name for name in after if name != "DefaultPreemption"]
        plugins[point] = {"enabled": [{"name": name} for name in (*before, GANGS, *after)]}
    plugins["postFilter"]["disabled"] = [{"name": "*"}]


def preempts_by_pod(plan):
    """Whether there is preemption for single pods."""
    if "gangs" not in plan.features or "quotas" in plan.features:
        return True
    return not gang_args(plan)["enablePreemption"] or Random(f"{plan.seed} gang post filters").random() < 0.5


def gang_args(plan):
    """The arguments of Coscheduling."""
    rng = Random(f"{plan.seed} gang args")
    args = {"enablePreemption": rng.random() < 0.5, "controllerWorkers": rng.choice([1, 3])}
    if rng.random() < 0.5:
        args["defaultTimeout"] = rng.choice(["3s", "60s"])
    if rng.random() < 0.3:
        args["defaultMatchPolicy"] = rng.choice(["only-waiting", "waiting-and-running"])
    return args


def gang_defaults(plan):
    """The options of gangs that name none."""
    args = gang_args(plan)
    return Defaults(args.get("defaultMatchPolicy", ONCE_SATISFIED), seconds(args.get("defaultTimeout", "600s")))


def claim_args(plan):
    """The arguments of DynamicResources: devices have seconds to become ready."""
    return {"bindingTimeout": Random(f"{plan.seed} claim args").choice(["3s", "8s", "20s"])}


def load_args(plan):
    """The arguments of LoadAwareScheduling."""
    rng = Random(f"{plan.seed} load args")
    args = {"nodeMetricExpirationSeconds": 30, "usageThresholds": {"cpu": rng.choice([50, 80]), "memory": 90}}
    if rng.random() < 0.3:
        args["prodUsageThresholds"] = {"cpu": rng.choice([40, 70])}
    if rng.random() < 0.3:
        statistic = {"usageAggregationType": "p95", "usageAggregatedDuration": rng.choice(["0s", "5m0s"])}
        args["aggregated"] = {"usageThresholds": {"cpu": 60}, **statistic, "scoreAggregationType": "p50"}
    return args


def breaker_args(plan):
    """The arguments of NodeCircuitBreaker: all that takes minutes takes seconds."""
    rng = Random(f"{plan.seed} breaker args")
    failures = rng.choice([2, 3])
    return {
        "window": rng.choice(["60s", "300s"]),
        "failures": failures,
        "distinctOwners": rng.choice([1, 2]),
        "ownerNodes": rng.choice([1, 2, 3]),
        "quickCrash": "1s",
        "sandboxTimeout": "3s",
        "coolDown": rng.choice(["2s", "6s"]),
        "maxCoolDown": "16s",
        "probation": rng.choice(["2s", "5s"]),
        "probeTimeout": rng.choice(["15s", "60s"]),
        "maxOpenPercentage": rng.choice([10, 40, 70]),
    }


def quarantine_args(plan):
    """The arguments of WorkloadQuarantine: in a cluster of few nodes less evidence has to do."""
    rng = Random(f"{plan.seed} quarantine args")
    cool_down = rng.choice(["8s", "7200s"])
    return {"soonAfter": rng.choice(["10s", "600s"]), "significance": 0.3, "coolDown": cool_down}


def seconds(text):
    """The number in a duration such as 10s."""
    return int(text.removesuffix("s"))


def numa_args(plan):
    """The arguments of NodeNUMAResource."""
    rng = Random(f"{plan.seed} numa args")
    args = {"defaultCPUBindPolicy": rng.choice(["FullPCPUs", "FullPCPUs", "SpreadByPCPUs", ""])}
    for key in ("scoringStrategy", "numaScoringStrategy"):
        if rng.random() < 0.4:
            resources = [{"name": name, "weight": 1} for name in ("cpu", "memory")]
            args[key] = {"type": rng.choice(["LeastAllocated", "MostAllocated"]), "resources": resources}
    return args


def device_args(plan):
    """The arguments of DeviceShare."""
    rng, args = Random(f"{plan.seed} device args"), {}
    if rng.random() < 0.5:
        names = ("gpu-memory-ratio", "gpu-memory", "rdma")
        resources = [{"name": f"koordinator.sh/{name}", "weight": 1} for name in names]
        args["scoringStrategy"] = {"type": rng.choice(["LeastAllocated", "MostAllocated"]), "resources": resources}
    if rng.random() < 0.1:
        args["disableDeviceNUMATopologyAlignment"] = True
    if rng.random() < 0.1:
        args["gpuShareUnsupportedModels"] = [{"vendor": "nvidia", "model": "H800"}]
    if Random(f"{plan.seed} improved allocation").random() < 0.4:
        args["improvedAllocation"] = True
    return args


def _quota_args(plan):
    return {
        "apiVersion": API_VERSION,
        "kind": "ElasticQuotaArgs",
        "enableRuntimeQuota": plan.by_runtime,
        "enableCheckParentQuota": plan.checks_parents,
        "monitorAllQuotas": plan.revokes,
        "delayEvictTime": f"{REVOCATION_DELAY}s",
        **({"defaultQuotaGroupMax": dict(plan.default_max)} if plan.default_max else {}),
    }

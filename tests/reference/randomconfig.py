"""Random arguments of the plugins of a profile."""

ARGS = [
    {},
    {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}, {"name": "ex.com/gpu"}]}},
    {
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "cpu"}, {"name": "memory", "weight": 2}, {"name": "ephemeral-storage", "weight": 5}],
            "requestedToCapacityRatio": {
                "shape": [
                    {"utilization": 10, "score": 0},
                    {"utilization": 45, "score": 9},
                    {"utilization": 80, "score": 2},
                ]
            },
        }
    },
    {
        "ignoredResources": ["ex.com/gpu"],
        "scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "ephemeral-storage", "weight": 4}]},
    },
]
BALANCED = [{}, {"resources": [{"name": n, "weight": 1} for n in ("cpu", "memory", "ephemeral-storage", "ex.com/gpu")]}]
ADDED = [
    {},
    {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 30,
                    "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
                }
            ],
        }
    },
]


SPREAD = [
    {},
    {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
        ],
    },
    {"defaultingType": "List"},
]
AFFINITY = [
    {},
    {"hardPodAffinityWeight": 0},
    {"hardPodAffinityWeight": 77},
    {"ignorePreferredTermsOfExistingPods": True},
]


RULES = [
    {},
    {"cpu": {"type": "LeastAllocated", "weight": 1}, "memory": {"type": "MostAllocated", "weight": 3}},
    {
        "ex.com/gpu": {"type": "MostAllocated", "weight": 2},
        "cpu": {"type": "RequestedToCapacityRatio", "weight": 1},
        "memory": {"weight": 0},
        "ephemeral-storage": {"type": "LeastAllocated", "weight": 7},
        "hugepages-2Mi": {"type": "LeastAllocated", "weight": 1},
    },
]
SCARCE = [[], ["ex.com/gpu"], ["ex.com/gpu", "ephemeral-storage", "cpu", "hugepages-2Mi"]]


def random_config(rng):
    """The JSON of a profile with random arguments; some have score plugins that are not enabled by default."""
    chosen = {
        "NodeResourcesFit": rng.choice(ARGS),
        "NodeResourcesBalancedAllocation": rng.choice(BALANCED),
        "NodeAffinity": rng.choice(ADDED),
        "PodTopologySpread": rng.choice(SPREAD),
        "InterPodAffinity": rng.choice(AFFINITY),
    }
    added = rng.sample(["NodeResourcesFitPlus", "ScarceResourceAvoidance"], rng.randint(0, 2))
    if "NodeResourcesFitPlus" in added:
        chosen["NodeResourcesFitPlus"] = {"resources": rng.choice(RULES)}
    if "ScarceResourceAvoidance" in added:
        chosen["ScarceResourceAvoidance"] = {"resources": rng.choice(SCARCE)}
    enabled = [{"name": name} for name in added]
    return {
        "plugins": {
            "preScore": {"enabled": enabled},
            "score": {"enabled": [{**plugin, "weight": rng.randint(1, 3)} for plugin in enabled]},
        },
        "pluginConfig": [{"name": name, "args": args} for name, args in chosen.items() if args],
    }


def reference_args(config, name):
    """The JSON of one plugin's arguments."""
    return next((entry["args"] for entry in config["pluginConfig"] if entry["name"] == name), {})

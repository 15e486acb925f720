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


def random_config(rng):
    """The JSON of a profile with random arguments."""
    chosen = {
        "NodeResourcesFit": rng.choice(ARGS),
        "NodeResourcesBalancedAllocation": rng.choice(BALANCED),
        "NodeAffinity": rng.choice(ADDED),
        "PodTopologySpread": rng.choice(SPREAD),
        "InterPodAffinity": rng.choice(AFFINITY),
    }
    return {"pluginConfig": [{"name": name, "args": args} for name, args in chosen.items() if args]}


def reference_args(config, name):
    """The JSON of one plugin's arguments."""
    return next((entry["args"] for entry in config["pluginConfig"] if entry["name"] == name), {})

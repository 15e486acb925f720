"""From a KubeSchedulerConfiguration (JSON) to the plugins of each point (core spec 2.2)."""

from tests.reference.plugins import REGISTRY

DEFAULT = [
    ("SchedulingGates", 0), ("PrioritySort", 0), ("NodeUnschedulable", 0), ("NodeName", 0), ("TaintToleration", 3),
    ("NodeAffinity", 2), ("NodePorts", 0), ("NodeResourcesFit", 1), ("VolumeRestrictions", 0), ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0), ("VolumeZone", 0), ("PodTopologySpread", 2), ("InterPodAffinity", 2), ("DynamicResources", 2),
    ("DefaultPreemption", 0), ("NodeResourcesBalancedAllocation", 1), ("ImageLocality", 1), ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
]  # fmt: skip

POINTS = {
    "preFilter": "pre_filter",
    "filter": "filter",
    "postFilter": "post_filter",
    "preScore": "pre_score",
    "score": "score",
}


class Profile:
    """`points[point]`: plugin names in order; `weights`; `plugins`: name -> instance.

    A name that is not in `registry` is left out and listed in `unknown`.
    """

    def __init__(self, configured, registry=REGISTRY):
        self.name = configured.get("schedulerName", "default-scheduler")
        args = {entry["name"]: entry.get("args") or {} for entry in configured.get("pluginConfig") or []}
        sets = configured.get("plugins") or {}
        everywhere = merge(DEFAULT, sets.get("multiPoint") or {})
        self.plugins = {}
        self.unknown = set()
        self.points, self.weights = {}, {}
        for point, method in POINTS.items():
            own = sets.get(point) or {}
            disabled = {entry["name"] for entry in own.get("disabled") or []}
            listed = [(entry["name"], entry.get("weight", 0)) for entry in own.get("enabled") or []]
            general = [] if "*" in disabled else [e for e in everywhere if e[0] not in disabled]
            overriding = [entry for entry in listed if entry[0] in dict(general)]
            rest = [entry for entry in general if entry[0] not in dict(listed)]
            added = [entry for entry in listed if entry not in overriding]
            chain = []
            for name, weight in [*overriding, *rest, *added]:
                if name not in registry:
                    self.unknown.add(name)
                elif hasattr(registry[name], method):
                    self.plugins.setdefault(name, registry[name](args.get(name, {})))
                    chain.append(name)
                    if point == "score":
                        self.weights[name] = weight or dict(everywhere).get(name) or 1
            self.points[point] = chain


def merge(default, custom):
    """Step 1: minus the disabled names, user entries in place of their namesakes, the others appended."""
    disabled = {entry["name"] for entry in custom.get("disabled") or []}
    enabled = {entry["name"]: entry.get("weight", 0) for entry in custom.get("enabled") or []}
    kept = [] if "*" in disabled else [(n, enabled.get(n, w)) for n, w in default if n not in disabled]
    return kept + [(name, weight) for name, weight in enabled.items() if name not in dict(kept)]


def profiles_of(config):
    """{schedulerName: Profile}."""
    configured = (config or {}).get("profiles") or [{}]
    return {profile.name: profile for profile in map(Profile, configured)}

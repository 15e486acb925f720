"""Default-plugins spec 3.9."""

from math import floor, log

from tests.reference.selectors import label_selector_matches, required_node_affinity_matches
from tests.reference.status import SKIP, unresolvable, unschedulable
from tests.reference.taints import taints_of, untolerated
from tests.reference.world import is_deleting, labels_of, namespace_of

HOSTNAME = "kubernetes.io/hostname"
SYSTEM = [
    {"topologyKey": HOSTNAME, "maxSkew": 3, "whenUnsatisfiable": "ScheduleAnyway"},
    {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 5, "whenUnsatisfiable": "ScheduleAnyway"},
]


class PodTopologySpread:
    def __init__(self, args):
        self.system = args.get("defaultingType", "System") == "System"
        self.defaults = SYSTEM if self.system else args.get("defaultConstraints") or []

    # --- constraints -------------------------------------------------------------------------------

    def constraints(self, pod, world, kind):
        """The constraints of the kind (DoNotSchedule, ScheduleAnyway), each with its selector: a function of labels."""
        own = pod["spec"].get("topologySpreadConstraints") or []
        if own:
            return [{**c, "matches": own_selector(c, pod)} for c in own if c["whenUnsatisfiable"] == kind]
        matches = default_selector(pod, world)
        if matches is None:
            return []
        return [{**c, "matches": matches} for c in self.defaults if c["whenUnsatisfiable"] == kind]

    # --- filter ------------------------------------------------------------------------------------

    def pre_filter(self, pod, world):
        return None if self.constraints(pod, world, "DoNotSchedule") else SKIP

    def filter(self, pod, node, world):
        hard = self.constraints(pod, world, "DoNotSchedule")
        for constraint in hard:
            key = constraint["topologyKey"]
            if key not in labels_of(node):
                return unresolvable("node(s) didn't match pod topology spread constraints (missing required label)")
            domains = {}
            for other in world.nodes:
                if all(c["topologyKey"] in labels_of(other) for c in hard) and included(constraint, pod, other):
                    value = labels_of(other)[key]
                    domains[value] = domains.get(value, 0) + matching(constraint, pod, other, world)
            smallest = min(domains.values(), default=0)
            if len(domains) < (constraint.get("minDomains") or 1):
                smallest = 0
            own = 1 if constraint["matches"](labels_of(pod)) else 0
            if domains.get(labels_of(node)[key], 0) + own - smallest > constraint["maxSkew"]:
                return unschedulable("node(s) didn't match pod topology spread constraints")
        return None

    # --- score -------------------------------------------------------------------------------------

    def pre_score(self, pod, world, nodes):
        return None if self.constraints(pod, world, "ScheduleAnyway") else SKIP

    def all_keys_required(self, pod):
        return bool(pod["spec"].get("topologySpreadConstraints")) or not self.system

    def ignored(self, pod, node, soft):
        return self.all_keys_required(pod) and not all(c["topologyKey"] in labels_of(node) for c in soft)

    def score(self, pod, node, world, nodes):
        soft = self.constraints(pod, world, "ScheduleAnyway")
        if self.ignored(pod, node, soft):
            return 0
        scored = [other for other in nodes if not self.ignored(pod, other, soft)]
        total = 0.0
        for constraint in soft:
            key = constraint["topologyKey"]
            if key not in labels_of(node):
                continue
            if key == HOSTNAME:
                size = len(scored)
                count = matching(constraint, pod, node, world)
            else:
                size = len({labels_of(other).get(key) for other in scored})
                count = sum(
                    matching(constraint, pod, other, world)
                    for other in world.nodes
                    if labels_of(other).get(key) == labels_of(node)[key]
                    and not self.ignored(pod, other, soft)
                    and included(constraint, pod, other)
                )
            total += float(count) * log(float(size + 2)) + float(constraint["maxSkew"] - 1)
        return floor(total + 0.5)

    def normalize(self, pod, scores, world):
        soft = self.constraints(pod, world, "ScheduleAnyway")
        by_name = {node["metadata"]["name"]: node for node in world.nodes}
        counted = {name: raw for name, raw in scores.items() if not self.ignored(pod, by_name[name], soft)}
        highest, lowest = max(counted.values(), default=0), min(counted.values(), default=0)
        normalised = dict.fromkeys(scores, 0)
        for name, raw in counted.items():
            normalised[name] = 100 if highest == 0 else 100 * (highest + lowest - raw) // highest
        return normalised


def included(constraint, pod, node):
    """The inclusion policies: nodeAffinityPolicy (Honor by default) and nodeTaintsPolicy (Ignore by default)."""
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not required_node_affinity_matches(pod, node):
        return False
    honor_taints = constraint.get("nodeTaintsPolicy", "Ignore") == "Honor"
    return not (honor_taints and untolerated(pod, taints_of(node), ("NoSchedule", "NoExecute")))


def matching(constraint, pod, node, world):
    """Pods on the node that count."""
    if constraint["matches"].empty:
        return 0
    return len(
        [
            other
            for other in world.pods_on(node)
            if namespace_of(other) == namespace_of(pod)
            and not is_deleting(other)
            and constraint["matches"](labels_of(other))
        ]
    )


class Selector:
    """Label selectors ANDed; `empty` if there is no requirement in any."""

    def __init__(self, *selectors):
        self.selectors = selectors
        self.empty = all(
            s is not None and not s.get("matchLabels") and not s.get("matchExpressions") for s in selectors
        )

    def __call__(self, labels):
        return all(label_selector_matches(selector, labels) for selector in self.selectors)


def own_selector(constraint, pod):
    keys = constraint.get("matchLabelKeys") or []
    pinned = {key: labels_of(pod)[key] for key in keys if key in labels_of(pod)}
    return Selector(constraint.get("labelSelector"), {"matchLabels": pinned})


def default_selector(pod, world):
    """From the services that select the pod and its controller; None if that leaves it empty."""
    merged = {}
    for service in world.kind("Service"):
        wanted = service["spec"].get("selector") or {}
        if wanted and namespace_of(service) == namespace_of(pod) and wanted.items() <= labels_of(pod).items():
            merged |= wanted
    added = {}
    for owner in pod["metadata"].get("ownerReferences") or []:
        if not owner.get("controller"):
            continue
        kind = (owner["apiVersion"], owner["kind"])
        for candidate in world.kind(owner["kind"]):
            if (namespace_of(candidate), candidate["metadata"]["name"]) != (namespace_of(pod), owner["name"]):
                continue
            if kind == ("v1", "ReplicationController"):
                merged |= candidate["spec"].get("selector") or {}
            elif kind in (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")):
                added = candidate["spec"]["selector"]
    selector = Selector({"matchLabels": merged}, added)
    return None if selector.empty else selector

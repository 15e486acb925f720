"""Default-plugins spec 3.10."""

from tests.reference.selectors import label_selector_matches
from tests.reference.status import SKIP, unresolvable, unschedulable
from tests.reference.world import labels_of, namespace_of

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def terms(pod, kind, strength):
    """The terms of podAffinity or podAntiAffinity."""
    return ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(strength) or []


def weighted_terms(pod):
    """(signed weight, term) of the preferred terms."""
    for sign, kind in ((1, "podAffinity"), (-1, "podAntiAffinity")):
        for preference in terms(pod, kind, PREFERRED):
            yield sign * preference["weight"], preference["podAffinityTerm"]


def matches(term, owner, other, world):
    """Whether the term, written in `owner`, selects the pod `other`."""
    listed, selector = term.get("namespaces") or [], term.get("namespaceSelector")
    if not listed and selector is None:
        listed = [namespace_of(owner)]
    namespace = namespace_of(other)
    if namespace not in listed and not (
        selector is not None and label_selector_matches(selector, world.namespace_labels(namespace))
    ):
        return False
    return label_selector_matches(term.get("labelSelector"), labels_of(other))


class InterPodAffinity:
    def __init__(self, args):
        self.hard_weight = args.get("hardPodAffinityWeight", 1)
        self.ignore_preferred_of_existing = args.get("ignorePreferredTermsOfExistingPods", False)

    # --- filter ------------------------------------------------------------------------------------

    def affinity_pairs(self, pod, world):
        """(key, value) pairs of pods that match all required affinity terms."""
        required = terms(pod, "podAffinity", REQUIRED)
        pairs = set()
        for other, node in world.placed_with_node():
            if required and all(matches(term, pod, other, world) for term in required):
                pairs |= {(t["topologyKey"], labels_of(node).get(t["topologyKey"])) for t in required}
        return {pair for pair in pairs if pair[1] is not None}

    def anti_affinity_pairs(self, pod, world):
        """(key, value) pairs of pods that match one of the own required anti-affinity terms."""
        return {
            (term["topologyKey"], labels_of(node)[term["topologyKey"]])
            for other, node in world.placed_with_node()
            for term in terms(pod, "podAntiAffinity", REQUIRED)
            if term["topologyKey"] in labels_of(node) and matches(term, pod, other, world)
        }

    def repelling_pairs(self, pod, world):
        """(key, value) pairs where existing pods do not want this pod."""
        return {
            (term["topologyKey"], labels_of(node)[term["topologyKey"]])
            for other, node in world.placed_with_node()
            for term in terms(other, "podAntiAffinity", REQUIRED)
            if term["topologyKey"] in labels_of(node) and matches(term, other, pod, world)
        }

    def pre_filter(self, pod, world):
        own = terms(pod, "podAffinity", REQUIRED) or terms(pod, "podAntiAffinity", REQUIRED)
        return None if own or self.repelling_pairs(pod, world) else SKIP

    def filter(self, pod, node, world):
        labels = labels_of(node)
        required = terms(pod, "podAffinity", REQUIRED)
        if required:
            pairs = self.affinity_pairs(pod, world)
            has_keys = all(term["topologyKey"] in labels for term in required)
            near = has_keys and all((t["topologyKey"], labels[t["topologyKey"]]) in pairs for t in required)
            first = not pairs and all(matches(term, pod, pod, world) for term in required)
            if not (near or (has_keys and first)):
                return unresolvable("node(s) didn't match pod affinity rules")
        if self.anti_affinity_pairs(pod, world) & labels.items():
            return unschedulable("node(s) didn't match pod anti-affinity rules")
        if self.repelling_pairs(pod, world) & labels.items():
            return unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")
        return None

    # --- score -------------------------------------------------------------------------------------

    def pair_scores(self, pod, world):
        """{(key, value): score}; pairs that were touched are there even if their sum is 0."""
        scores = {}

        def add(term, weight, node):
            key = term["topologyKey"]
            if key in labels_of(node):
                pair = (key, labels_of(node)[key])
                scores[pair] = scores.get(pair, 0) + weight

        for other, node in world.placed_with_node():
            for weight, term in weighted_terms(pod):
                if matches(term, pod, other, world):
                    add(term, weight, node)
            if self.hard_weight > 0:
                for term in terms(other, "podAffinity", REQUIRED):
                    if matches(term, other, pod, world):
                        add(term, self.hard_weight, node)
            for weight, term in weighted_terms(other):
                if matches(term, other, pod, world):
                    add(term, weight, node)
        return scores

    def pre_score(self, pod, world, nodes):
        if self.ignore_preferred_of_existing and not list(weighted_terms(pod)):
            return SKIP
        return None if self.pair_scores(pod, world) else SKIP

    def score(self, pod, node, world, nodes):
        labels = labels_of(node)
        return sum(score for (key, value), score in self.pair_scores(pod, world).items() if labels.get(key) == value)

    def normalize(self, pod, scores, world):
        lowest, highest = min(scores.values()), max(scores.values())
        if lowest == highest:
            return dict.fromkeys(scores, 0)
        return {node: int(100.0 * (float(score - lowest) / float(highest - lowest))) for node, score in scores.items()}

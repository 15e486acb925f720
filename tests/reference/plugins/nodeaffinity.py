"""Default-plugins spec 3.4."""

from tests.reference.normalization import default_normalize
from tests.reference.selectors import (
    node_affinity,
    node_selector_matches,
    node_term_matches,
    required_node_affinity_matches,
)
from tests.reference.status import SKIP, unresolvable

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity:
    def __init__(self, args):
        self.added = args.get("addedAffinity") or {}

    def pre_filter(self, pod, world):
        required = node_affinity(pod).get(REQUIRED)
        if not pod["spec"].get("nodeSelector") and required is None and self.added.get(REQUIRED) is None:
            return SKIP
        if required is None or not required.get("nodeSelectorTerms"):
            return None
        names = set()
        for term in required["nodeSelectorTerms"]:
            wanted = [
                set(field.get("values") or [])
                for field in term.get("matchFields") or []
                if field["key"] == "metadata.name" and field["operator"] == "In"
            ]
            if not wanted:
                return None
            names |= set.intersection(*wanted)
        return names or unresolvable("pod affinity terms conflict")

    def filter(self, pod, node, world):
        if self.added.get(REQUIRED) is not None and not node_selector_matches(self.added[REQUIRED], node):
            return unresolvable("node(s) didn't match scheduler-enforced node affinity")
        if not required_node_affinity_matches(pod, node):
            return unresolvable("node(s) didn't match Pod's node affinity/selector")
        return None

    def pre_score(self, pod, world, nodes):
        return None if self._preferred(pod) else SKIP

    def score(self, pod, node, world, nodes):
        return sum(term["weight"] for term in self._preferred(pod) if node_term_matches(term["preference"], node))

    def normalize(self, pod, scores, world):
        return default_normalize(scores)

    def _preferred(self, pod):
        return [*(node_affinity(pod).get(PREFERRED) or []), *(self.added.get(PREFERRED) or [])]

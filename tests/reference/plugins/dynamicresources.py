"""The stand-in for dynamic resource allocation: refuses pods with claims, scores 0."""

from tests.reference.postfilter import PostFiltered
from tests.reference.status import ERROR, SKIP, Status, unresolvable, unschedulable


class DynamicResources:
    def __init__(self, args):
        pass

    def pre_filter(self, pod, world):
        if pod["spec"].get("resourceClaims"):
            return unresolvable(
                "pod uses resource claims, and dynamic resource allocation is not supported by this scheduler"
            )
        return SKIP

    def filter(self, pod, node, world):
        return None

    def score(self, pod, node, world, nodes):
        return 0

    def post_filter(self, pod, world, profile, outcome, nominated, now):
        if "DynamicResources" in outcome.not_pre_filtered:
            return PostFiltered(Status(ERROR, ("not found",)))  # its own state (core spec 4.2)
        return PostFiltered(unschedulable("no new claims to deallocate"))

"""The plugin, with the interface of the naive scheduler (reservation spec 3.4 to 3.7).

The world that it is asked about is the view of a Decision, which hangs on it.
"""

from tests.plugins.reservation.naive import names, preallocation
from tests.plugins.reservation.naive.devices import NONE_LEFT, suits, wanted
from tests.plugins.reservation.naive.fitting import NO_PORTS, both, ports_taken, score_of, short_of, uncounted
from tests.reference.normalization import default_normalize
from tests.reference.status import SKIP, unresolvable, unschedulable

PREFERRED = 1000
"""The score of the node with the Reservation of the smallest order."""


class Reservation:
    def __init__(self, args):
        self.args = args

    def pre_filter(self, pod, world):
        decision = world.origin.decision
        if decision.is_reserve:
            if not decision.required:
                return None
            if not decision.states:
                return unresolvable("node(s) no pod match reservation with pre allocation required")
            return set(decision.states)
        if decision.has_affinity:
            return set(decision.states) or unresolvable(names.AFFINITY_REASON)
        return None if decision.states else SKIP

    def filter(self, pod, node, world):
        decision, name = world.origin.decision, node["metadata"]["name"]
        pods = len(world.pods_on(node))
        if decision.is_reserve:
            return filter_reserve_pod(decision, pod, node, pods)
        if not decision.state(name).matched:
            return unresolvable(names.AFFINITY_REASON) if decision.has_affinity else None
        if decision.wish.ignores:
            return None
        status = filter_with(decision, node, decision.state(name).matched, decision.has_affinity, pods)
        if status is None and wanted(pod) and not fitting(decision, node, pods):
            beside = not decision.has_affinity and suits(decision, name) and not missing_beside(decision, node, pods)
            return None if beside else unschedulable(f"Reservation(s) {NONE_LEFT}")
        return status

    def pre_score(self, pod, world, nodes):
        decision = world.origin.decision
        if not decision.states or (not decision.is_reserve and decision.wish.ignores):
            return SKIP
        if decision.is_reserve:
            return None if decision.pre_allocates else SKIP
        return None

    def score(self, pod, node, world, nodes):
        decision, name = world.origin.decision, node["metadata"]["name"]
        if decision.is_reserve:
            return score_reserve_pod(decision, node)
        if name == preferred(decision, nodes):
            return PREFERRED
        info = nominated(decision, node)
        return score_of(decision.requests, info) if info else 0

    def normalize(self, pod, scores, world):
        return scores if world.origin.decision.is_reserve else default_normalize(scores)


def filter_reserve_pod(decision, pod, node, pods):
    name = node["metadata"]["name"]
    pinned = (pod["metadata"].get("annotations") or {}).get(names.RESERVATION_NODE)
    if pinned and pinned != name:
        return unresolvable("node(s) didn't match the nodeName specified by reservation")
    others = [info.policy for info in decision.cluster.infos(name) if info.matchable]
    if any(bool(other) != bool(decision.info.policy) for other in others):
        return unresolvable("node(s) reservation allocate policy conflict")
    return preallocation.filter_with(decision, node, pods) if decision.pre_allocates else None


def filter_with(decision, node, infos, required, pods):
    """Whether one of the Reservations, or, unless one is required, the node alone has what the pod requests."""
    by_node, by_reservation = set(), []
    for info in infos:
        if not decision.has_affinity and not set(info.names) & set(decision.requests):
            continue
        if decision.wish.name and decision.wish.name != info.name:
            continue
        missing, reasons = both(decision, info, node, pods)
        if not missing and not reasons:
            return None
        by_node |= set(missing)
        by_reservation += reasons
    in_words = preallocation.by_node_reasons(sorted(by_node))
    if required:
        nothing = "node(s) no reservation(s) to meet the requirements"
        return unschedulable(*in_words, *by_reservation or (() if in_words else (nothing,)))
    if not by_node:
        in_words = preallocation.by_node_reasons(missing_beside(decision, node, pods))
    if in_words:
        return unschedulable(*in_words)
    return unschedulable(NO_PORTS) if ports_taken(decision, node) else None


def missing_beside(decision, node, pods):
    """What the node has too little of beside all that is reserved."""
    matched = decision.state(node["metadata"]["name"]).matched
    return short_of(decision, decision.wanted, node, fewer=uncounted(matched), pods=pods)


def usable(decision, node):
    """The Reservations on a node that may be nominated."""
    matched = decision.state(node["metadata"]["name"]).matched
    if len(matched) == 1 and decision.has_affinity:
        return matched
    return fitting(decision, node, len(decision.view.pods_on(node)))


def fitting(decision, node, pods):
    """Those on a node that the pod fits into, and that have the GPUs that it asks for."""
    name = node["metadata"]["name"]
    matched = decision.state(name).matched
    return [
        info
        for info in matched
        if filter_with(decision, node, [info], True, pods) is None and suits(decision, name, info)
    ]


def nominated(decision, node):
    """The Reservation that the pod uses if it goes to the node, None for none."""
    found = usable(decision, node)
    ordered = [info for info in found if info.order is not None]
    if len(found) > 1 and ordered:
        return min(ordered, key=lambda info: (info.order, info.created, info.name))
    return min(found, key=lambda info: (-score_of(decision.requests, info), info.created, info.name), default=None)


def preferred(decision, nodes):
    """The first node with the smallest order of all Reservations that match; None if none has an order."""
    orders = []
    for place, node in enumerate(nodes):
        matched = decision.state(node["metadata"]["name"]).matched
        orders += [(info.order, place, node["metadata"]["name"]) for info in matched if info.order is not None]
    return min(orders)[2] if orders else None


def score_reserve_pod(decision, node):
    chosen = preallocation.nominated(decision, node)
    if decision.multiple:
        return 100 // (1 + len(chosen))
    return score_of(preallocation.exact_requests(chosen[0]), decision.info) if chosen else 0

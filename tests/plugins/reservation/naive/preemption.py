"""Which pods an owner evicts to get into a Reservation (reservation spec 3.10), on one node, without budgets."""

from tests.plugins.reservation.naive.cluster import key_of
from tests.reference.evaluation import priority

DISABLED = "scheduling.koordinator.sh/disable-preemptible"


def victims(model, pod, node):
    """The pods on the node that have to go, the most important first; None if that does not help."""
    lower = [
        other
        for other in model.cluster.pods.values()
        if other["spec"]["nodeName"] == node
        and priority(other) < priority(pod)
        and (other["metadata"].get("labels") or {}).get(DISABLED) != "true"
    ]
    lower.sort(key=lambda other: (-priority(other), (other.get("status") or {}).get("startTime") or "", key_of(other)))
    if not lower or not fits(model, pod, node, lower):
        return None
    removed = list(lower)
    for other in lower:
        fewer = [each for each in removed if each is not other]
        if fits(model, pod, node, fewer):
            removed = fewer
    return removed


def fits(model, pod, node, removed):
    """Whether the pod fits on the node without these pods."""
    return node in model.on(model.cluster.without(removed)).decide(pod).outcome.feasible

"""Preemption, node by node and victim by victim (core spec 3.8)."""

from datetime import datetime

from tests.reference.evaluation import participating, priority, verdict
from tests.reference.selectors import label_selector_matches
from tests.reference.status import UNRESOLVABLE, UNSCHEDULABLE
from tests.reference.world import is_deleting, labels_of, namespace_of

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


# --- who may preempt ---------------------------------------------------------------------------------


def ineligible(pod, world, outcome):
    """Why the pod may not preempt; "" if it may."""
    if pod["spec"].get("preemptionPolicy") == "Never":
        return "not eligible due to preemptionPolicy=Never."
    name = pod.get("status", {}).get("nominatedNodeName")
    for node in world.nodes:
        if node["metadata"]["name"] != name or code_of(outcome, name) == UNRESOLVABLE:
            continue
        if any(priority(other) < priority(pod) and leaves_preempted(other) for other in world.pods_on(node)):
            return "not eligible due to a terminating pod on the nominated node."
    return ""


def code_of(outcome, node_name):
    """The status of a node that the pod does not fit on."""
    return outcome.rejected[1].code if outcome.rejected is not None else outcome.filtered[node_name][1].code


def leaves_preempted(pod):
    """Whether the pod terminates because it was preempted."""
    return is_deleting(pod) and any(
        condition["type"] == "DisruptionTarget"
        and condition["status"] == "True"
        and condition.get("reason") == "PreemptionByScheduler"
        for condition in pod.get("status", {}).get("conditions") or []
    )


# --- one node ----------------------------------------------------------------------------------------


def potential_nodes(world, outcome):
    """The nodes that fewer pods may cure."""
    return [node for node in world.nodes if code_of(outcome, node["metadata"]["name"]) == UNSCHEDULABLE]


def dry_run(pod, node, world, filters, nominated, now):
    """((victims, how many of them break a budget), None), or (None, the reasons why the node is no candidate)."""
    lower = [other for other in world.pods_on(node) if priority(other) < priority(pod)]
    if not lower:
        return None, (NO_VICTIMS,)
    gone = list(lower)

    def refusal():
        return verdict(pod, node, world.without(gone), filters, nominated)

    refused = refusal()
    if refused is not None:
        return None, refused[1].reasons
    lower.sort(key=lambda other: importance(other, now))
    breaking = breaking_budgets(lower, world)
    for other in [*breaking, *(other for other in lower if other not in breaking)]:
        gone.remove(other)
        if refusal() is not None:
            gone.append(other)
    return (gone, len([other for other in gone if other in breaking])), None


def importance(pod, now):
    """Sorts the most important pod first; of those that have not started, the ones that are going are last."""
    waiting = not pod.get("status", {}).get("startTime")
    return -priority(pod), started(pod, now), waiting and "deletionTimestamp" in pod["metadata"]


def started(pod, now):
    """When the pod started; one that has not started counts as starting now."""
    text = pod.get("status", {}).get("startTime")
    return datetime.fromisoformat(text) if text else now


def breaking_budgets(pods, world):
    """The pods whose eviction breaks a budget, if they are evicted in this order."""
    left = {}
    breaking = []
    for pod in pods:
        for budget in world.kind("PodDisruptionBudget"):
            if not protects(budget, pod):
                continue
            uid = namespace_of(budget), budget["metadata"]["name"]
            left[uid] = left.get(uid, budget.get("status", {}).get("disruptionsAllowed", 0)) - 1
            if left[uid] < 0 and pod not in breaking:
                breaking.append(pod)
    return breaking


def protects(budget, pod):
    """Whether the eviction of the pod counts against the budget."""
    selector = budget["spec"].get("selector") or {}
    return (
        namespace_of(budget) == namespace_of(pod)
        and bool(selector.get("matchLabels") or selector.get("matchExpressions"))
        and bool(labels_of(pod))  # a pod without labels is protected by nothing
        and label_selector_matches(selector, labels_of(pod))
        and pod["metadata"]["name"] not in (budget.get("status", {}).get("disruptedPods") or {})
    )


# --- all nodes ---------------------------------------------------------------------------------------


def dry_runs(pod, world, profile, outcome, nominated, now):
    """({node name: (victims, violations)}, {node name: reasons} of all other nodes)."""
    candidates = {}
    reasons = {node["metadata"]["name"]: (NOT_HELPFUL,) for node in world.nodes}
    for node in potential_nodes(world, outcome):
        name = node["metadata"]["name"]
        candidate, why = dry_run(pod, node, world, participating(profile, outcome), nominated, now)
        if candidate is None:
            reasons[name] = why
        else:
            candidates[name] = candidate
            del reasons[name]
    return candidates, reasons


def best(candidates, now):
    """The names of the nodes of which any may be picked."""

    def highest(victims):
        return max(priority(victim) for victim in victims)

    measures = [
        lambda victims, violations: violations,
        lambda victims, violations: highest(victims),
        lambda victims, violations: sum(priority(victim) + 2**31 for victim in victims),
        lambda victims, violations: len(victims),
        lambda victims, violations: (
            -min(started(victim, now).timestamp() for victim in victims if priority(victim) == highest(victims))
        ),
    ]
    left = dict(candidates)
    for measure in measures:
        least = min(measure(*candidate) for candidate in left.values())
        left = {name: candidate for name, candidate in left.items() if measure(*candidate) == least}
    return set(left)

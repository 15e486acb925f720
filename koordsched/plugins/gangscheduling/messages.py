"""The texts of pod groups (coscheduling spec, Appendix A)."""

from __future__ import annotations

from collections.abc import Sequence

NOT_ENOUGH = "waiting for minCount pods from a gang to appear in scheduling queue"
WAITING = "waiting for minCount pods from a gang to be scheduled"
UNSCHEDULABLE = "pod group is unschedulable"
UNSCHEDULABLE_MEMBER = f"{UNSCHEDULABLE}, {WAITING}, one or more plugins asked to wait and no plugin rejected pod"
WAITING_ON_PREEMPTION = f"{UNSCHEDULABLE}, pod group is waiting for preemption to complete"
AS_A_WHOLE = "not eligible due to workload aware preemption enabled"
BY_PLACEMENT = "not eligible due to placement-based pod group scheduling limitation"
NO_GROUP = "pod group for pod not found"
EVICTING = "waiting for the preemption for this pod group to be finished"
NOT_ENABLED = "default preemption plugin is not registered, workload aware preemption is disabled"
CONSTRAINED = "workload aware preemption is not supported for pod groups with scheduling constraints"
NEVER = "not eligible due to preemptionPolicy=Never."
VICTIMS_LEAVE = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS = "No preemption victims found for incoming preemptor"
EVICTED = "preempting to accommodate a higher priority podgroup"
NO_POLICY = "spec.schedulingPolicy has neither basic nor gang: its pods are scheduled as with basic"


def missing(name: str) -> str:
    """There is no PodGroup of the name."""
    return f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'


def several_schedulers(name: str, first: str) -> str:
    """Members name different schedulers."""
    return f'all pods in a single pod group should have the same .spec.schedulerName set, got: "{name}" and "{first}"'


def other_failed(error: str) -> str:
    """A member met an error."""
    return f"failed to schedule other pod from a pod group: {error}"


def several_domains(key: str, values: Sequence[str]) -> str:
    """Members that have a node are not together."""
    return f"scheduled pods of the pod group are on nodes with different values of {key}: {', '.join(values)}"

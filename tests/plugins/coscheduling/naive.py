"""Gangs decided by hand, one list and one loop at a time, from the specification (coscheduling spec 3.1 to 3.9).

Pods have their node prescribed, or none that exists, so there is nothing to choose: a pod fits or it does not. All
pods and PodGroups are there before anything is decided, and nothing happens afterwards.
"""

from dataclasses import dataclass, field


@dataclass
class NaivePod:
    name: str
    gang: str
    cpu: int
    node: str
    priority: int = 0
    bound: bool = False
    gated: bool = False


@dataclass
class NaiveGang:
    """`minimum`: None for one that nothing defines."""

    name: str
    minimum: int | None
    policy: str = "once-satisfied"
    groups: tuple[str, ...] = ()
    pods: list[NaivePod] = field(default_factory=list)

    def members(self):
        return self.groups or (self.name,)


def bound_in_the_end(gangs, room):
    """Names of the pods that have a node in the end; `room`: node -> CPUs, less what bound pods use.

    `gangs`: by name. Groups are tried by the priority of their pods, and again until nothing changes.
    """
    free = dict(room)
    for gang in gangs.values():
        for pod in gang.pods:
            if pod.bound:
                free[pod.node] -= pod.cpu
    satisfied = {name: any(pod.bound for pod in gang.pods) for name, gang in gangs.items()}
    for name, gang in gangs.items():
        if any(other in gangs and satisfied_alone(gangs[other]) for other in gang.members()):
            satisfied[name] = True
    while step(gangs, free, satisfied):
        pass
    return sorted(pod.name for gang in gangs.values() for pod in gang.pods if pod.bound)


def satisfied_alone(gang):
    return any(pod.bound for pod in gang.pods)


def step(gangs, free, satisfied):
    """Tries every group once; whether one of their pods was placed."""
    for name in sorted(
        gangs, key=lambda name: min([(-pod.priority, pod.name) for pod in gangs[name].pods] or [(0, "")])
    ):
        gang = gangs[name]
        if gang.minimum is None:
            continue
        group = [gangs[other] for other in gang.members() if other in gangs]
        if satisfied[name] and gang.policy == "once-satisfied":
            if place_singly(gang, free):
                return True
            continue
        if len(group) < len(set(gang.members())) or any(not complete(each) for each in group):
            continue
        if place_together(group, free, satisfied):
            for each in group:
                satisfied[each.name] = True
            return True
    return False


def complete(gang):
    if gang.minimum is None or len(gang.pods) < gang.minimum:
        return False
    gated = sum(pod.gated for pod in gang.pods)
    return not gated or len(gang.pods) - gated >= gang.minimum


def place_singly(gang, free):
    for pod in gang.pods:
        if not pod.bound and not pod.gated and fits(pod, free):
            free[pod.node] -= pod.cpu
            pod.bound = True
            return True
    return False


def place_together(group, free, satisfied):
    """Whether as many as each gang still needs have a place at once; then they have it."""
    pending = [pod for gang in group for pod in gang.pods if not pod.bound and not pod.gated]
    placed, left = [], dict(free)
    for pod in sorted(pending, key=lambda pod: pod.name):
        if fits(pod, left):
            left[pod.node] -= pod.cpu
            placed.append(pod)
    if not placed or any(lacks(gang, placed, satisfied[gang.name]) > 0 for gang in group):
        return False
    kept = []
    for pod in placed:
        kept.append(pod)
        if all(lacks(gang, kept, satisfied[gang.name]) <= 0 for gang in group):
            break
    for pod in kept:
        free[pod.node] -= pod.cpu
        pod.bound = True
    return True


def lacks(gang, placed, satisfied):
    now = sum(pod in gang.pods for pod in placed)
    bound = sum(pod.bound for pod in gang.pods)
    if gang.policy == "only-waiting":
        return gang.minimum - now
    if gang.policy == "waiting-and-running":
        return gang.minimum - now - bound
    return 0 if satisfied else gang.minimum - now


def fits(pod, free):
    return free.get(pod.node, -1) >= pod.cpu


def first_of(gang):
    return min([(-pod.priority, pod.name) for pod in gang.pods], default=(0, ""))

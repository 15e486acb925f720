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
    """Gang -> how many of its pods have a node in the end; `room`: node -> CPUs, bound pods included.

    `gangs`: by name. Groups are tried by the priority of their pods, and again until nothing changes.
    """
    free = dict(room)
    for gang in gangs.values():
        for pod in gang.pods:
            if pod.bound:
                free[pod.node] -= pod.cpu
    satisfied = {}
    for name, gang in gangs.items():
        # A gang that nothing defines belongs to no group but its own.
        others = [gangs[other] for other in gang.members() if other in gangs]
        defined = [other for other in others if other.minimum is not None or other is gang]
        satisfied[name] = any(satisfied_alone(other) for other in defined)
    while step(gangs, free, satisfied):
        pass
    return {name: sum(pod.bound for pod in gang.pods) for name, gang in gangs.items()}


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
        whole = len(group) == len(set(gang.members())) and all(each.minimum is not None for each in group)
        if satisfied[name] and gang.policy == "once-satisfied":
            if place_singly(gang, free):
                return True
            continue
        if not whole or any(not complete(each) for each in group):
            continue
        if place_together(group, free, satisfied, first_of(gang)[1]):
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
    for pod in sorted(gang.pods, key=lambda pod: -pod.priority):
        if not pod.bound and not pod.gated and fits(pod, free):
            free[pod.node] -= pod.cpu
            pod.bound = True
            return True
    return False


def place_together(group, free, satisfied, first):
    """Whether as many as each gang still needs have a place at once; then they have it. `first`: the pod whose turn it
    is.
    """
    pending = [pod for gang in group for pod in gang.pods if not pod.bound and not pod.gated]
    placed, left = [], dict(free)
    in_order = sorted(pending, key=lambda pod: (pod.name != first, pod.name))
    # Those that their gang needs come first; those beyond take no place from them.
    needed = [pod for gang in group for pod in those_needed(gang, in_order, satisfied[gang.name])]
    for pod in sorted(in_order, key=lambda pod: pod not in needed):
        if fits(pod, left):
            left[pod.node] -= pod.cpu
            placed.append(pod)
    if not placed or any(lacks(gang, placed, satisfied[gang.name]) > 0 for gang in group):
        return False
    # Those that are left follow while the others are on their way, as long as they have a place.
    for pod in placed:
        free[pod.node] -= pod.cpu
        pod.bound = True
    return True


def those_needed(gang, in_order, satisfied):
    own = [pod for pod in in_order if pod in gang.pods]
    return own[: max(lacks(gang, [], satisfied), 0)]


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
    """The most important pod that waits."""
    return min([(-pod.priority, pod.name) for pod in gang.pods if not pod.bound and not pod.gated], default=(0, ""))

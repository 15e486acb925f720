"""GPUs by the tree of NUMA nodes and PCIe switches: deviceshare spec 3.6."""

from dataclasses import dataclass

from tests.plugins.deviceshare.naive.request import LEVELS, UAU, Refused, U


@dataclass
class Found:
    """Minors of one scope: how deep it is, how many scopes on the way are in use, the best score of a shared GPU."""

    minors: list
    depth: int
    in_use: int
    score: int


def by_scope(gpus, tree, fitting, in_use, score):
    """The minors in the best scope. `fitting`: minors that are enough; `score`: of a minor. Raises Refused."""
    if tree is None:
        raise Refused(UAU, "node(s) missing GPU Device Topology Tree")
    if gpus.shared and gpus.count > 1:
        raise Refused(UAU, "node(s) Unsupported Multi-Shared GPU")
    found = search(tree, LEVELS["Node"], 0, 0, gpus, fitting, in_use, score)
    if found is None:
        scoped = "Topology Scoped " if gpus.scope else ""
        raise Refused(U, f"Insufficient {scoped}GPU Devices")
    return found.minors


def search(scope, level, depth, uses, gpus, fitting, in_use, score):
    """The Found of a scope, which is a dict of scopes or a list of minors; None if there is none."""
    minors = minors_of(scope)
    if len(minors) < gpus.count:
        return None
    depth += 1
    uses += bool(set(minors) & in_use)
    best = None
    for child in scope.values() if isinstance(scope, dict) else ():
        found = search(child, level + 1, depth, uses, gpus, fitting, in_use, score)
        if found is not None and (best is None or rank(found, gpus) > rank(best, gpus)):
            best = found
    if best is not None:
        return best
    if LEVELS.get(gpus.scope, 0) > level:
        return None
    enough = [minor for minor in minors if minor in fitting]
    if not gpus.shared:
        return Found(enough[: gpus.count], depth, uses, 0) if len(enough) >= gpus.count else None
    if not enough:
        return None
    chosen = max(enough, key=score)  # the first of several
    return Found([chosen], depth, uses, score(chosen))


def rank(found, gpus):
    return found.depth, found.in_use, found.score if gpus.shared else 0


def minors_of(scope):
    if isinstance(scope, list):
        return scope
    return sorted(minor for child in scope.values() for minor in minors_of(child))

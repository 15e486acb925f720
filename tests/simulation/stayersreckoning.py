"""Where a pod fits beside pods that act as Reservations: they stay, but for the one whose place it takes.

The naive plugin looks at a world in which all that the pod may use are away, as upstream does.
"""

from tests.plugins.reservation.naive.fitting import ports_taken
from tests.plugins.reservation.naive.plugin import filter_with, missing_beside
from tests.reference.evaluation import evaluate


def fits_beside(decision, view, profile, nominated, dated):
    """The names of the nodes on which the pod of a decision fits so, None if nothing that it may use is a pod.

    `view`: the world of the decision; `profile`: without Reservation; `dated`: gives a world of the cluster its time.
    """
    matched = [info for state in decision.states.values() for info in state.matched]
    acting = [info for info in matched if info.acts]
    if not acting or decision.is_reserve or decision.wish.ignores:
        return None
    gone = [info.name for info in matched if not info.acts]
    known = {}

    def fits(name, place):
        away = (*gone, *([place.name] if place is not None else []))
        if away not in known:
            world = dated(decision.cluster.view(away))
            outcome = evaluate(decision.pod, world, profile, nominated)
            known[away] = () if outcome.rejected is not None else outcome.feasible
        return name in known[away]

    return [
        node["metadata"]["name"]
        for node in view.nodes
        if any(
            fits(node["metadata"]["name"], info if info is not None and info.acts else None)
            for info in _choices(decision, node, len(view.pods_on(node)))
        )
    ]


def _choices(decision, node, pods):
    """The Reservations on a node that the pod could use, None among them if it could do without."""
    matched = decision.state(node["metadata"]["name"]).matched
    found = [info for info in matched if filter_with(decision, node, [info], True, pods) is None]
    if decision.has_affinity:
        return found
    beside = matched and (missing_beside(decision, node, pods) or ports_taken(decision, node))
    return found if beside else [*found, None]

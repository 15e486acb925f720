"""Whether a pod fits on a node with what a Reservation gives, and into the Reservation (reservation spec 3.5)."""

from tests.plugins.reservation.naive import names
from tests.reference.plugins.nodeports import NodePorts
from tests.reference.plugins.noderesourcesfit import NATIVE
from tests.reference.quantity import milli, whole
from tests.reference.world import World, allocatable

NO_PORTS = "node(s) didn't have free ports for the requested pod ports"


def short_of(decision, wanted, node, given=None, freed=None, fewer=0, pods=0):
    """The resources of which a node has too little, in order.

    `given`: what a Reservation has left, `freed`: what leaves the node otherwise. `pods`: how many are on the node as
    the pod sees it, `fewer`: how many of them do not count.
    """
    given, freed, found = given or {}, freed or {}, []
    if pods - fewer + 1 > allocatable(node, "pods"):
        found.append("pods")
    if not any(wanted.get(name) for name in NATIVE) and not set(wanted) - {*NATIVE, "pods"}:
        return found
    scalars = [name for name in sorted(wanted) if name not in (*NATIVE, "pods") and not decision.settings.ignores(name)]
    for name in [*NATIVE, *scalars]:
        used = decision.in_use(node["metadata"]["name"], name) - given.get(name, 0) - freed.get(name, 0)
        if wanted.get(name, 0) > allocatable(node, name) - used:
            found.append(name)
    return found


def lacking(decision, requests, info, detailed=False):
    """Why a Restricted Reservation has too little left for these exact requests."""
    found = []
    if "pods" in info.allocatable:
        used, capacity = len(info.owners), whole(info.allocatable["pods"])
        if used + 1 > capacity:
            detail = f", requested: 1, used: {used}, capacity: {capacity}" if detailed else ""
            found.append(f"Reservation(s) Too many pods{detail}")
    for name in info.names:
        requested = requests.get(name, 0)
        if not requested or decision.settings.ignores(name):
            continue
        used = info.allocated.get(name, 0)
        capacity = info.allocatable.get(name, 0) - info.inner.get(name, 0)
        if requested > capacity - used:
            unit = milli if name == "cpu" else whole
            numbers = f", requested: {unit(requested)}, used: {unit(used)}, capacity: {unit(capacity)}"
            found.append(f"Reservation(s) Insufficient {name}{numbers if detailed else ''}")
    return found


def uncounted(matched, info=None):
    """How many of the pods on a node do not count for a pod that uses this Reservation, or none; below zero: so many
    count that are out of its sight, since pods that act as other Reservations stay where they are."""
    return -len(staying(matched, info)) or len(matched)


def staying(matched, info=None):
    """Pods that act as Reservations, but not as the one that is used."""
    return [each for each in matched if each.acts and each is not info]


def ports_taken(decision, node, info=None):
    """Whether one of those has a host port that the pod wants."""
    there = staying(decision.state(node["metadata"]["name"]).matched, info)
    world = World([node, *(each.reserve_pod() for each in there)])
    return NodePorts({}).filter(decision.pod, node, world) is not None


def both(decision, info, node, pods):
    """(resources that the node lacks, reasons of the Reservation) for the pod to use the Reservation."""
    matched = decision.state(node["metadata"]["name"]).matched
    by_node = []
    if not (decision.settings.skip_node_check and len(matched) <= 1):
        fewer = uncounted(matched, info)
        by_node = short_of(decision, decision.wanted, node, given=info.left(), fewer=fewer, pods=pods)
    detailed = decision.wish.name == info.name
    restricted = info.policy == names.RESTRICTED
    reasons = lacking(decision, decision.requests, info, detailed) if restricted else []
    if not by_node and not reasons and ports_taken(decision, node, info):
        reasons = [f"Reservation(s) {NO_PORTS}"]
    return by_node, reasons


def score_of(requests, info):
    """How full the Reservation would be: 0 to 100."""
    capacities = {name: capacity for name, capacity in info.allocatable.items() if capacity}
    total = 0
    for name, capacity in capacities.items():
        request = requests.get(name, 0) + info.allocated.get(name, 0)
        if request <= capacity:
            total += 100 * milli(request) // milli(capacity)
    return total // len(capacities) if capacities else 0

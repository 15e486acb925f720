"""Reservations that take over the room of running pods (reservation spec 3.7)."""

from tests.plugins.reservation.naive.cluster import allocated_to
from tests.plugins.reservation.naive.fitting import lacking, score_of, short_of
from tests.plugins.reservation.naive.info import in_units
from tests.reference.podrequests import exact_requests
from tests.reference.selectors import label_selector_matches
from tests.reference.status import unschedulable

NO_POD = "node(s) no pod(s) to meet the pre-allocation requirements"


def candidates_of(cluster, info, mode, settings):
    """{node: [pod]}: pods that run and use no Reservation.

    One that used a Reservation that is over may be taken, too: upstream forgets in mode Cluster that pods use any, and
    never takes such a pod in mode Default.
    """
    found, in_use = {}, [info.uid for info in cluster.infos()]
    for pod in cluster.pods.values():
        metadata = pod["metadata"]
        if allocated_to(pod) in in_use:
            continue
        labels = metadata.get("labels") or {}
        if mode == "Cluster":
            meant = labels.get(settings.candidate_label) == "true"
        else:
            selected = [each for each in info.selectors if each is not None and label_selector_matches(each, labels)]
            meant = bool(selected) and info.owns(pod)
        if meant:
            found.setdefault(pod["spec"]["nodeName"], []).append(pod)
    if mode == "Cluster":
        for pods in found.values():
            pods.sort(key=lambda pod: (-priority_of(pod, settings), pod["metadata"]["uid"]))
    return found


def priority_of(pod, settings):
    text = (pod["metadata"].get("annotations") or {}).get(settings.candidate_priority, "")
    try:
        return int(text)
    except ValueError:
        return 0


def filter_with(decision, node, pods):
    """None, or the Status of a reserve pod that may take over the room of candidates on the node."""
    state = decision.state(node["metadata"]["name"])
    state.chosen = []
    if not state.candidates and not decision.required:
        # Upstream looks at what is free, too, with preferNoPreAllocatedPods; NodeResourcesFit does anyway.
        return decision.beside(node, ()) if decision.may_take else None
    alone = refused = None
    if not decision.required and decision.settings.prefers_none:
        alone = short_of(decision, decision.wanted, node, pods=pods)
        if not alone and (refused := decision.beside(node, ())) is None:
            return None
    try_pods = several if decision.multiple else one
    chosen, by_node, by_reservation = try_pods(decision, node, state.candidates, pods)
    if chosen:
        state.chosen = chosen
        return None
    if decision.required:
        return unschedulable(*by_node_reasons(by_node), *by_reservation or (() if by_node else (NO_POD,)))
    if not by_node:
        if alone is None:
            alone = short_of(decision, decision.wanted, node, pods=pods) if state.candidates else []
        by_node = alone
    return unschedulable(*by_node_reasons(by_node)) if by_node else refused or decision.beside(node, ())


def relevant(decision, pods):
    """Those that request something of what the Reservation has."""
    return [(pod, exact_requests(pod)) for pod in pods if set(exact_requests(pod)) & set(decision.info.names)]


def freed_by(decision, requests):
    """What the node has again for the Reservation; upstream also counts what its restricted options leave out."""
    return in_units({name: amount for name, amount in requests.items() if name in decision.info.names})


def one(decision, node, candidates, pods):
    """All candidates stay if the room of one suffices, and the others are not in the way."""
    by_node, by_reservation = set(), []
    for pod, requests in relevant(decision, candidates):
        missing = short_of(decision, decision.wanted, node, freed=freed_by(decision, requests), fewer=1, pods=pods)
        reasons = lacking(decision, requests, decision.info)
        if not missing and not reasons and decision.beside(node, [pod]) is None:
            return candidates, [], []
        by_node |= set(missing)
        by_reservation += reasons
    return [], sorted(by_node), by_reservation


def several(decision, node, candidates, pods):
    """The first candidates whose room suffices together, without those that would be too much."""
    if decision.mode == "Default":
        candidates = sorted(candidates, key=lambda pod: in_order(pod, decision.info))
    chosen, together, missing, by_reservation = [], {}, [], []
    for pod, requests in relevant(decision, candidates):
        trial = {name: together.get(name, 0) + requests.get(name, 0) for name in together | requests}
        fewer = len(chosen) + 1
        missing = short_of(decision, decision.wanted, node, freed=freed_by(decision, trial), fewer=fewer, pods=pods)
        reasons = lacking(decision, trial, decision.info)
        if reasons:
            by_reservation += reasons
            continue
        together = trial
        chosen.append(pod)
        if not missing and decision.beside(node, chosen) is None:
            return chosen, [], []
    return [], missing, by_reservation


def nominated(decision, node):
    """The pods whose room the Reservation takes over on a node."""
    name = node["metadata"]["name"]
    chosen = decision.state(name).chosen
    if decision.multiple or not chosen or (len(chosen) == 1 and decision.required):
        return chosen
    pods = len(decision.view.pods_on(node))
    fitting = [pod for pod in chosen if one(decision, node, [pod], pods)[0]]
    return sorted(fitting, key=lambda pod: in_order(pod, decision.info))[:1]


def in_order(pod, info):
    """The one that fills the Reservation best comes first; upstream has no order of equals."""
    return -score_of(exact_requests(pod), info), pod["metadata"]["uid"]


def by_node_reasons(missing):
    return [f"Insufficient {name} by node" for name in missing]

"""Anti-affinity: no pod is bound near one that it must not be near, of those that a decision had to reckon with."""

from itertools import product

from tests.reference.plugins.interpodaffinity import REQUIRED, InterPodAffinity, terms
from tests.reference.world import World
from tests.simulation.invariants import NODES, PODS


class AffinityInvariants:
    """A replica may be behind: what it decides must be right by states of pods and nodes that it can have known."""

    def __init__(self, invariants):
        self._invariants = invariants
        self._plugin = InterPodAffinity({})

    def placed(self, uid, decision, assumed):
        """Nothing: what counts is what is bound."""

    def bound(self, pod, decision):
        """A pod was bound: neither it nor any other refuses to be near the other."""
        others = list(self._invariants.known_others(pod, decision))
        if self._invariants.reserved is not None:
            others = self._invariants.reserved.in_sight(pod, decision, others)
        near = [each["metadata"]["name"] for each in others if self._refuses(pod, each, decision)]
        if near:
            text = f"{decision.writer} binds pod {pod['metadata']['name']} to {decision.node}, which is too near {near}"
            self._invariants.fail(text)

    def _refuses(self, pod, other, decision):
        """Whether in all states that the replica can have known one of the two refuses the other."""
        if not any(terms(each, "podAntiAffinity", REQUIRED) for each in (pod, other)):
            return False
        key, version = ("", other["spec"]["nodeName"]), decision.versions[NODES]
        there = self._invariants.nodes.states_since(key, version)
        if self._invariants.nodes.unreadable_at(key, version):
            return False  # a replica that starts then has no such node
        same = other["spec"]["nodeName"] == decision.node
        here = self._invariants.node_states(decision)
        nodes = [(node,) for node in here] if same else list(product(here, there))
        states = list(product(nodes, self._states(pod, decision), self._states(other, decision)))
        return bool(states) and all(
            None not in nodes and self._plugin_refuses(one, two, nodes) for nodes, one, two in states
        )

    def _plugin_refuses(self, pod, other, nodes):
        placed = {**other, "spec": {**other["spec"], "nodeName": nodes[-1]["metadata"]["name"]}}
        world = World([*nodes, placed])
        anti = self._plugin.anti_affinity_pairs(pod, world) | self._plugin.repelling_pairs(pod, world)
        return bool(anti & (nodes[0]["metadata"].get("labels") or {}).items())

    def _states(self, pod, decision):
        """A pod that was being bound by then counts as it was when it was placed, until its binding is seen."""
        meta, version = pod["metadata"], decision.versions[PODS]
        known = self._invariants.bound.get(meta["uid"])
        if known is not None and known.decision is not None and known.version > version:
            version = min(version, known.decision.versions[PODS])
        states = self._invariants.pods.states_since((meta["namespace"], meta["name"]), version)
        return [state for state in states if state and state["metadata"]["uid"] == meta["uid"]] or [pod]

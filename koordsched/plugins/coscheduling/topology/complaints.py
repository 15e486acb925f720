"""Events on pods whose gang asks for something that cannot be read, or for layers that there are not."""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.framework.handle import WARNING, EventRecorder
from koordsched.plugins.coscheduling.kinds import NETWORK_TOPOLOGY_SPEC
from koordsched.plugins.coscheduling.topology.gathering import MalformedGathering, gathering_of
from koordsched.plugins.coscheduling.topology.service import NetworkTopology

REASON = "InvalidNetworkTopologySpec"

_MOST_GANGS = 4096
"""Gangs whose last problem is remembered."""


class GatheringComplaints:
    """One Event per gang and problem, on the pod with which the gang has its turn."""

    def __init__(self, topology: NetworkTopology, events: EventRecorder) -> None:
        self._topology = topology
        self._events = events
        self._said: dict[str, str] = {}

    def look(self, gang: str, text: str, pod: Pod) -> None:
        """`text`: what the annotation of the gang says."""
        problem = self._problem(text)
        if not problem:
            self._said.pop(gang, None)
        elif self._said.get(gang) != problem:
            if len(self._said) >= _MOST_GANGS:
                self._said.clear()
            self._said[gang] = problem
            self._events.pod_event(pod, WARNING, REASON, f"gang {gang}: {problem}")

    def _problem(self, text: str) -> str:
        try:
            gathering = gathering_of(text)
        except MalformedGathering as error:
            return f"{error}; it is ignored"
        tree = self._topology.tree() if gathering is not None else None
        unknown = gathering.unknown(tree.layers) if gathering is not None and tree is not None else ()
        if not unknown:
            return ""
        named = ", ".join(f'"{layer[:64]}"' for layer in unknown)
        return f"annotation {NETWORK_TOPOLOGY_SPEC}: no layer of the ClusterNetworkTopology: {named}"

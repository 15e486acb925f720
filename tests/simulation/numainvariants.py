"""CPUs and NUMA nodes: what must hold whenever a pod is bound, judged from the server's own objects."""

from itertools import product

from tests.plugins.nodenumaresource.naive import Attempt, Naive
from tests.plugins.nodenumaresource.naivemachine import SINGLE, Machine, holding
from tests.plugins.nodenumaresource.naivepick import keeps_policy
from tests.simulation.allocationinvariants import AllocationInvariants
from tests.simulation.numausers import NOTHING
from tests.simulation.reservationusers import is_operating

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"


class KnownMachine(Machine):
    """What pods hold counts whether CPUs are known or not."""

    counts_without_cpus = True


class NumaInvariants(AllocationInvariants):
    """See AllocationInvariants."""

    REPORTS = TOPOLOGIES

    def __init__(self, invariants, server, users):
        super().__init__(invariants, server, users)
        self._model = Naive(users.args)

    def _problems(self, pod, decision, reports):
        given = holding(pod)
        others = [self._as_known(other, decision) for other in self._invariants.known_others(pod, decision)]
        others = [states for states in others if states[0]["spec"].get("nodeName") == decision.node]
        if self._invariants.reserved is not None:
            # An owner may have what they have.
            others = [states for states in others if not is_operating(states[0])]
        for known in product(*others):
            for state in self._pod_states(pod, decision):
                for node in self._invariants.node_states(decision):
                    for report in reports:
                        yield self._problem(state, given, KnownMachine(node, report, known))

    def _as_known(self, other, decision):
        """Another pod as the replica had seen it on its node, or as it was bound to it later; and with all that clients
        have since written of what it holds."""
        states = [state for state in self._pod_states(other, decision) if state["spec"].get("nodeName")]
        distinct = {repr(holding(state)): state for state in reversed(states)}
        return list(reversed(distinct.values())) or [other]

    def _problem(self, pod, given, machine):
        """Why a pod cannot have been given this on a machine in this state; None if it can."""
        _, asked = self._model.pre_filter(pod)
        if asked is None:
            return "it cannot be placed at all"
        attempt = Attempt(self._model, asked, machine)
        return self._wrong_cpus(attempt, given, machine) or self._wrong_amounts(attempt, given, machine)

    @staticmethod
    def _wrong_cpus(attempt, given, machine):
        cpus = given.cpus if given is not None else set()
        if asked_for_nothing(attempt) or not attempt.bind:
            return "it gets no CPUs of its own" if cpus else None
        wanted = attempt.asked.cpu // 1000
        if len(cpus) != wanted:
            return f"it wants {wanted} CPUs"
        if not cpus <= set(machine.cpus):
            return "there are no such CPUs"
        if cpus & machine.reserved:
            return f"{sorted(cpus & machine.reserved)} are reserved"
        taken = {cpu: held.name for pod, held in machine.held for cpu in held.cpus & cpus}
        if taken:
            return f"others have {taken}"
        if attempt.is_required and not keeps_policy(machine, cpus, attempt.policy):
            return f"it is to have {attempt.policy}"
        return None

    @staticmethod
    def _wrong_amounts(attempt, given, machine):
        amounts = given.numa if given is not None else {}
        if asked_for_nothing(attempt) or not attempt.merged:
            return "it is not aligned to NUMA nodes" if amounts else None
        left = machine.available({})
        for numa, zone in amounts.items():
            over = {name: (want, left.get(numa, {}).get(name, 0)) for name, want in zone.items()}
            over = {name: both for name, both in over.items() if both[0] > both[1]}
            if over:
                return f"NUMA node {numa} has too little left: {over}"
        if attempt.merged == SINGLE and len(amounts) > 1:
            return "it is to use one NUMA node"
        if len(machine.zones) > 1:
            for name, wanted in attempt.asked.requests.items():
                if any(name in zone for zone in machine.zones.values()):
                    got = sum(zone.get(name, 0) for zone in amounts.values())
                    if got != wanted:
                        return f"of {wanted} {name} it gets {got}"
        return None

    def _check_shared(self, node):
        """No CPU is given to two pods that run."""
        holders = {}
        for pod in self._decided_on(node):
            given = holding(pod)
            for cpu in sorted(given.cpus) if given is not None else ():
                if cpu in holders:
                    self._invariants.fail(
                        f"CPU {cpu} of {node} is given to {holders[cpu]} and to {pod['metadata']['name']}"
                    )
                    return
                holders[cpu] = pod["metadata"]["name"]
        for thing, owners in self._sharing(node):
            used = set().union(*((holding(owner) or NOTHING).cpus for owner in owners))
            for cpu in sorted((holding(thing) or NOTHING).cpus - used):
                if cpu in holders:
                    name = thing["metadata"]["name"]
                    self._invariants.fail(f"CPU {cpu} of {node}, kept by {name}, is given to {holders[cpu]}")
                    return


def asked_for_nothing(attempt):
    """Whether the pod requests no resources: it is given nothing then."""
    return attempt.asked.skip

"""CPUs or devices that pods are given: what must hold whenever a pod is bound, by the server's own objects."""

from abc import ABC, abstractmethod

from tests.simulation.history import History
from tests.simulation.invariants import PODS, is_finished
from tests.simulation.reservationusers import is_operating


class AllocationInvariants(ABC):
    """A replica may be behind; what it gives must be right by a node, a report and a pod that it can have known."""

    REPORTS = ""
    """The path of the reports' collection."""

    def __init__(self, invariants, server, users):
        """`users`: the `AgentUsers` whose reports these are."""
        self._invariants = invariants
        self._server = server
        self._users = users
        self._reports = History().follow(server, server.resource(users.KIND, users.API_VERSION))
        self._judged = set()

    @abstractmethod
    def _check_shared(self, node):
        """Fails if anything of the node is given to several pods."""

    @abstractmethod
    def _problems(self, pod, decision, reports):
        """Why the pod cannot have been given what it says, for each state that the replica can have known; a None among
        them if it can."""

    def placed(self, uid, decision, assumed):  # noqa: B027 - not every kind of invariant has anything to check here
        """Nothing: what counts is what is bound."""

    def bound(self, pod, decision):
        """A pod was bound, or one was that was decided earlier."""
        self._check_shared(decision.node)
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if uid in self._judged or uid in self._users.moved:
            return
        self._judged.add(uid)
        problems = []
        for problem in self._problems(
            pod, decision, self._reports.states_since(("", decision.node), decision.versions[self.REPORTS])
        ):
            if problem is None:
                return
            problems.append(problem)
        text = (pod["metadata"].get("annotations") or {}).get(self._users.ALLOCATION)
        why = "; ".join(dict.fromkeys(problems))
        self._invariants.fail(f"{decision.writer} binds pod {name} to {decision.node} with {text}: {why}")

    def _pod_states(self, pod, decision):
        key = pod["metadata"]["namespace"], pod["metadata"]["name"]
        states = self._invariants.pods.states_since(key, decision.versions[PODS])
        return [state for state in states if state and state["metadata"]["uid"] == pod["metadata"]["uid"]]

    def _sharing(self, node):
        """The Reservations on a node, and pods that act as some, each with the pods that have theirs from it."""
        reserved = self._invariants.reserved
        return reserved.sharing(node) if reserved is not None else ()

    def _decided_on(self, node):
        """The pods that run on a node, and that a replica placed there with what they say. Those that act as
        Reservations are among what shares."""
        for pod in self._server.objects("Pod"):
            if self._invariants.reserved is not None and is_operating(pod):
                continue
            uid = pod["metadata"]["uid"]
            known = self._invariants.bound.get(uid)
            if known is None or known.decision is None or is_finished(pod) or uid in self._users.moved:
                continue
            if pod["spec"]["nodeName"] == node:
                yield pod

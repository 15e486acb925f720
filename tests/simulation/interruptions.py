"""What meets a pod at any step between its place and its binding, and promises that end in any order."""

from collections import defaultdict
from random import Random

from tests.simulation.apiserver import call_later
from tests.simulation.invariants import is_gone
from tests.simulation.permits import Gatekeeper

URGENT = 1000
"""Priority of those that are to preempt; none is higher."""


class Interruptions:
    """Pods that were just placed are deleted or replaced, refused on Permit or lose their node, some steps later; and
    pods for which others were preempted go, all those of one node in any order."""

    def __init__(self, simulation):
        self.simulation = simulation
        self.server = simulation.server
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} interruptions")
        self.server.registry.subscribe_changes(self.server.resource("Pod"), self._pod_changed)

    def settle_in(self):
        """Nothing: nothing was placed yet."""

    def actions(self):
        """(weight, action) of what happens."""
        return [(2, self._create_urgent), (1, self._end_some_promises)]

    def tidy_up(self):
        """Frees room once more. Pods nominated to it may be deleted before they are bound; no other event follows."""
        self._create_urgent()

    # --- from the place to the binding ---------------------------------------------------------------

    def placed(self, process, placement):
        """A replica has just placed a pod."""
        rng = self.rng
        if self.simulation.weather.is_clear or placement.pod.virtual or rng.random() > 0.4:
            return
        # Requests take some milliseconds each, Permit and volumes take seconds.
        delay = rng.choice([0.001, 0.01, 0.03, 1, 8]) * rng.random()
        actions = (self._delete, self._replace, self._remove_node, self._refuse)
        call_later(delay, rng.choices(actions, (3, 3, 1, 5))[0], process, placement)

    def _there(self, placement):
        """The pod as it is, None if it is gone or bound."""
        pod = placement.pod
        thing = self.server.get("Pod", pod.name, pod.namespace)
        if thing is None or thing["metadata"]["uid"] != pod.uid or thing["spec"].get("nodeName"):
            return None
        return thing

    def _delete(self, process, placement):
        if (thing := self._there(placement)) is not None:
            self.trace(f"pod {placement.pod.name} is deleted on its way to {placement.node}")
            meta = thing["metadata"]
            self.server.remove("Pod", meta["name"], meta["namespace"], grace=self.rng.choice([0, None]))

    def _replace(self, process, placement):
        """By a namesake that waits, or that has a node already."""
        if (thing := self._there(placement)) is None:
            return
        users, meta = self.simulation.users, thing["metadata"]
        nodes = [node["metadata"]["name"] for node in self.server.objects("Node")]
        more = {"nodeName": self.rng.choice(nodes)} if nodes and self.rng.random() < 0.5 else {}
        self.trace(
            f"pod {meta['name']} is replaced on its way to {placement.node}, {more.get('nodeName') or 'waiting'}"
        )
        self.server.remove("Pod", meta["name"], meta["namespace"])
        made = users.new_pod("web", {"cpu": self.rng.choice(["100m", "1"]), "memory": None}, **more)
        made["metadata"] |= {"name": meta["name"], "namespace": meta["namespace"]}
        users.insert(made)

    def _remove_node(self, process, placement):
        """It may come back at once, with other labels and another size."""
        if self._there(placement) is not None and self.server.get("Node", placement.node) is not None:
            self.trace(f"node {placement.node} goes while pod {placement.pod.name} is on its way")
            self.server.remove("Node", placement.node)
            if self.rng.random() < 0.6:
                self.simulation.users.add_node(placement.node)

    def _refuse(self, process, placement):
        gatekeeper = placement.profile.plugins.get(Gatekeeper.name)
        if gatekeeper is not None and not process.is_ending() and gatekeeper.refuse(placement.pod.uid):
            self.trace(f"pod {placement.pod.name} is refused while it waits")

    # --- promises --------------------------------------------------------------------------------------

    def _create_urgent(self):
        users = self.simulation.users
        cpu = self.rng.choice(["500m", "1"])
        for _ in range(min(self.rng.randint(2, 4), users.room())):
            users.insert(users.new_pod("web", {"cpu": cpu, "memory": None}, priority=URGENT))

    def _pod_changed(self, change):
        node = change.type == "DELETED" and change.new["spec"].get("nodeName")
        if node and self.rng.random() < 0.7 and self._promised().get(node):
            # They rest for a second before they are tried again.
            call_later(self.rng.uniform(0, 0.6), self._end_promises, node, 0.2)

    def _promised(self):
        """Node name -> metadata of those that are to go there."""
        promised = defaultdict(list)
        for thing in self.server.objects("Pod"):
            node = (thing.get("status") or {}).get("nominatedNodeName")
            if node and not thing["spec"].get("nodeName") and not is_gone(thing):
                promised[node].append(thing["metadata"])
        return promised

    def _end_some_promises(self):
        promised = self._promised()
        if promised:
            self._end_promises(max(promised, key=lambda node: len(promised[node])), 2)

    def _end_promises(self, node, within):
        promised = self._promised()[node]
        self.trace(f"{'several promises' if len(promised) > 1 else 'promises'} on {node} end: {len(promised)}")
        for meta in self.rng.sample(promised, len(promised)):
            if self.rng.random() < 0.8:
                call_later(self.rng.uniform(0, within), self._end, meta)

    def _end(self, meta):
        self.server.remove("Pod", meta["name"], meta["namespace"], uid=meta["uid"])

"""What agents of nodes, which report what the machines have, and users of it have in common, whatever is allocated."""

from abc import ABC, abstractmethod
from random import Random

from tests.simulation.apiserver import call_later
from tests.simulation.definitions import definitions
from tests.simulation.invariants import is_gone


class AgentUsers(ABC):
    """Acts on the objects: on reports, which are of a kind of their own and bear the names of nodes, and on pods."""

    API_VERSION, KIND = "", ""
    """Those of the reports."""
    ALLOCATION = ""
    """The annotation of pods that says what they were given."""
    FOREIGN = ()
    """What pods say that come with their node, or are made from the manifest of one that ran elsewhere."""
    STREAM = ""
    """Names the random numbers: each kind of users has its own."""

    def __init__(self, simulation, args, definition):
        """`args`: of the plugin; `definition`: the file, without its ending, of the kind's CustomResourceDefinition."""
        self._simulation = simulation
        self.server = simulation.server
        self.args = args
        self.rng = Random(f"{simulation.plan.seed} {self.STREAM}")
        self.moved = set()
        """uids of pods whose allocation was written by another hand than the scheduler's."""
        self._machines = {}
        for thing in definitions(definition):
            self.server.insert(thing)

    @abstractmethod
    def _report(self, name):
        """The agent of a node reports."""

    @abstractmethod
    def _has_some(self, pod):
        """Whether a pod that says what it was given holds anything."""

    def settle_in(self):
        """What exists before any scheduler starts: some reports are late."""
        for node in self.server.objects("Node"):
            if self.rng.random() < 0.6:
                self._report(node["metadata"]["name"])

    def objects(self):
        """The reports."""
        return self.server.objects(self.KIND, self.API_VERSION)

    def _end_some(self):
        """At rest pods leave, which wakes others."""
        for _ in range(self.rng.randint(0, 6)):
            call_later(self.rng.uniform(22, 40), self._end_one)

    def _end_one(self):
        pods = [pod for pod in self._holding() if not is_gone(pod) and self._has_some(pod)]
        if pods:
            meta = self.rng.choice(pods)["metadata"]
            self.server.remove("Pod", meta["name"], meta["namespace"])

    def _holding(self):
        """The pods on nodes that say what they were given."""
        pods = [pod for pod in self.server.objects("Pod") if pod["spec"].get("nodeName")]
        return [pod for pod in pods if self.ALLOCATION in (pod["metadata"].get("annotations") or {})]

    def _move(self):
        """An administrator gives a running pod something else, or takes its word away."""
        if pods := self._holding():
            meta, text = self.rng.choice(pods)["metadata"], self.rng.choice([*self.FOREIGN, None])
            self.moved.add(meta["uid"])
            self.server.change("Pod", meta["name"], lambda pod: annotate(pod, self.ALLOCATION, text), meta["namespace"])

    def _some_node(self):
        names = sorted(node["metadata"]["name"] for node in self.server.objects("Node"))
        return self.rng.choice(names) if names else None

    def _some_report(self):
        names = sorted(thing["metadata"]["name"] for thing in self.objects())
        return self.rng.choice(names) if names else None

    def _report_some(self):
        name = self._some_node()
        if name is not None:
            self._report(name)

    def _lose_report(self):
        name = self._some_report()
        if name is not None:
            self.server.remove(self.KIND, name, api_version=self.API_VERSION)

    def _rebuild_machine(self):
        """Another machine, or the same with other numbers, reports by the name of a node."""
        name = self._some_node()
        if name is not None:
            self._machines.pop(name, None)
            self._report(name)

    def _write(self, name, meta, content):
        """The report of a node is this, made or changed."""
        if self.server.get(self.KIND, name, api_version=self.API_VERSION) is None:
            thing = {"apiVersion": self.API_VERSION, "kind": self.KIND, "metadata": {"name": name, **meta}}
            self.server.insert({**thing, **content})
            return

        def make(thing):
            thing["metadata"] |= meta
            thing |= content

        self._change_report(name, make)

    def _change_report(self, name, make):
        self.server.change(self.KIND, name, make, api_version=self.API_VERSION)


def annotate(thing, key, text):
    """Sets an annotation; None takes it away."""
    annotations = dict(thing["metadata"].get("annotations") or {})
    annotations.pop(key, None)
    thing["metadata"]["annotations"] = {**annotations, **({} if text is None else {key: text})}


def believed(scheduler, plugin, row_state):
    """Node -> what the columns of a plugin say, by profiles that have it."""
    found = {}
    for profile in scheduler.profiles.values():
        if plugin in profile.plugins:
            columns = profile.plugins[plugin].columns
            found |= {name: row_state(columns, row) for name, row in scheduler.cluster.table.row_of.items()}
    return found

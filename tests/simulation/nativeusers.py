"""Users who run groups of pods by Kubernetes' own PodGroup, in worlds with gangs and claims."""

from random import Random

from koordsched.fakecluster.workloadapi import serve_workload_api
from tests.simulation.apiserver import call_later
from tests.simulation.invariants import is_gone

API_VERSION, KIND = "scheduling.k8s.io/v1alpha2", "PodGroup"
NAMESPACE = "default"


def group_of(pod):
    """The name of the group that a pod is in; "" for none."""
    return (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or ""


def minimum_of(group):
    """How many of its pods have to be placed together; 0 if each may go by itself."""
    return (group["spec"]["schedulingPolicy"].get("gang") or {}).get("minCount", 0)


class NativeUsers:
    """Acts on groups and their members. `wanted` by name of the group: how many members there should be."""

    def __init__(self, simulation):
        self._simulation = simulation
        self.server = simulation.server
        self.rng = Random(f"{simulation.plan.seed} native groups")
        self.wanted = {}
        self._claims = {}
        self._names = 0
        serve_workload_api(self.server.registry)

    def settle_in(self):
        """What exists before any scheduler starts."""
        for _ in range(self.rng.randint(0, 3)):
            self._start()

    def actions(self):
        """(weight, action) of what happens."""
        return [
            (5, self._start),
            (1.5, self._lose_member),
            (2, self._replace_lost),
            (1, self._end),
            (0.5, self._regroup),
        ]

    def tidy_up(self):
        """Members and groups that are missing come, some of them late."""
        for name in sorted(self.wanted):
            if self.rng.random() < 0.8:
                call_later(self.rng.uniform(0, 20), self._fill, name)

    # --- groups ------------------------------------------------------------------------------------

    def _start(self):
        if self._simulation.users.room() <= 0:
            return
        self._names += 1
        name, total = f"w{self._names}", self.rng.choice([1, 2, 2, 3])
        self.wanted[name] = total
        self._claims[name] = self._simulation.claims.of_members() if self.rng.random() < 0.7 else []
        minimum = self.rng.choice([total, total, max(1, total - 1), 0])
        if self.rng.random() < 0.8:
            self._put(name, minimum)
        else:
            call_later(self.rng.uniform(0, 8), self._put, name, minimum)
        self._fill(name)

    def _put(self, name, minimum):
        if self.server.get(KIND, name, NAMESPACE, API_VERSION) is None:
            policy = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
            spec = {"schedulingPolicy": policy, "disruptionMode": "Pod"}
            meta = {"name": name, "namespace": NAMESPACE}
            self.server.insert({"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec, "status": {}})

    def _fill(self, name):
        """As many members as there should be, and their group."""
        if name not in self.wanted:
            return
        self._put(name, self.wanted[name])
        users = self._simulation.users
        for _ in range(self.wanted[name] - len([pod for pod in self._members(name) if not is_gone(pod)])):
            amounts = {"cpu": self.rng.choice(["100m", "300m", "1"])}
            made = users.new_pod("web", amounts)
            made["metadata"]["namespace"] = NAMESPACE
            made["spec"]["schedulingGroup"] = {"podGroupName": name}
            if self._claims[name] is not None:
                made["spec"]["resourceClaims"] = self._claims[name]
            users.insert(made)

    def _members(self, name=None):
        found = [pod for pod in self.server.objects("Pod") if group_of(pod)]
        return [pod for pod in found if name in (None, group_of(pod))]

    def _lose_member(self):
        if found := self._members():
            meta = self.rng.choice(found)["metadata"]
            self.server.remove("Pod", meta["name"], meta["namespace"])

    def _replace_lost(self):
        if self.wanted and self._simulation.users.room() > 0:
            self._fill(self.rng.choice(sorted(self.wanted)))

    def _end(self):
        """The group is over, with all its pods."""
        if self.wanted:
            name = self.rng.choice(sorted(self.wanted))
            del self.wanted[name]
            for pod in self._members(name):
                self.server.remove("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
            self.server.remove(KIND, name, NAMESPACE, api_version=API_VERSION)

    def _regroup(self):
        """The PodGroup goes; it comes again when members are replaced."""
        if self.wanted:
            self.server.remove(KIND, self.rng.choice(sorted(self.wanted)), NAMESPACE, api_version=API_VERSION)

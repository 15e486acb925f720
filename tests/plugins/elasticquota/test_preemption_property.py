"""Preemption in quotas on random clusters: who is evicted, and that trying all nodes at once changes nothing."""

from random import Random

import pytest

from koordsched.api.decoding import convert
from koordsched.api.policy import PodDisruptionBudget
from koordsched.cluster.builtinkinds import POD_DISRUPTION_BUDGETS
from koordsched.framework.replicas import OwnReplicas
from koordsched.plugins.elasticquota import preemption
from koordsched.plugins.elasticquota.members import is_preemptible
from koordsched.plugins.shared.preemption.lockstep import Lockstep
from tests.parity.fresh import fresh_seeds
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.world import World

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
APPS = ("web", "db")
SCHEDULER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-uid", "controller": True}]


class Cluster:
    """Random nodes, two quotas of which one is nearly full, pods in and outside of them, and budgets."""

    def __init__(self, seed):
        self.rng = rng = Random(seed)
        self.world = World(args={"enableRuntimeQuota": False, "enableCheckParentQuota": rng.random() < 0.3})
        self.names = [f"n{i}" for i in range(rng.randint(1, 6))]
        for name in self.names:
            made = node(name, cpu=rng.choice([4, 8, 30]))
            made["metadata"]["labels"] = {HOSTNAME: name, ZONE: rng.choice(["z1", "z2"])}
            self.world.put(made)
        used = [0, 0]
        pods = []
        for i in range(rng.randint(4, 25)):
            number = rng.choice([0, 0, 0, 1, 2])
            size = rng.randint(1, 3)
            if number < 2:
                used[number] += size
            made = pod(
                f"p{i}",
                {"cpu": size},
                ["mine", "theirs", None][number],
                on=rng.choice(self.names),
                priority=rng.choice([0, 1, 1, 5, 20]),
                preemptible=rng.random() < 0.85,
                labels={"app": rng.choice(APPS)},
                started=f"2026-01-01T00:00:{i:02}Z",
            )
            if rng.random() < 0.1:
                made["metadata"]["ownerReferences"] = SCHEDULER
            if rng.random() < 0.1:
                made["spec"]["affinity"] = self.repelling()
            pods.append(made)
        self.world.put(quota("top", {"cpu": sum(used) + rng.choice([0, 2, 50])}, is_parent="true"))
        for name, amount in zip(("mine", "theirs"), used, strict=True):
            self.world.put(quota(name, {"cpu": amount + rng.choice([0, 0, 1, 9])}, {"cpu": 2}, parent="top"))
        for made in pods:
            self.world.put(made)
        replica = pod("scheduler", {"cpu": 1}, on=self.names[0])
        replica["metadata"]["ownerReferences"] = SCHEDULER
        self.world.put(replica)
        self.world.profile.handle.own_replicas = OwnReplicas(self.world.cluster, "default", "scheduler")
        for i in range(rng.choice([0, 1, 2])):
            self.world.cluster.objects.of(POD_DISRUPTION_BUDGETS).upsert(self.budget(f"b{i}"))

    def repelling(self):
        term = {"topologyKey": self.rng.choice([HOSTNAME, ZONE]), "labelSelector": self.selector()}
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def selector(self):
        return {"matchLabels": {"app": self.rng.choice(APPS)}}

    def budget(self, name):
        made = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": self.selector()},
            "status": {"disruptionsAllowed": self.rng.choice([0, 0, 1, 2])},
        }
        return convert(made, PodDisruptionBudget)

    def preemptor(self, name):
        rng = self.rng
        made = pod(name, {"cpu": rng.randint(1, 6)}, "mine", priority=10, labels={"app": rng.choice(APPS)})
        if rng.random() < 0.4:
            made["spec"]["topologySpreadConstraints"] = [
                {
                    "topologyKey": key,
                    "maxSkew": rng.choice([1, 2, 4]),
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": self.selector(),
                }
                for key in rng.sample([HOSTNAME, ZONE], rng.randint(1, 2))
            ]
        if rng.random() < 0.4:
            made["spec"]["affinity"] = self.repelling()
        if rng.random() < 0.1:
            made["status"]["nominatedNodeName"] = rng.choice(self.names)
        return made


def may_go(cluster, victim, new):
    """Whether this pod may be evicted for that one."""
    quota_of = cluster.world.books.quota_of
    return (
        quota_of(victim).name == "mine"
        and victim.priority < new["spec"]["priority"]
        and is_preemptible(victim)
        and victim not in cluster.world.profile.handle.own_replicas
    )


def evict(cluster, new, explanation):
    """Only those who may go do, all from the node; with them gone, the pod fits."""
    world = cluster.world
    by_key = {placed.key: placed for placed in world.cluster.assigned.values()}
    victims = [by_key[key] for key in explanation.victims]
    assert all(victim.node == explanation.nominated_node and may_go(cluster, victim, new) for victim in victims)
    for victim in victims:
        world.cluster.pod_gone(victim.uid)
        world.cluster.remove_pod(victim.uid)
    feasible = {entry.name for entry in world.explain(new).nodes if entry.feasible}
    # The node that the pod was nominated to before is tried first, and is enough.
    assert feasible & {explanation.nominated_node, new["status"].get("nominatedNodeName")}


class OneByOne(Lockstep):
    """Never applies."""

    def __init__(self, *given):
        super().__init__(*given)
        self.applies = False


def both_ways(cluster, new, monkeypatch):
    """The explanation, once found on all nodes together and once node by node."""
    together = cluster.world.explain(new)
    with monkeypatch.context() as patched:
        patched.setattr(preemption, "Lockstep", OneByOne)
        one_by_one = cluster.world.explain(new)
    return together, one_by_one


@pytest.mark.parametrize("seed", fresh_seeds("preemption in a quota", 150))
def test_only_those_who_may_go_do(seed, monkeypatch):
    cluster = Cluster(seed)
    for i in range(3):
        new = cluster.preemptor(f"new{i}")
        cluster.world.put(new)
        together, one_by_one = both_ways(cluster, new, monkeypatch)
        assert (together.nominated_node, together.victims) == (one_by_one.nominated_node, one_by_one.victims)
        assert together.message == one_by_one.message
        if together.victims:
            evict(cluster, new, together)


def test_the_clusters_have_victims():
    """The test above is about something."""
    found = 0
    for seed in range(100):
        cluster = Cluster(seed)
        new = cluster.preemptor("new")
        cluster.world.put(new)
        found += bool(cluster.world.explain(new).victims)
    assert found > 10

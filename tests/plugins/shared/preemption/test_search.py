"""Dry runs of many nodes at once, remembered ones among them, find what trying one node after the other finds."""

from copy import deepcopy
from random import Random

import numpy as np
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster import nodetable
from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.plugins.shared.preemption.dryrun import DryRun
from koordsched.plugins.shared.preemption.lockstep import Lockstep
from koordsched.plugins.shared.preemption.search import Search
from koordsched.plugins.shared.preemption.victims import VictimTable
from tests.parity.fresh import fresh_seeds
from tests.plugins.harness import scheduler
from tests.reference.randompreemption import APPS, CLAIMS, DRIVER, HOSTNAME, NAMESPACES, ZONE, RandomFullCluster


class Cluster:
    """A random full cluster in which something happens now and then."""

    def __init__(self, seed, config=None, *, state=RandomFullCluster, scheduler=scheduler):
        self.rng = rng = Random(seed)
        self.state = state(rng)
        self.state.rich = True
        objects, self.names = self.state.full_cluster(rng.randint(3, 9))
        self.offline = scheduler(objects, **({"config": config} if config else {}))
        self.cluster = self.offline.cluster
        self.placed = [item for item in objects if item["kind"] == "Pod"]
        self.budgets = [item for item in objects if item["kind"] == "PodDisruptionBudget"]
        self.profile = self.offline.profiles["default-scheduler"]
        self.search = Search(self.profile.handle)
        self.numbers = 0

    def something_happens(self):
        """Pods come, go, terminate, start, or get other labels; nodes, budgets and nominations change."""
        rng = self.rng
        match rng.randrange(9):
            case 0 if self.placed:
                gone = self.placed.pop(rng.randrange(len(self.placed)))
                self.cluster.remove_pod(gone["metadata"]["uid"])
            case 1:
                self.placed.append(self.state.victim(rng.choice(self.names), 300))
                self.offline.add(self.placed[-1])
            case 2 if self.placed:
                self.offline.add(self.state.terminating(rng.choice(self.placed), preempted=True))
            case 3 if self.placed:
                pod = rng.choice(self.placed)
                pod["metadata"]["labels"] = {"app": rng.choice(APPS)}
                self.offline.add(pod)
            case 4:
                self.offline.add(self.state.node(rng.choice(self.names)))
            case 5 if self.budgets:
                budget = rng.choice(self.budgets)
                self.offline.add(
                    {**budget, "status": {**budget["status"], "disruptionsAllowed": rng.choice([0, 1, 3])}}
                )
            case 6:
                self.numbers += 1
                held = self.state.nominated(f"held-{self.numbers}", self.names)
                self.offline.add(held)
            case 7:
                for pod in rng.sample(self.placed, min(len(self.placed), 4)):
                    pod["status"].pop("startTime", None)
                    self.offline.add(pod)
            case _:
                pass

    def preemptor(self, name):
        """A pod for which mostly other nodes matter, some with volumes."""
        rng = self.rng
        made = self.state.preemptor(name, self.names)
        spec = made["spec"]
        made["metadata"]["labels"] = {"app": rng.choice(APPS), "tier": "front"}
        if rng.random() < 0.4:
            spec["topologySpreadConstraints"] = [
                self.constraint(key) for key in rng.sample([ZONE, HOSTNAME, "rack"], rng.randint(1, 3))
            ]
        if rng.random() < 0.5:
            spec["affinity"] = {
                kind: {
                    "requiredDuringSchedulingIgnoredDuringExecution": [self.term() for _ in range(rng.randint(1, 2))]
                }
                for kind in rng.sample(["podAffinity", "podAntiAffinity"], rng.randint(1, 2))
            }
        return made

    def comer(self, name):
        """A small pod that is about to be on some node, often one that others are about."""
        made = self.state.plain(name, 0, 10)
        made["spec"].pop("volumes", None)  # such pods are dry-run one by one
        if self.rng.random() < 0.4:
            made["spec"]["affinity"] = self.state.repelling()
        made["metadata"]["labels"] = {"app": self.rng.choice(APPS), "tier": "front"}
        return self.offline.cluster.pods.build(convert(made, core.Pod))

    def constraint(self, key):
        """A hard spread constraint with whatever options there are."""
        rng = self.rng
        made = {
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "maxSkew": rng.choice([1, 1, 2, 4]),
            "labelSelector": self.selector(),
        }
        if rng.random() < 0.2:
            made["minDomains"] = rng.choice([1, 2, 5])
        if rng.random() < 0.2:
            made["nodeTaintsPolicy"] = "Honor"
        if rng.random() < 0.2:
            made["matchLabelKeys"] = ["tier"]
        return made

    def term(self):
        """An affinity term."""
        return {"topologyKey": self.rng.choice([HOSTNAME, ZONE, "rack"]), "labelSelector": self.selector()}

    def selector(self):
        """Some pods, or all."""
        rng = self.rng
        return rng.choice([{"matchLabels": {"app": rng.choice(APPS)}}, {"matchLabels": {"tier": "front"}}, {}])


@pytest.fixture(autouse=True)
def columns_of_large_tables(request, monkeypatch):
    """Every other cluster keeps resources as large ones do."""
    if "seed" in request.fixturenames and request.getfixturevalue("seed") % 2:
        monkeypatch.setattr(nodetable, "SMALL_TABLE", 0)


def same_as_one_by_one(cluster, pod, lockstep=True):
    """Both ways, on all nodes; returns how many candidates there are. `lockstep`: whether all are tried at once."""
    handle = cluster.profile.handle
    cycle = CycleState(pod)
    cluster.profile.filtering.filter(cycle)
    if cycle.pod.nominated_node and not cycle.state:
        return 0
    rows = np.flatnonzero(cluster.cluster.table.alive.data[: cluster.cluster.table.size])
    cluster.rng.shuffle(rows)
    assert Lockstep(cluster.cluster, handle.filtering, cycle).applies is lockstep
    found, missing = cluster.search.of(cycle).on(rows)
    table = cluster.cluster.shared(VictimTable)
    one_by_one = DryRun(cluster.cluster, handle.filtering, cluster.cluster.shared(Budgets))
    now = handle.clock.wall()
    lists = {row: table.pods(row, pod.priority, now) for row in rows.tolist()}
    assert missing == sum(not pods for pods in lists.values())
    assert found.rows.tolist() == [row for row in rows.tolist() if lists[row]]
    candidates = 0
    for i, row in enumerate(found.rows.tolist()):
        expected = one_by_one.on(cycle, row, lists[row], now)
        code = int(found.verdicts["code"][i])
        if isinstance(expected, int):
            assert code == expected
            continue
        candidates += 1
        assert code == PASS
        assert [victim.key for victim in found.victims(i)] == [victim.key for victim in expected.victims]
        assert found.verdicts["violations"][i] == expected.violations
        if expected.victims:
            highest = expected.victims[0].priority
            assert found.verdicts["highest"][i] == highest
            assert found.verdicts["total"][i] == sum(victim.priority + (1 << 31) for victim in expected.victims)
        assert found.verdicts["victims"][i] == len(expected.victims)
    return candidates


def snapshot(cluster):
    """What dry runs change and must put back."""
    table = cluster.cluster.table
    columns = [table.pods_count, *table.requested]
    return [column.data[table.all_rows].tolist() for column in columns], deepcopy(table.ports._used)


@pytest.mark.parametrize("seed", fresh_seeds("dry runs in lockstep", 60))
def test_lockstep_finds_what_one_by_one_finds(seed):
    cluster = Cluster(seed)
    for i in range(8):
        for _ in range(cluster.rng.choice([0, 1, 3])):
            cluster.something_happens()
        pod = cluster.offline.add(cluster.preemptor(f"p{i}"))
        columns, ports = snapshot(cluster)
        same_as_one_by_one(cluster, pod)
        after, ports_after = snapshot(cluster)
        assert (after[: len(columns)], ports_after) == (columns, ports)  # a new resource has a new column


@pytest.mark.parametrize("seed", fresh_seeds("remembered dry runs", 60))
def test_what_is_remembered_still_holds(seed):
    """The same few kinds of pods, for which nothing but their own node matters, ask again and again."""
    cluster = Cluster(seed)
    kinds = [cluster.preemptor(f"kind-{i}") for i in range(3)]
    for kind in kinds:
        kind["spec"].pop("topologySpreadConstraints", None)
        kind["spec"].pop("affinity", None)
        kind["spec"].pop("volumes", None)
    for i in range(16):
        cluster.something_happens()
        kind = cluster.rng.choice(kinds)
        metadata = {**kind["metadata"], "name": f"p{i}", "uid": f"p{i}"}
        same_as_one_by_one(cluster, cluster.offline.add({**kind, "metadata": metadata, "status": {}}))


@pytest.mark.parametrize("seed", fresh_seeds("dry runs with volumes", 60))
def test_pods_with_volumes(seed):
    """Limits of drivers, disks and claims that others use, and volumes that stay attached when their pods leave."""
    without_limits = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeVolumeLimits"}]}}}
    cluster = Cluster(seed, without_limits if seed % 2 else None)
    rng = cluster.rng
    for number in range(rng.randrange(12)):
        cluster.offline.add(
            attachment(f"a{number}", rng.choice(cluster.names), f"{rng.choice(NAMESPACES)}-{rng.randrange(CLAIMS)}")
        )
    for i in range(8):
        cluster.something_happens()
        made = cluster.preemptor(f"p{i}")
        volumes = [cluster.state.some_volume(made["metadata"]["namespace"]) for _ in range(rng.randint(1, 2))]
        made["spec"]["volumes"] = [{**volume, "name": f"v{k}"} for k, volume in enumerate(volumes)]
        same_as_one_by_one(cluster, cluster.offline.add(made))


def attachment(name, on, volume):
    """A volume is attached to a node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {"attacher": DRIVER, "nodeName": on, "source": {"persistentVolumeName": volume}},
        "status": {"attached": True},
    }


@pytest.mark.parametrize("seed", fresh_seeds("pods that come in worlds of their own", 60))
def test_pods_come_to_every_row_in_a_world_of_its_own(seed):
    """Asked about all rows at once, the filters say what they say in one what-if after the other."""
    cluster = Cluster(seed)
    filtering = cluster.profile.filtering
    for i in range(4):
        pod = cluster.offline.add(cluster.preemptor(f"p{i}"))
        pod.nominated_node = ""
        cluster.offline.nominator.delete(pod.uid)
        cycle = CycleState(pod)
        filtering.filter(cycle)
        rows = np.array([cluster.cluster.table.row_of[name] for name in cluster.names])
        coming = [[cluster.comer(f"c{i}-{row}-{k}") for k in range(cluster.rng.randrange(4))] for row in rows.tolist()]
        chain = filtering.chain_dry_run(cycle, [other for others in coming for other in others])
        with cluster.cluster.what_if(add=[(row, o) for row, os in zip(rows, coming, strict=True) for o in os]):
            codes = chain.nodes(rows)
        chain.refuse(codes, rows, chain.tallied(coming))
        for row, others, code in zip(rows.tolist(), coming, codes.tolist(), strict=True):
            with cluster.cluster.what_if(add=[(row, other) for other in others]):
                assert filtering.dry_run(cycle, row) == code


def test_the_clusters_have_all_kinds_of_candidates():
    """The tests above are about something."""
    candidates = 0
    for seed in range(10):
        cluster = Cluster(seed)
        candidates += sum(
            same_as_one_by_one(cluster, cluster.offline.add(cluster.preemptor(f"p{i}"))) for i in range(5)
        )
    assert candidates > 20

"""`python -m bench.engine.gangs`: what gangs cost the engine, as a multiple of basic pods.

All clusters have the same nodes, in racks of 20. In turns, as many basic pods are placed one by one as a gang has
members, and the gang is planned as a whole; both are taken back. Gangs for which there is no room are compared with a
pod for which there is none.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from statistics import median

import click
import orjson
from rich.table import Table

from bench.manifests import node, pod
from bench.workloads import Catalog, load
from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cli.output import console
from koordsched.client.clock import SystemClock
from koordsched.config.feature_gates import NETWORK_TOPOLOGY_MANAGER, FeatureGates
from koordsched.engine.attempt import Attempt
from koordsched.engine.jobplan import JobPlan
from koordsched.engine.transaction import Transaction
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.scheduling.offline import OfflineScheduler

SCHEDULER = "default-scheduler"
POINTS = (
    "preEnqueue", "preFilter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "postBind",
)  # fmt: skip
RACK, RACKS_OF = "example.com/rack", 20
TOPOLOGY = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "ClusterNetworkTopology",
    "metadata": {"name": "default", "uid": "topology"},
    "spec": {
        "networkTopologySpec": [
            {"topologyLayer": "RackLayer", "labelKey": [RACK]},
            {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "RackLayer"},
        ]
    },
}
GATHERED = orjson.dumps({"gatherStrategy": [{"layer": "RackLayer", "strategy": "PreferGather"}]}).decode()


@dataclass(frozen=True, slots=True)
class Case:
    """A gang. `gathered`: by network topology; `huge`: no node has room for a member."""

    name: str
    members: int
    gathered: bool = False
    huge: bool = False


CASES = (
    Case("10 members", 10),
    Case("1,000 members", 1_000),
    Case("1,000 members, gathered", 1_000, gathered=True),
    Case("10,000 members", 10_000),
)
REFUSED = (Case("10 members, no room, again", 10, huge=True), Case("1,000 members, no room, again", 1_000, huge=True))


class GangCluster:
    """A cluster with gangs, and pods of the same kind that belong to none."""

    def __init__(self, catalog: Catalog, nodes: int) -> None:
        args = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "CoschedulingArgs",
            "awareNetworkTopology": True,
        }
        enabled = {"enabled": [{"name": "Coscheduling"}]}
        profile = {
            "schedulerName": SCHEDULER,
            "plugins": dict.fromkeys(POINTS, enabled),
            "pluginConfig": [{"name": "Coscheduling", "args": args}],
        }
        text = orjson.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [profile],
            }
        ).decode()
        gates = FeatureGates.parse([f"{NETWORK_TOPOLOGY_MANAGER}=true"])
        resolved = config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG, gates=gates)
        self._catalog = catalog
        self._rng = Random(1)
        self.offline = OfflineScheduler(resolved, IN_TREE, (TOPOLOGY,), clock=SystemClock(), rng=self._rng)
        self.cluster, self.profile = self.offline.cluster, self.offline.profiles[SCHEDULER]
        for index in range(nodes):
            thing = node(catalog.nodes["default"], f"node-{index}", index, "")
            thing["metadata"].setdefault("labels", {})[RACK] = f"rack-{index // RACKS_OF}"
            self.cluster.upsert_node(convert(thing, core.Node))

    def pods(self, case: Case, tag: str, *, gang: bool) -> list[str]:
        """The keys of the pods of a case, which wait from now on."""
        return [self._add(case, f"{tag}-{number}", tag if gang else "") for number in range(case.members)]

    def _add(self, case: Case, name: str, gang: str) -> str:
        thing = pod(self._catalog.pods["basic"], name, "default", 0, SCHEDULER, full_size=False)
        thing["metadata"]["uid"] = name
        if case.huge:
            thing["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "9999"}}
        if gang:
            key = "gang.scheduling.koordinator.sh/"
            annotations = {f"{key}name": gang, f"{key}min-available": str(case.members)}
            if case.gathered:
                annotations[f"{key}network-topology-spec"] = GATHERED
            thing["metadata"]["annotations"] = annotations
        found = self.offline.add(thing)
        assert found is not None, "it is ours"
        return found.key

    def forget(self, keys: list[str]) -> None:
        """The pods are gone."""
        for key in keys:
            self.cluster.pod_gone(self.offline.pending.pop(key).uid)

    def one_by_one(self, keys: list[str]) -> float:
        """CPU seconds of placing the pods as a scheduling cycle does, until one has no place."""
        with Transaction(self.cluster, self.offline.nominator) as transaction, _timed() as spent:
            for key in keys:
                attempt = Attempt(self.profile, self.cluster, self.offline.pending[key])
                if not attempt.filter().feasible:
                    attempt.message(attempt.post_filter())
                    break
                row = attempt.choose(self._rng).row
                assert transaction.place(attempt.cycle, self.profile, row).ok, "the node has room"
        return spent()

    def together(self, keys: list[str]) -> tuple[float, float]:
        """CPU seconds of planning the gang, and of taking it back."""
        transaction = Transaction(self.cluster, self.offline.nominator)
        with _timed() as planned:
            begun = self.profile.begin_job(self.offline.pending[keys[0]])
            assert begun is not None, "it is a gang"
            plugin, job = begun
            JobPlan(self.offline.profiles, self.cluster, transaction, self._rng).place(job)
        with _timed() as taken_back, transaction:
            pass
        plugin.end_job(job, (), ())
        return planned(), taken_back()


@contextmanager
def _timed() -> Iterator[Callable[[], float]]:
    gc.collect()
    gc.disable()
    began, ended = time.thread_time(), 0.0
    try:
        yield lambda: ended - began
    finally:
        ended = time.thread_time()
        gc.enable()


@click.command()
@click.option("--nodes", default=5_000, show_default=True, help="Number of nodes.")
@click.option("--turns", default=5, show_default=True, help="Turns.")
def main(nodes: int, turns: int) -> None:
    """Plan gangs and place basic pods in turns, and print medians."""
    cluster = GangCluster(load(), nodes)
    table = Table(title=f"{nodes:,} nodes in racks of {RACKS_OF}; {turns} turns")
    for name in ("", "ms", "µs per member", "times basic pods", "taken back, ms"):
        table.add_column(name, justify="right" if name else "left")
    for case in (*CASES, *REFUSED):
        spent, basic, back = [], [], []
        for turn in range(turns + 1):
            single = cluster.pods(case, f"s{turn}", gang=False)
            alone = cluster.one_by_one(single)
            cluster.forget(single)
            members = cluster.pods(case, f"g{turn}", gang=True)
            planned, taken_back = cluster.together(members)
            if case.huge:
                planned, taken_back = cluster.together(members)  # asked again
            cluster.forget(members)
            if turn:  # the first one fills the caches
                spent.append(planned)
                basic.append(alone)
                back.append(taken_back)
        ratio = median(one / other for one, other in zip(spent, basic, strict=True))
        each = "" if case.huge else f"{median(spent) / case.members * 1e6:.1f}"
        table.add_row(case.name, f"{median(spent) * 1e3:.2f}", each, f"{ratio:.2f}", f"{median(back) * 1e3:.1f}")
    console().print(table)


if __name__ == "__main__":
    main()

"""`python -m bench.engine.quota`: what quota checks add to the engine cost of a basic pod.

The same basic pods, spread over the leaves of a tree of about a thousand quotas in five levels, are placed on three
clusters in turns: without the plugin, with it while all requests fit, and with it while every quota asks for more than
its share. Three moments of a pod are timed: when it is first seen, its scheduling cycle, and when the watch confirms
its binding.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from random import Random
from statistics import median
from typing import Any

import click
import orjson

from bench.manifests import Manifest, node, pod
from bench.workloads import Catalog, load
from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import Decoder, convert
from koordsched.cluster.pod import Pod
from koordsched.engine.attempt import Attempt
from koordsched.observability.metric_registry import MetricRegistry
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.elasticquota.controller.metrics import TimedBooks
from koordsched.plugins.elasticquota.kinds import IS_PARENT, PARENT, QUOTA_NAME
from koordsched.plugins.elasticquota.plugin import ElasticQuota
from koordsched.scheduling.offline import OfflineScheduler

SCHEDULER = "default-scheduler"
FANOUT = (4, 4, 4, 4, 3)
"""Children of each quota, level by level: 1,108 quotas, of which 768 are leaves."""

REPLICAS = 10
"""Pods of one quota that come one after the other, as those of a Deployment do."""

MOMENTS = ("seen", "cycle", "confirmed")

_decode_pod = Decoder(core.Pod)


class _Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


def quotas() -> tuple[list[Manifest], list[str]]:
    """The quotas, parents first, and the names of the leaves."""
    made: list[Manifest] = []
    level = [""]
    for depth, count in enumerate(FANOUT):
        names = [f"{parent}-{i}" if parent else f"q{i}" for parent in level for i in range(count)]
        is_parent = "true" if depth < len(FANOUT) - 1 else "false"
        for name in names:
            labels = {PARENT: name.rpartition("-")[0], IS_PARENT: is_parent}
            made.append(
                {
                    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                    "kind": "ElasticQuota",
                    "metadata": {"name": name, "namespace": "quotas", "labels": labels},
                    "spec": {"max": {"cpu": "1M", "memory": "1000Ti"}, "min": {"cpu": "1", "memory": "1Gi"}},
                }
            )
        level = names
    return made, level


class QuotaPlacement:
    """A cluster and the default profile, with or without quotas, on which pods are placed."""

    def __init__(self, catalog: Catalog, nodes: int, objects: list[Manifest], leaves: list[str]) -> None:
        self._catalog = catalog
        self._leaves = leaves
        self._rng = Random(1)
        text = orjson.dumps(_configuration(with_quotas=bool(objects))).decode()
        resolved = config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)
        self.offline = OfflineScheduler(resolved, IN_TREE, (), clock=_Clock(), rng=self._rng)
        self.cluster = self.offline.cluster
        self.profile = self.offline.profiles[SCHEDULER]
        plugin = self.profile.plugins.get(ElasticQuota.name)
        if isinstance(plugin, ElasticQuota):  # as in the daemon
            books = plugin.books
            self.cluster.replace_observer(books, TimedBooks(MetricRegistry(), books, time.monotonic))
        for thing in objects:
            self.offline.add(thing)
        for index in range(nodes):
            manifest = node(catalog.nodes["default"], f"node-{index}", index, "")
            self.cluster.upsert_node(convert(manifest, core.Node))

    def pods(self, tag: str, count: int, *, running: bool = False) -> Iterator[Pod]:
        """Basic pods with the labels of the leaves."""
        kind = self._catalog.pods["basic"]
        names = self.cluster.table.names
        for index in range(count):
            on = names[index % len(names)] if running else ""
            thing = pod(kind, f"{tag}-{index}", "default", index, SCHEDULER, node=on, full_size=False)
            thing["metadata"]["uid"] = thing["metadata"]["name"]
            thing["metadata"]["labels"][QUOTA_NAME] = self._leaves[index // REPLICAS % len(self._leaves)]
            yield self.cluster.pods.build(_decode_pod(orjson.dumps(thing)))

    def fill(self, count: int) -> None:
        """Pods that run already."""
        for each in self.pods("running", count, running=True):
            self.cluster.set_pod(each)

    def place(self, tag: str, count: int) -> list[float]:
        """CPU microseconds per pod for each of the moments."""
        waiting = list(self.pods(tag, count))
        spent = [self._timed(self.cluster.pod_seen, waiting), self._timed(self._cycle, waiting)]
        # What the watch brings is a pod of its own, equal to the one that was assumed.
        confirmed = list(self.pods(tag, count))
        for seen, assumed in zip(confirmed, waiting, strict=True):
            seen.node = assumed.node
        return [*spent, self._timed(self.cluster.set_pod, confirmed)]

    @staticmethod
    def _timed(step: Callable[[Pod], Any], pods: list[Pod]) -> float:
        gc.collect()
        gc.disable()
        started = time.thread_time()
        for each in pods:
            step(each)
        spent = time.thread_time() - started
        gc.enable()
        return spent / len(pods) * 1e6

    def _cycle(self, each: Pod) -> None:
        attempt = Attempt(self.profile, self.cluster, each)
        assert attempt.filter().feasible, "the cluster has room for all"
        row = attempt.choose(self._rng).row
        self.offline.take(attempt, row)


def _configuration(*, with_quotas: bool) -> Manifest:
    enabled = {"enabled": [{"name": ElasticQuota.name}]}
    plugins = dict.fromkeys(("preFilter", "reserve"), enabled) if with_quotas else {}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": SCHEDULER, "plugins": plugins}],
    }


def _greedy(catalog: Catalog, leaves: list[str]) -> Iterator[Manifest]:
    """A pending pod for each leaf that makes it ask for far more than its share."""
    for index, name in enumerate(leaves):
        thing = pod(catalog.pods["basic"], f"greedy-{index}", "default", index, SCHEDULER, full_size=False)
        thing["metadata"] |= {"uid": f"greedy-{index}", "labels": {QUOTA_NAME: name}}
        thing["spec"]["containers"] = [{"name": "c", "resources": {"requests": {"cpu": f"{1000 + index}"}}}]
        yield thing


@click.command()
@click.option("--nodes", default=5_000, show_default=True)
@click.option("--running", default=50_000, show_default=True, help="Pods that are there already.")
@click.option("--pods", default=500, show_default=True, help="Pods timed at a time.")
@click.option("--rounds", default=9, show_default=True)
def main(nodes: int, running: int, pods: int, rounds: int) -> None:
    """Measure what quotas add, as ratios in one run."""
    catalog = load()
    declared, leaves = quotas()
    placements = {
        "without": QuotaPlacement(catalog, nodes, [], leaves),
        "fitting": QuotaPlacement(catalog, nodes, declared, leaves),
        "contended": QuotaPlacement(catalog, nodes, [*declared, *_greedy(catalog, leaves)], leaves),
    }
    for placement in placements.values():
        placement.fill(running)
    spent: dict[str, list[list[float]]] = {name: [] for name in placements}
    for number in range(rounds):
        for name, placement in placements.items():
            spent[name].append(placement.place(f"round-{number}", pods))
    costs = {name: [median(moment) for moment in zip(*rows, strict=True)] for name, rows in spent.items()}
    basic = costs["without"]
    for name, cost in costs.items():
        moments = ", ".join(f"{moment} {micros:.1f}" for moment, micros in zip(MOMENTS, cost, strict=True))
        added = f"; a basic pod and {sum(cost) / sum(basic) - 1:+.0%}" if name != "without" else ""
        seen_and_cycle = f" ({sum(cost[:2]) / sum(basic[:2]) - 1:+.0%} until it is placed)" if added else ""
        click.echo(f"{name}: {sum(cost):.1f} µs/pod ({moments}){added}{seen_and_cycle}")


if __name__ == "__main__":
    main()

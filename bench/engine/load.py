"""`python -m bench.engine.load`: what LoadAwareScheduling adds to the engine cost of a basic pod, and reports cost.

The same basic pods are placed on two clusters in turns, without the plugin and with it. With it a report of a node
comes after every so many pods, as when all nodes report once a minute and pods come at the given rate. What reports
cost is measured apart: from the bytes of the watch to the columns.
"""

from __future__ import annotations

import gc
import time
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
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.loadaware.kinds import NODE_METRICS, NodeMetric
from koordsched.scheduling.offline import OfflineScheduler

SCHEDULER = "default-scheduler"
INTERVAL = 60
"""Seconds between two reports of a node."""

_decode_pod = Decoder(core.Pod)
_decode_metric = Decoder(NodeMetric)


class _Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


def configuration(*, with_loads: bool) -> Manifest:
    """The default profile, with the plugin at the points at which it is commonly enabled."""
    enabled = {"enabled": [{"name": "LoadAwareScheduling"}]}
    plugins = dict.fromkeys(("filter", "score", "reserve"), enabled) if with_loads else {}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": SCHEDULER, "plugins": plugins}],
    }


class LoadPlacement:
    """A cluster with so many running pods on each node, and a profile with or without the plugin."""

    def __init__(self, catalog: Catalog, nodes: int, pods_per_node: int, *, with_loads: bool) -> None:
        self._catalog = catalog
        self._rng = Random(1)
        text = orjson.dumps(configuration(with_loads=with_loads)).decode()
        resolved = config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)
        self.offline = OfflineScheduler(resolved, IN_TREE, (), clock=_Clock(), rng=self._rng)
        self.cluster = self.offline.cluster
        self._profile = self.offline.profiles[SCHEDULER]
        for index in range(nodes):
            self.cluster.upsert_node(convert(node(catalog.nodes["default"], f"node-{index}", index, ""), core.Node))
        self.running: dict[str, list[str]] = {}
        for index, each in enumerate(self.pods("running", nodes * pods_per_node, running=True)):
            self.cluster.set_pod(each)
            self.running.setdefault(f"node-{index % nodes}", []).append(each.name)
        self._with_loads = with_loads
        self._nodes = nodes
        if with_loads:
            for index in range(nodes):
                self.report(self.metric(index))

    def pods(self, tag: str, count: int, *, running: bool = False) -> list[Pod]:
        """Basic pods; running ones were placed long ago."""
        kind = self._catalog.pods["basic"]
        made = []
        for index in range(count):
            on = f"node-{index % self.cluster.table.count}" if running else ""
            thing = pod(kind, f"{tag}-{index}", "default", index, SCHEDULER, node=on, full_size=False)
            thing["metadata"]["uid"] = thing["metadata"]["name"]
            if running:
                placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                thing["status"] = {"phase": "Running", "conditions": [placed]}
            made.append(self.cluster.pods.build(_decode_pod(orjson.dumps(thing))))
        return made

    def metric(self, index: int) -> bytes:
        """A report as node agents write it."""
        name, rng = f"node-{index}", self._rng
        usage = {"cpu": f"{rng.randrange(100, 1500)}m", "memory": str(rng.randrange(1 << 28, 1 << 32))}
        statistics = {kind: {"resources": usage} for kind in ("avg", "p50", "p90", "p95", "p99")}
        periods = [{"duration": duration, "usage": statistics} for duration in ("5m0s", "10m0s", "30m0s")]
        pods = [
            {
                "namespace": "default",
                "name": pod,
                "priority": "koord-prod",
                "qos": "LS",
                "podUsage": {"resources": {"cpu": f"{rng.randrange(10, 900)}m", "memory": str(rng.randrange(1 << 30))}},
            }
            for pod in self.running[name]
        ]
        return orjson.dumps(
            {
                "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(rng.randrange(1 << 30))},
                "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": INTERVAL}},
                "status": {
                    "updateTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "nodeMetric": {
                        "nodeUsage": {"resources": usage},
                        "aggregatedNodeUsages": periods,
                        "systemUsage": {"resources": {"cpu": "100m", "memory": "1Gi"}},
                    },
                    "podsMetric": pods,
                },
            }
        )

    def report(self, metric: bytes) -> None:
        """A report comes."""
        self.cluster.objects.of(NODE_METRICS).upsert(_decode_metric(metric))

    def place(self, tag: str, count: int, pods_per_report: int) -> float:
        """CPU microseconds per pod of its scheduling cycle, what reports dirty in between included."""
        waiting, spent = self.pods(tag, count), 0.0
        reports = [self.metric(self._rng.randrange(self._nodes)) for _ in range(count // pods_per_report + 1)]
        gc.collect()
        gc.disable()
        for start in range(0, count, pods_per_report):
            if self._with_loads:
                self.report(reports[start // pods_per_report])
            began = time.thread_time()
            for each in waiting[start : start + pods_per_report]:
                self._cycle(each)
            spent += time.thread_time() - began
        gc.enable()
        return spent / count * 1e6

    def reports(self, count: int) -> float:
        """CPU microseconds per report, from the bytes to the columns."""
        metrics = [self.metric(index % self._nodes) for index in range(count)]
        gc.collect()
        gc.disable()
        began = time.thread_time()
        for metric in metrics:
            self.report(metric)
        spent = time.thread_time() - began
        gc.enable()
        return spent / count * 1e6

    def _cycle(self, each: Pod) -> Any:
        attempt = Attempt(self._profile, self.cluster, each)
        assert attempt.filter().feasible, "the cluster has room for all"
        return self.offline.take(attempt, attempt.choose(self._rng).row)[0]


@click.command()
@click.option("--nodes", default=5_000, show_default=True, help="Number of nodes.")
@click.option("--pods-per-node", default=3, show_default=True, help="Pods that run on each node.")
@click.option("--pods", default=500, show_default=True, help="Pods placed in each turn.")
@click.option(
    "--rate", default=1_000, show_default=True, help="Pods per second, which says how many reports come between."
)
@click.option("--turns", default=9, show_default=True, help="Turns.")
def main(nodes: int, pods_per_node: int, pods: int, rate: int, turns: int) -> None:
    """Measure both in turns, and print medians."""
    catalog = load()
    plain = LoadPlacement(catalog, nodes, pods_per_node, with_loads=False)
    loads = LoadPlacement(catalog, nodes, pods_per_node, with_loads=True)
    pods_per_report = max(1, rate * INTERVAL // nodes)
    spent: dict[str, list[float]] = {"without": [], "with": [], "report": []}
    for turn in range(turns + 1):
        without = plain.place(f"t{turn}", pods, pods_per_report)
        with_loads = loads.place(f"t{turn}", pods, pods_per_report)
        report = loads.reports(1_000)
        if turn:  # the first one fills the caches
            spent["without"].append(without)
            spent["with"].append(with_loads)
            spent["report"].append(report)
    ratio = median(w / o for w, o in zip(spent["with"], spent["without"], strict=True))
    click.echo(
        f"{nodes:,} nodes x {pods_per_node} pods, a report every {pods_per_report} pods, {turns} turns of {pods} pods:"
    )
    click.echo(f"without {median(spent['without']):.1f} µs per pod, with {median(spent['with']):.1f} µs: {ratio:.2f}x")
    click.echo(f"a report {median(spent['report']):.1f} µs")


if __name__ == "__main__":
    main()

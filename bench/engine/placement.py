"""Times scheduling cycles, and what the Reserve of one plugin takes of them."""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from statistics import median

import orjson
from rich.table import Table

from bench.manifests import Manifest
from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import Decoder
from koordsched.cli.output import console
from koordsched.client.clock import SystemClock
from koordsched.cluster.pod import Pod
from koordsched.engine.attempt import Attempt
from koordsched.framework.interface import CycleState, Reserve
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.scheduling.offline import OfflineScheduler

SCHEDULER = "default-scheduler"
POINTS = ("preFilter", "filter", "score", "reserve", "preBind")

_decode_pod = Decoder(core.Pod)


class Placement(ABC):
    """A cluster on which pods are placed. `plugin`: enabled beside the default ones, "" for none."""

    def __init__(self, plugin: str) -> None:
        enabled = {"enabled": [{"name": plugin}]}
        text = orjson.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"schedulerName": SCHEDULER, "plugins": dict.fromkeys(POINTS if plugin else (), enabled)}],
            }
        ).decode()
        resolved = config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)
        self.rng = Random(1)
        self.offline = OfflineScheduler(resolved, IN_TREE, (), clock=SystemClock(), rng=self.rng)
        self.cluster = self.offline.cluster
        self.profile = self.offline.profiles[SCHEDULER]
        self._plugin = plugin

    @abstractmethod
    def pods(self, tag: str, count: int) -> list[Pod]:
        """Pods of the case that wait."""

    def build(self, thing: Manifest) -> Pod:
        """The pod of a manifest."""
        thing["metadata"]["uid"] = thing["metadata"]["name"]
        return self.cluster.pods.build(_decode_pod(orjson.dumps(thing)))

    def place(self, tag: str, count: int) -> float:
        """CPU microseconds per pod of its scheduling cycle."""
        return self._timed(self.pods(tag, count), self._cycle)

    def reserve(self, tag: str, count: int) -> float:
        """CPU microseconds of a Reserve of the plugin, on nodes that have room for the pods; all is taken back."""
        plugin = self.profile.plugins[self._plugin]
        assert isinstance(plugin, Reserve), "enabled"
        waiting = self.pods(tag, count)
        attempt = Attempt(self.profile, self.cluster, waiting[0])
        feasible = attempt.filter().rows.tolist()
        assert feasible, "the cluster has room for all"
        rows = self.rng.sample(feasible, k=min(count, len(feasible)))
        waiting = waiting[: len(rows)]
        cycles = {each.uid: CycleState(each) for each in waiting}
        placed = dict(zip(cycles, rows, strict=True))
        for each, row in zip(waiting, rows, strict=True):
            self.cluster.assume(each, row)

        def step(each: Pod) -> None:
            assert plugin.reserve(cycles[each.uid], each, placed[each.uid]).ok, "the node has room for it"

        spent = self._timed(waiting, step)
        for each, row in zip(waiting, rows, strict=True):
            plugin.unreserve(cycles[each.uid], each, row)
            self.cluster.forget(each)
        return spent

    @staticmethod
    def _timed(pods: list[Pod], step: Callable[[Pod], object]) -> float:
        gc.collect()
        gc.disable()
        began = time.thread_time()
        for each in pods:
            step(each)
        spent = time.thread_time() - began
        gc.enable()
        return spent / len(pods) * 1e6

    def _cycle(self, each: Pod) -> None:
        attempt = Attempt(self.profile, self.cluster, each)
        assert attempt.filter().feasible, "the cluster has room for all"
        assert self.offline.take(attempt, attempt.choose(self.rng).row)[0].ok, "and the node chosen, too"


def compare(clusters: Sequence[tuple[str, Placement, bool]], title: str, pods: int, turns: int) -> None:
    """Places pods on all clusters in turns, and prints medians. (name, cluster, whether its Reserve is of interest);
    the first cluster is what the others are compared with.
    """
    first = [cluster.place("first", 1) for _, cluster, _ in clusters]
    cycles: list[list[float]] = [[] for _ in clusters]
    reserves: list[list[float]] = [[] for _ in clusters]
    for turn in range(turns + 1):
        for (_, cluster, reserves_matter), cycle, reserve in zip(clusters, cycles, reserves, strict=True):
            spent = cluster.place(f"t{turn}", pods)
            alone = cluster.reserve(f"r{turn}", pods) if reserves_matter else 0.0
            if turn:  # the first one fills the caches
                cycle.append(spent)
                reserve.append(alone)
    table = Table(title=f"{title}; {turns} turns of {pods} pods")
    for name in ("", "µs per pod", "times a basic pod", "of it Reserve, µs", "first pod, ms"):
        table.add_column(name, justify="right" if name else "left")
    for (name, _, reserves_matter), cycle, reserve, cold in zip(clusters, cycles, reserves, first, strict=True):
        ratio = median(spent / basic for spent, basic in zip(cycle, cycles[0], strict=True))
        part = f"{median(reserve):.1f}" if reserves_matter else ""
        table.add_row(name, f"{median(cycle):.1f}", f"{ratio:.2f}", part, f"{cold / 1e3:.1f}")
    console().print(table)

"""Runs single plugins, and whole profiles, on cluster states given as JSON."""

from random import Random

import msgspec
import numpy as np

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.state import ClusterState
from koordsched.config.loading import load
from koordsched.config.resolving import resolve
from koordsched.framework.handle import Handle
from koordsched.framework.interface import Cycle, Filter, NodeFilter
from koordsched.framework.status import PASS, ReasonTable
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler


class StoppedClock:
    """Time does not pass."""

    def monotonic(self):
        return 1000.0

    def wall(self):
        return 1_900_000_000.0


class NoNominations:
    """Nobody is nominated."""

    def nodes_nominated_at_least(self, priority):
        return ()

    def nominated_on(self, node, priority):
        return ()


class Bench:
    """A cluster state, and plugins to ask about it one at a time."""

    def __init__(self, *objects):
        self.cluster = ClusterState()
        self.handle = Handle(
            profile="default-scheduler",
            cluster=self.cluster,
            reasons=ReasonTable(),
            writes=None,
            evictions=None,
            nominations=NoNominations(),
            clock=StoppedClock(),
            rng=Random(7),
        )
        for item in objects:
            self.add(item)

    def add(self, item):
        """Takes in a node or a placed pod."""
        if item["kind"] == "Node":
            self.cluster.upsert_node(convert(item, core.Node))
        else:
            self.cluster.set_pod(self.pod(item))

    def pod(self, item):
        """The scheduler's view of a pod."""
        return self.cluster.pods.build(convert(item, core.Pod))

    def plugin(self, name, args=None):
        """A plugin with typed arguments."""
        return IN_TREE[name](args, self.handle)

    @property
    def rows(self):
        """Rows that hold nodes."""
        return np.flatnonzero(self.cluster.table.alive.data[: self.cluster.table.size])

    def filter(self, plugin, item):
        """Node name -> None, or (status, *texts); the same whatever form the rows come in."""
        pod = self.pod(item)
        table = self.cluster.table
        codes = {row: self._code(plugin, pod, row) for row in self.rows.tolist()}
        if isinstance(plugin, NodeFilter):
            for rows in self._forms():
                answer = plugin.filter_rows(pod.shape, table, rows)
                found = np.zeros(_length(rows), np.int32) if answer is None else answer
                assert found.dtype == np.int32
                for row, code in zip(_numbers(rows), found.tolist(), strict=True):
                    assert codes.get(row, code) == code
        return {table.names[row]: self._reason(code) for row, code in codes.items()}

    def _code(self, plugin, pod, row):
        if isinstance(plugin, NodeFilter):
            answer = plugin.filter_rows(pod.shape, self.cluster.table, slice(row, row + 1))
        else:
            assert isinstance(plugin, Filter)
            answer = plugin.filter(Cycle(pod), pod, self.cluster.table, np.array([row]))
        assert answer is None or len(answer) == 1
        return PASS if answer is None else int(answer[0])

    def _reason(self, code):
        if code == PASS:
            return None
        reason = self.handle.reasons[code]
        return (reason.code.text, *reason.texts)

    def score(self, plugin, item):
        """Node name -> raw score; the same whatever form the rows come in. None if the plugin skips the pod."""
        shape = self.pod(item).shape
        table = self.cluster.table
        if plugin.skips(shape):
            return None
        scores = {}
        for row in self.rows.tolist():
            answer = plugin.score_rows(shape, table, slice(row, row + 1))
            scores[row] = answer if isinstance(answer, int) else int(answer[0])
        for rows in self._forms():
            answer = plugin.score_rows(shape, table, rows)
            found = np.full(_length(rows), answer) if isinstance(answer, int) else answer
            assert found.dtype == np.int64
            for row, score in zip(_numbers(rows), found.tolist(), strict=True):
                assert scores.get(row, score) == score
        return {table.names[row]: score for row, score in scores.items()}

    def _forms(self):
        """All rows as a slice, all living ones as numbers, and a random part of them in random order."""
        some = np.random.default_rng(5).permutation(self.rows)[: max(1, len(self.rows) // 2)]
        return [self.cluster.table.all_rows, self.rows, some]


def _length(rows):
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _numbers(rows):
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()


def scheduler(objects, config=None):
    """An offline scheduler; `config` is the JSON of a profile, or of a whole configuration."""
    config = config or {}
    if "profiles" not in config:
        config = {"profiles": [config]}
    text = msgspec.json.encode(
        {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **config}
    )
    return OfflineScheduler(resolve(load(text)), IN_TREE, objects, clock=StoppedClock(), rng=Random(7))


def explain(objects, wanted, config=None):
    """The explanation for a pending pod on a cluster state."""
    offline = scheduler([*objects, wanted], config)
    return offline.explain(f"{wanted['metadata']['namespace']}/{wanted['metadata']['name']}")


def weighted(explanation, plugin):
    """A plugin's weighted scores by node."""
    return {node.name: node.scores[plugin].weighted for node in explanation.nodes if plugin in node.scores}


def normalized(explanation, plugin):
    """A plugin's normalised scores by node."""
    return {node.name: node.scores[plugin].normalized for node in explanation.nodes if plugin in node.scores}


def totals(explanation):
    """The totals by node."""
    return {node.name: node.total for node in explanation.nodes if node.total is not None}

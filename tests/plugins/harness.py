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
from koordsched.framework.interface import CycleState, PodFilter, PreFilter, ShapeFilter
from koordsched.framework.permit import WaitingPods
from koordsched.framework.status import PASS, SKIP, SUCCESS, ReasonTable
from koordsched.framework.timers import Timers
from koordsched.plugins import CATALOG, IN_TREE, KINDS
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.reporter import Reporter
from tests.reference.status import SKIP as SKIPPED


class StoppedClock:
    """Time does not pass."""

    def monotonic(self):
        return 1000.0

    def wall(self):
        return 1_900_000_000.0


class NoNominations:
    """No pod is nominated."""

    version = 0

    def __len__(self):
        return 0

    def changed_since(self, version):
        return ()

    def node_of(self, uid):
        return ""

    def stamp_of(self, node):
        return 0

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
            live_clock=StoppedClock(),
            rng=Random(7),
            events=Reporter(),
            waiting=WaitingPods(),
            activate=None,
            timers=Timers(StoppedClock().monotonic),
            virtual_pods=None,
        )
        for item in objects:
            self.add(item)

    def add(self, item):
        """Takes in a node or a placed pod."""
        if item["kind"] == "Node":
            self.cluster.upsert_node(convert(item, core.Node))
        elif item["kind"] == "Pod":
            self.cluster.set_pod(self.pod(item))
        else:
            kind = KINDS[item["apiVersion"], item["kind"]]
            self.cluster.objects.of(kind).upsert(convert(item, kind.type))

    def remove(self, item):
        """Takes out an object that is neither a node nor a pod."""
        kind = KINDS[item["apiVersion"], item["kind"]]
        namespace = item["metadata"].get("namespace", "") if kind.namespaced else ""
        self.cluster.objects.of(kind).delete(namespace, item["metadata"]["name"])

    def pod(self, item):
        """The scheduler's view of a pod."""
        return self.cluster.pods.build(convert(item, core.Pod))

    @staticmethod
    def typed_args(name, args):
        """Arguments given as JSON, as the configuration loader makes them; None for a plugin without any."""
        profile = {"pluginConfig": [{"name": name, "args": args}] if args else []}
        return resolved({"profiles": [profile]}).profiles[0].args.get(name)

    def plugin(self, name, args=None):
        """A plugin with typed arguments."""
        return IN_TREE[name](args, self.handle)

    @property
    def rows(self):
        """Rows that hold nodes."""
        return np.flatnonzero(self.cluster.table.alive.data[: self.cluster.table.size])

    def filter(self, plugin, item):
        """Node name -> None, or (status, *texts); the same whatever form the rows come in.

        None if the plugin's PreFilter skips the pod.
        """
        pod = self.pod(item)
        table = self.cluster.table
        if isinstance(plugin, PreFilter):
            answer = plugin.pre_filter(CycleState(pod), pod)
            assert answer in (SKIP, SUCCESS)
            if answer == SKIP:
                return None
        codes = {row: self._code(plugin, pod, row) for row in self.rows.tolist()}
        for rows in self._forms():
            if isinstance(plugin, ShapeFilter) or not isinstance(rows, slice):
                answer = self._answer(plugin, pod, rows)
                found = np.zeros(_length(rows), np.int32) if answer is None else answer
                assert found.dtype == np.int32
                for row, code in zip(_numbers(rows), found.tolist(), strict=True):
                    assert codes.get(row, code) == code
        return {table.names[row]: self._reason(code) for row, code in codes.items()}

    def _answer(self, plugin, pod, rows):
        if isinstance(plugin, ShapeFilter):
            return plugin.filter_rows(pod.shape, self.cluster.table, rows)
        assert isinstance(plugin, PodFilter)
        return plugin.filter(CycleState(pod), pod, self.cluster.table, rows)

    def _code(self, plugin, pod, row):
        one = slice(row, row + 1) if isinstance(plugin, ShapeFilter) else np.array([row])
        answer = self._answer(plugin, pod, one)
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
            assert np.issubdtype(found.dtype, np.signedinteger)
            for row, score in zip(_numbers(rows), found.tolist(), strict=True):
                assert scores.get(row, score) == score
        return {table.names[row]: score for row, score in scores.items()}

    def score_and_normalize(self, plugin, item, nodes):
        """(raw, normalised) by node name, among the named nodes; None if the plugin skips the pod."""
        pod, table = self.pod(item), self.cluster.table
        cycle = CycleState(pod)
        rows = np.array([table.row_of[name] for name in nodes], dtype=np.intp)
        if plugin.pre_score(cycle, pod, rows) == SKIP:
            return None
        raw = plugin.score(cycle, pod, table, rows)
        normalised = plugin.normalize(cycle, pod, raw.copy())
        if isinstance(normalised, int):
            normalised = np.full(len(rows), normalised)
        return dict(zip(nodes, raw.tolist(), strict=True)), dict(zip(nodes, normalised.tolist(), strict=True))

    def _forms(self):
        """All rows as a slice, all living ones as numbers, and a random part of them in random order."""
        some = np.random.default_rng(5).permutation(self.rows)[: max(1, len(self.rows) // 2)]
        return [self.cluster.table.all_rows, self.rows, some]


def _length(rows):
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _numbers(rows):
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()


def same_scores(bench, plugin, naive, wanted, world, nodes):
    """A plugin that looks at other pods, on some feasible nodes."""
    found = bench.score_and_normalize(plugin, wanted, [node["metadata"]["name"] for node in nodes])
    if naive.pre_score(wanted, world, nodes) is SKIPPED:
        assert found is None
        return
    raw = {node["metadata"]["name"]: naive.score(wanted, node, world, nodes) for node in nodes}
    assert found == (raw, naive.normalize(wanted, raw, world))


def scheduler(objects, config=None, registry=IN_TREE):
    """An offline scheduler; `config` is the JSON of a profile, or of a whole configuration."""
    config = config or {}
    if "profiles" not in config:
        config = {"profiles": [config]}
    return OfflineScheduler(resolved(config), registry, objects, clock=StoppedClock(), rng=Random(7))


def resolved(config, gates=None):
    """A configuration given as JSON, without its type; `gates`: FeatureGates, None for the defaults."""
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return resolve(load(msgspec.json.encode({**kind, **config}), catalog=CATALOG), gates=gates, catalog=CATALOG)


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

"""Load reports: what koordlet, and the part of koord-manager that makes the NodeMetrics, do for hollow nodes.

They work while the CustomResourceDefinition of NodeMetric is installed (manifests/crds). Each hollow node has a
NodeMetric then, made and deleted with it, and writes its status every `spec.metricCollectPolicy.reportIntervalSeconds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from koordsched.fakecluster.clock import parse_rfc3339
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.hollow.amounts import amount
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.collectpolicy import CollectPolicy, collect_policy, default_spec
from koordsched.fakecluster.hollow.complaints import invalid_annotation
from koordsched.fakecluster.hollow.curves import NO_USAGE, Usage
from koordsched.fakecluster.hollow.hollownode import Health, HollowNode
from koordsched.fakecluster.hollow.nodeload import SAMPLE_SECONDS, NodeLoad, PodLoad
from koordsched.fakecluster.hollow.options import HollowOptions
from koordsched.fakecluster.hollow.podclass import priority_class, qos_class
from koordsched.fakecluster.hollow.podusage import default_usage, stated_usage
from koordsched.fakecluster.hollow.traces import Traces
from koordsched.fakecluster.hollow.usage import USAGE, NodeUsage, Share, read_node_usage
from koordsched.fakecluster.hollow.whileserved import WhileServed
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource

Object = dict[str, Any]

_KIND = ("slo.koordinator.sh", "v1alpha1", "nodemetrics")
_GOLDEN_RATIO = 0.6180339887498949
"""Its multiples, without their whole parts, are spread evenly however many they are."""
_FINISHED = ("Succeeded", "Failed")


class _Reporter:
    """One node that reports."""

    __slots__ = (
        "annotation",
        "due",
        "history",
        "interval",
        "load",
        "node",
        "phase",
        "policy",
        "shapes",
        "share",
        "version",
    )

    def __init__(self, node: HollowNode, load: NodeLoad, phase: float) -> None:
        self.node = node
        self.load = load
        self.phase = phase
        """From 0 to 1: its place in the interval."""
        self.policy: CollectPolicy = collect_policy({})
        self.version: int | None = None
        """`metadata.generation` of the NodeMetric whose policy that is; None until one was read."""
        self.due = 0.0
        self.annotation: str | None = None
        self.share: Share | None = None
        self.interval: int | None = None
        self.history = 0.0
        """Seconds for which the node is taken to have been measured when it appears."""
        self.shapes: dict[str, tuple[Any, Usage]] = {}
        """By pod uid: what the pod's usage was read from, and the usage."""


class LoadReports:
    """The reports of the nodes of `nodes`, by name."""

    def __init__(
        self, registry: Registry, timers: BatchedTimers, options: HollowOptions, nodes: Mapping[str, HollowNode]
    ) -> None:
        self._registry = registry
        self._timers = timers
        self._options = options
        self._nodes = nodes
        self._traces = Traces(options.usage_traces)
        self._reporters: dict[str, _Reporter] = {}
        self._added = 0
        self._node_resource = registry.resource("", "v1", "nodes")
        self._pods = registry.pods
        fields = [name for name, _ in self._pods.fields]
        self._node_field, self._phase_field = fields.index("spec.nodeName"), fields.index("status.phase")
        self._endings: list[Callable[[], None]] = []
        self._served = WhileServed(registry, _KIND, self._begin, self._stop)

    def start(self) -> Callable[[], None]:
        """Begins to report as soon as the definition is there; returns what ends it."""
        return self._served.start()

    def add(self, node: HollowNode, obj: Object) -> None:
        """A hollow node is there: with the pods it has, if it was known before."""
        if self._served.resource is None:
            return
        now, metadata = self._registry.clock.now(), obj["metadata"]
        load = NodeLoad(now, _time(metadata.get("creationTimestamp"), now))
        self._added += 1
        reporter = _Reporter(node, load, self._added * _GOLDEN_RATIO % 1)
        self._reporters[node.name] = reporter
        self.follow(node, obj)
        load.predate(reporter.history)
        # Later, and so in batches: many nodes may come at once, with all their pods.
        self._timers.after(0.0, self._provide, reporter)

    def follow(self, node: HollowNode, obj: Object) -> None:
        """The node has changed: its capacity, or what is said about its usage."""
        reporter = self._reporters.get(node.name)
        if reporter is None or reporter.node is not node:
            return
        capacity = ((obj.get("status") or {}).get("capacity") or {}).get("cpu")
        try:
            reporter.load.cpu_capacity = amount("cpu", capacity)
        except ValueError:
            reporter.load.cpu_capacity = float("inf")
        text = (obj["metadata"].get("annotations") or {}).get(USAGE)
        if text == reporter.annotation:
            return
        reporter.annotation = text
        usage, system = NodeUsage(), NO_USAGE
        if text is not None:
            try:
                usage = read_node_usage(text)
                system = usage.system.usage(NO_USAGE, self._traces)
            except ValueError as error:
                usage = NodeUsage()
                self._complain(obj, node.name, error)
        reporter.load.system = system
        reporter.share = usage.share
        reporter.interval = usage.interval_seconds()
        reporter.history = usage.history_seconds()
        if reporter.due:
            self._read_pods(reporter)

    def resume(self, node: HollowNode) -> None:
        """The node works again after a silence, in which it measured nothing."""
        reporter = self._reporters.get(node.name)
        if reporter is not None and reporter.node is node:
            reporter.load.begin(self._registry.clock.now())

    def remove(self, node: HollowNode) -> None:
        """The node was deleted: its NodeMetric goes, too."""
        reporter = self._reporters.get(node.name)
        if reporter is not None and reporter.node is node:
            del self._reporters[node.name]
            self._timers.after(0.0, self._withdraw, node.name)

    # -- the definition

    def _begin(self, resource: Resource) -> None:
        registry = self._registry
        for node in list(self._nodes.values()):
            obj = registry.peek(self._node_resource, None, node.name)
            if obj is not None:
                self.add(node, obj)
        self._endings = [
            registry.subscribe_changes(resource, self._metric_changed, replay=False),
            registry.subscribe_changes(self._pods, self._pod_changed, replay=False),
        ]

    def _stop(self) -> None:
        for end in self._endings:
            end()
        self._endings = []
        self._reporters.clear()

    # -- NodeMetrics

    def _provide(self, reporter: _Reporter) -> None:
        """Makes the node's NodeMetric, or takes the one that is there."""
        name, resource = reporter.node.name, self._served.resource
        if resource is None or self._reporters.get(name) is not reporter:
            return
        record = self._registry.collection(resource).get("", name)
        obj = record.obj() if record is not None else None
        if obj is None:
            made = {"metadata": {"name": name}, "spec": default_spec(reporter.interval)}
            obj = self._registry.create_record(resource, None, made).obj()
        self._obey(reporter, obj)
        if not reporter.due:
            self._read_pods(reporter)
            self._arm(reporter, SAMPLE_SECONDS + reporter.phase * reporter.policy.interval)
            if reporter.history:
                self._write(reporter)

    def _withdraw(self, name: str) -> None:
        if self._served.resource is not None:
            self._registry.delete_record(self._served.resource, None, name)

    def _metric_changed(self, change: ChangeView) -> None:
        reporter = self._reporters.get(change.record.name)
        if reporter is None:
            return
        if change.type == "DELETED":
            reporter.version = None
            self._timers.after(0.0, self._provide, reporter)
        else:
            self._obey(reporter, change.new)

    def _obey(self, reporter: _Reporter, metric: Object) -> None:
        """Reads the policy, unless only the status has changed."""
        generation = metric["metadata"].get("generation", 0)
        if generation == reporter.version:
            return
        before, reporter.version = reporter.policy.interval, generation
        reporter.policy = collect_policy(metric.get("spec") or {})
        if reporter.due and reporter.policy.interval != before:
            self._arm(reporter, reporter.phase * reporter.policy.interval)

    # -- pods

    def _pod_changed(self, change: ChangeView) -> None:
        record = change.record
        reporter = self._reporters.get(record.fields[self._node_field])
        if reporter is None:
            return
        phase = record.fields[self._phase_field]
        if change.type == "DELETED" or phase in _FINISHED:
            reporter.shapes.pop(record.uid, None)
            pod = reporter.load.pods.get(record.uid)
            if pod is not None:
                pod.stop(self._registry.clock.now())
                pod.gone = True
        elif phase == "Running":
            self._pod_runs(reporter, change.new)

    def _read_pods(self, reporter: _Reporter) -> None:
        for key, uid in reporter.node.pods.items():
            record = self._registry.collection(self._pods).get(*key)
            if record is not None and record.uid == uid and record.fields[self._phase_field] == "Running":
                self._pod_runs(reporter, record.obj())

    def _pod_runs(self, reporter: _Reporter, pod: Object) -> None:
        """The pod has started, or something about it has changed."""
        metadata, now = pod["metadata"], self._registry.clock.now()
        uid = metadata["uid"]
        load = reporter.load.pods.get(uid)
        if load is None:
            load = reporter.load.pods[uid] = PodLoad(metadata["namespace"], metadata["name"])
        load.priority, load.qos = priority_class(pod), qos_class(pod)
        started = _running_since(pod, now)
        if started is None:
            load.stop(now)
            return
        shape = (metadata.get("generation"), (metadata.get("annotations") or {}).get(USAGE), reporter.share)
        known = reporter.shapes.get(uid)
        if known is not None and known[0] == shape:
            if load.started != started:
                load.run(started, started, known[1])
            return
        usage = self._usage(reporter, pod)
        reporter.shapes[uid] = shape, usage
        load.run(started if load.started != started else now, started, usage)

    def _usage(self, reporter: _Reporter, pod: Object) -> Usage:
        share = reporter.share or self._options.usage_share
        try:
            return stated_usage(pod, share, self._traces)
        except ValueError as error:
            self._complain(pod, reporter.node.name, error)
            return default_usage(pod, share)

    def _complain(self, obj: Object, node: str, problem: ValueError) -> None:
        message = f"{USAGE} is ignored: {problem}"
        self._timers.after(0.0, invalid_annotation, self._registry, obj, node, message)

    # -- reporting

    def _arm(self, reporter: _Reporter, delay: float) -> None:
        reporter.due = self._registry.clock.now() + delay
        self._timers.after(delay, self._report, reporter, reporter.due)

    def _report(self, reporter: _Reporter, due: float) -> None:
        name = reporter.node.name
        if self._served.resource is None or self._reporters.get(name) is not reporter or reporter.due != due:
            return
        late, interval = self._registry.clock.now() - due, reporter.policy.interval
        # From when it was due, not from now: the nodes stay spread.
        self._arm(reporter, interval - late % interval)
        self._write(reporter)

    def _write(self, reporter: _Reporter) -> None:
        name, resource = reporter.node.name, self._served.resource
        assert resource is not None, "asked while it is served"
        if reporter.node.health is Health.SILENT:
            return
        status = reporter.load.status(self._registry.clock.now(), reporter.policy)
        if status is None:
            return
        try:
            self._registry.replace_status(resource, None, name, status)
        except ApiStatusError as error:
            if error.code != 404:
                raise
            self._provide(reporter)


def _running_since(pod: Object, now: float) -> float | None:
    """When the containers started; None if none runs."""
    status = pod["status"]
    if not status.get("containerStatuses"):
        # Written by hand: it runs, but nothing else is known about it.
        return _time(status.get("startTime") or pod["metadata"].get("creationTimestamp"), now)
    states = [(entry.get("state") or {}).get("running") for entry in status["containerStatuses"]]
    return min((_time(state.get("startedAt"), now) for state in states if state is not None), default=None)


def _time(stamp: str | None, otherwise: float) -> float:
    try:
        return parse_rfc3339(stamp or "")
    except (ValueError, OverflowError):
        return otherwise

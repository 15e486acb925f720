"""Reports on the CPUs and NUMA nodes of nodes: what koordlet, and the kubelet's CPU manager, do for hollow nodes.

They work while the CustomResourceDefinition of NodeResourceTopology is installed (manifests/crds), for the nodes with
the annotation `koordsched.io/topology`. The objects are owned by their nodes and so deleted with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from koordsched.fakecluster.hollow.agentreports import AgentReports, Object, Reporter, owned_by
from koordsched.fakecluster.hollow.annotationtext import decode_text
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.cpulayout import take_cpus
from koordsched.fakecluster.hollow.cpuset import parse_cpuset
from koordsched.fakecluster.hollow.hollownode import Health, HollowNode
from koordsched.fakecluster.hollow.nodereservation import (
    RESERVATION,
    SYSTEM_QOS,
    Reservation,
    read_reservation,
    read_system_resource,
)
from koordsched.fakecluster.hollow.nodetopology import NUMA_RESERVATION, POD_ALLOCATIONS, Described, NodeFacts, describe
from koordsched.fakecluster.hollow.podcpus import (
    RESOURCE_STATUS,
    PodCpus,
    exclusive_requests,
    pod_texts,
    read_resource_status,
)
from koordsched.fakecluster.hollow.topology import TOPOLOGY, Topology, read_topology
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.store import Record

_KIND = ("topology.node.k8s.io", "v1alpha1", "noderesourcetopologies")
_FINISHED = ("Succeeded", "Failed")
_LONGEST_TEXT = 1 << 20


class _Allocation(msgspec.Struct):
    """An entry of `node.koordinator.sh/pod-cpu-allocs`."""

    uid: str = ""
    cpuset: str = ""


class _Reporter(Reporter):
    """One node that reports."""

    __slots__ = ("facts", "fresh", "pinned", "pods", "texts", "topology")

    def __init__(self, node: HollowNode, phase: float) -> None:
        super().__init__(node, phase)
        self.texts: tuple[str | None, ...] | None = None
        """The node's annotations that the facts were read from."""
        self.topology: Topology | None = None
        self.facts: NodeFacts | None = None
        self.pods: dict[str, PodCpus] = {}
        self.pinned: dict[str, frozenset[int]] = {}
        """The CPUs that the kubelet gave to pods. Both by uid."""
        self.fresh = True
        """Nothing was read of an object that is there already."""


class TopologyReports(AgentReports[_Reporter]):
    """The reports of those of `nodes`, by name, that have a topology."""

    def __init__(self, registry: Registry, timers: BatchedTimers, nodes: Mapping[str, HollowNode]) -> None:
        super().__init__(registry, timers, nodes, _KIND)
        self._pods = registry.pods
        fields = [name for name, _ in self._pods.fields]
        self._node_field, self._phase_field = fields.index("spec.nodeName"), fields.index("status.phase")

    def follow(self, node: HollowNode, obj: Object) -> None:
        """The node is there, with the pods it has if it was known before, or it has changed."""
        if self._served.resource is None:
            return
        annotations = obj["metadata"].get("annotations") or {}
        reporter = self._reporter(node)
        if reporter is None:
            if TOPOLOGY not in annotations:
                return
            reporter = self._reporters[node.name] = _Reporter(node, self._next_phase())
            self._timers.after(0.0, self._read_pods, reporter)
        elif TOPOLOGY not in annotations:
            del self._reporters[node.name]
            return
        self._read(reporter, obj, annotations)

    def _subscribe(self, resource: Resource) -> list[Callable[[], None]]:
        return [
            *super()._subscribe(resource),
            self._registry.subscribe_changes(self._pods, self._pod_changed, replay=False),
        ]

    # -- nodes

    def _read(self, reporter: _Reporter, obj: Object, annotations: Mapping[str, str]) -> None:
        status, labels = obj.get("status") or {}, obj["metadata"].get("labels") or {}
        texts = tuple(annotations.get(key) for key in (TOPOLOGY, RESERVATION, SYSTEM_QOS))
        before = reporter.facts
        if texts != reporter.texts:
            self._read_annotations(reporter, obj, annotations)
            reporter.texts, before = texts, None
        if reporter.facts is None:
            return
        reporter.facts = reporter.facts._replace(
            numa_reservation=labels.get(NUMA_RESERVATION),
            capacity=status.get("capacity") or {},
            allocatable=status.get("allocatable") or {},
        )
        if reporter.facts != before:
            self._soon(reporter)

    def _read_annotations(self, reporter: _Reporter, obj: Object, annotations: Mapping[str, str]) -> None:
        topology = None
        try:
            topology = read_topology(annotations[TOPOLOGY])
        except ValueError as error:
            self._complain(obj, reporter.node.name, TOPOLOGY, error)
        if topology != reporter.topology:
            reporter.pinned.clear()
        reporter.topology, reporter.facts = topology, None
        if topology is None:
            return
        reservation, system = Reservation(), None
        try:
            reservation = read_reservation(annotations, topology.cpus)
        except ValueError as error:
            self._complain(obj, reporter.node.name, RESERVATION, error)
        try:
            system = read_system_resource(annotations)
        except ValueError as error:
            self._complain(obj, reporter.node.name, SYSTEM_QOS, error)
        reporter.facts = NodeFacts(reservation, system, None, {}, {})

    # -- pods

    def _pod_changed(self, change: ChangeView) -> None:
        record = change.record
        reporter = self._reporters.get(record.fields[self._node_field])
        if reporter is None:
            return
        if change.type != "DELETED" and record.fields[self._phase_field] not in _FINISHED:
            self._read_pod(reporter, change.new)
        elif reporter.pods.pop(record.uid, None) is not None:
            self._soon(reporter)

    def _read_pods(self, reporter: _Reporter) -> None:
        for key, uid in reporter.node.pods.items():
            record = self._registry.collection(self._pods).get(*key)
            if record is not None and record.uid == uid and record.fields[self._phase_field] not in _FINISHED:
                self._read_pod(reporter, record.obj())

    def _read_pod(self, reporter: _Reporter, pod: Object) -> None:
        metadata = pod["metadata"]
        known = reporter.pods.get(metadata["uid"])
        qos, status = pod_texts(metadata)
        if known is not None and (known.qos, known.status) == (qos, status):
            return
        bound = frozenset[int]()
        try:
            bound = read_resource_status(status)
        except ValueError as error:
            self._complain(pod, reporter.node.name, RESOURCE_STATUS, error)
        wanted = known.wanted if known is not None else sum(exclusive_requests(pod))
        read = PodCpus(metadata["namespace"], metadata["name"], wanted, qos, status, bound)
        reporter.pods[metadata["uid"]] = read
        if bound or wanted or known is not None:
            self._soon(reporter)

    def _settle(self, reporter: _Reporter, topology: Topology) -> None:
        """The kubelet gives CPUs to new pods, and releases those of pods that have gone."""
        pods = {uid: pod for uid, pod in reporter.pods.items() if pod.by_kubelet and uid in reporter.node.allocation}
        reporter.pinned = {uid: cpus for uid, cpus in reporter.pinned.items() if uid in pods}
        if not topology.kubelet.static:
            reporter.pinned.clear()
            return
        free = set(range(topology.cpus.count)).difference(topology.kubelet.reserved, *reporter.pinned.values())
        bound = frozenset[int]().union(*(pod.bound for pod in reporter.pods.values()))
        for uid, pod in pods.items():
            if uid in reporter.pinned:
                continue
            # The real kubelet does not know which CPUs the scheduler chose. This one avoids them while it can.
            cpus = take_cpus(topology.cpus, free - bound, pod.wanted) or take_cpus(topology.cpus, free, pod.wanted)
            if cpus is not None:
                reporter.pinned[uid] = cpus
                free -= cpus

    # -- reporting

    def _report(self, reporter: _Reporter) -> None:
        node, resource, topology, facts = reporter.node, self._served.resource, reporter.topology, reporter.facts
        if resource is None or self._reporters.get(node.name) is not reporter or node.health is Health.SILENT:
            return
        if topology is None or facts is None:
            return
        record = self._registry.collection(resource).get("", node.name)
        if reporter.fresh and record is not None:
            self._remember(reporter, topology, record.obj())
        reporter.fresh = False
        self._settle(reporter, topology)
        described = describe(topology, facts, reporter.pods, reporter.pinned)
        reporter.writing = True
        try:
            if record is None:
                new = {"metadata": {**owned_by(node), "labels": {"app.kubernetes.io/managed-by": "Koordinator"}}}
                self._registry.create_record(resource, None, described.written_to(new))
            else:
                self._rewrite(resource, record, described)
        finally:
            reporter.writing = False

    def _rewrite(self, resource: Resource, record: Record, described: Described) -> None:
        old = record.obj()
        new = described.written_to(old)
        if new == old:
            return
        if (new["topologyPolicies"], new["zones"]) != (old.get("topologyPolicies"), old.get("zones")):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        # Without the schema's rules, which it obeys: there may be thousands of reports at once.
        self._registry.replace_record(resource, record, new)

    def _remember(self, reporter: _Reporter, topology: Topology, obj: Object) -> None:
        """Pods keep the CPUs of an earlier run of this cluster, as a kubelet reads them in its state file."""
        text = (obj["metadata"].get("annotations") or {}).get(POD_ALLOCATIONS) or "null"
        try:
            entries = [(entry.uid, parse_cpuset(entry.cpuset)) for entry in _entries(text)]
        except ValueError:
            # What it is replaced by is right.
            return
        free = set(range(topology.cpus.count)) - topology.kubelet.reserved
        for uid, cpus in entries:
            pod = reporter.pods.get(uid)
            if pod is not None and pod.by_kubelet and len(cpus) == pod.wanted and cpus <= free:
                reporter.pinned[uid] = cpus
                free -= cpus


def _entries(text: str) -> list[_Allocation]:
    return [] if text == "null" else decode_text(text, list[_Allocation], _LONGEST_TEXT)

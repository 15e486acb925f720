"""Watch events to cluster state and queue (core spec 3.2).

These are sinks: the watches call them, one object at a time, between scheduling cycles. Invalid objects are reported
where their owner looks, and otherwise ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import InitVar, dataclass
from itertools import chain

from koordsched.api import core
from koordsched.api.meta import ObjectMeta
from koordsched.api.quantity import QuantityError
from koordsched.api.versions import is_older
from koordsched.client.sink import ObjectKey
from koordsched.cluster.builtinkinds import NODES
from koordsched.cluster.events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, NODE_ADD, NODE_DELETE
from koordsched.cluster.pod import TERMINAL, Pod
from koordsched.cluster.podevents import leaving, node_events, pod_events
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import WARNING
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.pending import PendingPods
from koordsched.scheduling.reporter import Reporter

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class NodeHandler:
    """Nodes come, change and go."""

    cluster: ClusterState
    queue: SchedulingQueue[Pod]
    reporter: Reporter

    def upsert(self, node: core.Node, anew: bool = False) -> None:
        """A node was added or changed; a heartbeat moves nothing. `anew`: see Sink."""
        table = self.cluster.table
        row = table.row_of.get(node.metadata.name)
        before = table.nodes[row] if row is not None else None
        if before is not None and is_same_version(before.metadata, node.metadata) and not (anew and before != node):
            return
        if before is not None and before.metadata.uid != node.metadata.uid:
            self.forget(node.metadata.name)  # another machine: the end of the former one was missed
            row = before = None
        problems = table.problems[row] if row is not None else ()
        changed, is_new = self.cluster.upsert_node(node)
        row = table.row_of[node.metadata.name]
        if table.problems[row] and table.problems[row] != problems:
            text = f"counted as zero: {'; '.join(table.problems[row])}"
            self.reporter.event(NODES, node.metadata, WARNING, "InvalidNodeStatus", text, once=True)
        if is_new:
            self.queue.move_all(NODE_ADD, None, table.nodes[row])
        else:
            for event in node_events(changed):
                self.queue.move_all(event, before, table.nodes[row])

    def delete(self, node: core.Node) -> None:
        """A node is gone."""
        self.forget(node.metadata.name)

    def delete_key(self, key: ObjectKey) -> None:
        """The same, of which only the key is known."""
        self.forget(key.name)

    def forget(self, name: str) -> None:
        """The node of that name is gone. Waiting pods move before it leaves the cache, as upstream does."""
        row = self.cluster.table.row_of.get(name)
        if row is not None:
            self.queue.move_all(NODE_DELETE, self.cluster.table.nodes[row], None)
            self.cluster.remove_node(name)

    def known(self) -> Iterator[ObjectKey]:
        """All nodes; see `Sink.known`."""
        held = list(self.cluster.table.nodes)
        return (ObjectKey("", node.metadata.name, node.metadata.uid) for node in held if node is not None)


@dataclass(eq=False, repr=False)
class PodHandler:
    """Pods come, change, get a node, and go.

    `profiles`: the scheduler names that are ours; `reject_waiting(uid)` refuses a pod that waits on Permit
    and returns whether there was one. `virtual`: uids of the pods that are no Pod objects.
    """

    cluster: ClusterState
    queue: SchedulingQueue[Pod]
    pending: PendingPods
    reporter: Reporter
    profiles: InitVar[Collection[str]]
    reject_waiting: Callable[[str], bool]
    virtual: Container[str]

    def __post_init__(self, profiles: Collection[str]) -> None:
        self._profiles = frozenset(profiles)
        self._unreadable: dict[str, tuple[ObjectKey, str]] = {}
        """uid -> what is wrong with a pending pod that cannot be understood."""
        self._foreign: dict[str, ObjectKey] = {}
        """By uid, pending pods of other schedulers, kept only while there are observers."""

    def is_new(self, wire: core.Pod) -> bool:
        """Whether the pod was not known before: as one that waits, or as one that has its node for certain."""
        uid = wire.metadata.uid
        if wire.spec.node_name:
            return uid not in self.cluster.assigned or self.cluster.is_assumed(uid)
        return uid not in self.pending.by_uid

    def upsert(self, wire: core.Pod, anew: bool = False) -> None:
        """A pod was added or changed. `anew`: see Sink."""
        if wire.status.phase in TERMINAL:
            # Filtered by the watch; a finished pod holds nothing.
            self.delete(wire)
            return
        if not wire.spec.node_name and wire.spec.scheduler_name not in self._profiles:
            self._foreign_pod(wire, anew)
            return
        if not anew and self._is_settled(wire):
            return
        try:
            pod = self.cluster.pods.build(wire)
        except QuantityError as error:
            self._refuse(wire, str(error))
            return
        if self._unreadable:
            self._unreadable.pop(pod.uid, None)
        self.take(pod, anew)

    def take(self, pod: Pod, anew: bool = False) -> None:
        """A pod was added or changed, one that holds something. `anew`: see Sink."""
        if pod.node:
            self._assigned(pod, anew)
        elif pod.shape.scheduler_name in self._profiles:
            self._unassigned(pod, anew)

    def delete(self, wire: core.Pod) -> None:
        """A pod is gone."""
        self.forget(wire.metadata.uid)

    def delete_key(self, key: ObjectKey) -> None:
        """The same, of which only the key is known."""
        self.forget(key.uid)

    def forget(self, uid: str) -> None:
        """The pod of that uid is gone."""
        self._unreadable.pop(uid, None)
        self._foreign.pop(uid, None)
        pending = self.pending.take(uid)
        self.cluster.pod_gone(uid)
        assumed = self.cluster.is_assumed(uid)
        if pending is not None:
            self.reporter.gone(uid)
            nominated = self.queue.nominator.node_of(uid)
            self.queue.delete(pending)
            if assumed:
                self._drop_assumed(uid, pending)
            elif nominated:
                self._leaves_promised(pending, nominated)
            return
        gone = self.cluster.remove_pod(uid)
        if gone is not None:
            self.queue.move_all(ASSIGNED_POD_DELETE, gone, None)

    def known(self) -> Iterator[ObjectKey]:
        """All Pod objects, in whatever state; see `Sink.known`."""
        others = [*self._foreign.values(), *(key for key, _ in self._unreadable.values())]
        held = [*self.pending.by_uid.values(), *self.cluster.assigned.values()]
        held.reverse()
        return chain(others, _keys_of(held, self.virtual))

    def _is_settled(self, wire: core.Pod) -> bool:
        """Whether just this version of the pod is known to be on its node, as that of most pods in a listing is.

        Then there is nothing to do: the pod that we have stays, and a listing of a million costs no new ones.
        """
        uid = wire.metadata.uid
        known = self.cluster.assigned.get(uid)
        return (
            known is not None
            and known.resource_version == wire.metadata.resource_version != ""
            and not self.cluster.is_assumed(uid)
        )

    def _leaves_node(self, uid: str, version: str, anew: bool) -> bool:
        """Whether a version of a pod without a node counts. If a newer one has a node, it does not: watches do not go
        back, but lists may. Otherwise the API server took the node away, and the pod leaves it. One that is assumed
        stays where it is: its binding is not shown yet.
        """
        known = self.cluster.assigned.get(uid)
        if known is None or self.cluster.is_assumed(uid):
            return True
        if not anew and not is_older(known.resource_version, version):
            return False
        self.cluster.remove_pod(uid)
        self.queue.move_all(ASSIGNED_POD_DELETE, known, None)
        return True

    def _foreign_pod(self, wire: core.Pod, anew: bool) -> None:
        """A pod that another scheduler will place: we only count it for plugins that count all pods."""
        if not self._leaves_node(wire.metadata.uid, wire.metadata.resource_version, anew):
            return
        if not self.cluster.observed:
            return
        try:
            pod = self.cluster.pods.build(wire)
        except QuantityError:
            self.forget(wire.metadata.uid)  # its own scheduler reports it
            return
        self._foreign[pod.uid] = _key_of(pod)
        self.cluster.pod_seen(pod)

    def _assigned(self, pod: Pod, anew: bool) -> None:
        self._foreign.pop(pod.uid, None)
        waiting = self.pending.take(pod.uid)
        promised = ""
        if waiting is not None:
            self.reporter.gone(pod.uid)
            promised = self.queue.nominator.node_of(pod.uid)
            self.queue.delete(waiting)
        was_assumed = self.cluster.is_assumed(pod.uid)
        before = self.cluster.set_pod(pod)
        if waiting is not None and promised not in ("", pod.node):
            # Another scheduler bound it elsewhere.
            self._leaves_promised(waiting, promised)
        if before is not None and before.node != pod.node:
            # Not our doing: it left its former node, and is new on this one.
            self.queue.move_all(ASSIGNED_POD_DELETE, before, None)
            before = None
        if before is None or was_assumed:
            self.queue.move_all(ASSIGNED_POD_ADD, None, pod)
            if before is None or (before.labels is pod.labels and before.requests is pod.requests):
                return
            # It changed while its binding was under way: what it was until now may have kept others out.
        if anew or before.resource_version != pod.resource_version:
            for event in pod_events(before, pod):
                self.queue.move_all(event, before, pod)

    def _unassigned(self, pod: Pod, anew: bool) -> None:
        old = self.pending.by_uid.get(pod.uid)
        if old is not None and not anew and old.resource_version == pod.resource_version:
            return
        if not self._leaves_node(pod.uid, pod.resource_version, anew):
            return
        if anew:
            self.reporter.shows_no_more(pod.uid)
        self.pending.put(pod)
        self.cluster.pod_seen(pod)
        if self.cluster.is_assumed(pod.uid):
            if old is None:
                self.queue.returns(pod)
            if pod.deleting and (old is None or not old.deleting):
                self._drop_assumed(pod.uid, pod)
            return
        if old is None:
            self.queue.add(pod)
            return
        self.queue.update(old, pod, pod_events(old, pod))
        if old.nominated_node and old.nominated_node != pod.nominated_node:
            self.queue.move_all(ASSIGNED_POD_DELETE, old, None, max_priority=old.priority)

    def _leaves_promised(self, pod: Pod, node: str) -> None:
        """The room that was kept for a waiting pod is free."""
        self.queue.move_all(ASSIGNED_POD_DELETE, leaving(pod, node), None, max_priority=pod.priority)

    def _drop_assumed(self, uid: str, pod: Pod) -> None:
        """An assumed pod is being deleted: its place is free again."""
        if self.reject_waiting(uid):
            return  # the binding cycle undoes the rest
        gone = self.cluster.remove_pod(uid)
        if gone is not None:
            self.queue.move_all(ASSIGNED_POD_DELETE, gone, None)

    def _refuse(self, wire: core.Pod, problem: str) -> None:
        meta = wire.metadata
        if wire.spec.node_name:
            if meta.uid not in self.cluster.assigned:
                self.forget(meta.uid)  # it waits no more
            _log.warning(
                "pod %s/%s on node %s cannot be counted: %s", meta.namespace, meta.name, wire.spec.node_name, problem
            )
            return
        self.forget(meta.uid)
        refusal = (ObjectKey(meta.namespace, meta.name, meta.uid), problem)
        if self._unreadable.get(meta.uid) != refusal:
            self._unreadable[meta.uid] = refusal
            self.reporter.invalid_pod(wire, problem)


def is_same_version(a: ObjectMeta, b: ObjectMeta) -> bool:
    """Whether both are the same state of the same object; one without a version may be any."""
    return a.resource_version == b.resource_version != "" and a.uid == b.uid


def _key_of(pod: Pod) -> ObjectKey:
    return ObjectKey(pod.namespace, pod.name, pod.uid)


def _keys_of(pods: list[Pod], virtual: Container[str]) -> Iterator[ObjectKey]:
    """Keys of the pods, the last first; the list is used up, so that it is not freed in one go."""
    while pods:
        pod = pods.pop()
        if pod.uid not in virtual:
            yield _key_of(pod)

"""Watch events to cluster state and queue (core spec 3.2).

These are sinks: whoever watches calls them, one object at a time, between scheduling cycles. Bad objects
are reported where their owner looks and otherwise left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from koordsched.api import core
from koordsched.api.quantity import QuantityError
from koordsched.cluster.pod import TERMINAL, Pod
from koordsched.cluster.podevents import (
    ASSIGNED_ADD,
    ASSIGNED_DELETE,
    NODE_ADD,
    NODE_DELETE,
    node_events,
    pod_events,
)
from koordsched.cluster.state import ClusterState
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.pending import PendingPods

_log = logging.getLogger(__name__)


class Complaints(Protocol):
    """Tells the owner of an object what is wrong with it."""

    def pod(self, pod: core.Pod, message: str) -> None:
        """The pod cannot be understood, hence not scheduled."""

    def node(self, node: core.Node, message: str) -> None:
        """Something of the node cannot be understood and counts as zero."""

    def gone(self, uid: str) -> None:
        """A pending pod is gone or got a node: nothing more to tell about its waiting."""


class NodeHandler:
    """Nodes come, change and go."""

    def __init__(self, cluster: ClusterState, queue: SchedulingQueue[Pod], complaints: Complaints) -> None:
        self._cluster = cluster
        self._queue = queue
        self._complaints = complaints

    def upsert(self, node: core.Node) -> None:
        """A node was added or changed; a heartbeat moves nothing."""
        table = self._cluster.table
        row = table.row_of.get(node.metadata.name)
        before = table.nodes[row] if row is not None else None
        problems = table.problems[row] if row is not None else ()
        changed, is_new = self._cluster.upsert_node(node)
        row = table.row_of[node.metadata.name]
        if table.problems[row] and table.problems[row] != problems:
            self._complaints.node(node, "; ".join(table.problems[row]))
        if is_new:
            self._queue.move_all(NODE_ADD, None, table.nodes[row])
        else:
            for event in node_events(changed):
                self._queue.move_all(event, before, table.nodes[row])

    def delete(self, node: core.Node) -> None:
        """A node is gone."""
        self.forget(node.metadata.name)

    def forget(self, name: str) -> None:
        """The node of that name is gone. Waiting pods move before it leaves the cache, as upstream does."""
        row = self._cluster.table.row_of.get(name)
        if row is not None:
            self._queue.move_all(NODE_DELETE, self._cluster.table.nodes[row], None)
            self._cluster.remove_node(name)

    def retain(self, uids: Mapping[str, str]) -> None:
        """After a relist: nodes that were not in it are gone; `uids` by name.

        Where a name belongs to another node by now, one that cannot be decoded, nothing is known of the node at all.
        """
        table = self._cluster.table
        for name, row in list(table.row_of.items()):
            node = table.nodes[row]
            if name not in uids or (node is not None and node.metadata.uid != uids[name]):
                self.forget(name)


class PodHandler:
    """Pods come, change, get a node, and go.

    `profiles`: the scheduler names that are ours; `reject_waiting(uid)` refuses a pod that waits on Permit
    and returns whether there was one.
    """

    def __init__(
        self,
        cluster: ClusterState,
        queue: SchedulingQueue[Pod],
        pending: PendingPods,
        complaints: Complaints,
        profiles: Collection[str],
        reject_waiting: Callable[[str], bool],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._pending = pending
        self._complaints = complaints
        self._profiles = frozenset(profiles)
        self._reject_waiting = reject_waiting
        self._unreadable: dict[str, str] = {}
        self._foreign: set[str] = set()
        """uids of pending pods of other schedulers, kept only while somebody wants to hear of them."""

    def is_new(self, wire: core.Pod) -> bool:
        """Whether the pod was not known before: as one that waits, or as one that has its node for certain."""
        uid = wire.metadata.uid
        if wire.spec.node_name:
            return uid not in self._cluster.assigned or self._cluster.is_assumed(uid)
        return uid not in self._pending.by_uid

    def upsert(self, wire: core.Pod) -> None:
        """A pod was added or changed."""
        if wire.status.phase in TERMINAL:
            # Filtered by the watch; a finished pod holds nothing.
            self.delete(wire)
            return
        if not wire.spec.node_name and wire.spec.scheduler_name not in self._profiles:
            self._foreign_pod(wire)
            return
        try:
            pod = self._cluster.pods.build(wire)
        except QuantityError as error:
            self._refuse(wire, str(error))
            return
        if self._unreadable:
            self._unreadable.pop(pod.uid, None)
        if pod.node:
            self._assigned(pod)
        else:
            self._unassigned(pod)

    def delete(self, wire: core.Pod) -> None:
        """A pod is gone."""
        self.forget(wire.metadata.uid)

    def forget(self, uid: str) -> None:
        """The pod of that uid is gone."""
        self._unreadable.pop(uid, None)
        self._foreign.discard(uid)
        pending = self._pending.by_uid.pop(uid, None)
        self._cluster.pod_gone(uid)
        assumed = self._cluster.is_assumed(uid)
        if pending is not None:
            self._complaints.gone(uid)
            nominated = self._queue.nominator.node_of(uid)
            self._queue.delete(pending)
            if assumed:
                self._drop_assumed(uid, pending)
            elif nominated:
                self._queue.move_all(ASSIGNED_DELETE, pending, None, max_priority=pending.priority)
            return
        gone = self._cluster.remove_pod(uid)
        if gone is not None:
            self._queue.move_all(ASSIGNED_DELETE, gone, None)

    def retain(self, uids: Collection[str]) -> None:
        """After a relist: pods that were not in it are gone."""
        known = [*self._pending.by_uid, *self._cluster.assigned, *self._unreadable, *self._foreign]
        for uid in dict.fromkeys(known):
            if uid not in uids:
                self.forget(uid)

    def _foreign_pod(self, wire: core.Pod) -> None:
        """A pod that another scheduler will place: nothing to us, but plugins that count all pods count it."""
        if not self._cluster.observed:
            return
        try:
            pod = self._cluster.pods.build(wire)
        except QuantityError:
            self.forget(wire.metadata.uid)  # its own scheduler says so where its owner looks
            return
        self._foreign.add(pod.uid)
        self._cluster.pod_seen(pod)

    def _assigned(self, pod: Pod) -> None:
        self._foreign.discard(pod.uid)
        waiting = self._pending.by_uid.pop(pod.uid, None)
        if waiting is not None:
            self._complaints.gone(pod.uid)
            self._queue.delete(waiting)
        was_assumed = self._cluster.is_assumed(pod.uid)
        before = self._cluster.set_pod(pod)
        if before is None or was_assumed:
            self._queue.move_all(ASSIGNED_ADD, None, pod)
            if before is None or (before.labels is pod.labels and before.requests is pod.requests):
                return
            # It changed while its binding was under way: what it was until now may have kept others out.
        if before.resource_version != pod.resource_version:
            for event in pod_events(before, pod):
                self._queue.move_all(event, before, pod)

    def _unassigned(self, pod: Pod) -> None:
        old = self._pending.by_uid.get(pod.uid)
        if old is not None and old.resource_version == pod.resource_version:
            return
        if pod.uid in self._cluster.assigned and not self._cluster.is_assumed(pod.uid):
            return  # an old version of a pod that has a node already: watches do not go back, lists may
        self._pending.by_uid[pod.uid] = pod
        self._cluster.pod_seen(pod)
        if self._cluster.is_assumed(pod.uid):
            if pod.deleting and (old is None or not old.deleting):
                self._drop_assumed(pod.uid, pod)
            return
        if old is None:
            self._queue.add(pod)
            return
        self._queue.update(old, pod, pod_events(old, pod))
        if old.nominated_node and old.nominated_node != pod.nominated_node:
            self._queue.move_all(ASSIGNED_DELETE, old, None, max_priority=old.priority)

    def _drop_assumed(self, uid: str, pod: Pod) -> None:
        """An assumed pod is being deleted: its place is free again."""
        if self._reject_waiting(uid):
            return  # the binding cycle undoes the rest
        gone = self._cluster.remove_pod(uid)
        if gone is not None:
            self._queue.move_all(ASSIGNED_DELETE, gone, None)

    def _refuse(self, wire: core.Pod, problem: str) -> None:
        uid = wire.metadata.uid
        if wire.spec.node_name:
            _log.warning(
                "pod %s/%s on node %s cannot be accounted: %s",
                wire.metadata.namespace,
                wire.metadata.name,
                wire.spec.node_name,
                problem,
            )
            return
        self.forget(uid)
        if self._unreadable.get(uid) != problem:
            self._unreadable[uid] = problem
            self._complaints.pod(wire, problem)

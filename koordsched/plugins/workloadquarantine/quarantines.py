"""The quarantines of a cluster: one set per cluster state, whatever the number of profiles.

What nodes and namespaces say is taken in by every replica. Decisions are made in the scheduler's timers only, once a
second, which run only while it leads and after everything watched has been seen.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from koordsched.api.core import Namespace, Node
from koordsched.api.meta import ObjectMeta, OwnerReference
from koordsched.cluster.builtinkinds import NAMESPACES, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS
from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import NORMAL, WARNING, Handle
from koordsched.framework.timers import Timer, due_of
from koordsched.plugins.shared.moments import moment, moment_text
from koordsched.plugins.shared.workloads import Workload, workload_of
from koordsched.plugins.workloadquarantine.args import WorkloadQuarantineArgs
from koordsched.plugins.workloadquarantine.chance import base_rate, tail
from koordsched.plugins.workloadquarantine.falls import (
    SLACK,
    Fall,
    Fallen,
    boot_of,
    down_since,
    is_up,
    newcomer,
    was_up,
)
from koordsched.plugins.workloadquarantine.placements import Placements
from koordsched.plugins.workloadquarantine.record import PREFIX, Record, key_of, record_of
from koordsched.plugins.workloadquarantine.state import Held, QuarantineState, SuspicionState

RELEASED = ClusterEvent(EventResource("quarantines.koordsched.io"), ActionType.UPDATE, "WorkloadReleased")
"""Announced when a quarantine ends; comes with the workload."""

_OWNERS = {kind.name: kind for kind in (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS)}
_UNSEEN, _UP, _DOWN = range(3)
_FALLS_KEPT = 10_000
"""Nodes that went down and were not looked at; a standby never looks."""


@dataclass(slots=True)
class Suspicion:
    """What speaks against a workload. `nodes` -> when they went down, in monotonic seconds; `owner`: of a pod of it."""

    owner: OwnerReference | None
    nodes: dict[str, float] = field(default_factory=dict)


class Quarantines:
    """`held`: the workloads whose pods are held back."""

    def __init__(self, args: WorkloadQuarantineArgs, handle: Handle) -> None:
        self.args = args
        self.cluster: ClusterState = handle.cluster
        self._table = table = handle.cluster.table
        self._clock, self._timers, self._events = handle.clock, handle.timers, handle.events
        self.namespaces = handle.cluster.objects.of(NAMESPACES)
        self.held: dict[Workload, Record] = {}
        self.suspicions: dict[Workload, Suspicion] = {}
        self.ends: Counter[str] = Counter(dict.fromkeys(("quarantined", "acknowledged", "expired"), 0))
        self.unwritten: dict[Workload, None] = {}
        """Workloads whose annotation may not be what it should."""
        self.senseless: dict[tuple[str, str], None] = {}
        """(namespace, annotation) that says nothing, of workloads that are not held."""
        self._shown: dict[str, dict[str, str]] = {}
        """By namespace, the annotations about quarantines that it bears."""
        self._cool_downs: dict[Workload, Timer] = {}
        self._placements = Placements(args.window.seconds, handle.clock, handle.timers)
        self._placed: set[str] = set()
        """The uids of pods that are assumed, and counted."""
        self._was = table.column(np.int8, fill=_UNSEEN)
        self._boots: dict[int, str] = {}
        """By row, of nodes that say it."""
        self._fallen: dict[str, Fallen] = {}
        """Nodes that went down within the window."""
        self._falls: deque[Fall] = deque(maxlen=_FALLS_KEPT)
        self._next_look: Timer | None = None
        self._next_end: Timer | None = handle.timers.at(0.0, self._look)
        handle.cluster.add_observer(self)
        table.on_node(self._node_changed)
        table.on_removal(self._node_removed)
        self.namespaces.subscribe(self._namespace_changed)
        handle.states.keep("WorkloadQuarantine", self)

    @classmethod
    def shared(cls, args: WorkloadQuarantineArgs, handle: Handle) -> Quarantines:
        """The quarantines of a cluster, with the arguments of the first profile."""
        return handle.cluster.shared(lambda cluster: cls(args, handle), cls)

    # --- what happens ---------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver. Pods are watched apart from nodes: one may be seen when the fall of its node was judged."""
        if pod.node:
            self._placed.discard(pod.uid)
        fallen = self._fallen.get(pod.node) if self._fallen and assigned else None
        if fallen is None:
            return
        workload = newcomer(pod, fallen.fell, self.args.soon_after.seconds)
        suspicion = self.suspicions.get(workload) if workload is not None else None
        known = suspicion is not None and pod.node in suspicion.nodes
        # One that started later came when the node was up again.
        if workload is not None and not known and (moment(pod.start_time) or 0.0) <= fallen.fell:
            self._judge(Fall(pod.node, fallen.fell))

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver. Only what we place counts, and not what is taken back, nor pods away in a transaction."""
        if assigned:
            if pod.uid not in self._placed and self.cluster.is_assumed(pod.uid):
                self._placed.add(pod.uid)
                self._placements.add(workload_of(pod))
        elif pod.uid in self._placed:
            self._placed.remove(pod.uid)
            self._placements.take_back(workload_of(pod))

    def pod_gone(self, uid: str) -> None:
        """See PodObserver. One that is being bound is not placed after all, which is heard when that ends."""
        if not self.cluster.is_assumed(uid):
            self._placed.discard(uid)

    def _node_changed(self, row: int, node: Node) -> None:
        down, boot = not is_up(node), boot_of(node)
        before = self._boots.get(row, "")
        if boot and boot != before:
            self._boots[row] = boot
        was = self._was.data.item(row)
        self._was.data[row] = _DOWN if down else _UP
        if node.spec.unschedulable:
            return  # it is being maintained
        if down and (was == _UP or (was == _UNSEEN and was_up(node))):
            self._fell(node.metadata.name, down_since(node))
        elif before and boot and boot != before:
            self._fell(node.metadata.name, None)

    def _node_removed(self, row: int) -> None:
        self._boots.pop(row, None)

    def _fell(self, node: str, at: float | None) -> None:
        """`at`: seconds since the epoch, if that is known, by the cluster's clock as the times of pods are; ours may be
        behind. A time that is yet to come says nothing."""
        wall = self._clock.wall()
        self._judge(Fall(node, wall if at is None or at > wall + SLACK else at))

    def _judge(self, fall: Fall) -> None:
        self._falls.append(fall)
        if self._next_look is None:
            self._next_look = self._timers.at(0.0, self._look)

    # --- judging ----------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._next_look = None
        now, wall = self._clock.monotonic(), self._clock.wall()
        self._prune(now)
        suspects: dict[Workload, None] = {}
        for node, at in self._falls:
            if wall - at < self.args.window.seconds:
                self._blame(node, at, now - max(wall - at, 0.0), suspects)
        self._falls.clear()
        if self._next_end is not None:
            self._next_end.cancel()
        if self._fallen:
            first = min(fallen.at for fallen in self._fallen.values())
            self._next_end = self._timers.at(first + self.args.window.seconds, self._look)
        enough = [
            workload
            for workload in suspects
            if len(self.suspicions[workload].nodes) >= self.args.min_nodes and workload not in self.held
        ]
        of = self._placements.of
        doubtful = [workload for workload in enough if self._chance(workload, of(workload)) is not None]
        if doubtful:
            placed = self._placed_now(doubtful, wall)
            for workload in doubtful:
                count = max(placed[workload], of(workload))
                chance = self._chance(workload, count)
                if chance is not None:
                    self._quarantine(workload, count, chance, now, wall)

    def _prune(self, now: float) -> None:
        """Forgets what is older than the window."""
        since = now - self.args.window.seconds
        self._fallen = {node: fallen for node, fallen in self._fallen.items() if fallen.at > since}
        for workload, suspicion in list(self.suspicions.items()):
            suspicion.nodes = {node: at for node, at in suspicion.nodes.items() if at > since}
            if not suspicion.nodes:
                del self.suspicions[workload]

    def _blame(self, node: str, fell: float, at: float, suspects: dict[Workload, None]) -> None:
        """Notes who had come to the node shortly before. `fell`: seconds since the epoch, `at`: monotonic."""
        self._fallen[node] = Fallen(at, fell)
        row = self._table.row_of.get(node)
        for pod in self.cluster.pods_on(row).values() if row is not None else ():
            workload = newcomer(pod, fell, self.args.soon_after.seconds)
            if workload is not None:
                suspicion = self.suspicions.get(workload)
                if suspicion is None:
                    suspicion = self.suspicions[workload] = Suspicion(pod.owner)
                suspicion.owner = pod.owner
                suspicion.nodes[node] = at
                suspects[workload] = None

    def _chance(self, workload: Workload, placed: int) -> float | None:
        """How likely all this happened by chance; None if that is likely enough."""
        nodes = self._table.count
        hit = len(self.suspicions[workload].nodes)
        exposed = max(min(placed, nodes), hit)
        fallen = len(self._fallen.keys() - self.suspicions[workload].nodes.keys())
        others = max(nodes - exposed, fallen)
        chance = tail(exposed, hit, base_rate(fallen, others))
        return chance if chance < self.args.significance else None

    def _placed_now(self, workloads: Iterable[Workload], wall: float) -> Counter[Workload]:
        """By workload, the nodes with pods of it that started within the window.

        A look at all pods, which only a workload that is about to be quarantined is worth: a new leader does not know
        what its predecessor placed.
        """
        since = moment_text(wall - self.args.window.seconds)
        found: dict[Workload, set[str]] = {workload: set() for workload in workloads}
        namespaces = {workload.namespace for workload in found}
        for pod in self.cluster.assigned.values():
            # Times of Kubernetes are in UTC and of one length, so they compare as text.
            if pod.namespace not in namespaces or (pod.start_time or since) < since:
                continue
            if (nodes := found.get(workload_of(pod))) is not None:
                nodes.add(pod.node)
        return Counter({workload: len(nodes) for workload, nodes in found.items()})

    # --- transitions --------------------------------------------------------------------------------------

    def _quarantine(self, workload: Workload, placed: int, chance: float, now: float, wall: float) -> None:
        suspicion = self.suspicions[workload]
        seconds = self.args.cool_down.seconds
        record = Record(
            workload.kind,
            workload.name,
            moment_text(wall),
            moment_text(wall + seconds),
            tuple(suspicion.nodes),
            max(min(placed, self._table.count), len(suspicion.nodes)),
            f"{chance:.1g}",
        )
        self._hold(workload, record, now + seconds)
        self.unwritten[workload] = None
        self.ends["quarantined"] += 1
        text = self.text(workload)
        self._tell(workload, WARNING, "WorkloadQuarantined", text)
        owner = suspicion.owner
        if owner is not None and (kind := _OWNERS.get(owner.kind)) is not None:
            meta = ObjectMeta(name=owner.name, namespace=workload.namespace, uid=owner.uid)
            self._events.event(kind, meta, WARNING, "WorkloadQuarantined", text, once=True)

    def text(self, workload: Workload) -> str:
        """Why pods of a workload that is held are held back, and what ends it."""
        record = self.held[workload]
        nodes = f"{len(record.nodes)} of {record.placed} nodes with new pods of it went down" if record.nodes else ""
        why = f": {nodes} (chance {record.chance})" if nodes else ""
        lift = f"kubectl annotate namespace {workload.namespace} {key_of(workload)}-"
        return f"{workload.kind} {workload.name} is quarantined{why} ({lift} lifts this)"

    def _hold(self, workload: Workload, record: Record, until: float) -> None:
        self.held[workload] = record
        if (timer := self._cool_downs.pop(workload, None)) is not None:
            timer.cancel()
        self._cool_downs[workload] = self._timers.at(until, partial(self._expired, workload))

    def _expired(self, workload: Workload) -> None:
        text = f"{workload.kind} {workload.name} is not quarantined any more"
        self._tell(workload, NORMAL, "QuarantineExpired", text)
        self.ends["expired"] += 1
        self.unwritten[workload] = None
        self._release(workload)

    def _release(self, workload: Workload) -> None:
        """What happened until now does not count any more."""
        del self.held[workload]
        self._cool_downs.pop(workload).cancel()
        if (suspicion := self.suspicions.pop(workload, None)) is not None:
            for node in suspicion.nodes:
                self._fallen.pop(node, None)
        self.cluster.announce(RELEASED, None, workload)

    def _tell(self, workload: Workload, event_type: str, reason: str, text: str) -> None:
        namespace = self.namespaces.get("", workload.namespace)
        if namespace is not None:
            self._events.event(NAMESPACES, namespace.metadata, event_type, reason, text, once=True)

    # --- what is written ------------------------------------------------------------------------------------

    def annotation(self, workload: Workload) -> str:
        """What the annotation about the workload should be; "" for none."""
        record = self.held.get(workload)
        return record.text() if record is not None else ""

    def shown(self, workload: Workload) -> str:
        """What it is."""
        return self._shown.get(workload.namespace, {}).get(key_of(workload), "")

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """Takes over what is written: by the replica that leads, or by a person who lifts a quarantine."""
        known = new or old
        if known is None:
            return
        name = known.metadata.name
        before = self._shown.pop(name, {})
        annotations = new.metadata.annotations if new is not None else {}
        after = {key: text for key, text in annotations.items() if key.startswith(PREFIX)}
        if after:
            self._shown[name] = after
        for key in before.keys() - after.keys():
            self.senseless.pop((name, key), None)
        for key, text in after.items():
            if before.get(key) != text:
                self._adopt(known, key, text)
        for workload in [each for each in self.held if each.namespace == name]:
            if new is None:
                self._release(workload)
            elif (key := key_of(workload)) in before and key not in after:
                self.ends["acknowledged"] += 1
                self._release(workload)

    def _adopt(self, namespace: Namespace, key: str, text: str) -> None:
        meta = namespace.metadata
        try:
            record = record_of(text)
        except ValueError as error:
            self._events.event(
                NAMESPACES, meta, WARNING, "InvalidAnnotation", f"ignored: annotation {key}: {error}", once=True
            )
            self._write_again(meta.name, key)
            return
        workload = Workload(meta.name, record.kind, record.name)
        if key != key_of(workload):
            problem = f"ignored: annotation {key}: that of {record.kind} {record.name} is {key_of(workload)}"
            self._events.event(NAMESPACES, meta, WARNING, "InvalidAnnotation", problem, once=True)
            self._write_again(meta.name, key)
            return
        current = self.held.get(workload)
        if current is not None and current.text() == text:
            return
        now, wall = self._clock.monotonic(), self._clock.wall()
        until, longest = moment(record.until), self.args.cool_down.seconds
        self._hold(workload, record, now + (longest if until is None else min(max(until - wall, 0.0), longest)))

    def _write_again(self, namespace: str, key: str) -> None:
        """An annotation says nothing any more: if a quarantine is in force, it has to, for the next scheduler. If none
        is, it goes: replicas that knew of one cannot tell otherwise that this has ended.
        """
        held = {held: None for held in self.held if held.namespace == namespace and key_of(held) == key}
        self.unwritten |= held
        if not held:
            self.senseless[namespace, key] = None

    def says_nothing(self, namespace: str, key: str) -> bool:
        """Whether an annotation is there, and means nothing now."""
        text = self._shown.get(namespace, {}).get(key)
        if text is None or any(held.namespace == namespace and key_of(held) == key for held in self.held):
            return False
        try:
            record = record_of(text)
        except ValueError:
            return True
        return key_of(Workload(namespace, record.kind, record.name)) != key

    # --- what journals record -------------------------------------------------------------------------------

    state_type = QuarantineState

    def recorded_state(self) -> QuarantineState:
        """See `framework.pluginstates.Keeper`."""
        return QuarantineState(
            tuple(Held(workload, record, self._cool_downs[workload].due) for workload, record in self.held.items()),
            tuple(SuspicionState(workload, each.owner, each.nodes) for workload, each in self.suspicions.items()),
            self._placements.recorded_state(),
            self._boots,
            self._fallen,
            tuple(self._falls),
            due_of(self._next_look),
            due_of(self._next_end),
        )

    def restore_state(self, state: QuarantineState) -> None:
        """See `framework.pluginstates.Keeper`."""
        for timer in (self._next_look, self._next_end, *self._cool_downs.values()):
            if timer is not None:
                timer.cancel()
        again = self._timers.restore
        self.held = {each.workload: each.record for each in state.held}
        self._cool_downs = {
            each.workload: again(each.end, partial(self._expired, each.workload)) for each in state.held
        }
        self.suspicions = {each.workload: Suspicion(each.owner, dict(each.nodes)) for each in state.suspicions}
        self._placements.restore_state(state.placements)
        self._boots = dict(state.boots)
        self._fallen = dict(state.fallen)
        self._falls = deque(state.falls, _FALLS_KEPT)
        self._next_look = again(state.look, self._look) if state.look is not None else None
        self._next_end = again(state.next_end, self._look) if state.next_end is not None else None

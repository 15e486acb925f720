"""The breakers of all nodes: one set per cluster state, whatever the number of profiles.

Every replica knows which pods fail at the moment, and what is written on nodes. Decisions fall in the scheduler's
timers alone, once a second, which run only while it leads and after everything watched has been seen: so a standby
decides nothing, the order of lists does not matter, and replays repeat the decisions. A scheduler that takes over has
the states from the nodes, and the evidence from the pods that fail at that moment.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from koordsched.api.core import Node
from koordsched.cluster.builtinkinds import NODES
from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import NORMAL, WARNING, Handle
from koordsched.framework.timers import Timer, due_of
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs
from koordsched.plugins.nodecircuitbreaker.evidence import Case, Evidence, Key
from koordsched.plugins.nodecircuitbreaker.probes import Probes
from koordsched.plugins.nodecircuitbreaker.record import ANNOTATION, CLOSED, MOST_OPENINGS, Record, record_of, state_of
from koordsched.plugins.nodecircuitbreaker.sightings import Sighting, sighting
from koordsched.plugins.nodecircuitbreaker.signs import IMAGE, SANDBOX, Report, Sign, reader, with_tag
from koordsched.plugins.nodecircuitbreaker.state import BreakerState
from koordsched.plugins.nodecircuitbreaker.zones import Zones
from koordsched.plugins.shared.moments import moment, moment_text
from koordsched.plugins.shared.workloads import Workload

PASSABLE = ClusterEvent(EventResource("circuitbreakers.koordsched.io"), ActionType.UPDATE, "CircuitBreakerPassable")
"""Announced when a node lets pods pass again; comes with the name of the node."""

_GONE_KEPT = 1000
"""Pods that failed and went before they were looked at; a standby never looks."""

_ECHOES_KEPT = 16


class Breakers:
    """`state`: by row, one of CLOSED, OPEN, HALF_OPEN, PROBED; changes touch `facet`."""

    def __init__(self, args: NodeCircuitBreakerArgs, handle: Handle) -> None:
        self.args = args
        self.cluster: ClusterState = handle.cluster
        self._table = table = handle.cluster.table
        self._clock, self._timers, self._events = handle.clock, handle.timers, handle.events
        self.facet = table.add_facet()
        self.state = table.column(np.int8, fill=CLOSED)
        self.records: dict[int, Record] = {}
        """By row, the breakers that are not closed."""
        self.held: dict[str, str] = {}
        """Nodes whose breaker would open if that were not too many in their zone -> why it would."""
        self.evidence = Evidence(args.window.seconds, args.owner_nodes)
        self.transitions: Counter[str] = Counter(dict.fromkeys(("open", "half-open", "closed", "held"), 0))
        self.unwritten: dict[str, None] = {}
        """Nodes whose annotation may not be what it should."""
        self._shown: dict[int, str] = {}
        """By row, the annotation that the node bears."""
        self._echoes: dict[int, deque[str]] = {}
        """By row, annotations that we wanted written and have not seen yet."""
        self._probes = Probes(args, handle.clock, handle.timers, self._close, self.end_probe)
        self._zones = Zones(table, args.max_open_percentage)
        self._failing: dict[str, Sighting] = {}
        """By uid, pods to be looked at."""
        self._gone: deque[tuple[Sighting, float]] = deque(maxlen=_GONE_KEPT)
        """The same of pods that are gone since, and when they went."""
        self._starting: dict[str, Timer] = {}
        """By uid, pods without a sandbox, and when that is too long."""
        self._suspects: dict[str, None] = {}
        """Nodes to be judged."""
        self._next_look: Timer | None = None
        self._next_end: Timer | None = handle.timers.at(0.0, self._look)
        self._cool_downs = handle.deadlines(self.facet, self._half_open)
        self._report = handle.cluster.pod_facts.declare_states("start-failures", reader(args.quick_crash.seconds))
        handle.cluster.read_annotations.add(ANNOTATION)
        handle.cluster.add_observer(self)
        table.on_node(self._node_changed)
        table.on_removal(self._node_removed)
        handle.states.keep("NodeCircuitBreaker", self)

    @classmethod
    def shared(cls, args: NodeCircuitBreakerArgs, handle: Handle) -> Breakers:
        """The breakers of a cluster, with the arguments of the first profile."""
        return handle.cluster.shared(lambda cluster: cls(args, handle), cls)

    # --- reading -----------------------------------------------------------------------------------

    def text_on(self, row: int) -> str:
        """What the annotation of the node on this row should be; "" for none."""
        record = self.records.get(row)
        return record.text() if record is not None else ""

    def shown_on(self, row: int) -> str:
        """What it is."""
        return self._shown.get(row, "")

    def count(self) -> dict[str, float]:
        """How many breakers are in which state; `held`: kept closed because too many of their zone are not."""
        opened = sum(record.is_open for record in self.records.values())
        return {"open": opened, "half-open": len(self.records) - opened, "held": len(self.held)}

    # --- what pods say -------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""
        uid, report = pod.uid, self._report.of(pod)
        is_telling = report is not None and (report.signs or report.no_sandbox)
        if is_telling or uid in self._probes or uid in self._starting:
            self._failing[uid] = sighting(pod, report)
            self._look_soon()

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""

    def pod_gone(self, uid: str) -> None:
        """See PodObserver."""
        pod = self._failing.pop(uid, None)
        if pod is not None:
            self._gone.append((pod, self._clock.monotonic()))
        if (timer := self._starting.pop(uid, None)) is not None:
            timer.cancel()
        if uid in self._probes:
            self._look_soon()

    def _look_soon(self) -> None:
        if self._next_look is None:
            self._next_look = self._timers.at(0.0, self._look)

    def _look(self) -> None:
        """Everything that happened since the last look, in the order in which it did."""
        self._next_look = None
        now, wall = self._clock.monotonic(), self._clock.wall()
        for node in self.evidence.prune(now):
            if node in self.held:
                self._suspects[node] = None
        pods = [*self._gone, *((pod, now) for pod in self._failing.values())]
        self._gone.clear()
        self._failing.clear()
        for pod, seen in pods:
            self._read(pod, seen, now, wall)
        for uid in [uid for uid in self._probes if uid not in self.cluster.assigned]:
            self._probes.gone(uid, now)
        self._judge(now, wall)
        if self._next_end is not None:
            self._next_end.cancel()
        if self.held and (end := self.evidence.next_end) is not None:
            # From then on a node may have no reason to be held any more.
            self._next_end = self._timers.at(end, self._look)

    def _read(self, pod: Sighting, seen: float, now: float, wall: float) -> None:
        """What the status of a pod says; `seen`: when it was so."""
        report, probe, uid = pod.report, self._probes.get(pod.uid), pod.uid
        row = self._table.row_of.get(pod.node, -1)
        signs = [] if report is None else list(self._telling(report, row))
        if probe is not None and probe.row == row:
            if signs:
                self._probe_failed(uid, f"its probe {pod.key} failed: {signs[0].reason}", now, wall)
                return
            self._probes.runs(uid, probe, pod, now)
        else:
            for sign in signs:
                at = seen if sign.finished is None else now - max(wall - sign.finished, 0.0)
                if sign.finished is not None and sign.finished > wall + self.args.window.seconds:
                    continue  # a clock that is wrong by so much says nothing
                key = (uid, sign.container, sign.restarts if sign.finished is None else sign.finished)
                self._note(key, pod, sign.reason, at, now)
        waits = report is not None and report.no_sandbox and uid in self.cluster.assigned
        if waits and uid not in self._starting:
            began = moment(pod.start_time)
            waited = min(max(wall - began, 0.0), self.args.sandbox_timeout.seconds) if began is not None else 0.0
            when = now + self.args.sandbox_timeout.seconds - waited
            self._starting[uid] = self._timers.at(when, partial(self._sandbox_overdue, uid))
        elif not waits and (timer := self._starting.pop(uid, None)) is not None:
            timer.cancel()

    def _telling(self, report: Report, row: int) -> Iterator[Sign]:
        """The signs that may tell of the node: an image that no other node has tells nothing."""
        for sign in report.signs:
            if sign.kind == IMAGE:
                image = self._table.images.by_name.get(with_tag(sign.image))
                if image is None or not image.rows - {row}:
                    continue
            yield sign

    def _note(self, key: Key, pod: Sighting, reason: str, at: float, now: float) -> None:
        if at + self.args.window.seconds <= now:
            return
        workload = pod.workload
        if self.evidence.add(key, pod.node, workload, reason, at):
            self._suspects[pod.node] = None
            if len(nodes := self.evidence.failed_on(workload)) > self.args.owner_nodes:
                self._doubt(workload, nodes)

    def _sandbox_overdue(self, uid: str) -> None:
        self._starting.pop(uid, None)
        pod = self.cluster.assigned.get(uid)
        report = self._report.of(pod) if pod is not None else None
        if pod is None or report is None or not report.no_sandbox:
            return
        now, wall = self._clock.monotonic(), self._clock.wall()
        if uid in self._probes:
            self._probe_failed(uid, f"its probe {pod.key} got no sandbox", now, wall)
        else:
            self._note((uid, SANDBOX), sighting(pod, report), "no sandbox", now, now)
        self._judge(now, wall)

    # --- judging -------------------------------------------------------------------------------------

    def _judge(self, now: float, wall: float) -> None:
        """Opens the breakers of nodes against which enough speaks."""
        if not self._suspects:
            return
        suspects, self._suspects = self._suspects, {}
        # A node that is cordoned gets no pod anyway, so no probe either: it must not keep others from being refused.
        cordoned = self._table.unschedulable.data
        restricted = Counter(self._zones.of(row) for row in self.records if not cordoned.item(row))
        for node in suspects:
            row = self._table.row_of.get(node, -1)
            case = self.evidence.case(node)
            if row < 0 or row in self.records or not self._suffices(case):
                self.held.pop(node, None)
                continue
            zone = self._zones.of(row)
            what = case.summary(self.args.window)
            if restricted[zone] >= self._zones.most_in(zone):
                self._hold(row, what, zone)
                continue
            restricted[zone] += 1
            self._open(row, what, 1, now, wall)

    def _suffices(self, case: Case) -> bool:
        args, namespaces = self.args, {workload.namespace for workload in case.workloads}
        return (
            case.failures >= args.failures
            and len(case.workloads) >= args.distinct_owners
            and len(namespaces) >= args.distinct_namespaces
        )

    def _doubt(self, workload: Workload, nodes: Sequence[str]) -> None:
        """A workload fails on so many nodes that it tells nothing: nodes that were suspected for its sake are not."""
        for node in nodes:
            row = self._table.row_of.get(node, -1)
            record = self.records.get(row)
            if record is not None and record.is_open and record.openings == 1 and node in self.evidence:
                if not self._suffices(self.evidence.case(node)):
                    self._close(row, f"{workload} fails on other nodes as well")
            elif node in self.held:
                self._suspects[node] = None

    # --- transitions -----------------------------------------------------------------------------------

    def _open(self, row: int, why: str, openings: int, now: float, wall: float) -> None:
        seconds = self.cool_down(openings)
        record = Record("open", moment_text(wall), moment_text(wall + seconds), openings, reason=why)
        self._put(row, record)
        self._cool_downs.set(row, now + seconds)
        self._tell(row, WARNING, "open", "CircuitBreakerOpened", f"no pods for {seconds:g}s: {why}")

    def cool_down(self, openings: int) -> float:
        """Seconds for which a breaker stays open that opened so often in a row."""
        longest = self.args.max_cool_down.seconds
        return float(min(self.args.cool_down.seconds * 2.0 ** (min(openings, MOST_OPENINGS) - 1), longest))

    def _half_open(self, rows: Sequence[int]) -> None:
        """Cool-downs are over."""
        wall = self._clock.wall()
        for row in rows:
            record = self.records.get(row)
            if record is not None and record.is_open:
                self._put(row, Record("half-open", moment_text(wall), "", record.openings, reason=record.reason))
                self._tell(row, NORMAL, "half-open", "CircuitBreakerHalfOpen", "one pod at a time is tried")
                self._announce(row)

    def _close(self, row: int, why: str, healthy_since: float | None = None) -> None:
        """`healthy_since`: monotonic seconds from which on a probe ran; what failed before does not count any more."""
        node = self._table.names[row]
        self._put(row, None)
        if healthy_since is not None:
            self.evidence.acquit(node, healthy_since)
            if node in self.evidence:
                self._suspects[node] = None
                self._look_soon()
        self._tell(row, NORMAL, "closed", "CircuitBreakerClosed", f"pods may be placed again: {why}")
        self._announce(row)

    def _hold(self, row: int, why: str, zone: str | None) -> None:
        node = self._table.names[row]
        if node not in self.held:
            where = f"zone {zone}" if zone else "the nodes without a zone"
            text = f"stays closed, because too many of {where} are restricted already: {why}"
            self._tell(row, WARNING, "held", "CircuitBreakerHeld", text)
        self.held[node] = why

    def _tell(self, row: int, event_type: str, to: str, reason: str, message: str) -> None:
        self.transitions[to] += 1
        node = self._table.nodes[row]
        if node is not None:
            text = f"circuit breaker: {message}"
            self._events.event(NODES, node.metadata, event_type, reason, text, action="Scheduling", once=True)

    def _announce(self, row: int) -> None:
        self.cluster.announce(PASSABLE, None, self._table.names[row])

    def _put(self, row: int, record: Record | None) -> None:
        """The new state of a breaker, to be written."""
        self._set(row, record)
        self._echoes.setdefault(row, deque(maxlen=_ECHOES_KEPT)).append(self.text_on(row))
        self.unwritten[self._table.names[row]] = None

    def _set(self, row: int, record: Record | None) -> None:
        before = self.records.pop(row, None)
        if before is not None and before.probe and (record is None or record.probe != before.probe):
            self._probes.forget(before.probe)
        self._cool_downs.clear(row)
        state = state_of(record)
        if record is not None:
            self.records[row] = record
            self.held.pop(self._table.names[row], None)
        else:
            self._judge_held()
        if self.state.data.item(row) != state:
            self.state.data[row] = state
            self._table.touch(row, self.facet)

    def _judge_held(self) -> None:
        """A node is not restricted any more: others of its zone had to wait for that."""
        if self.held:
            self._suspects |= dict.fromkeys(self.held)
            self._look_soon()

    # --- probes ----------------------------------------------------------------------------------------

    def admits(self, row: int) -> bool:
        """Whether the breaker lets a pod on the row."""
        record = self.records.get(row)
        return record is None or not (record.is_open or record.probe)

    def begin_probe(self, pod: Pod, row: int) -> bool:
        """A pod is placed on the row; False if the breaker does not let it."""
        if not self.admits(row):
            return False
        record = self.records.get(row)
        if record is None:
            return True
        self._put(row, replace(record, probe=pod.uid))
        self._probes.remember(pod.uid, row)
        return True

    def end_probe(self, uid: str) -> None:
        """The pod is not placed after all, or went without telling anything: another one may be tried."""
        probe = self._probes.get(uid)
        if probe is not None:
            self._put(probe.row, replace(self.records[probe.row], probe=""))
            self._announce(probe.row)

    def _probe_failed(self, uid: str, why: str, now: float, wall: float) -> None:
        probe = self._probes.get(uid)
        assert probe is not None, "it failed as a probe"
        row = probe.row
        openings = min(self.records[row].openings + 1, MOST_OPENINGS)
        self._open(row, why, openings, now, wall)

    # --- what nodes say ----------------------------------------------------------------------------------

    def _node_changed(self, row: int, node: Node) -> None:
        """Takes over what is written on the node, unless it is what we had written."""
        name = node.metadata.name
        if name in self.evidence and row not in self.records and name not in self._suspects:
            self._suspects[name] = None
            self._look_soon()
        if node.spec.unschedulable and row in self.records:
            self._judge_held()
        text = node.metadata.annotations.get(ANNOTATION, "")
        if text == self._shown.get(row, ""):
            return
        if text:
            self._shown[row] = text
        else:
            self._shown.pop(row, None)
        echoes = self._echoes.get(row)
        if echoes is not None and text in echoes:
            while echoes.popleft() != text:
                pass
            if text != self.text_on(row):
                # The node may have looked right before this arrived, so that nothing was written.
                self.unwritten[name] = None
            return
        if text != self.text_on(row):
            self._adopt(row, node, text)

    def _adopt(self, row: int, node: Node, text: str) -> None:
        """Another one decided: the replica that leads, or an operator.

        What we wanted written before is no echo any more: where it arrives after all, it is what counts.
        """
        if not text:
            self._echoes.pop(row, None)
            self._set(row, None)
            self.evidence.acquit(node.metadata.name)
            self._announce(row)
            return
        try:
            record = record_of(text)
        except ValueError as error:
            problem = f"ignored: annotation {ANNOTATION}: {error}"
            self._events.event(NODES, node.metadata, WARNING, "InvalidAnnotation", problem, once=True)
            # What is so is written. If that is nothing, replicas that know of a state cannot tell otherwise that it has
            # ended.
            self.unwritten[node.metadata.name] = None
            return
        self._echoes.pop(row, None)
        probe = self._probes.get(record.probe)
        if probe is not None and probe.row != row:
            # The pod left that node, which is written there later.
            self.end_probe(record.probe)
        self._set(row, record)
        now, wall = self._clock.monotonic(), self._clock.wall()
        if record.is_open:
            until, longest = moment(record.until), self.cool_down(record.openings)
            rest = longest if until is None else min(max(until - wall, 0.0), self.args.max_cool_down.seconds)
            self._cool_downs.set(row, now + rest)
            return
        if not record.probe:
            self._announce(row)
            return
        if record.probe not in self._probes:
            self._probes.remember(record.probe, row)
        pod = self.cluster.assigned.get(record.probe)
        if pod is not None:
            self._failing[pod.uid] = sighting(pod, self._report.of(pod))
        self._look_soon()

    def _node_removed(self, row: int) -> None:
        record = self.records.pop(row, None)
        if record is not None and record.probe:
            self._probes.forget(record.probe)
        self._shown.pop(row, None)
        self._echoes.pop(row, None)
        # Its name is gone from the table: what is held is looked at by name.
        gone = [node for node in self.held if node not in self._table.row_of]
        for node in gone:
            del self.held[node]
        if record is not None:
            self._judge_held()

    # --- what journals record --------------------------------------------------------------------------

    state_type = BreakerState

    def recorded_state(self) -> BreakerState:
        """See `framework.pluginstates.Keeper`."""
        return BreakerState(
            self.records,
            self.held,
            self.evidence.recorded_state(),
            {row: tuple(texts) for row, texts in self._echoes.items()},
            self._probes.recorded_state(),
            tuple(self._failing.values()),
            tuple(self._gone),
            {uid: timer.due for uid, timer in self._starting.items()},
            tuple(self._suspects),
            due_of(self._next_look),
            due_of(self._next_end),
            self._cool_downs.state(),
        )

    def restore_state(self, state: BreakerState) -> None:
        """See `framework.pluginstates.Keeper`."""
        for timer in (self._next_look, self._next_end, *self._starting.values()):
            if timer is not None:
                timer.cancel()
        for row in self.records.keys() | state.records.keys():
            self.state.data[row] = state_of(state.records.get(row))
            self._table.touch(row, self.facet)
        self.records, self.held = dict(state.records), dict(state.held)
        self.evidence.restore_state(state.evidence)
        self._echoes = {row: deque(texts, _ECHOES_KEPT) for row, texts in state.echoes.items()}
        self._probes.restore_state(state.probes)
        self._failing = {each.uid: each for each in state.failing}
        self._gone = deque(state.gone, _GONE_KEPT)
        again = self._timers.restore
        self._starting = {uid: again(due, partial(self._sandbox_overdue, uid)) for uid, due in state.starting.items()}
        self._suspects = dict.fromkeys(state.suspects)
        self._next_look = again(state.look, self._look) if state.look is not None else None
        self._next_end = again(state.next_end, self._look) if state.next_end is not None else None
        self._cool_downs.restore(state.cool_downs)

"""The life of a bound pod on a hollow node: admitted or rejected, started, finished or restarted, stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from koordsched.fakecluster.clock import parse_rfc3339, rfc3339
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.hollow.agentevents import report_event
from koordsched.fakecluster.hollow.allocation import Amounts, node_request
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.claimbooks import ClaimBooks
from koordsched.fakecluster.hollow.complaints import invalid_annotation
from koordsched.fakecluster.hollow.duration import parse_duration
from koordsched.fakecluster.hollow.hollownode import FAIL, Health, HollowNode
from koordsched.fakecluster.hollow.options import HollowOptions
from koordsched.fakecluster.hollow.podcpus import exclusive_requests
from koordsched.fakecluster.hollow.podstatus import (
    conditions,
    finished_status,
    rejected_status,
    restarted_status,
    running_status,
    stuck_status,
    waiting_status,
)
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.store import Record

Object = dict[str, Any]
Key = tuple[str, str]

RUN_DURATION = "koordsched.io/run-duration"
"""Pod annotation: the containers end by themselves after this time (`30s`, `1m30s`)."""
EXIT_CODE = "koordsched.io/exit-code"
"""Pod annotation: with this exit code, 0 unless set."""
FELLS_NODE = "koordsched.io/fells-node"
"""Pod annotation: the node reports Ready=False this long after the pod started, until its annotation is taken away."""
_FIRST_BACKOFF_SECONDS = 10.0
_LAST_BACKOFF_SECONDS = 300.0
_FINISHED = ("Succeeded", "Failed")
_HELD_LIMIT = 8192
"""Pods that are kept decoded until they start; further ones are decoded again then."""

_log = logging.getLogger(__name__)


class _Run(NamedTuple):
    """How the containers of a pod end by themselves."""

    duration: float
    exit_code: int
    recoveries: int
    """Of the node, when this was planned."""


class _Found(NamedTuple):
    """A pod that is still the one that was meant, where it runs, and its stored version."""

    node: HollowNode
    pod: Object
    record: Record


class PodRunner:
    """Runs the pods of the nodes that `node_of` knows."""

    def __init__(
        self,
        registry: Registry,
        timers: BatchedTimers,
        options: HollowOptions,
        node_of: Callable[[str], HollowNode | None],
        claims: ClaimBooks,
    ) -> None:
        self._registry = registry
        self._timers = timers
        self._options = options
        self._node_of = node_of
        self._claims = claims
        self._unprepared: dict[str, str] = {}
        """Why the claims of a pod could not be prepared last, by its uid."""
        self._pods = registry.pods
        fields = [name for name, _ in self._pods.fields]
        self._node_field, self._phase_field = fields.index("spec.nodeName"), fields.index("status.phase")
        self._addresses = 0
        self._held = 0

    def start(self) -> Callable[[], None]:
        """Follows the pods, those that exist first; returns what ends it."""
        return self._registry.subscribe_changes(self._pods, self._changed)

    def resume(self, node: HollowNode) -> None:
        """Processes all pods of a node that came back: starts, stops and reports them."""
        node.recoveries += 1
        for key in list(node.pods):
            record = self._registry.collection(self._pods).get(*key)
            if record is None or record.fields[self._node_field] != node.name:
                del node.pods[key]
                continue
            pod = record.obj()
            self._follow(node, pod, bound_now=True)
            if pod["status"].get("phase") == "Running" and not record.deleting:
                self._timers.after(0.0, self._report_ready, key, record.uid)

    def _changed(self, change: ChangeView) -> None:
        record, old = change.record, change.old_record
        name = record.fields[self._node_field]
        node = self._node_of(name) if name else None
        if node is None:
            return
        if change.type == "DELETED":
            if node.pods.get(record.key) == record.uid:
                del node.pods[record.key]
            self._give_back(node, record.uid)
            return
        bound_now = old is None or not old.fields[self._node_field] or record.key not in node.pods
        if bound_now or (record.deleting and old is not None and not old.deleting):
            node.pods[record.key] = record.uid
            self._follow(node, change.new, bound_now=bound_now)
        elif record.deleting and old is not None and old.data != record.data:
            self._follow(node, change.new, bound_now=False)
        elif record.fields[self._phase_field] in _FINISHED:
            self._give_back(node, record.uid)

    def _follow(self, node: HollowNode, pod: Object, *, bound_now: bool) -> None:
        """Schedules the next step of the pod's life."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        key, uid = (metadata["namespace"], metadata["name"]), metadata["uid"]
        phase = status.get("phase") or "Pending"
        if metadata.get("deletionTimestamp"):
            delay = min(float(metadata.get("deletionGracePeriodSeconds") or 0), self._options.stop_delay)
            self._timers.after(delay, self._stop, key, uid)
            if phase not in _FINISHED:
                _take(node, pod, node_request(pod))
        elif phase in _FINISHED:
            self._give_back(node, uid)
        elif bound_now:
            request = node_request(pod)
            if phase == "Running":
                _take(node, pod, request)
                self._claims.take(pod)
                self._skip_address(status.get("podIP") or "")
                self._plan_end(node, pod)
                return
            refusal = None if uid in node.allocation else _refusal(node, pod, request)
            if refusal is not None:
                self._timers.after(0.0, self._reject, key, uid, *refusal)
                return
            _take(node, pod, request)
            if self._options.start_delay is not None:
                held = pod if self._held < _HELD_LIMIT else None
                self._held += held is not None
                self._timers.after(self._options.start_delay, self._start, key, uid, held)

    def _find(self, key: Key, uid: str, held: Object | None = None) -> _Found | None:
        """The pod and its node, if it still is the same pod and its node's kubelet works.

        `held` is a decoded version of the pod: if nothing was written since, the stored one need not be decoded.
        """
        record = self._registry.collection(self._pods).get(*key)
        if record is None or record.uid != uid:
            return None
        node = self._node_of(record.fields[self._node_field])
        if node is None or node.health is Health.SILENT:
            return None
        current = held is not None and held["metadata"]["resourceVersion"] == str(record.rv)
        return _Found(node, held if held is not None and current else record.obj(), record)

    def _stamp(self) -> str:
        return rfc3339(self._registry.clock.now())

    def _write(self, found: _Found, status: Object) -> None:
        pod = found.pod
        self._registry.replace_record(
            self._pods, found.record, {**pod, "metadata": dict(pod["metadata"]), "status": status}
        )

    def _reject(self, key: Key, uid: str, reason: str, problem: str) -> None:
        found = self._find(key, uid)
        if found is None or found.pod["metadata"].get("deletionTimestamp"):
            return
        message = f"Pod was rejected: {problem}"
        _log.warning("%s/%s on %s: %s", *key, found.node.name, message)
        self._write(found, rejected_status(found.pod, self._stamp(), reason, message))

    def _start(self, key: Key, uid: str, held: Object | None) -> None:
        self._held -= held is not None
        found = self._find(key, uid, held)
        if found is None:
            return
        node, pod, _ = found
        if pod["metadata"].get("deletionTimestamp") or (pod.get("status") or {}).get("phase") not in (None, "Pending"):
            return
        if node.start_error:
            status = stuck_status(pod, self._stamp(), node.start_error)
            if status != pod.get("status"):
                self._write(found, status)
            self._timers.after(_FIRST_BACKOFF_SECONDS, self._start, key, uid, None)
            return
        if not self._prepare(node, pod):
            self._timers.after(_FIRST_BACKOFF_SECONDS, self._start, key, uid, None)
            return
        address = node.address if pod["spec"].get("hostNetwork") else self._next_address()
        self._write(found, running_status(pod, self._stamp(), node.address, address))
        self._plan_end(node, pod)
        self._plan_fall(node, pod)

    def _prepare(self, node: HollowNode, pod: Object) -> bool:
        """Prepares the devices of the pod's claims; the pod waits until that is possible."""
        uid = pod["metadata"]["uid"]
        problem = self._claims.problem(pod, node.name)
        if problem is None:
            self._unprepared.pop(uid, None)
            self._claims.take(pod)
            return True
        if self._unprepared.get(uid) != problem:
            self._unprepared[uid] = problem
            message = f"Failed to prepare dynamic resources: {problem}"
            reason = "FailedPrepareDynamicResources"
            report_event(self._registry, "kubelet", node.name, pod, reason, message, "Warning")
        return False

    def _give_back(self, node: HollowNode, uid: str) -> None:
        """The pod needs nothing of the node any longer."""
        node.allocation.give_back(uid)
        node.devices.give_back(uid)
        self._claims.give_back(uid)
        self._unprepared.pop(uid, None)

    def _next_address(self) -> str:
        self._addresses += 1
        number = self._addresses
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def _skip_address(self, address: str) -> None:
        """Addresses of pods that ran before (a snapshot's) are not given out again."""
        parts = address.split(".")
        if len(parts) == 4 and parts[0] == "10" and all(part.isdecimal() for part in parts):
            number = int(parts[1]) << 16 | int(parts[2]) << 8 | int(parts[3])
            self._addresses = max(self._addresses, number)

    def _plan_end(self, node: HollowNode, pod: Object) -> None:
        metadata = pod["metadata"]
        text = (metadata.get("annotations") or {}).get(RUN_DURATION)
        if text is None:
            return
        try:
            duration = parse_duration(text)
            exit_code = int((metadata.get("annotations") or {}).get(EXIT_CODE, "0"))
            since = (pod.get("status") or {}).get("startTime")
            elapsed = self._registry.clock.now() - parse_rfc3339(since) if since else 0.0
        except ValueError as error:
            message = f"{RUN_DURATION} and {EXIT_CODE} are ignored: {error}"
            self._timers.after(0.0, invalid_annotation, self._registry, pod, node.name, message)
            return
        key = metadata["namespace"], metadata["name"]
        run = _Run(duration, exit_code, node.recoveries)
        self._timers.after(duration - elapsed, self._finish, key, metadata["uid"], run)

    def _plan_fall(self, node: HollowNode, pod: Object) -> None:
        text = (pod["metadata"].get("annotations") or {}).get(FELLS_NODE)
        if text is None:
            return
        try:
            self._timers.after(parse_duration(text), self._fell, node)
        except ValueError as error:
            message = f"{FELLS_NODE} is ignored: {error}"
            self._timers.after(0.0, invalid_annotation, self._registry, pod, node.name, message)

    def _fell(self, node: HollowNode) -> None:
        """The node fails, as if a user had annotated it."""
        nodes = self._registry.resource("", "v1", "nodes")
        record = self._registry.collection(nodes).get("", node.name)
        if record is None or record.uid != node.uid:
            return
        found = record.obj()
        annotations = {**(found["metadata"].get("annotations") or {}), FAIL: Health.NOT_READY.value}
        changed = {**found, "metadata": {**found["metadata"], "annotations": annotations}}
        self._registry.replace_record(nodes, record, changed)

    def _finish(self, key: Key, uid: str, run: _Run) -> None:
        found = self._find(key, uid)
        if found is None or found.node.recoveries != run.recoveries:
            return
        pod = found.pod
        if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") != "Running":
            return
        policy = pod["spec"].get("restartPolicy") or "Always"
        if policy == "Never" or (policy == "OnFailure" and run.exit_code == 0):
            self._write(found, finished_status(pod, self._stamp(), run.exit_code))
            return
        restarts = max((entry.get("restartCount", 0) for entry in pod["status"]["containerStatuses"]), default=0)
        backoff = min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(restarts, 16))
        self._write(found, waiting_status(pod, self._stamp(), run.exit_code))
        self._timers.after(backoff, self._restart, key, uid, run)

    def _restart(self, key: Key, uid: str, run: _Run) -> None:
        found = self._find(key, uid)
        if found is None or found.node.recoveries != run.recoveries:
            return
        if found.pod["metadata"].get("deletionTimestamp") or found.pod["status"].get("phase") != "Running":
            return
        self._write(found, restarted_status(found.pod, self._stamp()))
        self._timers.after(run.duration, self._finish, key, uid, run)

    def _report_ready(self, key: Key, uid: str) -> None:
        """A pod that its node's silence had made not ready is ready again."""
        found = self._find(key, uid)
        if found is not None and found.pod["status"].get("phase") == "Running":
            status = found.pod["status"]
            ready = all(entry.get("ready") for entry in status.get("containerStatuses") or ())
            self._write(found, {**status, "conditions": conditions(status, self._stamp(), ready=ready)})

    def _stop(self, key: Key, uid: str) -> None:
        """The containers have ended: the pod may be removed."""
        found = self._find(key, uid)
        if found is None or not found.pod["metadata"].get("deletionTimestamp"):
            return
        try:
            self._registry.delete_record(self._pods, *key, grace_period_seconds=0, uid=uid)
        except ApiStatusError as error:
            if error.code not in (404, 409):
                raise


def _take(node: HollowNode, pod: Object, request: Amounts) -> None:
    node.allocation.take(pod["metadata"]["uid"], request)
    node.devices.take(pod)


def _refusal(node: HollowNode, pod: Object, request: Amounts) -> tuple[str, str] | None:
    """Reason and text of the kubelet's refusal of a pod; None if it takes the pod."""
    shortage = node.allocation.shortage(request)
    if shortage is not None:
        resource, *numbers = shortage
        scale = 1 if resource == "cpu" else 1000
        requested, used, capacity = (number // scale for number in numbers)
        amounts = f"requested: {requested}, used: {used}, capacity: {capacity}"
        return f"OutOf{resource}", f"Node didn't have enough resource: {resource}, {amounts}"
    for cpus in exclusive_requests(pod) if node.whole_cores else ():
        if cpus % node.whole_cores:
            text = f"requested {cpus} cpus not multiple cpus per core = {node.whole_cores}"
            return "SMTAlignmentError", f"SMT Alignment Error: {text}"
    problem = node.devices.problem(pod)
    if problem is not None:
        return "UnexpectedAdmissionError", f"Allocate failed due to {problem}, which is unexpected"
    return None

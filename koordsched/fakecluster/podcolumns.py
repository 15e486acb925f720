"""The columns of pods: the one kind whose status is derived from many fields (upstream: printPod)."""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster.resources import Object
from koordsched.fakecluster.table import AGE, NAME, Column, since

_NONE = "<none>"


def _waiting_or_terminated(status: Object, prefix: str = "") -> str:
    state = status.get("state") or {}
    if waiting := state.get("waiting"):
        return prefix + waiting["reason"] if waiting.get("reason") else ""
    if terminated := state.get("terminated"):
        if terminated.get("reason"):
            return prefix + str(terminated["reason"])
        if terminated.get("signal"):
            return f"{prefix}Signal:{terminated['signal']}"
        return f"{prefix}ExitCode:{terminated.get('exitCode', 0)}"
    return ""


def _init_reason(spec: Object, status: Object) -> tuple[str, bool]:
    """The state of init containers, and whether the pod waits for them."""
    initial = spec.get("initContainers") or ()
    sidecars = {c.get("name") for c in initial if c.get("restartPolicy") == "Always"}
    for i, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if terminated and terminated.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if terminated:
            return _waiting_or_terminated(container, "Init:"), True
        waiting = (state.get("waiting") or {}).get("reason", "")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}", True
        return f"Init:{i}/{len(initial)}", True
    return "", False


def pod_status(pod: Object) -> str:
    """The text of the STATUS column."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    init, initializing = _init_reason(spec, status)
    if initializing:
        reason = init
    else:
        running = False
        for container in reversed(status.get("containerStatuses") or ()):
            said = _waiting_or_terminated(container)
            if said:
                reason = said
            elif container.get("ready") and (container.get("state") or {}).get("running"):
                running = True
        if reason == "Completed" and running:
            ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
            reason = "Running" if ready else "NotReady"
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _ready(pod: Object, now: float) -> Any:
    containers = (pod.get("spec") or {}).get("containers") or ()
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len(containers)}"


def _restarts(pod: Object, now: float) -> Any:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    count = sum(int(s.get("restartCount") or 0) for s in statuses)
    ended = [((s.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for s in statuses]
    last = max((e for e in ended if e), default=None)
    return f"{count} ({since(last, now)} ago)" if count and last else str(count)


def _field(part: str, key: str) -> Any:
    return lambda pod, now: (pod.get(part) or {}).get(key) or _NONE


def _ip(pod: Object, now: float) -> Any:
    status = pod.get("status") or {}
    ips = status.get("podIPs") or ()
    return (ips[0].get("ip") if ips else status.get("podIP")) or _NONE


def _gates(pod: Object, now: float) -> Any:
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    if not gates:
        return _NONE
    met = {c.get("type") for c in (pod.get("status") or {}).get("conditions") or () if c.get("status") == "True"}
    return f"{sum(g.get('conditionType') in met for g in gates)}/{len(gates)}"


POD_COLUMNS = (
    NAME,
    Column("Ready", _ready),
    Column("Status", lambda pod, now: pod_status(pod)),
    Column("Restarts", _restarts),
    AGE,
    Column("IP", _ip, priority=1),
    Column("Node", _field("spec", "nodeName"), priority=1),
    Column("Nominated Node", _field("status", "nominatedNodeName"), priority=1),
    Column("Readiness Gates", _gates, priority=1),
)

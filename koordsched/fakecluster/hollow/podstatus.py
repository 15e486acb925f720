"""Pod statuses as a kubelet reports them. All functions return new statuses and leave the old ones alone."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_EXIT_REASON = {0: "Completed"}


def running_status(pod: Object, stamp: str, host_ip: str, pod_ip: str) -> Object:
    """All containers run and are ready, the ordinary init containers have completed."""
    spec, old = pod["spec"], pod.get("status") or {}
    status: Object = {
        **old,
        "phase": "Running",
        "startTime": old.get("startTime", stamp),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "containerStatuses": [
            _container(pod, entry, stamp, {"running": {"startedAt": stamp}}, running=True)
            for entry in spec.get("containers") or ()
        ],
        "conditions": conditions(old, stamp, ready=True),
    }
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [_init_container(pod, entry, stamp) for entry in spec["initContainers"]]
    return status


NO_SANDBOX = "FailedCreatePodSandBox"


def stuck_status(pod: Object, stamp: str, reason: str) -> Object:
    """The node has the pod, and its containers cannot be started; with NO_SANDBOX, not even their sandbox is there."""
    spec, old = pod["spec"], pod.get("status") or {}
    shown = "ContainerCreating" if reason == NO_SANDBOX else reason
    waiting = {"waiting": {"reason": shown, "message": "fails on command: annotation koordsched.io/start-error"}}
    return {
        **old,
        "phase": "Pending",
        "startTime": old.get("startTime", stamp),
        "containerStatuses": [
            {**_container(pod, entry, stamp, waiting, running=False), "ready": False, "containerID": ""}
            for entry in spec.get("containers") or ()
        ],
        "conditions": conditions(old, stamp, ready=False, sandbox=reason != NO_SANDBOX),
    }


def finished_status(pod: Object, stamp: str, exit_code: int) -> Object:
    """All containers ended with that exit code, for good."""
    phase = "Failed" if exit_code else "Succeeded"
    status = {**pod["status"], "phase": phase, "conditions": conditions(pod["status"], stamp, ready=False, phase=phase)}
    for field in ("containerStatuses", "initContainerStatuses"):
        if pod["status"].get(field):
            status[field] = [_ended(entry, stamp, exit_code) for entry in pod["status"][field]]
    return status


def waiting_status(pod: Object, stamp: str, exit_code: int) -> Object:
    """The containers ended and will be started again after a back-off."""
    status = {**pod["status"], "conditions": conditions(pod["status"], stamp, ready=False)}
    status["containerStatuses"] = [
        {
            **(ended := _ended(entry, stamp, exit_code)),
            "lastState": ended["state"],
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}},
        }
        for entry in pod["status"].get("containerStatuses") or ()
    ]
    return status


def restarted_status(pod: Object, stamp: str) -> Object:
    """The containers run again."""
    status = {**pod["status"], "conditions": conditions(pod["status"], stamp, ready=True)}
    status["containerStatuses"] = [
        {
            **entry,
            "restartCount": entry.get("restartCount", 0) + 1,
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": stamp}},
        }
        for entry in pod["status"].get("containerStatuses") or ()
    ]
    return status


def rejected_status(pod: Object, stamp: str, reason: str, message: str) -> Object:
    """The kubelet does not take the pod."""
    return {
        **(pod.get("status") or {}),
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "startTime": stamp,
    }


def conditions(
    status: Object, stamp: str, *, ready: bool, phase: str = "Running", sandbox: bool = True
) -> list[Object]:
    """The pod's conditions as its kubelet reports them; those of other reporters stay."""
    why = {} if ready else {"reason": "ContainersNotReady"}
    if phase != "Running":
        why = {"reason": "PodCompleted" if phase == "Succeeded" else "PodFailed"}
    told = {
        "PodReadyToStartContainers": ("True" if sandbox and phase == "Running" else "False", {}),
        "Initialized": ("True", {"reason": "PodCompleted"} if phase == "Succeeded" else {}),
        "Ready": ("True" if ready else "False", why),
        "ContainersReady": ("True" if ready else "False", why),
    }
    old = {entry["type"]: entry for entry in status.get("conditions") or ()}
    result = [entry for kind, entry in old.items() if kind not in told]
    for kind, (value, reason) in told.items():
        before = old.get(kind)
        since = before["lastTransitionTime"] if before is not None and before.get("status") == value else stamp
        result.append({"type": kind, "status": value, "lastProbeTime": None, "lastTransitionTime": since, **reason})
    return result


def _container(pod: Object, container: Object, stamp: str, state: Object, *, running: bool) -> Object:
    image = container.get("image") or ""
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"hollow://{image}",
        "containerID": f"hollow://{pod['metadata']['uid']}/{container['name']}",
        "ready": True,
        "started": running,
        "restartCount": 0,
        "lastState": {},
        "state": state,
    }


def _init_container(pod: Object, container: Object, stamp: str) -> Object:
    if container.get("restartPolicy") == "Always":
        return _container(pod, container, stamp, {"running": {"startedAt": stamp}}, running=True)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": stamp, "finishedAt": stamp}
    return _container(pod, container, stamp, {"terminated": ended}, running=False)


def _ended(status: Object, stamp: str, exit_code: int) -> Object:
    running = status.get("state", {}).get("running")
    if running is None:
        return status
    terminated = {
        "exitCode": exit_code,
        "reason": _EXIT_REASON.get(exit_code, "Error"),
        "startedAt": running.get("startedAt", stamp),
        "finishedAt": stamp,
        "containerID": status.get("containerID", ""),
    }
    return {**status, "ready": False, "started": False, "state": {"terminated": terminated}}

"""The status of a Deployment, from the statuses of its ReplicaSets.

Source of the rules and texts: kube-controller-manager `pkg/controller/deployment/progress.go`, `sync.go`.
"""

from __future__ import annotations

from koordsched.fakecluster.controllers.conditions import Condition, find, with_condition, without_condition
from koordsched.fakecluster.controllers.ownership import Object
from koordsched.fakecluster.controllers.rollout import Rollout, actual_size, available_in, size_of
from koordsched.fakecluster.controllers.timestamps import seconds_of

_NO_DEADLINE = 2**31 - 1
_UNDER_WAY = ("ReplicaSetUpdated", "NewReplicaSetCreated", "DeploymentResumed")
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


def deployment_status(rollout: Rollout, now: str, seconds: float) -> Object:
    """The status at this moment; `now` is the same time as `seconds`, as the API writes it."""
    deployment, sets = rollout.deployment, rollout.sets()
    old = deployment.get("status") or {}
    available = sum(map(available_in, sets))
    status: Object = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": sum(map(actual_size, sets)),
        "updatedReplicas": actual_size(rollout.new) if rollout.new is not None else 0,
        "readyReplicas": sum((entry.get("status") or {}).get("readyReplicas", 0) for entry in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(map(size_of, sets)) - available),
    }
    progressing = _progressing(rollout, status, old, now, seconds)
    status = {name: value for name, value in status.items() if value}
    if old.get("collisionCount"):
        status["collisionCount"] = old["collisionCount"]
    conditions = with_condition(old.get("conditions"), _availability(rollout, available, old, now), now)
    if progressing is not None:
        conditions = with_condition(conditions, progressing, now)
    failure = find((rollout.new or {}).get("status", {}).get("conditions"), "ReplicaFailure")
    if failure is not None:
        conditions = with_condition(conditions, {**failure, "lastUpdateTime": failure["lastTransitionTime"]}, now)
    else:
        conditions = without_condition(conditions, "ReplicaFailure")
    status["conditions"] = conditions
    return status


def progress_check_delay(deployment: Object, status: Object, seconds: float) -> float | None:
    """Seconds until the progress deadline has to be looked at again; None when nothing is under way."""
    condition = find(status.get("conditions"), "Progressing")
    deadline = deployment["spec"].get("progressDeadlineSeconds", 600)
    if condition is None or condition["reason"] not in _UNDER_WAY or deadline == _NO_DEADLINE:
        return None
    due: float = seconds_of(condition.get("lastUpdateTime")) + deadline
    return max(0.0, due - seconds) + 1.0


def _availability(rollout: Rollout, available: int, old: Object, now: str) -> Condition:
    enough = available >= rollout.desired - rollout.max_unavailable
    return _dated(
        old,
        now,
        {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        },
    )


def _progressing(rollout: Rollout, status: Object, old: Object, now: str, seconds: float) -> Condition | None:
    spec = rollout.deployment["spec"]
    deadline = spec.get("progressDeadlineSeconds", 600)
    current = find(old.get("conditions"), "Progressing")
    if deadline == _NO_DEADLINE:
        return current
    if spec.get("paused"):
        return _progress(old, now, "Unknown", "DeploymentPaused", "Deployment is paused")
    if current is not None and current["reason"] == "DeploymentPaused":
        return _progress(old, now, "Unknown", "DeploymentResumed", "Deployment is resumed")
    if rollout.new is None:
        return current
    name = rollout.new["metadata"]["name"]
    if rollout.complete():
        message = f'ReplicaSet "{name}" has successfully progressed.'
        return _progress(old, now, "True", "NewReplicaSetAvailable", message)
    if current is None:
        return _progress(old, now, "True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
    if _moved(status, old) or (
        current["reason"] == "NewReplicaSetAvailable" and f'"{name}"' not in current.get("message", "")
    ):
        message = f'ReplicaSet "{name}" is progressing.'
        return {**_progress(old, now, "True", "ReplicaSetUpdated", message), "lastUpdateTime": now}
    if current["reason"] == "NewReplicaSetAvailable" or current["reason"] == "ProgressDeadlineExceeded":
        return current
    if seconds_of(current.get("lastUpdateTime")) + deadline < seconds:
        message = f'ReplicaSet "{name}" has timed out progressing.'
        return _progress(old, now, "False", "ProgressDeadlineExceeded", message)
    return current


def _moved(status: Object, old: Object) -> bool:
    """Whether the rollout came forward: more updated, ready or available pods, or fewer old ones."""
    was = {name: old.get(name, 0) for name in _COUNTS}
    return bool(
        status["updatedReplicas"] > was["updatedReplicas"]
        or status["readyReplicas"] > was["readyReplicas"]
        or status["availableReplicas"] > was["availableReplicas"]
        or status["replicas"] - status["updatedReplicas"] < was["replicas"] - was["updatedReplicas"]
    )


def _progress(old: Object, now: str, status: str, reason: str, message: str) -> Condition:
    return _dated(old, now, {"type": "Progressing", "status": status, "reason": reason, "message": message})


def _dated(old: Object, now: str, condition: Condition) -> Condition:
    """The condition with lastUpdateTime, which moves only when status, reason or message do."""
    before = find(old.get("conditions"), condition["type"])
    same = before is not None and all(before.get(name) == condition[name] for name in ("status", "reason", "message"))
    return {**condition, "lastUpdateTime": before.get("lastUpdateTime", now) if before is not None and same else now}

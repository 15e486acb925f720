"""What the pods of a Job amount to, and what follows from it: arithmetic without writes.

Source of the rules: kube-controller-manager `pkg/controller/job` (job_controller.go, indexed_job_utils.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from koordsched.fakecluster.controllers.conditions import is_true
from koordsched.fakecluster.controllers.jobindexes import parse_indexes
from koordsched.fakecluster.controllers.ownership import Object
from koordsched.fakecluster.controllers.pods import PodRecord

INDEX = "batch.kubernetes.io/job-completion-index"
"""Label and annotation of the pods of Indexed Jobs."""


@dataclass
class Tally:
    """The counts of a Job's status with the pods that ended since added to them."""

    succeeded: int
    failed: int
    completed: set[int]
    """Indexes that succeeded; empty unless the Job is Indexed."""
    active: list[PodRecord] = field(default_factory=list)
    terminating: int = 0
    restarts: int = 0
    newly_succeeded: list[PodRecord] = field(default_factory=list)
    newly_failed: list[PodRecord] = field(default_factory=list)


def tally_pods(job: Object, pods: Iterable[PodRecord]) -> Tally:
    """Sorts the Job's pods: those that ended and are not counted yet, those that end, and those at work."""
    spec, status = job["spec"], job.get("status") or {}
    completed = parse_indexes(status.get("completedIndexes") or "", completions_of(job)) if is_indexed(job) else set()
    tally = Tally(status.get("succeeded", 0), status.get("failed", 0), completed)
    wait_for_the_end = spec.get("podReplacementPolicy") == "Failed"
    for pod in pods:
        if pod.deleting and not pod.finished:
            tally.terminating += 1
        if pod.active:
            tally.active.append(pod)
            tally.restarts += pod.restarts
        elif not pod.tracked:
            continue
        elif pod.phase == "Succeeded":
            tally.newly_succeeded.append(pod)
            index = index_of(pod)
            if not is_indexed(job):
                tally.succeeded += 1
            elif index is not None and index not in completed and index < completions_of(job):
                completed.add(index)
                tally.succeeded += 1
        elif pod.phase == "Failed" or not wait_for_the_end:
            tally.newly_failed.append(pod)
            tally.failed += 1
    return tally


def is_indexed(job: Object) -> bool:
    """Whether each completion has a number of its own."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def completions_of(job: Object) -> int:
    """The wanted completions; 0 when any one success ends the Job."""
    return job["spec"].get("completions") or 0


def is_finished(job: Object) -> bool:
    """Whether the Job is Complete or Failed."""
    return is_true(job, "Complete") or is_true(job, "Failed")


def index_of(pod: PodRecord) -> int | None:
    """The completion index of a pod."""
    text = pod.labels.get(INDEX, "")
    return int(text) if text.isdecimal() else None


def wanted_active(job: Object, tally: Tally) -> int:
    """How many pods should be at work."""
    spec = job["spec"]
    parallelism: int = spec.get("parallelism", 1)
    if spec.get("suspend"):
        return 0
    if spec.get("completions") is None:
        # A work queue: after the first success the others finish, and no more are made.
        return min(len(tally.active), parallelism) if tally.succeeded else parallelism
    return min(parallelism, max(0, completions_of(job) - tally.succeeded))


def missing_indexes(job: Object, tally: Tally) -> Iterator[int]:
    """The indexes that are neither completed nor at work, smallest first."""
    taken = {index_of(pod) for pod in tally.active}
    return (index for index in range(completions_of(job)) if index not in tally.completed and index not in taken)


def least_missed(tally: Tally) -> list[PodRecord]:
    """The pods at work, those that have come least far first."""
    return sorted(tally.active, key=lambda pod: (bool(pod.node), pod.phase == "Running", pod.ready))


Verdict = tuple[str, str, str]
"""(final condition, reason, message)"""


def verdict_on(job: Object, tally: Tally, active_seconds: float) -> Verdict | None:
    """Whether the Job is over, and why; None while it is not. `active_seconds` counts from its start time."""
    spec = job["spec"]
    limit: int = spec.get("backoffLimit", 6)
    on_failure = (spec["template"].get("spec") or {}).get("restartPolicy") == "OnFailure"
    restarted_too_often = on_failure and tally.restarts > 0 and tally.restarts >= limit
    if tally.failed > limit or restarted_too_often:
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not spec.get("suspend") and active_seconds >= deadline:
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    if spec.get("completions") is None:
        done = tally.succeeded > 0 and not tally.active
    else:
        done = tally.succeeded >= completions_of(job)
    if done:
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    return None

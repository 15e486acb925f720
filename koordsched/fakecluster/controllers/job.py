"""Job: pods that run to completion, counted exactly once each.

A pod carries the job-tracking finalizer until its end has been counted in the Job's status, so that no result is lost
when pods are deleted. Source of the rules: kube-controller-manager `pkg/controller/job` (job_controller.go,
backoff_utils.go), `pkg/controller/ttlafterfinished`.
"""

from __future__ import annotations

from itertools import islice

from koordsched.fakecluster.controllers.conditions import Condition, is_true, with_condition
from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.jobindexes import format_indexes
from koordsched.fakecluster.controllers.jobtally import (
    INDEX,
    Tally,
    Verdict,
    is_finished,
    is_indexed,
    least_missed,
    missing_indexes,
    tally_pods,
    verdict_on,
    wanted_active,
)
from koordsched.fakecluster.controllers.ownership import Key, Object, controller_reference, is_deleting, key_of
from koordsched.fakecluster.controllers.podowner import PodOwnerController, burst
from koordsched.fakecluster.controllers.pods import JOB_TRACKING_FINALIZER, PodRecord
from koordsched.fakecluster.controllers.podtemplate import PodFactory
from koordsched.fakecluster.controllers.timestamps import seconds_of
from koordsched.fakecluster.controllers.workqueue import WorkQueue
from koordsched.fakecluster.errors import ApiStatusError

_FIRST_BACKOFF_SECONDS = 10.0
_LAST_BACKOFF_SECONDS = 600.0
_INTERIM = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}


class JobController(PodOwnerController):
    """Keeps the pods and the status of every Job up to date, and removes finished Jobs after their time to live."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, context.jobs, "batch/v1", "Job")
        self._backoff: dict[str, tuple[int, float]] = {}
        """Failures in a row and the end of the wait they cause, by the Job's uid."""
        self.release_queue: WorkQueue[Key] = WorkQueue(context.registry, "job-orphan-pod", self._release_orphan)

    def owner_changed(self, before: Object | None, after: Object | None) -> None:
        """Releases the pods of a deleted Job: they are no longer counted."""
        super().owner_changed(before, after)
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            uid = before["metadata"]["uid"]
            self._backoff.pop(uid, None)
            for pod in self.context.pods.owned_by(uid):
                self.release_queue.add(pod.key)

    def pod_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        """Lets go of a pod whose Job is gone, queues the Job otherwise."""
        if after is not None and after.tracked and self.key_of_owner(after.owner_uid) is None:
            self.release_queue.add(after.key)
        super().pod_changed(before, after)

    def _release_orphan(self, key: Key) -> int:
        pod = self.context.pods.get(key)
        if pod is None or not pod.tracked or self.key_of_owner(pod.owner_uid) is not None:
            return 0
        return self._release(pod)

    def reconcile(self, key: Key) -> int:
        """Counts ended pods, decides whether the Job is over, makes or removes pods, writes the status."""
        job = self.context.jobs.get(key)
        if job is None:
            return 0
        if is_finished(job):
            pods = self.context.pods.owned_by(job["metadata"]["uid"])
            return sum(self._release(pod) for pod in pods if not pod.active) + self._expire(job)
        writes = self.adoption.claim(job)
        status = dict(job.get("status") or {})
        if not job["spec"].get("suspend"):
            status.setdefault("startTime", self.context.timestamp())
        tally = tally_pods(job, self.context.pods.owned_by(job["metadata"]["uid"]))
        released = [*tally.newly_succeeded, *tally.newly_failed]
        self._note_failures(job, tally)
        verdict = self._verdict(job, status, tally)
        if verdict is not None:
            writes += self._stop_all(tally, verdict)
        elif not is_deleting(job):
            writes += self._adjust(job, tally)
        writes += self._write_status(job, status, tally, verdict)
        # After the count is in the status: a pod that is gone can no longer be counted.
        return writes + sum(map(self._release, released))

    def _note_failures(self, job: Object, tally: Tally) -> None:
        uid = job["metadata"]["uid"]
        if tally.newly_succeeded:
            self._backoff.pop(uid, None)
        if tally.newly_failed:
            failures = self._backoff.get(uid, (0, 0.0))[0] + len(tally.newly_failed)
            delay = min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 16))
            self._backoff[uid] = failures, self.context.now() + delay

    def _verdict(self, job: Object, status: Object, tally: Tally) -> Verdict | None:
        for final, interim in _INTERIM.items():
            if is_true(job, interim):
                decided = next(entry for entry in status["conditions"] if entry["type"] == interim)
                return final, decided["reason"], decided["message"]
        active_seconds = self.context.now() - seconds_of(status.get("startTime"))
        deadline = job["spec"].get("activeDeadlineSeconds")
        if deadline is not None and status.get("startTime") and active_seconds < deadline:
            self.queue.add(key_of(job), deadline - active_seconds)
        return verdict_on(job, tally, active_seconds)

    def _stop_all(self, tally: Tally, verdict: Verdict) -> int:
        """Ends what is still at work: for nothing when the Job succeeded, as failures when it failed."""
        if verdict[0] == "Failed":
            tally.failed += len(tally.active)
        writes = self._stop(tally, tally.active)
        tally.active = []
        return writes

    def _stop(self, tally: Tally, pods: list[PodRecord]) -> int:
        for pod in pods:
            self._release(pod)
            if self.context.delete_pod(pod) and self.context.pods.get(pod.key) is not None:
                tally.terminating += 1
        return 2 * len(pods)

    def _adjust(self, job: Object, tally: Tally) -> int:
        wanted = wanted_active(job, tally)
        surplus = len(tally.active) - wanted
        if surplus > 0:
            doomed = least_missed(tally)[:surplus]
            tally.active = [pod for pod in tally.active if pod not in doomed]
            return self._stop(tally, doomed)
        holding = tally.terminating if job["spec"].get("podReplacementPolicy") == "Failed" else 0
        missing = wanted - len(tally.active) - holding
        if missing <= 0:
            return 0
        wait = self._backoff.get(job["metadata"]["uid"], (0, 0.0))[1] - self.context.now()
        if wait > 0:
            self.queue.add(key_of(job), wait)
            return 0
        return self._create(job, tally, missing)

    def _create(self, job: Object, tally: Tally, missing: int) -> int:
        metadata, template = job["metadata"], job["spec"]["template"]
        names = {"job-name": metadata["name"], "controller-uid": metadata["uid"]}
        labels = names | {f"batch.kubernetes.io/{key}": value for key, value in names.items()}
        factory = PodFactory(template, metadata["namespace"], controller_reference(job, "batch/v1", "Job"))
        count = min(missing, burst(len(tally.active)))
        indexes = list(islice(missing_indexes(job, tally), count)) if is_indexed(job) else [None] * count
        for index in indexes:
            suffix = "" if index is None else f"{index}-"
            pod = factory.pod(generateName=f"{metadata['name']}-{suffix}")
            meta = pod["metadata"]
            meta["labels"] = {**(meta.get("labels") or {}), **labels}
            meta["finalizers"] = [*(meta.get("finalizers") or ()), JOB_TRACKING_FINALIZER]
            if index is not None:
                meta["labels"][INDEX] = str(index)
                meta["annotations"] = {**(meta.get("annotations") or {}), INDEX: str(index)}
                pod["spec"]["hostname"] = f"{metadata['name']}-{index}"
            self.context.create_pod(pod)
        if missing > count:
            self.queue.add(key_of(job))
        tally.active = [pod for pod in self.context.pods.owned_by(metadata["uid"]) if pod.active]
        return len(indexes)

    def _write_status(self, job: Object, status: Object, tally: Tally, verdict: Verdict | None) -> int:
        now = self.context.timestamp()
        conditions: list[Condition] = list(status.get("conditions") or ())
        suspended = bool(job["spec"].get("suspend"))
        if suspended or is_true(job, "Suspended"):
            conditions = with_condition(conditions, _suspension(suspended, now), now)
            if suspended:
                status.pop("startTime", None)
        if verdict is not None:
            final, reason, message = verdict
            condition = {"status": "True", "reason": reason, "message": message, "lastProbeTime": now}
            conditions = with_condition(conditions, {"type": _INTERIM[final], **condition}, now)
            if not tally.terminating:
                conditions = with_condition(conditions, {"type": final, **condition}, now)
                if final == "Complete":
                    status["completionTime"] = now
        counts = {
            "active": len(tally.active),
            "succeeded": tally.succeeded,
            "failed": tally.failed,
            "completedIndexes": format_indexes(tally.completed),
        }
        for name, value in counts.items():
            status[name] = value
            if not value:
                del status[name]
        status["terminating"] = tally.terminating
        status["ready"] = sum(pod.ready for pod in tally.active)
        status["uncountedTerminatedPods"] = {}
        if conditions:
            status["conditions"] = conditions
        if status == (job.get("status") or {}):
            return 0
        return self.context.write_status(self.context.jobs.resource, job, status)

    def _release(self, pod: PodRecord) -> int:
        """Removes the finalizer: the pod's end needs no more counting."""

        def make(current: Object) -> Object:
            metadata = current["metadata"]
            metadata["finalizers"] = [entry for entry in metadata["finalizers"] if entry != JOB_TRACKING_FINALIZER]
            return current

        record = self.context.pods.get(pod.key)
        if record is None or record.uid != pod.uid or not record.tracked:
            return 0
        try:
            self.context.registry.update_record(self.context.pod_resource, *pod.key, make)
        except ApiStatusError as error:
            if error.code != 404:
                raise
        return 1

    def _expire(self, job: Object) -> int:
        """Deletes a finished Job whose ttlSecondsAfterFinished is over."""
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or is_deleting(job):
            return 0
        finals = (entry for entry in job["status"]["conditions"] if entry["type"] in _INTERIM)
        left = max(seconds_of(entry["lastTransitionTime"]) for entry in finals) + ttl - self.context.now()
        if left > 0:
            self.queue.add(key_of(job), left)
            return 0
        uid = job["metadata"]["uid"]
        self.context.registry.delete(self.context.jobs.resource, *key_of(job), uid=uid, propagation="Foreground")
        return 1


def _suspension(suspended: bool, now: str) -> Condition:
    return {
        "type": "Suspended",
        "status": "True" if suspended else "False",
        "reason": "JobSuspended" if suspended else "JobResumed",
        "message": "Job suspended" if suspended else "Job resumed",
        "lastProbeTime": now,
    }

"""Places pending pods one after the other, as the scheduler would if nothing else happened."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from koordsched.cluster.pod import Pod
from koordsched.engine.explain import Explanation, explain
from koordsched.engine.jobexplanation import JobExplanation
from koordsched.plugins.shared.workloads import workload_title
from koordsched.scheduling.advice import Advice, advise
from koordsched.scheduling.failure import UNSCHEDULABLE
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.queueprofile import equivalence_keys


class Outcome(msgspec.Struct, rename="camel", omit_defaults=True):
    """The outcome for one pod. `feasible_nodes`: how many nodes fit; the rest is set only while it is pending.

    `given`: plugin -> what it gave a pod that has a node, in lines of text. `job`: the name of the one of
    `Simulation.jobs` that it belongs to.
    """

    pod: str
    profile: str
    workload: str
    node: str = ""
    feasible_nodes: int = 0
    reason: str = ""
    message: str = ""
    nominated_node: str = ""
    victims: list[str] = []
    advice: Advice | None = None
    job: str = ""
    given: dict[str, list[str]] = {}


class Simulation:
    """Runs on an OfflineScheduler, whose state it changes."""

    def __init__(self, scheduler: OfflineScheduler) -> None:
        self._scheduler = scheduler
        self._equivalence = {name: equivalence_keys(profile) for name, profile in scheduler.profiles.items()}
        self._pods = dict(scheduler.pending)
        self.jobs: dict[str, JobExplanation] = {}
        """By name, the pods that are placed together and have no place."""
        self._refused: dict[Hashable, tuple[int, Explanation, Advice]] = {}

    def run(self, namespace: str | None = None) -> list[Outcome]:
        """Every pending pod, in the order of the queue: by priority, then as given.

        `namespace`: only the outcomes for its pods, though all are placed.
        """
        outcomes = []
        for key in self._scheduler.queue_order():
            pod = self._pods[key]
            outcome = self._decide(key)
            if not namespace or (pod.namespace == namespace and not pod.virtual):
                outcomes.append(outcome)
        return outcomes

    def _decide(self, key: str) -> Outcome:
        pod = self._pods[key]
        outcome = Outcome(pod.title, pod.shape.scheduler_name, workload_title(pod))
        scheduled = self._scheduler.schedule(key)
        outcome.node, outcome.feasible_nodes = scheduled.node, scheduled.feasible
        if scheduled.node:
            outcome.given = dict(scheduled.given)
            return outcome
        if scheduled.job is not None:
            job = self.jobs.setdefault(scheduled.job.name, scheduled.job)
            outcome.reason, outcome.message, outcome.job = UNSCHEDULABLE, scheduled.message, job.name
            outcome.nominated_node = job.nominated.get(key, "")
            outcome.victims = job.victims if key == job.refused else []
            return outcome
        explanation, advice = self._refusal(scheduled.pod)
        outcome.reason, outcome.message = explanation.reason, explanation.message
        if scheduled.refused_by_reserve or not outcome.message:
            outcome.reason, outcome.message = UNSCHEDULABLE, scheduled.message
        outcome.nominated_node, outcome.victims = explanation.nominated_node or "", explanation.victims
        outcome.advice = advice
        return outcome

    def _refusal(self, pod: Pod) -> tuple[Explanation, Advice]:
        """Why the pod cannot be placed; equivalent pods get the same answer while nothing changes."""
        scheduler = self._scheduler
        profile = scheduler.profiles[pod.shape.scheduler_name]
        serial = scheduler.cluster.table.log.serial
        identity = self._equivalence[profile.name](pod)
        key = (pod.shape, identity, pod.nominated_node, _gates(pod))
        known = self._refused.get(key) if identity is not None else None
        if known is not None and known[0] == serial:
            return known[1], known[2]
        explanation = explain(profile, scheduler.cluster, pod)
        advice = advise(profile, scheduler.cluster, pod, explanation)
        self._refused[key] = (serial, explanation, advice)
        return explanation, advice


def _gates(pod: Pod) -> tuple[str, ...]:
    return tuple(gate.name for gate in pod.wire.spec.scheduling_gates) if pod.wire is not None else ()

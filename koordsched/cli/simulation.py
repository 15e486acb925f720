"""Placing pending pods one after the other, as the scheduler would if nothing else happened meanwhile."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

import msgspec

from koordsched.cli.workloads import workload_of
from koordsched.cluster.pod import Pod
from koordsched.framework.diagnosis import first_error
from koordsched.framework.explain import Explanation
from koordsched.framework.interface import CycleState
from koordsched.framework.scoring import InvalidScore, PreScoreFailed, choose
from koordsched.scheduling.advice import Advice, advise
from koordsched.scheduling.offline import OfflineScheduler


class Outcome(msgspec.Struct, rename="camel", omit_defaults=True):
    """The outcome for one pod. `feasible_nodes`: how many nodes fit; the rest is set only while it is pending."""

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


class Simulation:
    """Runs on an OfflineScheduler, whose state it changes."""

    def __init__(self, scheduler: OfflineScheduler, rng: Random) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._refused: dict[Hashable, tuple[int, Explanation, Advice]] = {}

    def run(self) -> list[Outcome]:
        """Every pending pod, in the order of the queue: by priority, then as given."""
        return [self._decide(key) for key in self._scheduler.queue_order()]

    def _decide(self, key: str) -> Outcome:
        pod = self._scheduler.pending[key]
        outcome = Outcome(
            key, pod.shape.scheduler_name, workload_of(pod.namespace, pod.name, pod.owner, pod.labels.labels)
        )
        if self._place(pod, outcome):
            return outcome
        explanation, advice = self._refusal(pod)
        outcome.reason, outcome.message = explanation.reason, explanation.message
        outcome.nominated_node, outcome.victims = explanation.nominated_node or "", explanation.victims
        outcome.advice = advice
        return outcome

    def _place(self, pod: Pod, outcome: Outcome) -> bool:
        """Places a pod that some node can take, without looking at the others one by one."""
        scheduler = self._scheduler
        cluster, profile = scheduler.cluster, scheduler.profiles[pod.shape.scheduler_name]
        if not cluster.table.count or any(not plugin.pre_enqueue(pod).ok for plugin in profile.pre_enqueue):
            return False
        cycle = CycleState(pod)
        verdicts = profile.filtering.filter(cycle)
        if not verdicts.feasible or first_error(verdicts, profile.handle.reasons) is not None:
            return False
        try:
            row = choose(cycle, cluster.table, verdicts, self._rng)
        except (InvalidScore, PreScoreFailed):
            return False
        if not profile.run_reserve(cycle, pod, row).ok:
            profile.run_unreserve(cycle, pod, row)
            return False
        outcome.node, outcome.feasible_nodes = cluster.table.names[row], verdicts.feasible
        scheduler.place(pod.key, outcome.node)
        return True

    def _refusal(self, pod: Pod) -> tuple[Explanation, Advice]:
        """Why the pod cannot be placed; replicas of one workload get the same answer while nothing changes."""
        scheduler = self._scheduler
        profile = scheduler.profiles[pod.shape.scheduler_name]
        serial = scheduler.cluster.table.log.serial
        equivalents = (pod.shape, pod.labels, pod.namespace, pod.nominated_node, _gates(pod))
        known = self._refused.get(equivalents)
        if known is not None and known[0] == serial:
            return known[1], known[2]
        explanation = scheduler.schedule(pod.key).explanation
        advice = advise(profile, scheduler.cluster, pod, explanation)
        self._refused[equivalents] = (serial, explanation, advice)
        return explanation, advice


def _gates(pod: Pod) -> tuple[str, ...]:
    return tuple(gate.name for gate in pod.wire.spec.scheduling_gates) if pod.wire is not None else ()

"""The scheduler's evaluation on a cluster state given as objects: no API server, no queue, no time.

`simulate` and `explain` run on this, and so do comparisons with recorded decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from koordsched.api import core
from koordsched.api.decoding import DecodeError, convert
from koordsched.api.meta import HasMetadata, ObjectMeta
from koordsched.api.quantity import QuantityError
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import TERMINAL, Pod
from koordsched.cluster.state import ClusterState
from koordsched.config.resolving import Resolved
from koordsched.engine.attempt import Attempt, gated_by
from koordsched.engine.explain import Explanation, explain
from koordsched.engine.jobexplanation import JobExplanation, Jobs, explain_job
from koordsched.engine.jobplan import JobPlan
from koordsched.engine.transaction import Transaction
from koordsched.framework.diagnosis import one_node_error
from koordsched.framework.handle import Clock, Handle, OnBehalf, WriteFailed
from koordsched.framework.interface import CycleState
from koordsched.framework.jobs import GroupJob, Job, JobScheduling
from koordsched.framework.permit import WaitingPods
from koordsched.framework.profile import PluginFactory, Profile
from koordsched.framework.scoring import ScoringFailed
from koordsched.framework.status import Code, ReasonTable, Status
from koordsched.framework.timers import Timers
from koordsched.framework.virtualpods import VirtualPodWriter
from koordsched.plugins import KINDS
from koordsched.queue.nominator import Nominator
from koordsched.scheduling.advice import remedy_of
from koordsched.scheduling.assembly import build_profiles
from koordsched.scheduling.reporter import Reporter

T = TypeVar("T", bound=HasMetadata)


class BadObject(ValueError):
    """An object of the given state cannot be understood; the message names it."""


class _NoWrites:
    async def bind(self, pod: Pod, node: str, annotations: Mapping[str, str] | None = None) -> None:
        raise _offline()

    async def patch(self, kind: Kind[T], thing: T, changes: Mapping[str, Any], *, subresource: str = "") -> T:
        raise _offline()

    async def merge(
        self,
        kind: Kind[T],
        meta: ObjectMeta,
        changes: Mapping[str, Any],
        *,
        subresource: str = "",
        strategic: bool = False,
    ) -> T:
        raise _offline()

    async def create(self, kind: Kind[T], namespace: str, thing: Mapping[str, Any]) -> T:
        raise _offline()

    async def delete(self, kind: Kind[Any], meta: ObjectMeta) -> None:
        raise _offline()

    async def read(self, kind: Kind[T], namespace: str, name: str) -> T:
        raise _offline()


def _offline() -> WriteFailed:
    return WriteFailed("nothing is written offline")


class _NoEvictions:
    def running_for(self, uid: str) -> bool:
        return False

    @property
    def running(self) -> tuple[str, ...]:
        return ()

    def evicting(self, uid: str) -> bool:
        return False

    def start(
        self,
        preemptor: Pod,
        node: str,
        victims: Sequence[Pod],
        *,
        reason: str = "",
        behalf: OnBehalf | None = None,
    ) -> None:
        """Evicts no pod: offline there is no API server."""


class _OfflineVirtualPods:
    """They count like other pods. Of their writers only `placed` is called."""

    def __init__(self, scheduler: OfflineScheduler) -> None:
        self._scheduler = scheduler
        self._keys: dict[str, str] = {}
        self._writers: dict[str, VirtualPodWriter] = {}

    def placed(self, pod: Pod, node: str) -> None:
        if (writer := self._writers.get(pod.uid)) is not None:
            writer.placed(pod, node)

    def upsert(self, pod: Pod, writer: VirtualPodWriter) -> None:
        self.delete(pod.uid)
        self._keys[pod.uid] = pod.key
        self._writers[pod.uid] = writer
        self._scheduler.add_pod(pod)

    def delete(self, uid: str) -> None:
        scheduler = self._scheduler
        scheduler.pending.pop(self._keys.pop(uid, ""), None)
        self._writers.pop(uid, None)
        scheduler.nominator.delete(uid)
        scheduler.cluster.remove_pod(uid)
        scheduler.cluster.pod_gone(uid)


class Scheduled(NamedTuple):
    """How scheduling a pending pod ended: on a node out of a number of feasible ones, or with a message and no node.

    `refused_by_reserve`: a node was chosen, and a Reserve plugin refused it. `job`: the pods that it is placed together
    with, if these have no place. `given`: plugin -> what it gave the pod, in lines of text.
    """

    pod: Pod
    node: str = ""
    feasible: int = 0
    message: str = ""
    refused_by_reserve: bool = False
    job: JobExplanation | None = None
    given: Mapping[str, list[str]] = {}


class OfflineScheduler:
    """A cluster state and the profiles to evaluate pods on it.

    `pending`: the pods without a node that belong to one of the profiles, in the order given; `others`: those of other
    schedulers. Both by `namespace/name`.
    """

    def __init__(
        self,
        resolved: Resolved,
        registry: Mapping[str, PluginFactory],
        state: Iterable[Mapping[str, Any]],
        *,
        clock: Clock,
        rng: Random,
    ) -> None:
        """Raises BadObject, or ProfileError if the profiles cannot be built."""
        self.cluster = ClusterState()
        self.pending: dict[str, Pod] = {}
        self.others: dict[str, Pod] = {}
        self.nominator: Nominator[Pod] = Nominator(lambda pod: pod.uid not in self.cluster.assigned)
        self._rng = rng
        self.timers = Timers(clock.monotonic)
        self._virtual_pods = _OfflineVirtualPods(self)
        offered = Handle(
            profile="",
            cluster=self.cluster,
            reasons=ReasonTable(),
            nominations=self.nominator,
            writes=_NoWrites(),
            evictions=_NoEvictions(),
            clock=clock,
            live_clock=clock,
            rng=rng,
            events=Reporter(),
            waiting=WaitingPods(),
            activate=lambda pods: None,
            timers=self.timers,
            virtual_pods=self._virtual_pods,
        )
        self.profiles: dict[str, Profile] = build_profiles(resolved, registry, offered, self.nominator)
        self.jobs = Jobs(self.profiles, self.nominator, remedy_of)
        self._refused_with: dict[str, Scheduled] = {}
        """By `namespace/name`, why a pod is not placed: it was tried together with another one."""
        self._placed_with: dict[str, Scheduled] = {}
        for thing in state:
            self.add(thing)
        self.timers.run()

    def add(self, thing: Mapping[str, Any]) -> Pod | None:
        """Takes in one object; returns it if it is a pending pod of ours. Raises BadObject."""
        kind = KINDS.get((str(thing.get("apiVersion", "")), str(thing.get("kind", ""))))
        if kind is None:
            return None
        return self.add_object(kind, self.decoded(kind, thing))

    @staticmethod
    def decoded(kind: Kind[T], thing: Mapping[str, Any]) -> T:
        """The object of a kind from JSON values. Raises BadObject."""
        try:
            return convert(thing, kind.type)
        except DecodeError as error:
            meta = thing.get("metadata")
            name = meta.get("name", "?") if isinstance(meta, Mapping) else "?"
            raise BadObject(f"{kind.name} {name}: {error}") from error

    def add_object(self, kind: Kind[T], thing: T) -> Pod | None:
        """Takes in one decoded object; returns it if it is a pending pod of ours. Raises BadObject."""
        try:
            if isinstance(thing, core.Pod):
                return self._add_pod(thing)
            if isinstance(thing, core.Node):
                self.cluster.upsert_node(thing)
            else:
                self.cluster.objects.of(kind).upsert(thing)
        except QuantityError as error:
            raise BadObject(f"{kind.name} {thing.metadata.name}: {error}") from error
        return None

    def _add_pod(self, wire: core.Pod) -> Pod | None:
        if wire.status.phase in TERMINAL:
            return None
        return self.add_pod(self.cluster.pods.build(wire))

    def add_pod(self, pod: Pod) -> Pod | None:
        """Takes in a pod; returns it if it is a pending one of ours."""
        if not pod.uid:
            pod.uid = pod.key  # plain manifests have none
        if pod.node:
            self.cluster.set_pod(pod)
            return None
        if pod.shape.scheduler_name not in self.profiles:
            self.others[pod.key] = pod
            self.cluster.pod_seen(pod)
            return None
        self.pending[pod.key] = pod
        self.cluster.pod_seen(pod)
        if pod.nominated_node:
            self.nominator.add(pod)
        return pod

    def explain(self, key: str) -> Explanation:
        """What would be done with the pending pod `namespace/name` now. Raises KeyError if there is none."""
        pod = self.pending[key]
        return explain(self.profiles[pod.shape.scheduler_name], self.cluster, pod, self.jobs)

    def place(self, key: str, node: str) -> None:
        """Puts a pending pod on a node, feasible or not.

        Raises KeyError if there is no such pod or node, ValueError if a Reserve plugin refuses.
        """
        attempt = self.attempt(key)
        attempt.filter()
        status, _ = self.take(attempt, self.cluster.table.row_of[node])
        if not status.ok:
            raise ValueError(status.message)

    def attempt(self, key: str) -> Attempt:
        """An attempt to place a pending pod. Raises KeyError if there is none."""
        pod = self.pending[key]
        return Attempt(self.profiles[pod.shape.scheduler_name], self.cluster, pod)

    def take(self, attempt: Attempt, row: int) -> tuple[Status, Mapping[str, list[str]]]:
        """Places the pod of an attempt on a row, unless a Reserve plugin refuses: then its status. Also returns what
        plugins gave the pod (`Scheduled.given`).
        """
        with Transaction(self.cluster, self.nominator) as transaction:
            status = transaction.place(attempt.cycle, attempt.profile, row)
            if status.ok:
                transaction.commit()
                self.pending.pop(attempt.pod.key, None)
        if status.ok and attempt.pod.virtual:
            self._virtual_pods.placed(attempt.pod, self.cluster.table.names[row])
        return status, _settled(attempt.profile, attempt.cycle) if status.ok else {}

    def schedule(self, key: str) -> Scheduled:
        """Places a pending pod as the scheduler would, if it fits, with all that are placed together with it.

        Raises KeyError if there is none.
        """
        if (placed := self._placed_with.pop(key, None)) is not None:
            return placed
        if (refused := self._refused_with.pop(key, None)) is not None:
            return refused
        attempt = self.attempt(key)
        pod = attempt.pod
        gate = gated_by(attempt.profile, pod)
        if not gate.ok:
            return Scheduled(pod, message=gate.message)
        if (begun := attempt.profile.begin_job(pod)) is not None:
            return self._schedule_job(*begun, pod)
        if not attempt.has_nodes:
            return Scheduled(pod, message=attempt.message())
        verdicts = attempt.filter()
        error = attempt.error()
        if error is not None or not verdicts.feasible:
            return Scheduled(pod, message=error.message if error is not None else attempt.message())
        try:
            row = attempt.choose(self._rng).row
        except ScoringFailed as failed:
            return Scheduled(pod, message=str(failed))
        status, given = self.take(attempt, row)
        if not status.ok:
            message = one_node_error(status) if status.code.rejects else status.message
            return Scheduled(pod, message=message, refused_by_reserve=True)
        return Scheduled(pod, self.cluster.table.names[row], verdicts.feasible, given=given)

    def _schedule_job(self, plugin: JobScheduling, job: Job | GroupJob, pod: Pod) -> Scheduled:
        """Places a job; what comes of its other pods is the answer when they are asked about."""
        with Transaction(self.cluster, self.nominator) as transaction:
            plan = JobPlan(self.profiles, self.cluster, transaction, self._rng)
            plan.place(job)
            if plan.complete:
                transaction.commit()
        placed = [cycle.pod for cycle in plan.cycles] if plan.complete else []
        plugin.end_job(job, placed, ())
        if not plan.complete:
            return self._refuse_job(job, plan, pod)
        for key, text in plan.refusals.items():
            self._refused_with[key] = Scheduled(self.pending[key], message=text)
        for cycle, feasible in zip(plan.cycles, plan.feasible, strict=True):
            each = cycle.pod
            self.pending.pop(each.key, None)
            profile = self.profiles[each.shape.scheduler_name]
            self._placed_with[each.key] = Scheduled(each, each.node, feasible, given=_settled(profile, cycle))
            if each.virtual:
                self._virtual_pods.placed(each, each.node)
            profile.run_post_bind(cycle, each, each.node)
        return self._placed_with.pop(pod.key, None) or self.schedule(pod.key)

    def _refuse_job(self, job: Job | GroupJob, plan: JobPlan, pod: Pod) -> Scheduled:
        messages = plan.refusals if isinstance(job, GroupJob) else self._refusals(job, plan)
        explained = explain_job(self.profiles[pod.shape.scheduler_name], self.cluster, pod, self.jobs)
        self._refused_with |= {
            key: Scheduled(self.pending[key], message=text, job=explained)
            for key, text in messages.items()
            if key != pod.key
        }
        return Scheduled(pod, message=messages.get(pod.key, plan.message), job=explained)

    def _refusals(self, job: Job, plan: JobPlan) -> dict[str, str]:
        """By `namespace/name`, what members of a job read that has no place."""
        rejected = one_node_error(Status(Code.UNSCHEDULABLE, (job.rejection(),)))
        messages = {cycle.pod.key: rejected for cycle in plan.cycles}
        untried = f"0/{self.cluster.table.count} nodes are available: {job.rejection()}."
        messages.update((each.key, untried) for each in job.untried())
        if plan.refused is not None:
            messages[plan.refused.key] = plan.message
        return messages

    def queue_order(self) -> list[str]:
        """The pending pods in the order the scheduler would try them: by priority, then as given."""
        return sorted(self.pending, key=lambda key: -self.pending[key].priority)


def _settled(profile: Profile, cycle: CycleState) -> dict[str, list[str]]:
    """The pod was placed: does what PreBind would. Returns what plugins gave it."""
    found = {plugin.name: plugin.settle(cycle, cycle.pod) for plugin in profile.settling}
    return {name: lines for name, lines in found.items() if lines}

"""What would happen to the pods that are placed together with a pod, and what the one lacks that has no place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from random import Random
from typing import NamedTuple

import msgspec

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt, gated_by
from koordsched.engine.jobplan import JobPlan
from koordsched.engine.transaction import Transaction
from koordsched.framework.jobs import GroupJob
from koordsched.framework.profile import Profile
from koordsched.framework.status import NO_NODE, PASS
from koordsched.queue.nominator import Nominator

MOST_NAMED = 3
"""Nodes that are named of those that refuse a member for the same reason."""


class Jobs(NamedTuple):
    """What it takes to plan a job: the profiles of its pods, and the nominations. `remedy`: what would help a member
    that has no place, while those before it have theirs; it gets the uids of all of them.
    """

    profiles: Mapping[str, Profile]
    nominator: Nominator[Pod]
    remedy: Callable[[Profile, ClusterState, Pod, Set[str]], str]


class JobRefusal(msgspec.Struct, rename="camel"):
    """Nodes that refuse a member for the same reason: how many, and the first by name."""

    plugin: str
    reasons: tuple[str, ...]
    nodes: int
    examples: list[str]


class JobExplanation(msgspec.Struct, rename="camel"):
    """What would happen to the pods that are placed together with a pod.

    `nodes`: pod -> node of those that have a place, in order. `complete`: whether there are enough. If not, `refused`
    is the pod that has no place, "" if all have one, and `message` says why; `refusals`, the most frequent first, and
    `remedy` are about it, after the others got their place. `untried`: the pods after it. `victims`, `nominated`: what
    preemption would do for all of them. `notes`: what the plugin says that has them placed together.
    """

    name: str
    nodes: dict[str, str]
    complete: bool
    refused: str = ""
    message: str = ""
    refusals: list[JobRefusal] = []
    remedy: str = ""
    untried: list[str] = []
    victims: list[str] = []
    nominated: dict[str, str] = {}
    notes: list[str] = []


def explain_job(profile: Profile, cluster: ClusterState, pod: Pod, jobs: Jobs) -> JobExplanation | None:
    """Plans the job of the pod, and takes it back; None if it has none, or while another is being placed."""
    if not profile.job_plugins or cluster.in_transaction or not gated_by(profile, pod).ok:
        return None
    begun = profile.begin_job(pod)
    if begun is None:
        return None
    plugin, job = begun
    try:
        with Transaction(cluster, jobs.nominator) as transaction:
            plan = JobPlan(jobs.profiles, cluster, transaction, Random(0))
            plan.place(job)
            # All members of a GroupJob are tried.
            untried = [] if plan.complete or isinstance(job, GroupJob) else job.untried()
            found = JobExplanation(
                job.name,
                {cycle.pod.key: cycle.pod.node for cycle in plan.cycles},
                plan.complete,
                plan.refused.key if plan.refused is not None else "",
                plan.message,
                untried=[each.key for each in untried],
            )
            keys = {each.uid: each.key for each in (*(cycle.pod for cycle in plan.cycles), *untried)}
            if plan.refused is not None:
                keys[plan.refused.uid] = plan.refused.key
            if plan.outcome is not None:
                found.victims = [victim.key for victim in plan.outcome.victims]
                found.nominated = {keys.get(uid, uid): node for uid, node in plan.outcome.nominations.items() if node}
    finally:
        plugin.end_job(job, (), ())
    if plan.refused is not None:
        _explain_refused(found, cluster, plan, plan.refused, jobs)
    found.notes = [] if found.complete or isinstance(job, GroupJob) else plugin.explain_job(job)
    return found


def _explain_refused(found: JobExplanation, cluster: ClusterState, plan: JobPlan, pod: Pod, jobs: Jobs) -> None:
    """Why the nodes refuse the member, with the others where they would be, and no attempt at the job under way."""
    members = {pod.uid, *(cycle.pod.uid for cycle in plan.cycles)}
    with Transaction(cluster, jobs.nominator) as transaction:
        for other in (cycle.pod for cycle in plan.cycles):
            before = Attempt(jobs.profiles[other.shape.scheduler_name], cluster, other)
            before.cycle.job_members = members
            before.filter()
            row = cluster.table.row_of[found.nodes[other.key]]
            if not transaction.place(before.cycle, before.profile, row).ok:
                return
        attempt = Attempt(jobs.profiles[pod.shape.scheduler_name], cluster, pod)
        attempt.cycle.job_members = members
        if attempt.has_nodes:
            _add_refusals(found, attempt, jobs)


def _add_refusals(found: JobExplanation, attempt: Attempt, jobs: Jobs) -> None:
    verdicts = attempt.filter()
    if verdicts.feasible or not verdicts.pre_filtered.status.ok:
        return
    cluster, reasons = attempt.cluster, attempt.profile.handle.reasons
    groups: dict[int, list[str]] = {}
    for name, row in sorted(cluster.table.row_of.items()):
        groups.setdefault(int(verdicts.codes[row]), []).append(name)
    for code, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[1])):
        if code not in (PASS, NO_NODE):
            reason = reasons[code]
            found.refusals.append(JobRefusal(reason.plugin, reason.texts, len(names), names[:MOST_NAMED]))
    found.remedy = jobs.remedy(attempt.profile, cluster, attempt.pod, attempt.cycle.job_members)

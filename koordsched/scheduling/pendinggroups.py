"""All pods that wait, by what they wait for: grouped by the reasons that refuse them and by what would help.

Pods that a profile cannot tell apart are evaluated once, on the cluster as it is, each as if it were the only one.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt, gated_by, internal_error
from koordsched.engine.explain import Explanation, NodeVerdict
from koordsched.framework.profile import Profile
from koordsched.plugins.shared.workloads import workload_title
from koordsched.scheduling.advice import FITS, GATED, WAITS, Advice, advise
from koordsched.scheduling.decisions import Rejection
from koordsched.scheduling.failure import SCHEDULER_ERROR, UNSCHEDULABLE
from koordsched.scheduling.queueprofile import equivalence_keys

_log = logging.getLogger(__name__)

SCHEDULING_GATED = "SchedulingGated"

_PODS_AT_ONCE = 5_000

_CONDITION = "PodScheduled"


class PendingGroup(msgspec.Struct, rename="camel"):
    """Pods of one scheduler that wait for the same.

    `reason`: as in the condition; "" if they fit now. `causes`: what refuses nodes, that of most nodes first.
    `message`, `remedy` and `closest`, the node that lacks least, are those of the pods of which there are most.
    `verdict`: as in `Advice`; "" where nothing was evaluated. `oldest`: when the first was created.
    `workloads`: how many pods of each.
    """

    scheduler: str
    reason: str
    causes: list[str]
    verdict: str
    remedy: str
    closest: str
    message: str
    oldest: str
    workloads: dict[str, int]
    pods: list[str]


class PendingPodsReport(msgspec.Struct, rename="camel"):
    """The groups, the largest first."""

    pods: int
    groups: list[PendingGroup]


class _Finding(NamedTuple):
    reason: str
    causes: tuple[str, ...]
    message: str
    advice: Advice | None = None

    def key(self) -> Hashable:
        """Equal for findings that belong together: how much is missing may differ."""
        if self.advice is None:
            return self.reason, tuple(_without_numbers(cause) for cause in self.causes), "", ()
        remedies = self.advice.remedies[:1]
        plugins = tuple(change.plugin for remedy in remedies for change in remedy.changes)
        return self.reason, tuple(sorted(map(_without_numbers, self.causes))), self.advice.verdict, plugins


def pending_groups(
    pods: Iterable[Pod],
    profiles: Mapping[str, Profile],
    cluster: ClusterState,
    *,
    most_evaluated: int | None = None,
    recorded: Callable[[str], Rejection | None] = lambda uid: None,
) -> Generator[None, None, PendingPodsReport]:
    """Groups pods that have no node, those of other schedulers by what their conditions say.

    A generator that returns the report, so that others get their turn at each step. So many kinds of pods are evaluated
    (`most_evaluated`), those of which there are most; None: all. Of the others there is what was `recorded` by uid.
    """
    identities = {name: equivalence_keys(profile) for name, profile in profiles.items()}
    kinds: dict[Hashable, list[Pod]] = {}
    for number, pod in enumerate(pods, start=1):
        of = identities.get(pod.shape.scheduler_name)
        kinds.setdefault(_kind(pod, of(pod) if of is not None else None), []).append(pod)
        if number % _PODS_AT_ONCE == 0:
            yield
    groups: dict[Hashable, tuple[_Finding, list[Pod]]] = {}
    for number, alike in enumerate(sorted(kinds.values(), key=lambda alike: (-len(alike), min(map(_age, alike))))):
        first = alike[0]
        scheduler = first.shape.scheduler_name
        profile = profiles.get(scheduler)
        if profile is None:
            finding = _shown(first)
        elif most_evaluated is not None and number >= most_evaluated:
            finding = _remembered(recorded(first.uid))
        else:
            finding = _found(profile, cluster, first)
        groups.setdefault((scheduler, finding.key()), (finding, []))[1].extend(alike)
        yield
    made = [_group(finding, members) for finding, members in groups.values()]
    made.sort(key=lambda group: (-len(group.pods), group.oldest, group.pods[0]))
    return PendingPodsReport(sum(len(group.pods) for group in made), made)


def _age(pod: Pod) -> tuple[str, str]:
    """The oldest first."""
    return pod.created or "", pod.key


def _kind(pod: Pod, identity: Hashable | None) -> Hashable:
    gates = tuple(gate.name for gate in pod.wire.spec.scheduling_gates) if pod.wire is not None else ()
    return pod.shape, pod.uid if identity is None else identity, pod.nominated_node, gates


def _found(profile: Profile, cluster: ClusterState, pod: Pod) -> _Finding:
    """The profile's evaluation of the pod now. A bug of a plugin keeps no other pod out of the report."""
    try:
        return _evaluated(profile, cluster, pod)
    except Exception as error:
        _log.exception("evaluating %s failed", pod.title)
        message = internal_error(error)
        return _Finding(SCHEDULER_ERROR, (message,), message)


def _evaluated(profile: Profile, cluster: ClusterState, pod: Pod) -> _Finding:
    gate = gated_by(profile, pod)
    if not gate.ok:
        let_in = Advice(GATED, f"until {gate.plugin} admits it to the queue")
        return _Finding(SCHEDULING_GATED, (gate.message,), gate.message, let_in)
    attempt = Attempt(profile, cluster, pod)
    if not attempt.has_nodes:
        explanation = Explanation(pod.title, profile.name, [], [], attempt.message(), UNSCHEDULABLE)
        return _Finding(
            UNSCHEDULABLE, (attempt.message(),), attempt.message(), advise(profile, cluster, pod, explanation)
        )
    verdicts = attempt.filter()
    error = attempt.error()
    if error is not None:
        return _Finding(SCHEDULER_ERROR, (error.message,), error.message)
    if verdicts.feasible:
        return _Finding("", (), "", Advice(FITS, "nothing: it fits now, and waits for its turn"))
    status, reasons = verdicts.pre_filtered.status, profile.handle.reasons
    explanation = Explanation(pod.title, profile.name, [], [], attempt.message(), UNSCHEDULABLE)
    causes: tuple[str, ...]
    if status.code.rejects:
        causes = (status.message,)
        explanation.rejected_by = status.plugin
        explanation.nodes = [NodeVerdict("", False, status.plugin, status.reasons, status.code.text)]
    else:
        counts: Counter[str] = Counter()
        for code, count in reasons.counted(verdicts.codes):
            counts.update(dict.fromkeys(reasons[code].texts, count))
        causes = tuple(text for text, _ in counts.most_common())
    if pod.nominated_node:
        return _Finding(
            UNSCHEDULABLE,
            causes,
            explanation.message,
            Advice(WAITS, f"nothing: pods are being evicted for it on {pod.nominated_node}"),
        )
    return _Finding(UNSCHEDULABLE, causes, explanation.message, advise(profile, cluster, pod, explanation))


def _shown(pod: Pod) -> _Finding:
    """What another scheduler reports about the pod."""
    condition = pod.wire.status.condition(_CONDITION) if pod.wire is not None else None
    if condition is None or condition.status != "False":
        return _Finding("", ("its scheduler has not tried it yet",), "")
    return _Finding(condition.reason, _causes_in(condition.message), condition.message)


def _remembered(rejection: Rejection | None) -> _Finding:
    """What was recorded when the pod was tried last."""
    if rejection is None:
        return _Finding("", ("not evaluated",), "")
    return _Finding(rejection.reason, _causes_in(rejection.message), rejection.message)


def _causes_in(message: str) -> tuple[str, ...]:
    """The first sentence, without how many nodes there are."""
    first = message.partition(". ")[0].rpartition(" are available: ")[2]
    return (first,) if first else ()


def _group(finding: _Finding, pods: list[Pod]) -> PendingGroup:
    advice = finding.advice
    remedies = advice.remedies if advice is not None else []
    remedy, closest = advice.text if advice is not None else "", ""
    if remedies:
        remedy = "; ".join(change.text for change in remedies[0].changes)
        closest = remedies[0].node
    workloads = Counter(workload_title(pod) for pod in pods)
    return PendingGroup(
        pods[0].shape.scheduler_name,
        finding.reason,
        list(finding.causes),
        advice.verdict if advice is not None else "",
        remedy,
        closest,
        finding.message,
        min(pod.created or "" for pod in pods),
        dict(workloads.most_common()),
        [pod.title for pod in sorted(pods, key=_age)],
    )


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", text)

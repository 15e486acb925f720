"""What a running scheduler answers about a pod: what it would do now, and what it decided and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from koordsched.cluster.pod import Pod
from koordsched.engine.explain import Explanation, explain
from koordsched.engine.jobexplanation import Jobs
from koordsched.scheduling.advice import Advised, remedy_of, with_advice
from koordsched.scheduling.decisions import Decision, Rejection

if TYPE_CHECKING:
    from koordsched.scheduling.scheduler import Scheduler


class Answer(Advised, rename="camel"):
    """An explanation of a pod that waits; of one that has a node, `node`, there is no explanation but the record.

    `decision`: its placement, if this scheduler made it and still remembers it. `rejection`: its last attempt that
    failed, likewise.
    """

    node: str = ""
    decision: Decision | None = None
    rejection: Rejection | None = None


def answer_for(scheduler: Scheduler, pod: Pod, *, advice: bool) -> Answer:
    """The answer about one pod; what it says of the present is of one instant."""
    cluster, name = scheduler.cluster, pod.shape.scheduler_name
    rejection = scheduler.decisions.refusal(pod.uid)
    placed = cluster.assigned.get(pod.uid)
    if placed is not None:
        made = (decision for decision in scheduler.decisions.of(pod.title) if decision.uid == pod.uid)
        return Answer(
            pod.title,
            name,
            [],
            [],
            virtual=pod.virtual,
            node=placed.node,
            decision=next(made, None),
            rejection=rejection,
        )
    profile = scheduler.profiles[name]
    explanation: Explanation = explain(
        profile, cluster, pod, Jobs(scheduler.profiles, scheduler.queue.nominator, remedy_of)
    )
    if advice:
        explanation = with_advice(profile, cluster, pod, explanation)
    fields = {field: getattr(explanation, field) for field in explanation.__struct_fields__}
    return Answer(**fields, rejection=rejection)

"""The pods of a gang, counted for the status of its PodGroup."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from koordsched.cluster.pod import Pod
from koordsched.plugins.coscheduling.controller.finished import FinishedMember
from koordsched.plugins.coscheduling.controller.status import Counts
from koordsched.plugins.coscheduling.kinds import FAILED
from koordsched.plugins.coscheduling.podfacts import GangFacts


def counts(
    children: Mapping[str, Pod], bound: Mapping[str, Pod], finished: Collection[FinishedMember], facts: GangFacts
) -> Counts:
    """The numbers; pods by uid.

    A pod that has just finished may still be among the children: it counts once, as what it is now.
    """
    if not finished:
        return Counts(len(children), len(bound), sum(map(facts.runs, children.values())))
    over = {member.uid for member in finished}
    failed = sum(member.phase == FAILED for member in finished)
    unfinished = [pod for pod in children.values() if pod.uid not in over]
    return Counts(
        pods=len(unfinished) + len(over),
        scheduled=sum(pod.uid not in over for pod in bound.values()) + sum(member.placed for member in finished),
        running=sum(map(facts.runs, unfinished)),
        succeeded=len(over) - failed,
        failed=failed,
    )


def owners_of_first(children: Mapping[str, Pod], facts: GangFacts) -> str:
    """The owners of the first member, as `namespace/name` in order, separated by commas; "" if it has none."""
    first = next(iter(children.values()), None)
    return "" if first is None else ",".join(sorted(f"{first.namespace}/{name}" for name in facts.owners(first)))

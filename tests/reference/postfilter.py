"""What happens when no node fits: the PostFilter plugins in order (core spec 3.6, step 8)."""

from dataclasses import dataclass, field

from tests.reference.evaluation import fit_error
from tests.reference.status import UNSCHEDULABLE, unschedulable


@dataclass
class PostFiltered:
    """`status`: None for success; `cleared`: the pod's nomination, if it has one, is taken away.

    On success `candidates`: node name -> (victims, how many break a budget), and `best`: the names of the nodes of
    which any may be chosen.
    """

    status: object = None
    cleared: bool = False
    candidates: dict = field(default_factory=dict)
    best: set = field(default_factory=set)


def post_filter(pod, world, profile, outcome, nominated, now):
    """(the text of the PodScheduled condition, the PostFiltered of the last plugin); `now`: a datetime."""
    texts = []
    last = PostFiltered(unschedulable())
    for name in profile.points["postFilter"]:
        last = profile.plugins[name].post_filter(pod, world, profile, outcome, nominated, now)
        if last.status is None:
            return fit_error(outcome, world), last
        texts.extend(last.status.reasons)
        if last.status.code != UNSCHEDULABLE:
            texts = last.status.reasons
            break
    return " ".join([fit_error(outcome, world), ", ".join(texts)]).rstrip(), last

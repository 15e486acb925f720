"""One decision of another scheduler, judged: as `explain` has it for every node, on the same state."""

from random import Random

import pytest

from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.shadow.judgement import (
    ELSEWHERE,
    EQUAL,
    FAILED,
    NOMINATED,
    REFUSED,
    SAME,
    UNKNOWN_NODE,
    Judgement,
    judge,
)
from tests.embedded import DEFAULT_CONFIG
from tests.extraplugins import resolved_with
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term, spread

PROFILE = "default-scheduler"


def offline(*objects):
    return OfflineScheduler(resolved_with(DEFAULT_CONFIG, ()), IN_TREE, objects, clock=StoppedClock(), rng=Random(1))


def judged(scheduler, name, on):
    return judge(scheduler.profiles[PROFILE], scheduler.cluster, scheduler.pending[f"default/{name}"], on)


def some_cluster(rng):
    """Nodes of several sizes and zones, some of them tainted, with pods on them; pods that wait."""
    nodes = [f"n{i}" for i in range(rng.randrange(2, 9))]
    objects = [
        node(
            name,
            cpu=str(rng.choice([2, 4, 4, 8])),
            labels={"zone": rng.choice("ab")},
            taints=[("team",)] if rng.random() < 0.2 else (),
        )
        for name in nodes
    ]
    for i in range(rng.randrange(12)):
        cpu = rng.choice(["500m", "1", "2"])
        objects.append(pod(f"r{i}", container(cpu=cpu), on=rng.choice(nodes), labels={"app": rng.choice("xy")}))
    more = [
        {},
        {"topologySpreadConstraints": [spread("zone", 1, {"app": "x"})]},
        {"topologySpreadConstraints": [spread("zone", 1, {"app": "x"}, hard=False)]},
        {"affinity": pod_affinity(required_anti=[pod_term("kubernetes.io/hostname", {"app": "x"})])},
        {"affinity": pod_affinity(preferred=[(50, pod_term("zone", {"app": "y"}))])},
        {"nodeSelector": {"zone": "nowhere"}},
    ]
    waiting = [
        pod(f"w{i}", container(cpu=rng.choice(["100m", "1", "3"])), labels={"app": "x"}, **spec)
        for i, spec in enumerate(more)
    ]
    return nodes, [*objects, *waiting], [f"w{i}" for i in range(len(more))]


@pytest.mark.parametrize("seed", range(20))
def test_every_node_of_a_random_cluster_is_judged_as_it_is_explained(seed):
    _, objects, waiting = some_cluster(Random(seed))
    scheduler = offline(*objects)
    for name in waiting:
        explained = scheduler.explain(f"default/{name}")
        best = explained.any_of
        for verdict in explained.nodes:
            judgement = judged(scheduler, name, verdict.name)
            assert judgement.node == verdict.name
            if verdict.name in best:
                assert judgement.kind == (SAME if len(best) == 1 else EQUAL)
                continue
            assert judgement.instead in best or (judgement.instead, best) == ("", [])
            if not verdict.feasible:
                assert (judgement.kind, judgement.plugin) == (REFUSED, verdict.plugin)
                assert judgement.reason == ", ".join(verdict.reasons)
                continue
            assert (judgement.kind, judgement.feasible) == (ELSEWHERE, sum(each.feasible for each in explained.nodes))
            scores = {each.name: each for each in explained.nodes}
            for ranked in (judgement.theirs, judgement.ours):
                assert ranked.total == scores[ranked.node].total
                assert ranked.scores == {k: v.weighted for k, v in scores[ranked.node].scores.items()}
            leads = {key: judgement.ours.scores[key] - judgement.theirs.scores[key] for key in judgement.ours.scores}
            assert leads[judgement.plugin] == max(leads.values()) > 0


def test_all_kinds_occur_in_the_random_clusters():
    found = set()
    for seed in range(20):
        nodes, objects, waiting = some_cluster(Random(seed))
        scheduler = offline(*objects)
        found |= {judged(scheduler, name, on).kind for name in waiting for on in nodes}
    assert found == {SAME, EQUAL, ELSEWHERE, REFUSED}


def test_a_node_that_is_not_known():
    scheduler = offline(node("n1"), pod("w"))
    assert judged(scheduler, "w", "n2") == Judgement(FAILED, "n2", reason=UNKNOWN_NODE)


def test_a_pod_that_would_not_be_tried():
    scheduler = offline(node("n1"), pod("w", schedulingGates=[{"name": "later"}]))
    judgement = judged(scheduler, "w", "n1")
    assert (judgement.kind, judgement.plugin) == (REFUSED, "SchedulingGates")


def test_the_node_that_a_pod_is_nominated_to_is_tried_alone():
    nominated = pod("w") | {"status": {"nominatedNodeName": "n1"}}
    scheduler = offline(node("n1"), node("n2"), nominated)
    assert judged(scheduler, "w", "n1").kind == SAME
    assert judged(scheduler, "w", "n2") == Judgement(ELSEWHERE, "n2", "n1", reason=NOMINATED, feasible=1)


def test_nothing_is_left_behind():
    scheduler = offline(node("n1"), node("n2", cpu="1"), pod("w", container(cpu="2")))
    before = scheduler.explain("default/w")
    judged(scheduler, "w", "n1")
    judged(scheduler, "w", "n2")
    assert scheduler.explain("default/w") == before
    assert not scheduler.cluster.assigned

"""One pending pod, decided by the scheduler and by the naive reference: verdicts, scores, totals, message."""

from datetime import UTC, datetime
from random import Random

from koordsched.framework.interface import CycleState
from koordsched.framework.scoring import decide
from tests.plugins.harness import StoppedClock
from tests.reference.evaluation import evaluate
from tests.reference.postfilter import post_filter

NOW = datetime.fromtimestamp(StoppedClock().wall(), UTC)


def key(pod):
    """`namespace/name`."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def bind(offline, key, node):
    """By the API server's word the pod is on this node; nothing is reserved for it, as in the reference."""
    pod = offline.pending.pop(key)
    pod.node = node
    offline.nominator.delete(pod.uid)
    offline.cluster.set_pod(pod)


def decided_alike(offline, pod, world, profile, nominated=()):
    """Compares all that is said about a pod, which the offline scheduler has; returns the reference's outcome.

    Also the result of PostFilter, None if the pod fits, and the explanation.
    """
    expected = evaluate(pod, world, profile, nominated)
    found = offline.explain(key(pod))
    assert [node.name for node in found.nodes if node.feasible] == sorted(expected.feasible)
    if expected.feasible == [pod["status"].get("nominatedNodeName")]:
        pass  # the other nodes were not looked at
    elif expected.rejected is None:
        refused = {node.name: (node.plugin, node.status, node.reasons) for node in found.nodes if not node.feasible}
        assert refused == {
            node: (plugin, status.code, status.reasons) for node, (plugin, status) in expected.filtered.items()
        }
    else:
        assert found.rejected_by == expected.rejected[0]
    assert set(found.any_of) == set(expected.any_of)
    if not expected.feasible:
        message, result = post_filter(pod, world, profile, expected, nominated, NOW)
        assert found.message == message
        return expected, result, found
    if expected.scores is not None:
        scores = {n.name: {p: (s.raw, s.normalized, s.weighted) for p, s in n.scores.items()} for n in found.nodes}
        for plugin, by_node in expected.scores.items():
            assert {node: scores[node][plugin] for node in by_node} == by_node, plugin
        assert {n.name: n.total for n in found.nodes if n.feasible} == expected.totals
    same_choice(offline, offline.pending[key(pod)], expected)
    return expected, None, found


def same_choice(offline, pod, expected):
    """The way of the scheduling cycle, which scores from what it remembers, to the same node."""
    profile, table = offline.profiles[pod.shape.scheduler_name], offline.cluster.table
    cycle = CycleState(pod)
    verdicts = profile.filtering.filter(cycle)
    choice = decide(cycle, table, verdicts, Random(1))
    assert table.names[choice.row] in expected.any_of
    assert choice.total == (None if expected.totals is None else max(expected.totals.values()))

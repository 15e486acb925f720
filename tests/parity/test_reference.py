"""The naive reference decides what the real scheduler decided, on every recorded cluster state it can know."""

from datetime import UTC, datetime

import pytest

from tests.parity import records
from tests.reference.evaluation import evaluate, priority
from tests.reference.plugins import REGISTRY
from tests.reference.postfilter import post_filter
from tests.reference.profile import profiles_of
from tests.reference.world import World

NOW = datetime(2031, 5, 4, 8, tzinfo=UTC)


def known(record):
    return records.one_shot(record) and records.buildable(record, REGISTRY)


@pytest.mark.parametrize("name", [name for name in records.names() if known(records.load(name))])
def test_reference_decides_as_recorded(name):
    record = records.load(name)
    profiles = profiles_of(record["config"])
    world = World(records.placed(record))
    nominated = []
    for pod in records.pending_pods(record):
        expected = record["expected"][records.key(pod)]
        profile = profiles.get(pod["spec"].get("schedulerName", "default-scheduler"))
        if profile is None or pod["spec"].get("schedulingGates") or not world.nodes:
            assert expected["bound"] is None
            continue
        outcome = evaluate(pod, world, profile, nominated)
        if not outcome.feasible:
            node = preempted(pod, world, profile, outcome, nominated, expected)
            if records.preempted_for(expected):
                break  # the rest of the record is about what happened after the victims had gone
            if node is not None:
                nominated = [(other, on) for other, on in nominated if on != node or priority(other) >= priority(pod)]
                nominated.append((pod, node))
            continue
        assert set(outcome.feasible) == set(expected["feasible"]), records.key(pod)
        if expected["scores"] is not None:
            missing = profile.unknown & expected["scores"].keys()
            weighted = {
                plugin: {node: score[2] for node, score in by_node.items()}
                for plugin, by_node in outcome.scores.items()
            }
            assert weighted == {p: s for p, s in expected["scores"].items() if p not in missing}, records.key(pod)
            if not missing:
                assert outcome.totals == expected["totals"]
                assert set(outcome.any_of) == set(expected["anyOf"])
        if expected["bound"]:
            world.place(pod, expected["bound"])


def preempted(pod, world, profile, outcome, nominated, expected):
    """Compares what comes of a pod that fits nowhere; victims terminate from then on. Returns the node it waits for."""
    message, result = post_filter(pod, world, profile, outcome, nominated, NOW)
    if not records.preempted_for(expected):
        assert message == expected["condition"]["message"]
    if result.status is not None:
        assert expected["nominatedNode"] is None
        assert not expected["victims"]
        return None
    node = expected["bound"] or expected["nominatedNode"]
    assert node in result.best
    victims, _ = result.candidates[node]
    leaving = [victim for victim in victims if victim["metadata"].get("deletionTimestamp") is None]
    assert sorted(map(records.key, leaving)) == sorted(expected["victims"])
    for victim in leaving:
        victim["metadata"]["deletionTimestamp"] = "2031-05-04T08:00:30Z"
        victim["status"]["conditions"] = [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]
    return node

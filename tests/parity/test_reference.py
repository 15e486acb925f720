"""The naive reference decides what the real scheduler decided, on every recorded cluster state it can know."""

import pytest

from tests.parity import records
from tests.reference.evaluation import evaluate, fit_error
from tests.reference.plugins import REGISTRY
from tests.reference.profile import profiles_of
from tests.reference.world import World


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
        if records.preempted_for(expected):
            break
        outcome = evaluate(pod, world, profile, nominated)
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
        if not outcome.feasible:
            assert fit_error(outcome, world) == records.before_post_filter(expected["condition"]["message"])
        if expected["bound"]:
            world.place(pod, expected["bound"])
        elif expected["nominatedNode"]:
            nominated.append((pod, expected["nominatedNode"]))

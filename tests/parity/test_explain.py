"""The one-shot records through `explain`, offline: verdicts, every plugin's score on every node, totals, message."""

import json
from random import Random

import pytest

from koordsched import config
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.parity.records import buildable, load, names, one_shot
from tests.parity.records import key as record_key
from tests.plugins.harness import StoppedClock


def expected_pods(record):
    """(key, expectation) of the pods that the record explains, in order."""
    for key, expected in record["expected"].items():
        if "/" in key and "feasible" in expected:
            yield key, expected


def explained(record):
    """Pod by pod what `explain` says, each with what the record made of those before: bound, or waiting for victims.

    The victims are those that are not on their way out already.
    """
    leaving = set()
    resolved = config.resolve(config.load(json.dumps(record["config"])))
    offline = OfflineScheduler(resolved, IN_TREE, record["objects"], clock=StoppedClock(), rng=Random(1))
    for key, expected in expected_pods(record):
        if key not in offline.pending:
            continue
        explanation = offline.explain(key)
        explanation.victims = sorted(set(explanation.victims) - leaving)
        leaving.update(explanation.victims)
        yield key, expected, explanation
        if expected["bound"]:
            offline.place(key, expected["bound"])
        elif expected["nominatedNode"]:
            make_way(offline, record, offline.pending[key], expected)


def make_way(offline, record, preemptor, expected):
    """The preemption happens: victims terminate, and less important pods lose the promise of the node."""
    for thing in record["objects"]:
        if thing["kind"] == "Pod" and record_key(thing) in expected["victims"]:
            target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            metadata = {**thing["metadata"], "deletionTimestamp": "2031-05-04T08:00:30Z"}
            offline.add({**thing, "metadata": metadata, "status": {**thing["status"], "conditions": [target]}})
    for other in offline.nominator.nominated_on(expected["nominatedNode"]):
        if expected["victims"] and other.priority < preemptor.priority:
            offline.nominator.delete(other.uid)
    offline.nominator.add(preemptor, expected["nominatedNode"])


def scores_of(explanation):
    """{plugin: {node: weighted score}}."""
    found = {}
    for node in explanation.nodes:
        for plugin, score in node.scores.items():
            found.setdefault(plugin, {})[node.name] = score.weighted
    return found


ONE_SHOT = [name for name in names() if one_shot(load(name)) and buildable(load(name), IN_TREE)]


@pytest.mark.parametrize("name", ONE_SHOT)
def test_record_is_explained_as_recorded(name):
    compared = 0
    for key, expected, explanation in explained(load(name)):
        if explanation.gated_by:
            assert expected["bound"] is None, key
            continue
        if expected["victims"] and expected["bound"]:
            # The victims went at once: the record shows the attempt after that, we explain the one before.
            assert explanation.victims == sorted(expected["victims"]), key
            compared += 1
            break
        foreign = expected["bound"] is None and expected["condition"] is None and not expected["anyOf"]
        assert sorted(n.name for n in explanation.nodes if n.feasible) == sorted(expected["feasible"]) or foreign, key
        if expected["anyOf"]:
            assert explanation.any_of == sorted(expected["anyOf"]), key
        if expected.get("scores"):
            assert scores_of(explanation) == expected["scores"], key
            assert {n.name: n.total for n in explanation.nodes if n.feasible} == expected["totals"], key
        if expected["condition"]:
            assert (explanation.reason, explanation.message) == (
                expected["condition"]["reason"],
                expected["condition"]["message"],
            ), key
        for node in explanation.nodes:
            refused = (expected.get("filtered") or {}).get(node.name)
            if refused and not explanation.rejected_by:
                assert node.plugin == refused["plugin"], (key, node.name)
        if expected["victims"]:
            assert explanation.victims == sorted(expected["victims"]), key
            assert explanation.nominated_node == expected["nominatedNode"] or expected["bound"], key
        compared += 1
    assert compared or name in ("q-gates-stay",)

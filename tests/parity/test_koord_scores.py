"""What koord-scheduler was recorded to score with its plugins for scarce resources, pod by pod."""

import pytest

from tests.parity.koord import load
from tests.plugins.harness import scheduler, weighted

PLUGINS = ("NodeResourcesFitPlus", "ScarceResourceAvoidance")
RECORDS = ("60-fitplus", "62a-plus-random", "62b-plus-random", "62c-plus-random", "62d-plus-random", "65-hint-max")


@pytest.mark.parametrize("name", RECORDS)
def test_scores_and_feasible_nodes_are_as_recorded(name):
    record = load(f"load-{name}")
    offline = scheduler(record["objects"], {"profiles": record["config"]["profiles"]})
    compared = 0
    for key, expected in record["expected"].items():
        if key not in offline.pending:
            continue
        explanation = offline.explain(key)
        assert [node.name for node in explanation.nodes if node.feasible] == expected["feasible"], key
        for plugin in PLUGINS if expected["scores"] else ():
            assert weighted(explanation, plugin) == expected["scores"][plugin], (key, plugin)
            compared += 1
        offline.place(key, expected["bound"])
    assert compared

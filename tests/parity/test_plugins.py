"""The plugins score and refuse as recorded, on every recorded cluster state that needs no others."""

import pytest

from koordsched.plugins import IN_TREE
from tests.parity import records
from tests.plugins.harness import scheduler


def known(record):
    return records.one_shot(record) and records.buildable(record, IN_TREE)


@pytest.mark.parametrize("name", [name for name in records.names() if known(records.load(name))])
def test_plugins_answer_as_recorded(name):
    record = records.load(name)
    offline = scheduler(records.placed(record), record["config"])
    for wanted in records.pending_pods(record):
        expected = record["expected"][records.key(wanted)]
        added = offline.add(wanted)
        if added is None or records.preempted_for(expected):
            break
        found = offline.explain(added.key)
        if found.gated_by:  # the condition is the API server's
            assert expected["condition"]["reason"] == found.reason
            continue
        if expected["feasible"] is not None:
            assert {node.name for node in found.nodes if node.feasible} == set(expected["feasible"]), added.key
        if expected["scores"] is not None:
            for plugin in expected["scores"].keys() & IN_TREE.keys():
                weighted = {n.name: n.scores[plugin].weighted for n in found.nodes if n.feasible}
                assert weighted == expected["scores"][plugin], f"{added.key} {plugin}"
        if expected["condition"] is not None:
            recorded = records.before_post_filter(expected["condition"]["message"])
            assert records.before_post_filter(found.message) == recorded
        if expected["bound"]:
            offline.place(added.key, expected["bound"])

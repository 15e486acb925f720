"""Every record, played over the API of the embedded cluster: what users see equals what the real scheduler did."""

import json

import pytest

from koordsched.plugins import IN_TREE
from tests.parity.draobjects import claim_differences
from tests.parity.records import buildable, load, names
from tests.parity.replay import differences, play
from tests.parity.volumeobjects import volume_differences
from tests.virtualtime import run

RECORDS = [name for name in names() if buildable(load(name), IN_TREE)]


@pytest.mark.parametrize("name", RECORDS)
def test_record_replays_equal(name):
    record = load(name)
    outcome = run(play(record))
    assert differences(record, outcome) + volume_differences(record, outcome) == []


P1 = ("expected", "default/p1")
WRONG = {
    "q-gates": [
        ((*P1, "scores", "NodeResourcesFit", "birch"), 1),
        ((*P1, "totals", "birch"), 1),
        ((*P1, "feasible"), ["birch"]),
        ((*P1, "anyOf"), ["alder", "birch"]),
        ((*P1, "annotations"), {"never": "written"}),
        ((*P1, "gone"), True),
        (("expected", "events", 0, "note"), "never said"),
    ],
    "p-zero-grace-chain": [
        (("expected", "evicted", "default/a1"), "deleting"),
        (("expected", "evicted"), {}),
        (("expected", "default/p2", "victims"), []),
    ],
    "v-static-local": [
        (("expected", "objects", 0, "spec", "claimRef", "name"), "other"),
        (("expected", "objects", 0, "metadata", "annotations"), {}),
        (("expected", "objects", 0, "status", "phase"), "Bound"),
    ],
    "d-start-with-pending": [
        (("objects", -1, "spec", "priority"), 10),
        (("expected", "objects", 0, "status", "reservedFor", 0, "name"), "p2"),
        (("expected", "objects", 0, "status", "allocation", "devices", "results", 0, "pool"), "birch"),
        (("expected", "objects"), []),
    ],
}
"""Record -> paths in it, and what is not there in truth."""


@pytest.mark.parametrize("name", WRONG)
def test_every_wrong_value_is_seen(name):
    record = load(name)
    outcome = run(play(record))
    objects = claim_differences if name.startswith("d-") else volume_differences
    assert differences(record, outcome) + objects(record, outcome) == []
    unseen = []
    for (*path, last), value in WRONG[name]:
        changed = json.loads(json.dumps(record))
        at = changed
        for key in path:
            at = at[key]
        at[last] = value
        if not differences(changed, outcome) + objects(changed, outcome):
            unseen.append((*path, last))
    assert not unseen

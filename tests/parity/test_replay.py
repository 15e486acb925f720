"""Every record, played over the API of the embedded cluster: what users see equals what the real scheduler did."""

import pytest

from koordsched.plugins import IN_TREE
from tests.parity.records import buildable, load, names
from tests.parity.replay import differences, play
from tests.virtualtime import run

RECORDS = [name for name in names() if buildable(load(name), IN_TREE)]


@pytest.mark.parametrize("name", RECORDS)
def test_record_replays_equal(name):
    record = load(name)
    assert differences(record, run(play(record))) == []

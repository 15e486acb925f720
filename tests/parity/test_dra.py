"""Every record about devices, played over the API of the embedded cluster: pods and their claims end as they did there.

Where upstream is wrong, `dracorrections` says what is right, and why.
"""

import pytest

from tests.parity.dracorrections import CORRECTIONS, corrected
from tests.parity.draobjects import claim_differences
from tests.parity.records import device_names, load
from tests.parity.replay import differences, play
from tests.virtualtime import run


@pytest.mark.parametrize("name", device_names())
def test_record_replays_equal(name):
    record = corrected(load(name))
    outcome = run(play(record))
    assert differences(record, outcome) + claim_differences(record, outcome) == []


def test_every_correction_is_of_a_record_and_needed():
    for name in CORRECTIONS:
        record = load(name)
        outcome = run(play(record))
        assert differences(record, outcome) + claim_differences(record, outcome) != [], name

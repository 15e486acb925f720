"""The naive model against the recorded decisions of koord-scheduler: verdicts, texts, scores, status, events."""

import pytest

from tests.parity.koord import load, names
from tests.plugins.reservation.playing import Play

BY_OTHERS = {"resv-34-numa": "NodeNUMAResource", "resv-36-gpu-shared": "DeviceShare"}
"""Plugins that the model does not know decide about these."""


@pytest.mark.parametrize("name", names("resv-"))
def test_the_model_decides_as_recorded(name):
    play = Play(load(name))
    differences = play.play()
    if name in BY_OTHERS:
        assert BY_OTHERS[name] in str(differences)
        return
    assert not differences, "\n".join(differences)
    assert play.compared["verdicts"]
    assert play.compared["status"] == len(play.record["expected"]["objects"])


def test_the_records_are_there():
    assert len(names("resv-")) == 40

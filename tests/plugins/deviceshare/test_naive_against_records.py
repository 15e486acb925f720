"""The naive model against the recorded decisions of koord-scheduler: verdicts, texts, scores, annotations, books."""

import pytest

from tests.parity.koord import load, names
from tests.plugins.deviceshare.playing import Play


@pytest.mark.parametrize("name", names("device-"))
def test_the_model_decides_as_recorded(name):
    play = Play(load(name))
    differences = play.play()
    assert not differences, "\n".join(differences)
    assert play.compared["verdicts"]
    assert play.compared["debug"] == len(play.record["expected"]["debug"])

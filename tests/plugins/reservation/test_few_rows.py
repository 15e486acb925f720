"""Where few rows have usable Reservations, they are looked at one by one: with the same results as all at once."""

from random import Random
from unittest.mock import patch

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.engine.attempt import Attempt
from koordsched.framework.scoring import best_of
from koordsched.plugins.reservation.plugin import Reservation
from tests.depth import quick_first
from tests.parity.fresh import fresh_seeds
from tests.plugins.reservation.realplugin import Comparison
from tests.plugins.reservation.telling import Teller


class BothWays(Comparison):
    """Decides about each pod once more, in both ways."""

    def __init__(self, teller):
        super().__init__(teller)
        self.few, self.alone, self.looks = 0, 0, 0
        (self.profile,) = self.offline.profiles.values()

    def decided(self, thing, decided):
        if thing["kind"] == "Pod":
            few, all_at_once = self.found(thing), None
            with patch.object(Reservation, "refused_among_all", lambda *asked: None):
                all_at_once = self.found(thing)
            assert few == all_at_once, (self.at, thing)
        return super().decided(thing, decided)

    def found(self, thing):
        name = f"look-{self.looks}"
        self.looks += 1
        wire = {**thing, "metadata": {**thing["metadata"], "name": name, "uid": name}}
        wire["spec"] = {key: value for key, value in thing["spec"].items() if key != "nodeName"}
        cluster = self.offline.cluster
        attempt = Attempt(self.profile, cluster, cluster.pods.build(convert(wire, core.Pod)))
        asked = Reservation.refused_among_all

        def counted(plugin, *asked_about):
            found = asked(plugin, *asked_about)
            self.few += found is not None
            return found

        with patch.object(Reservation, "refused_among_all", counted):
            verdicts = attempt.filter(all_nodes=True)
        reasons = self.profile.handle.reasons
        said = {name: reasons[verdicts.codes.item(row)] for name, row in cluster.table.row_of.items()}
        if verdicts.feasible < 2:
            return said, None, None
        chosen = attempt.choose(Random(1))
        thorough = best_of(attempt.score(), Random(1))
        assert chosen.total == thorough.total
        self.alone += chosen.few is not None and len(chosen.few[2].rows) == 1
        scored = chosen.scored.totals().tolist() if chosen.few is not None else None
        return said, (chosen.row, chosen.total), scored


@pytest.mark.parametrize("seed", quick_first(fresh_seeds("reservations on few rows", 60), 6))
def test_row_by_row_is_as_all_at_once(seed):
    assert Teller(seed, BothWays).tell(30).looks > 20


def test_both_ways_are_taken():
    told = [Teller(seed, BothWays).tell(30) for seed in range(4)]
    assert sum(each.few for each in told) > 20
    assert sum(each.alone for each in told) > 5

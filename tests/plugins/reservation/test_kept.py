"""What is kept of pods that are alike is what a look at everything finds, whatever happened since."""

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.engine.attempt import Attempt
from koordsched.framework.scoring import ScoringFailed
from koordsched.plugins.reservation import matching
from tests.depth import quick_first
from tests.parity.fresh import fresh_seeds
from tests.plugins.reservation.realdevices import DeviceComparison
from tests.plugins.reservation.realplugin import Comparison
from tests.plugins.reservation.telling import Teller

LATEST = 6


def again(base):
    """A comparison in which pods like the latest ones are decided about after each step, with and without what is
    kept."""

    class Again(base):
        def __init__(self, teller):
            super().__init__(teller)
            self.seen, self.looks, self.refreshed = [], 0, 0
            (self.profile,) = self.offline.profiles.values()
            self.matching = self.profile.plugins["Reservation"].matching

        def decided(self, thing, decided):
            if thing["kind"] == "Pod":
                self.seen = [*self.seen[-LATEST:], thing]
            return super().decided(thing, decided)

        def ended(self):
            super().ended()
            for thing in self.seen:
                self.looks += 1
                kept = self.found(thing)
                self.refreshed += bool(self.matching._kept)
                before = self.matching._kept, self.matching._rows_kept
                assert before[1] == sum(len(usable.by_row) for usable in before[0].values())
                self.matching._kept, self.matching._rows_kept = matching.OrderedDict(), 0
                assert kept == self.found(thing), (self.at, thing)
                self.matching._kept, self.matching._rows_kept = before

        def found(self, thing):
            name = f"look-{self.looks}"
            wire = {**thing, "metadata": {**thing["metadata"], "name": name, "uid": name}}
            wire["spec"] = {key: value for key, value in thing["spec"].items() if key != "nodeName"}
            attempt = Attempt(
                self.profile, self.offline.cluster, self.offline.cluster.pods.build(convert(wire, core.Pod))
            )
            verdicts = attempt.filter(all_nodes=True)
            reasons, table = self.profile.handle.reasons, self.offline.cluster.table
            said = {name: reasons[verdicts.codes.item(row)] for name, row in table.row_of.items()}
            matched = attempt.cycle.reservations
            rows = verdicts.rows.tolist()
            scores = None
            if len(rows) > 1:
                try:
                    scores = attempt.score().totals().tolist()
                except ScoringFailed as failed:
                    scores = str(failed)
            used = {row: matched.chosen(row) for row in rows} if matched is not None else {}
            outcome = attempt.post_filter().status if not rows else None
            return said, rows, scores, used, outcome

    return Again


def tell(seed, monkeypatch, **options):
    monkeypatch.setattr(matching, "_MANY", 1)
    return Teller(seed, again(DeviceComparison if "devices" in options else Comparison), **options).tell(30)


@pytest.mark.parametrize("options", [{}, {"rare": True}, {"devices": True}], ids=["usual", "rare", "devices"])
@pytest.mark.parametrize("seed", quick_first(fresh_seeds("kept reservations", 60), 2))
def test_what_is_kept_is_what_there_is(seed, options, monkeypatch):
    assert tell(seed, monkeypatch, **options).looks > 50


def test_something_is_kept(monkeypatch):
    assert sum(tell(seed, monkeypatch).refreshed for seed in range(4)) > 100

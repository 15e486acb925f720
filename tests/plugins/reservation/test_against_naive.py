"""The plugin in random stories beside the naive model: verdicts, messages, scores, what pods use and nodes count."""

import math
from functools import cached_property

import pytest

from koordsched.plugins.deviceshare.reserved import ReservedDevices, Share
from koordsched.plugins.reservation import cache, choosing, info, matching
from koordsched.plugins.reservation.controller import expiry, status
from tests.depth import quick_first
from tests.plugins.reservation.realdevices import DeviceComparison
from tests.plugins.reservation.realplugin import Comparison
from tests.plugins.reservation.telling import Teller


def differences(seed, **options):
    """What the plugin says otherwise in the story of a seed."""
    if options.get("devices"):
        comparison = Teller(seed, DeviceComparison, **options).tell(45)
    else:
        comparison = Teller(seed, Comparison, **options).tell()
    comparison.restart()
    assert comparison.compared["verdicts"]
    assert comparison.compared["rows"] > comparison.compared["verdicts"]
    return comparison.differences


@pytest.mark.parametrize("seed", quick_first(range(300), 3))
def test_stories(seed):
    found = differences(seed)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", quick_first(range(150), 2))
def test_stories_with_what_is_rare(seed):
    found = differences(f"rare-{seed}", rare=True)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", quick_first(range(150), 2))
def test_stories_with_pods_that_are_taken_over(seed):
    found = differences(f"taking-{seed}", taking=True)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", quick_first(range(150), 2))
def test_stories_with_gpus(seed):
    found = differences(f"devices-{seed}", devices=True)
    assert not found, "\n".join(found)


def counts_all(self, index):
    return self.allocatable.get(index, 0) - self.allocated.get(index, 0)


def never_consumed(self):
    return self.available and not self.terms.problem


def gives_all(self, index):
    return max(0, self.allocatable.get(index, 0) - self.allocated.get(index, 0))


def counts_what_owners_ask_for(self):
    used = {}
    for pod in self.owners.values():
        for index, amount in pod.requests.amounts:
            used[index] = used.get(index, 0) + amount
    return used


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        (info.ReservationInfo, "left", counts_all),
        pytest.param(info.ReservationInfo, "matchable", property(never_consumed), marks=pytest.mark.slow),
        (info.ReservationInfo, "available_to_owners", gives_all),
        pytest.param(
            info.ReservationInfo, "allocated", cached_property(counts_what_owners_ask_for), marks=pytest.mark.slow
        ),
        pytest.param(choosing, "shares_resources", lambda pod, info: True, marks=pytest.mark.slow),
        (matching.Matching, "_is_exact", lambda self, pod, terms, info: True),
        (status, "use_of", lambda reservation, owners, names, requests_of: status.Use({}, ())),
        (expiry, "deadline", lambda reservation: math.inf),
        (cache.ReservationCache, "pod_counted", lambda self, row, pod, sign: 0),
    ],
)
def test_planted_bugs_are_noticed(owner, name, planted, monkeypatch):
    if isinstance(planted, cached_property):
        planted.__set_name__(owner, name)
    monkeypatch.setattr(owner, name, planted)
    assert any(differences(seed) for seed in range(40))


def confines_nothing(self, reserved):
    return Share(share(self, reserved).preferred)


share = ReservedDevices.share


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        (ReservedDevices, "share", confines_nothing),
        (info.ReservationInfo, "_facts_left", lambda self, facts: self.full_facts),
        (choosing.Choosing, "_allocates", lambda self, *asked: None),
    ],
)
def test_planted_bugs_with_gpus_are_noticed(owner, name, planted, monkeypatch):
    monkeypatch.setattr(owner, name, planted)
    assert any(differences(seed, devices=True) for seed in range(40))

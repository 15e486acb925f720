"""Pods that own no Reservation: the plugin is skipped for them until a Reservation appears that they own."""

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.engine.attempt import Attempt
from koordsched.framework.interface import CycleState
from koordsched.framework.status import SKIP
from koordsched.plugins.reservation import owners
from koordsched.plugins.reservation.kinds import OPERATING_MODE, RESERVATION_AFFINITY, RESERVATION_IGNORED, RESERVATIONS
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod
from tests.plugins.reservation.test_cases import reservation

PROFILE = {"plugins": {"multiPoint": {"enabled": [{"name": "Reservation"}]}}}
LABELS = {"app": "db", "tier": "back"}
OF_OTHERS = [{"labelSelector": {"matchLabels": {"app": "web"}}}]


class Placed:
    """One node, with Reservations of others."""

    def __init__(self):
        self.offline = scheduler([node("alder", cpu="9")], PROFILE)
        (self.profile,) = self.offline.profiles.values()
        self.plugin = self.profile.plugins["Reservation"]
        self.reserve("foreign", OF_OTHERS)

    def reserve(self, name, owners):
        self.offline.add(reservation(name, on="alder", holds={"cpu": "1"}, owners=owners))

    def release(self, name):
        self.offline.cluster.objects.of(RESERVATIONS).delete("", name)

    def attempt(self, *, labels=LABELS, annotations=None, uid="p"):
        thing = pod("p", container(cpu="1"), labels=labels)
        thing["metadata"] |= {"uid": uid, "annotations": annotations or {}}
        thing["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs", "controller": True}
        ]
        cluster = self.offline.cluster
        attempt = Attempt(self.profile, cluster, cluster.pods.build(convert(thing, core.Pod)))
        attempt.filter()
        return attempt

    def skips(self, **pod):
        cycle = self.attempt(**pod).cycle
        skipped = self.plugin.name in cycle.skipped
        assert not (skipped and cycle.reservations)
        return skipped


@pytest.mark.parametrize(
    "entry",
    [
        {"labelSelector": {"matchLabels": LABELS}},
        {"labelSelector": {"matchLabels": {"tier": "back"}}},
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
        {"controller": {"name": "rs", "namespace": "default"}},
        {"object": {"name": "p"}},
        {},
    ],
    ids=["labels", "label", "any value", "controller", "name", "everything"],
)
def test_one_that_appears_is_found(entry):
    placed = Placed()
    index = placed.plugin.cache.index
    for _ in range(2):
        assert placed.skips()
        assert len(index.non_owners) == 1
        placed.reserve("mine", [entry])
        assert not placed.skips()
        found = placed.attempt().cycle.reservations
        assert [reserved.pod.uid for reserved in found.on(0)] == ["mine"]
        placed.release("mine")
    assert placed.skips()


def test_others_of_the_same_kind_change_nothing():
    placed = Placed()
    assert placed.skips()
    known = placed.plugin.cache.index.non_owners
    before = len(known), known.forgotten
    placed.reserve("foreign-2", OF_OTHERS)
    placed.reserve("foreign-3", [{"controller": {"name": "other"}}, {"object": {"name": "q"}}])
    assert (len(known), known.forgotten) == before
    assert len(known) == 1
    assert placed.skips()


@pytest.mark.parametrize(
    "differs",
    [
        {"annotations": {RESERVATION_AFFINITY: "{}"}},
        {"labels": {**LABELS, RESERVATION_IGNORED: "true"}},
        {"labels": {**LABELS, OPERATING_MODE: "Reservation"}},
    ],
    ids=["needs one", "ignores them", "acts as one"],
)
def test_what_a_pod_says_counts_beside_others_with_its_labels(differs):
    placed = Placed()
    for _ in range(2):
        assert placed.skips()
        assert placed.plugin.name not in placed.attempt(**differs).cycle.skipped


def test_a_reserve_pod_is_looked_at_whatever_is_known_of_pods_like_it():
    placed = Placed()
    placed.offline.add(reservation("waits", on="", holds={"cpu": "1"}, owners=OF_OTHERS))
    waiting = placed.plugin.cache.get("waits")
    reserve_pod = next(pod for pod in placed.offline.pending.values() if pod.uid == waiting.uid)
    placed.plugin.cache.index.add_non_owner(reserve_pod)
    assert placed.plugin.before_pre_filter(CycleState(reserve_pod), reserve_pod) is not SKIP


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(owners, "_NON_OWNERS_BUDGET", 1 << 18)
    placed, most = Placed(), 0
    for number in range(64):
        assert placed.skips(labels={"number": str(number)})
        most = max(most, len(placed.plugin.cache.index.non_owners))
    assert 1 < most < 64

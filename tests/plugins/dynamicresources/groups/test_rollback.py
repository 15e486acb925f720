"""What is in flight for several pods ends with the last of them, and a plan that is taken back leaves no trace."""

from random import Random

import msgspec

from koordsched.api.resource import ResourceClaim
from koordsched.config.feature_gates import FeatureGates
from koordsched.engine.transaction import Transaction
from koordsched.plugins import IN_TREE
from koordsched.plugins.dynamicresources.inflight import AllocationsInFlight
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.dynamicresources.deviceworld import N1, N2, allocated, claim, claiming, device_class, slice_of
from tests.plugins.dynamicresources.groups.running import DRA_GATES
from tests.plugins.dynamicresources.test_plans import books_of, state_of
from tests.plugins.gangscheduling.running import API
from tests.plugins.gangscheduling.test_offline import offline
from tests.plugins.harness import StoppedClock, resolved
from tests.plugins.objects import container, node

FLYING = msgspec.convert(claim("c", status=allocated("d0")), ResourceClaim)
UID = FLYING.metadata.uid


def shared_by(*sharers):
    """(what is in flight, for p and these pods; what it says about changes)."""
    changes = []
    flights = AllocationsInFlight(lambda uid, allocation: changes.append((uid, allocation is not None)))
    flights.begin(FLYING, "p")
    for sharer in sharers:
        assert flights.join(UID, sharer)
    return flights, changes


def test_the_last_sharer_gives_it_back():
    flights, changes = shared_by("q", "r", "q")
    assert flights.recorded_state()[0].holders == ("p", "q", "r")
    assert flights.give_up("p") == []
    assert flights.recorded_state()[0].holders == ("q", "r")
    assert flights.give_up("p") == flights.give_up("r") == []
    assert changes == [(UID, True)]
    assert [entry.claim for entry in flights.give_up("q")] == [FLYING]
    assert changes == [(UID, True), (UID, False)]
    assert (len(flights), flights.join(UID, "p")) == (0, False)


def test_what_is_written_is_in_flight_for_none_of_them():
    flights, changes = shared_by("q")
    flights.end(UID)
    assert flights.give_up("p") == flights.give_up("q") == []
    assert changes == [(UID, True), (UID, False)]


def test_it_is_shared_with_pods_of_one_cycle():
    flights, _ = shared_by("q")
    assert flights.shared_with(UID, {"q", "x"}) == flights.shared_with(UID, {"p"}) == FLYING
    assert flights.shared_with(UID, {"x"}) is None
    assert flights.shared_with("other", {"p"}) is None


def test_journals_keep_the_sharers():
    flights, _ = shared_by("q", "r")
    state = msgspec.json.decode(msgspec.json.encode(flights.recorded_state()), type=flights.state_type)
    restored, _ = shared_by()
    restored.restore_state(state)
    assert restored.recorded_state() == flights.recorded_state()
    assert restored.give_up("q") == restored.give_up("p") == []
    assert len(restored.give_up("r")) == 1


def test_a_plan_of_a_group_that_is_taken_back_gives_back_its_devices():
    pods = [claiming(f"p{at}", "c", f"own{at}") for at in range(3)]
    claims = [claim("c"), *(claim(f"own{at}") for at in range(3))]
    objects = (device_class(), N1, N2, slice_of("n1", "d0", "d1", "d2"), slice_of("n2", "d0"), *claims, *pods)
    gates = FeatureGates.parse([",".join(DRA_GATES)])
    scheduler = OfflineScheduler(resolved({}, gates=gates), IN_TREE, objects, clock=StoppedClock(), rng=Random(3))
    books = books_of(scheduler)
    before, points = state_of(books), []
    members = frozenset(f"uid-default-p{at}" for at in range(3))
    with Transaction(scheduler.cluster, scheduler.nominator) as plan:
        for at in range(3):
            attempt = scheduler.attempt(f"default/p{at}")
            attempt.cycle.job_members = members
            points.append((plan.checkpoint(), state_of(books)))
            # The shared device and two more: n1 has no room for the third, and n2 lacks the shared one.
            assert attempt.filter().feasible == (1 if at < 2 else 0)
            if at < 2:
                row = scheduler.cluster.table.row_of["n1"]
                assert plan.place(attempt.cycle, attempt.profile, row).ok
        assert [entry.holders for entry in books.in_flight.recorded_state()] == [
            ("uid-default-p0", "uid-default-p1"),
            ("uid-default-p0",),
            ("uid-default-p1",),
        ]
        for point, then in reversed(points):
            plan.rollback(point)
            assert state_of(books) == then
    assert state_of(books) == before


def test_pods_that_are_placed_one_by_one_share_nothing_in_flight():
    objects = (device_class(), N1, slice_of("n1", "d0"), claim("c"), claiming("p", "c"), claiming("q", "c"))
    gates = FeatureGates.parse([",".join(DRA_GATES)])
    scheduler = OfflineScheduler(resolved({}, gates=gates), IN_TREE, objects, clock=StoppedClock(), rng=Random(3))
    with Transaction(scheduler.cluster, scheduler.nominator) as plan:
        attempt = scheduler.attempt("default/p")
        attempt.filter()
        assert plan.place(attempt.cycle, attempt.profile, 0).ok
        other = scheduler.attempt("default/q")
        assert other.filter().feasible == 0
        assert "is in the process of being allocated" in other.message()


def test_an_explanation_shows_where_members_share_a_claim():
    pods = [claiming(name, "c", containers=[container(cpu="3")]) for name in ("p", "q")]
    for pod in pods:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    group = {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"}, "spec": policy}
    small = [node(name, "4") for name in ("n1", "n2")]
    objects = (device_class(), *small, slice_of("n1", "d0"), claim("c"), group, *pods)
    explained = offline(*objects).explain("default/p").job
    assert explained.nodes == {"default/p": "n1"}
    assert {each.reasons: each.examples for each in explained.refusals} == {
        ("resourceclaim not available on the node",): ["n2"],
        ("Insufficient cpu",): ["n1"],
    }

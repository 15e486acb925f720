"""Equivalent pods: one is tried for all, and a pod that could be scheduled gets its turn."""

from dataclasses import replace

import pytest

from koordsched.cluster import events as ev
from koordsched.cluster.events import ActionType as A
from koordsched.cluster.events import ClusterEvent
from koordsched.queue.backoff import BackoffPolicy
from koordsched.queue.equivalence import EquivalentPods, Refusal
from koordsched.queue.hints import ByKey, HintRegistration, HintTable, QueueingHint, Scope
from koordsched.queue.item import Place, QueuedPod
from koordsched.queue.queue import QueueProfile, SchedulingQueue
from tests.queue.pods import PROFILE, Clock, Pod, Shape, priority_sort

NODE_ADD = ev.NODE_ADD
TAINT = ClusterEvent(ev.NODE, A.UPDATE_NODE_TAINT)
CLAIM = ClusterEvent(ev.PERSISTENT_VOLUME_CLAIM, A.ADD)
OWN_LABEL = ClusterEvent(ev.UNSCHEDULABLE_POD, A.UPDATE_POD_LABEL)

HINTS = [
    HintRegistration("Fit", ClusterEvent(ev.NODE, A.ADD | A.UPDATE_NODE_TAINT), None, Scope.SHAPE),
    HintRegistration("Taints", TAINT, None, Scope.SHAPE),
    HintRegistration(
        "Taints", ClusterEvent(ev.UNSCHEDULABLE_POD, A.UPDATE_POD_LABEL), lambda *_: QueueingHint.QUEUE, Scope.OWN_POD
    ),
    HintRegistration("Volumes", CLAIM, None, ByKey(lambda pod: pod.claims, lambda old, new: [new])),
]


class Flood:
    """A queue of equivalent pods: pods of one shape, namespace and set of labels."""

    def __init__(self, pods=5, gates=None, equivalence_key=lambda pod: (pod.namespace, pod.labels)):
        self.clock = Clock(1000.0)
        self.queue = SchedulingQueue(
            {PROFILE: QueueProfile(HintTable(HINTS), {"Gate": gates} if gates else {}, equivalence_key)},
            clock=self.clock,
            sort_key=priority_sort,
            is_pending=lambda pod: True,
        )
        self.evaluated = []
        self.pods = [Pod(f"p{i}") for i in range(pods)]
        for pod in self.pods:
            self.queue.add(pod)

    def refuse(self, queued, *plugins, pending=()):
        """The pod is evaluated, and refused in a way that holds for its equivalent pods."""
        self.evaluated.append(queued.pod.name)
        refusal = Refusal("refused", frozenset(plugins), frozenset(pending))
        return self.queue.add_unschedulable_if_not_present(queued, set(plugins), set(pending), refusal=refusal)

    def take_over(self, queued):
        """What an equivalent pod was told is the answer; there must be one."""
        known = self.queue.refusal_of_equivalent(queued)
        assert known is not None
        return self.queue.add_unschedulable_if_not_present(queued, known.plugins, known.pending, refusal=known)

    def settle(self, *plugins):
        """Everything poppable is tried; all evaluations end in the same refusal. Returns who was evaluated."""
        self.evaluated = []
        while (queued := self.queue.pop()) is not None:
            if self.queue.refusal_of_equivalent(queued) is not None:
                self.take_over(queued)
            else:
                self.refuse(queued, *plugins)
        return self.evaluated

    def rest(self, *plugins):
        """All rest, none of them backing off any more."""
        self.settle(*plugins or ("Fit",))
        self.clock.now += 20
        return self

    @property
    def resting(self):
        return sorted(queued.pod.name for queued in self.queue if queued.place is Place.UNSCHEDULABLE)

    def active(self):
        return sorted(queued.pod.name for queued in self.queue if queued.place is Place.ACTIVE)


def test_of_those_that_arrive_one_is_evaluated_and_each_has_been_tried():
    flood = Flood()
    assert flood.settle("Fit") == ["p0"]
    assert flood.resting == ["p0", "p1", "p2", "p3", "p4"]
    assert {(q.attempts, q.unschedulable_count, q.unschedulable_plugins) for q in flood.queue} == {
        (1, 1, frozenset({"Fit"}))
    }
    assert flood.queue.counters.unschedulable["Fit", PROFILE] == 5
    assert flood.queue.pending() == {"active": 0, "backoff": 0, "unschedulable": 5, "gated": 0}


def test_a_refusal_is_taken_over_for_a_second():
    flood = Flood(1)
    flood.settle("Fit")
    for age, holds in ((1.0, True), (1.1, False)):
        flood.clock.now = 1000.0 + age
        flood.queue.add(Pod(f"late-{age}"))
        queued = flood.queue.pop()
        assert (flood.queue.refusal_of_equivalent(queued) is not None) is holds
        flood.queue.done(queued.pod.uid)


@pytest.mark.parametrize(
    "pod",
    [
        Pod("other", namespace="elsewhere"),
        Pod("other", labels="others"),
        Pod("other", shape=Shape(name="db")),
        Pod("other", nominated_node="n1"),
    ],
    ids=["namespace", "labels", "shape", "nominated"],
)
def test_who_is_different_is_evaluated(pod):
    flood = Flood(1)
    flood.settle("Fit")
    flood.queue.add(pod)
    assert flood.queue.refusal_of_equivalent(flood.queue.pop()) is None


def test_a_nomination_that_the_status_does_not_show_yet_makes_a_pod_equivalent_to_no_other():
    flood = Flood(2)
    nominated, other = flood.queue.pop(), flood.queue.pop()
    flood.queue.add_unschedulable_if_not_present(nominated, {"Fit"})
    flood.queue.nominator.add(nominated.pod, "n1")
    flood.refuse(other, "Fit")
    flood.clock.now += 0.5
    flood.queue.activate([nominated.pod])
    assert flood.queue.refusal_of_equivalent(flood.queue.pop()) is None
    flood.refuse(nominated, "Fit")
    flood.clock.now += 20
    assert flood.queue.move_all(NODE_ADD) == 2


def test_an_event_moves_one_and_another_refusal_leaves_the_rest_alone():
    flood = Flood().rest()
    assert flood.queue.move_all(NODE_ADD) == 1
    assert (flood.active(), len(flood.resting)) == (["p0"], 4)
    assert flood.queue.move_all(NODE_ADD) == 0  # one is under way for all
    assert flood.settle("Fit") == ["p0"]
    assert len(flood.resting) == 5
    assert [q.attempts for q in sorted(flood.queue, key=lambda q: q.pod.name)] == [2, 1, 1, 1, 1]
    # Next time it is somebody else's turn.
    flood.clock.now += 20
    flood.queue.move_all(NODE_ADD)
    assert flood.active() == ["p1"]


def test_each_success_sends_the_next_at_once():
    flood = Flood().rest()
    flood.queue.move_all(NODE_ADD)
    placed = []
    for _ in range(3):
        queued = flood.queue.pop()
        assert flood.queue.refusal_of_equivalent(queued) is None
        flood.queue.placed(queued)
        placed.append(queued)
    assert [q.pod.name for q in placed] == ["p0", "p1", "p2"]
    assert flood.settle("Fit") == ["p3"]
    assert flood.resting == ["p3", "p4"]
    for queued in placed:
        flood.queue.done(queued.pod.uid)
    assert flood.resting == ["p3", "p4"]


def rejected_differently(flood, probe):
    flood.queue.add_unschedulable_if_not_present(probe, {"Fit"})


def failed(flood, probe):
    flood.queue.add_unschedulable_if_not_present(probe)


def deleted_in_flight(flood, probe):
    flood.queue.delete(probe.pod)
    flood.queue.add_unschedulable_if_not_present(probe, {"Fit"})


def dropped(flood, probe):
    flood.queue.done(probe.pod.uid)


def changed_in_flight(flood, probe):
    flood.queue.update(probe.pod, replace(probe.pod, labels="new"))
    flood.refuse(probe, "Fit")


def helped_in_flight(flood, probe):
    flood.queue.move_all(NODE_ADD)
    flood.refuse(probe, "Fit")


@pytest.mark.parametrize(
    "ends", [rejected_differently, failed, deleted_in_flight, dropped, changed_in_flight, helped_in_flight]
)
def test_any_other_outcome_of_the_first_pod_sends_the_next(ends):
    flood = Flood().rest()
    flood.queue.move_all(NODE_ADD)
    ends(flood, flood.queue.pop())
    assert "p1" in flood.active()
    assert flood.resting[-3:] == ["p2", "p3", "p4"]


def test_what_refused_an_old_version_says_nothing_about_the_new_one():
    flood = Flood(1)
    queued = flood.queue.pop()
    flood.queue.update(queued.pod, replace(queued.pod, labels="new"))
    flood.refuse(queued, "Fit")
    flood.queue.add(Pod("fresh", labels="new"))
    assert flood.queue.refusal_of_equivalent(flood.queue.pop()) is None


@pytest.mark.parametrize("change", ["deleted", "changed"])
def test_a_first_pod_that_is_lost_before_its_turn_is_replaced(change):
    flood = Flood().rest()
    flood.queue.move_all(NODE_ADD)
    probe = flood.queue.get("default/p0")
    if change == "deleted":
        flood.queue.delete(probe.pod)
    else:
        flood.queue.update(probe.pod, replace(probe.pod, labels="new"))
    assert "p1" in flood.active()


def test_what_rests_and_changes_while_another_is_tried_is_tried_itself():
    flood = Flood().rest()
    flood.queue.move_all(NODE_ADD)
    old = flood.queue.get("default/p3").pod
    assert flood.queue.update(old, replace(old, labels="new")) is Place.ACTIVE
    # Without anything under way it rests on, alone.
    flood = Flood().rest()
    old = flood.queue.get("default/p3").pod
    assert flood.queue.update(old, replace(old, labels="new")) is Place.UNSCHEDULABLE
    assert flood.queue.move_all(NODE_ADD) == 2
    assert flood.active() == ["p0", "p3"]


def test_the_same_pod_in_a_new_version_stays_equivalent():
    flood = Flood().rest()
    old = flood.queue.get("default/p0").pod
    assert flood.queue.update(old, replace(old), [ClusterEvent(ev.UNSCHEDULABLE_POD, A.UPDATE)]) is Place.UNSCHEDULABLE
    assert flood.queue.move_all(NODE_ADD) == 1
    assert flood.active() == ["p0"]


def test_the_rest_waits_for_what_refused_the_first_pod():
    flood = Flood().rest("Fit")
    flood.queue.move_all(NODE_ADD)
    assert flood.settle("Taints") == ["p0"]
    assert len(flood.resting) == 5
    assert {q.unschedulable_plugins for q in flood.queue} == {frozenset({"Taints"})}
    assert flood.queue.counters.unschedulable["Taints", PROFILE] == 5
    assert flood.queue.counters.unschedulable["Fit", PROFILE] == 0
    assert flood.queue.move_all(NODE_ADD) == 0  # nobody waits for room any more
    flood.clock.now += 20
    # One's own change is put to the plugin that refuses it now, not to the one that did when it was tried itself.
    old = flood.queue.get("default/p4").pod
    assert flood.queue.update(old, replace(old, labels="new"), [OWN_LABEL]) is Place.ACTIVE
    assert flood.queue.move_all(TAINT) == 1


def test_pending_plugins_wake_at_once_the_next_one_too():
    flood = Flood(3)
    flood.refuse(flood.queue.pop(), "Fit", pending=["Fit"])
    for _ in range(2):
        flood.take_over(flood.queue.pop())
    flood.queue.move_all(NODE_ADD)  # all are backing off
    assert flood.active() == ["p0"]
    flood.queue.placed(flood.queue.pop())
    assert flood.active() == ["p1"]


def test_the_one_whose_back_off_ends_first_goes():
    flood = Flood(1).rest()
    for _ in range(3):  # p0 fails again and again
        flood.queue.move_all(NODE_ADD)
        flood.settle("Fit")
        flood.clock.now += 20
    flood.queue.move_all(NODE_ADD)
    flood.settle("Fit")  # backs off for 10 seconds
    flood.queue.add(Pod("fresh"))
    flood.settle("Fit")  # backs off for 1
    flood.clock.now += 5
    flood.queue.move_all(NODE_ADD)
    assert flood.active() == ["fresh"]
    flood.queue.placed(flood.queue.pop())
    assert flood.queue.get("default/p0").place is Place.BACKOFF


def test_the_rejected_pod_may_be_left_out():
    flood = Flood().rest()
    assert flood.queue.move_all(NODE_ADD, exclude_uid="uid-default-p0") == 1
    assert flood.active() == ["p1"]
    flood = Flood(1).rest()
    assert flood.queue.move_all(NODE_ADD, exclude_uid="uid-default-p0") == 0


def test_after_five_minutes_one_is_evaluated_whatever_was_found_a_moment_ago():
    flood = Flood().rest()
    flood.clock.now = 1301.0
    assert flood.queue.timers.flush_unschedulable() == 1
    probe = flood.queue.pop()
    assert probe.flushed
    flood.queue.add(Pod("fresh"))
    flood.refuse(flood.queue.pop(), "Fit")
    assert flood.queue.refusal_of_equivalent(probe) is None
    flood.queue.placed(probe)
    # Its place is somebody else's chance, as overdue as it was.
    assert flood.queue.get("default/p1").place is Place.UNSCHEDULABLE  # the fresh one has just been refused


def test_five_minutes_count_from_the_latest_evaluation_of_any():
    flood = Flood().rest()
    flood.clock.now = 1200.0
    flood.queue.move_all(NODE_ADD)
    assert flood.settle("Fit") == ["p0"]
    flood.clock.now = 1499.0
    assert flood.queue.timers.flush_unschedulable() == 0
    assert flood.queue.timers.next_deadline() == 1510.0
    flood.clock.now = 1501.0
    assert flood.queue.timers.flush_unschedulable() == 1
    probe = flood.queue.pop()
    flood.queue.placed(probe)
    assert flood.queue.pop().flushed


def test_gated_first_pods_pass_the_turn_on():
    held = set()
    flood = Flood(5, gates=lambda pod: "held" if pod.name in held else None).rest()
    held |= {"p0", "p1", "p2"}
    flood.queue.move_all(NODE_ADD)
    assert flood.active() == ["p3"]
    assert flood.queue.pending() == {"active": 1, "backoff": 0, "unschedulable": 1, "gated": 3}


def test_pods_that_wait_for_objects_of_their_own_are_tried_one_by_one():
    flood = Flood(0)
    for i in range(3):
        flood.queue.add(Pod(f"p{i}", claims=(f"c{i}",)))
        flood.refuse(flood.queue.pop(), "Volumes")
    flood.clock.now += 20
    assert flood.queue.move_all(CLAIM, None, "c1") == 1
    assert flood.active() == ["p1"]


def test_no_pods_are_equivalent_unless_the_profile_says_so():
    flood = Flood(3, equivalence_key=lambda pod: None)
    assert flood.settle("Fit") == ["p0", "p1", "p2"]
    flood.clock.now += 20
    assert flood.queue.move_all(NODE_ADD) == 3


def test_a_resting_pod_that_has_other_claims_is_found_by_them():
    flood = Flood(0)
    stays, changes = Pod("stays", claims=("old",)), Pod("changes", claims=("old",))
    for pod in (stays, changes):
        flood.queue.add(pod)
    flood.rest("Volumes")
    assert flood.queue.update(changes, replace(changes, claims=("mine",))) is Place.UNSCHEDULABLE
    flood.queue.move_all(CLAIM, None, "old")
    assert flood.active() == ["stays"]
    flood.queue.move_all(CLAIM, None, "mine")
    assert flood.active() == ["changes", "stays"]


def test_the_rest_is_found_by_the_claims_that_refused_the_first_pod():
    flood = Flood(0)
    for pod in (Pod("first", claims=("x",)), Pod("other", claims=("y",))):
        flood.queue.add(pod)
    flood.rest("Fit")
    flood.queue.move_all(NODE_ADD)
    assert flood.settle("Volumes") == ["first"]
    flood.clock.now += 20
    flood.queue.move_all(CLAIM, None, "y")
    assert flood.active() == ["other"]


def test_nothing_is_kept_of_the_keys_of_pods_that_are_gone():
    flood = Flood(0)
    for pod in (Pod("a", claims=("x",)), Pod("b", claims=("x", "y"))):
        flood.queue.add(pod)
    flood.rest("Volumes")
    for queued in list(flood.queue):
        flood.queue.delete(queued.pod)
    assert flood.queue._queues.unschedulable._by_key == {}


def test_of_pods_that_back_off_the_one_goes_whose_backoff_ends_first():
    """Back-offs that are over are all the same: then the one goes that rests longest."""
    policy = BackoffPolicy(initial=1, maximum=10)
    longest, other = (
        QueuedPod(Pod(name), f"default/{name}", timestamp, number, unschedulable_count=count)
        for number, (name, timestamp, count) in enumerate((("longest", 100.0, 4), ("other", 105.0, 1)))
    )
    equivalents = EquivalentPods(Shape(), "x", Refusal(None, frozenset(), frozenset()))
    for queued in (longest, other):
        equivalents.add(queued, policy)
    assert (policy.expiry(longest), policy.expiry(other)) == (108.0, 106.0)
    for now, expected in ((105.5, other), (107.5, other), (108.5, other), (109.5, longest)):
        assert equivalents.next(now, policy) is expected


def test_exactly_five_minutes_are_not_too_long_for_those_that_rest():
    flood = Flood(3)
    flood.settle("Fit")
    for seconds, active in ((300, []), (330, ["p0"])):
        flood.clock.now = 1000 + seconds
        flood.queue.timers.run()
        assert flood.active() == active

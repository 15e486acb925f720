"""activeQ with turns: priority, then namespaces one after the other, then the QueueSort plugin."""

from collections import OrderedDict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.queue.fair import FairActiveQueue
from koordsched.queue.hints import HintTable
from koordsched.queue.item import Place, QueuedPod
from koordsched.queue.queue import QueueProfile, SchedulingQueue
from tests.queue.pods import PROFILE, Clock, Pod, priority_sort


def queue(*names, fair=True):
    """A queue with pods called `namespace/name` or `namespace/name:priority`, in this order of arrival."""
    made = SchedulingQueue(
        {PROFILE: QueueProfile(HintTable(()))},
        clock=Clock(),
        sort_key=priority_sort,
        is_pending=lambda pod: True,
        fair_namespaces=fair,
    )
    for name in names:
        key, _, priority = name.partition(":")
        namespace, _, name = key.partition("/")
        made.add(Pod(name, namespace, priority=int(priority or 0)))
    return made


def popped(made):
    return [queued.key for queued in iter(made.pop, None)]


def test_namespaces_take_turns():
    arrived = ["a/1", "a/2", "a/3", "b/1", "c/1", "b/2"]
    assert popped(queue(*arrived)) == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]
    assert popped(queue(*arrived, fair=False)) == arrived


def test_priority_comes_first():
    made = queue("a/1", "b/1", "a/urgent:5", "a/urgent2:5", "b/urgent:5")
    assert popped(made) == ["a/urgent", "b/urgent", "a/urgent2", "a/1", "b/1"]


def test_who_arrives_has_its_turn_after_those_that_wait_and_not_after_their_pods():
    made = queue(*(f"flood/{i}" for i in range(1000)))
    assert made.pop().key == "flood/0"
    made.add(Pod("p", "tenant"))
    assert [made.pop().key for _ in range(3)] == ["flood/1", "tenant/p", "flood/2"]


def test_coming_back_does_not_win_a_turn():
    made = queue("a/1", "a/2", "a/3", "b/1")
    assert [made.pop().key, made.pop().key] == ["a/1", "b/1"]
    made.add(Pod("2", "b"))
    made.add(Pod("1", "c"))
    assert popped(made) == ["a/2", "b/2", "c/1", "a/3"]


def test_a_new_version_does_not_lose_a_turn():
    made = queue("a/1", "b/1", "c/1")
    old = made.get("a/1").pod
    made.update(old, replace(old, labels="new"))
    assert popped(made) == ["a/1", "b/1", "c/1"]


def test_a_changed_priority_is_respected():
    made = queue("a/1", "b/1")
    old = made.get("b/1").pod
    made.update(old, replace(old, priority=7))
    assert popped(made) == ["b/1", "a/1"]


def test_the_queue_shows_its_pods_in_the_order_of_turns():
    made = queue("a/1", "a/2", "b/1", "c/1:3")
    assert [queued.key for queued in made] == ["c/1", "a/1", "b/1", "a/2"]
    assert made.pending()["active"] == len(made) == 4


Operation = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(0, 1)),
    st.tuples(st.just("add_all"), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1)), max_size=6)),
    st.just(("pop",)),
    st.tuples(st.just("remove"), st.integers(0, 50)),
)


class Turns:
    """The same, as plainly as possible: lists, and a search over all of them."""

    def __init__(self):
        self.rounds = {}

    def add(self, queued):
        turns = self.rounds.setdefault(queued.pod.priority, OrderedDict())
        turns.setdefault(queued.pod.namespace, []).append(queued)

    def pop(self):
        for priority in sorted(self.rounds, reverse=True):
            turns = self.rounds[priority]
            for namespace in list(turns):
                if turns[namespace]:
                    head = min(turns[namespace], key=priority_sort)
                    turns[namespace].remove(head)
                    turns.move_to_end(namespace)
                    return head
                del turns[namespace]
        return None

    def remove(self, queued):
        self.rounds[queued.pod.priority][queued.pod.namespace].remove(queued)


@settings(max_examples=200, deadline=None)
@given(st.lists(Operation, max_size=60))
def test_any_history_pops_in_turn_and_loses_nothing(operations):
    fair, plain, inside, number = FairActiveQueue(priority_sort), Turns(), [], 0

    def make(namespace, priority):
        nonlocal number
        number += 1
        pod = Pod(f"p{number}", namespace, priority=priority)
        queued = QueuedPod(pod, pod.key, float(number % 7), number)
        inside.append(queued)
        plain.add(queued)
        return queued

    for operation in operations:
        if operation[0] == "add":
            fair.add(make(*operation[1:]))
        elif operation[0] == "add_all":
            fair.add_all([make(*each) for each in operation[1]])
        elif operation[0] == "remove" and inside:
            queued = inside.pop(operation[1] % len(inside))
            fair.remove(queued)
            plain.remove(queued)
        elif operation[0] == "pop":
            expected = plain.pop()
            assert fair.pop() is expected
            if expected is not None:
                inside.remove(expected)
        assert len(fair) == len(inside)
        assert all(queued.place is Place.ACTIVE for queued in inside)
        assert {id(queued) for queued in fair} == {id(queued) for queued in inside}
    for shown in list(fair):
        assert fair.pop() is shown is plain.pop()
    assert fair.pop() is None

"""The pods of groups as they come and go, and who is let into the queue or kept out of it then."""

import pytest

from koordsched.plugins.gangscheduling.cache import PodGroupCache
from koordsched.plugins.gangscheduling.plugin import GATES
from tests.plugins.gangscheduling.test_offline import group, member
from tests.plugins.harness import Bench
from tests.plugins.objects import node


class World:
    """Pods and groups, and the names of pods that were let in, or have to give up their room."""

    def __init__(self, *objects):
        self.let_in, self.give_up = [], []
        self.bench = Bench(node("n"))
        handle = self.bench.handle
        handle.features = GATES
        handle.activate = lambda pods: self.let_in.append(sorted(each.name for each in pods))
        handle.renounce = lambda pods: self.give_up.append(sorted(each.name for each in pods))
        self.cache = PodGroupCache.shared(handle)
        for thing in objects:
            self.bench.add(thing)

    def seen(self, *names, of="g"):
        """Pods appear, or name another group."""
        for name in names:
            made = member(name)
            made["spec"]["schedulingGroup"]["podGroupName"] = of
            self.bench.cluster.pod_seen(self.bench.pod(made))

    def gone(self, name):
        """A pod is gone."""
        self.bench.cluster.pod_gone(self.bench.pod(member(name)).uid)

    def are_enough(self):
        return not self.cache.why_not(self.cache.group("default/g"))


def test_with_the_last_one_that_was_missing_those_before_are_let_in():
    world = World(group(3))
    world.seen("a", "b")
    assert (world.let_in, world.are_enough()) == ([], False)
    world.seen("c")
    assert (world.let_in, world.are_enough()) == ([["a", "b"]], True)
    world.seen("c", "d")
    assert world.let_in == [["a", "b"]]


def test_with_the_first_one_that_is_missing_the_others_give_up_their_room():
    world = World(group(2))
    world.seen("a", "b", "c")
    world.gone("c")
    assert (world.give_up, world.are_enough()) == ([], True)
    world.gone("b")
    assert (world.give_up, world.are_enough()) == ([["a"]], False)
    world.gone("a")
    assert world.give_up == [["a"]]
    assert world.cache.members == {}


def test_pods_of_a_group_that_is_not_there_come_and_go():
    world = World()
    world.seen("a", "b")
    world.gone("a")
    assert (world.let_in, world.give_up) == ([], [])


def test_a_pod_that_names_another_group_is_none_of_the_first():
    world = World(group(2), group(1, name="h"))
    world.seen("a", "b")
    world.seen("b", of="h")
    assert not world.are_enough()
    assert [sorted(each.name for each in world.cache.members[f"default/{name}"].pending()) for name in "gh"] == [
        ["a"],
        ["b"],
    ]
    assert world.give_up == [["a"]]


@pytest.mark.parametrize(
    ("before", "after", "let_in"),
    [(None, 2, True), (3, 2, True), (None, 3, False), (2, 1, False), (3, 4, False)],
)
def test_pods_are_let_in_when_their_group_begins_to_have_enough(before, after, let_in):
    world = World(*([group(before)] if before else []))
    world.seen("a", "b")
    world.let_in.clear()
    world.bench.add(group(after))
    assert world.let_in == ([["a", "b"]] if let_in else [])

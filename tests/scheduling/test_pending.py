"""The pending pods, and who finds them."""

from random import Random

import pytest

from koordsched.cluster.state import ClusterState
from koordsched.plugins.reservation.owners import Owners, named_pods
from koordsched.scheduling.pending import PendingPods
from tests.plugins.harness import Bench
from tests.plugins.objects import node
from tests.plugins.reservation.objects import pod
from tests.steps import counted


def holding(count):
    pending = PendingPods(ClusterState())
    for number in range(count):
        pending.put(pod(f"p-{number}", f"ns-{number % 3}", uid=f"u-{number}"))
    return pending


@pytest.mark.parametrize("seed", range(20))
def test_pods_by_name_are_those_that_have_the_name(seed):
    draw, pending = Random(seed), PendingPods(ClusterState())
    for _ in range(200):
        uid = f"u-{draw.randrange(8)}"
        if draw.random() < 0.4:
            pending.take(uid)
        else:
            pending.put(pod(f"p-{draw.randrange(4)}", draw.choice("ab"), uid=uid))
        if draw.random() < 0.8:
            name = f"p-{draw.randrange(4)}"
            expected = [each for _, each in sorted(pending.by_uid.items()) if each.name == name]
            assert pending.of_name(name) == expected


def test_a_pod_is_pending_as_long_as_it_exists_and_has_no_node():
    cluster = Bench(node("n1")).cluster
    pending = PendingPods(cluster)
    waiting, assumed, gone = (pod(name, "a", uid=name) for name in ("waiting", "assumed", "gone"))
    for each in (waiting, assumed, gone):
        pending.put(each)
    cluster.assume(assumed, 0)
    pending.take(gone.uid)
    assert [pending.is_pending(each) for each in (waiting, assumed, gone)] == [True, False, False]


def test_to_find_a_pod_by_its_name_costs_the_same_however_many_wait():
    def cost(count):
        pending = holding(count)
        owners = Owners([{"object": {"name": "p-7"}}])
        assert [each.uid for each in named_pods(owners, pending)] == ["u-7"]
        with counted() as steps:
            named_pods(owners, pending)
        return steps.count

    assert cost(1000) == cost(10)

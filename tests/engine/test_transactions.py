"""Transactions: what is taken back leaves no trace, what is kept is what cycles of their own would have done."""

from random import Random

import pytest

from koordsched.cluster.events import NODE, ActionType, ClusterEvent
from koordsched.engine.attempt import Attempt
from koordsched.engine.transaction import Transaction
from koordsched.framework.interface import CycleState, Reserve
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.framework.turns import at_once
from tests.engine.gpushare import GpuShare
from tests.engine.objects import gpu_node, gpu_pod, offline, used
from tests.engine.plans import Plan
from tests.engine.state import everything
from tests.plugins.objects import container, pod

SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]


def gang(count, core=100, **more):
    return [gpu_pod(f"m{i}", core, **more) for i in range(count)]


def plan_of(scheduler, transaction, pods):
    plan = Plan(scheduler.cluster, transaction, Random(1))
    profile = scheduler.profiles["default-scheduler"]
    return plan, list(
        plan.place_all(profile, [scheduler.pending[f"default/{each['metadata']['name']}"] for each in pods])
    )


def mixed():
    """A cluster in which everything is in use that a trace could be left in."""
    nodes = [gpu_node(f"n{i}", gpus=4, labels={"zone": f"z{i % 2}"}) for i in range(6)]
    running = [
        gpu_pod(f"r{i}", on=f"n{i % 6}", allocated=((i // 6, 50),), labels={"app": "web"}, priority=i % 3)
        for i in range(12)
    ]
    ports = pod("port", container(cpu="1", ports=(80,)), on="n0")
    nominated = gpu_pod("nominated", 100, priority=5)
    nominated["status"] = {"nominatedNodeName": "n1"}
    waiting = [
        nominated,
        pod("spread", container(cpu="1"), labels={"app": "web"}, topologySpreadConstraints=SPREAD),
        pod("wants-port", container(cpu="1", ports=(80,))),
        pod("impossible", container(cpu="900")),
        gpu_pod("large", 400, priority=9),
    ]
    return [*nodes, *running, ports, *waiting]


def test_a_gang_that_is_taken_back_leaves_no_trace():
    members = gang(30, labels={"app": "web"}, topologySpreadConstraints=SPREAD)
    scheduler = offline(*mixed(), *members)
    before = everything(scheduler)
    with Transaction(scheduler.cluster, scheduler.nominator) as transaction:
        plan, placed = plan_of(scheduler, transaction, members)
        assert 5 < sum(placed) < 30
        assert len(plan.nodes) + len(plan.refused) == 30
    assert everything(scheduler) == before


def test_nominations_and_evictions_are_taken_back_in_their_order():
    scheduler = offline(*mixed())
    before = everything(scheduler)
    with Transaction(scheduler.cluster, scheduler.nominator) as transaction:
        for name in ("r7", "r1", "port"):
            transaction.evict(scheduler.cluster.assigned[f"uid-default-{name}"])
        # n1 has all of its GPUs again.
        _, placed = plan_of(scheduler, transaction, [gpu_pod(name) for name in ("large", "nominated", "wants-port")])
        assert placed == [True, True, True]
        assert scheduler.nominator.node_of("uid-default-nominated") == ""
        with pytest.raises(ValueError, match="leaves by the API server's word"):
            transaction.commit()
    assert everything(scheduler) == before


def test_checkpoints():
    scheduler = offline(gpu_node("n", gpus=4), *gang(4))
    with Transaction(scheduler.cluster, scheduler.nominator) as transaction:
        plan_of(scheduler, transaction, gang(1))
        one = transaction.checkpoint()
        _, placed = plan_of(scheduler, transaction, gang(4)[1:])
        assert placed == [True] * 3
        assert used(scheduler) == {"n": [100] * 4}
        transaction.rollback(one)
        assert used(scheduler) == {"n": [100, 0, 0, 0]}
        assert [placed.pod.name for placed in transaction.commit()] == ["m0"]
    assert used(scheduler) == {"n": [100, 0, 0, 0]}
    assert list(scheduler.cluster.assumed) == ["uid-default-m0"]


def test_what_is_kept_is_what_cycles_of_their_own_do():
    planned, single = offline(*mixed(), *gang(30)), offline(*mixed(), *gang(30))
    with Transaction(planned.cluster, planned.nominator) as transaction:
        plan, _ = plan_of(planned, transaction, gang(30))
        transaction.commit()
    nodes = {}
    rng = Random(1)
    for i in range(30):
        waiting = single.pending[f"default/m{i}"]
        attempt = Attempt(single.profiles["default-scheduler"], single.cluster, waiting)
        if attempt.filter().feasible:
            row = attempt.choose(rng).row
            assert single.take(attempt, row)[0].ok
            nodes[waiting.uid] = single.cluster.table.names[row]
    assert plan.nodes == nodes
    assert used(planned) == used(single)


class Refusing(Reserve):
    """Reserves, announces that it did, and refuses the pods named `refused` or fails for those named `broken`."""

    name = "Refusing"

    def __init__(self, args, handle):
        self.cluster = handle.cluster
        self.reserved = []

    def reserve(self, cycle, pod, row):
        self.reserved.append(pod.name)
        self.cluster.announce(ClusterEvent(NODE, ActionType.ADD), None, pod.name)
        self.cluster.announce(ClusterEvent(NODE, ActionType.ADD), None, f"before {pod.name}", earlier=True)
        if pod.name == "broken":
            raise RuntimeError("broken")
        return Status(Code.UNSCHEDULABLE, ("no",)) if pod.name == "refused" else SUCCESS

    def unreserve(self, cycle, pod, row):
        self.reserved.remove(pod.name)


@pytest.mark.parametrize("in_steps", [False, True])
def test_announcements_wait_for_the_commit(in_steps):
    scheduler = offline(
        gpu_node("n"),
        *(gpu_pod(name) for name in ("kept", "refused", "broken", "undone")),
        plugins=[GpuShare, Refusing],
    )
    profile, heard = scheduler.profiles["default-scheduler"], []
    scheduler.cluster.on_event(lambda event, old, new: heard.append(new))
    cycles = {
        name: CycleState(scheduler.pending[f"default/{name}"]) for name in ("kept", "refused", "broken", "undone")
    }
    with Transaction(scheduler.cluster, scheduler.nominator) as transaction:
        assert transaction.place(cycles["kept"], profile, 0).ok
        assert not transaction.place(cycles["refused"], profile, 0).ok
        with pytest.raises(RuntimeError, match="broken"):
            transaction.place(cycles["broken"], profile, 0)
        kept = transaction.checkpoint()
        assert transaction.place(cycles["undone"], profile, 0).ok
        if in_steps:
            at_once(transaction.roll_back(kept))
        else:
            transaction.rollback(kept)
        assert heard == []
        transaction.commit()
    assert heard == ["kept", "before kept", "before refused", "before broken", "before undone"]
    assert profile.plugins["Refusing"].reserved == ["kept"]
    assert [each.name for each in scheduler.cluster.assigned.values()] == ["kept"]


def test_nothing_else_changes_the_cluster_inside_a_transaction():
    scheduler = offline(gpu_node("n"), gpu_pod("running", on="n"), gpu_pod("p"))
    cluster = scheduler.cluster
    with Transaction(cluster, scheduler.nominator):
        for change in (
            lambda: cluster.remove_node("n"),
            lambda: cluster.upsert_node(cluster.table.nodes[0]),
            lambda: cluster.remove_pod("uid-default-running"),
            lambda: cluster.set_pod(cluster.assigned["uid-default-running"]),
            lambda: Transaction(cluster, scheduler.nominator),
        ):
            with pytest.raises(RuntimeError, match="inside a transaction"):
                change()
    assert not cluster.in_transaction


def test_what_ifs_are_no_trial_worlds():
    scheduler = offline(gpu_node("n"), gpu_pod("p"))
    profile, cluster = scheduler.profiles["default-scheduler"], scheduler.cluster
    waiting = scheduler.pending["default/p"]
    with cluster.what_if(add=[(0, waiting)]):
        with pytest.raises(RuntimeError, match="what-if"):
            profile.filtering.filter(CycleState(waiting))
        with pytest.raises(RuntimeError, match="what-if"):
            cluster.table.touch(0, 1)
    assert profile.filtering.filter(CycleState(waiting)).feasible == 1


def test_while_a_transaction_is_paused_no_pod_is_moved_or_given_anything():
    scheduler = offline(gpu_node("n0", gpus=4), gpu_pod("a", 100), gpu_pod("b", 100))
    cluster, profile = scheduler.cluster, scheduler.profiles["default-scheduler"]
    first, second = (scheduler.pending[f"default/{name}"] for name in "ab")
    attempt = Attempt(profile, cluster, first)
    attempt.filter()
    with Transaction(cluster, scheduler.nominator) as transaction:
        assert transaction.place(attempt.cycle, profile, 0).ok
        fact = next(iter(cluster.pod_facts))
        before = everything(scheduler)
        for change in (
            lambda: cluster.allocate(first, fact, None),
            lambda: cluster.assume(second, 0),
            lambda: cluster.forget(first),
        ):
            with pytest.raises(RuntimeError, match="paused"), cluster.paused():
                change()
        assert everything(scheduler) == before

"""Job preemption where potential victims are members of gangs, which go as a whole (coscheduling spec 3.8)."""

import asyncio
from random import Random

import numpy as np
import pytest

from koordsched.plugins.coscheduling.kinds import QUESTIONED_OBJECT_KEY
from tests.plugins.coscheduling.placing import Gangs, configuration, scheduling, settle
from tests.virtualtime import run

PREEMPTING = configuration(enablePreemption=True)
HONORING = configuration(enablePreemption=True, honorDisruptionBudgets=True)


def playing(fill, *, nodes, config=PREEMPTING, cpu="10", members=1):
    """The pods that stay when a gang of `members` that fill a node each comes to the pods that `fill(cluster)` puts
    in.
    """

    async def work():
        cluster = Gangs(nodes, cpu=cpu)
        fill(cluster)
        async with scheduling(cluster, config) as running:
            cluster.group(members, "new")
            cluster.pods(*[f"new-{number}" for number in range(members)], gang="new", cpu=cpu, priority=1000)
            await settle(running, 60)
            bound = cluster.bound()
            assert [name for name in bound if name.startswith("new")] == [f"new-{number}" for number in range(members)]
            return [name for name in bound if not name.startswith("new")]

    return run(work())


def gang_on(cluster, name, *nodes, minimum=None, priority=0, cpu="10", labels=None):
    cluster.group(len(nodes) if minimum is None else minimum, name)
    for number, node in enumerate(nodes):
        cluster.pod(f"{name}-{number}", name, node=node, cpu=cpu, priority=priority, labels=labels or {})


def alone(cluster, name, node, priority=0, cpu="10", labels=None):
    cluster.pod(name, by=None, node=node, cpu=cpu, priority=priority, labels=labels or {})


def test_pods_of_the_lowest_priority_cost_nothing():
    """Costs are ranks of priorities, the lowest of which is none: the name of the node decides."""

    def fill(cluster):
        alone(cluster, "important", "n0", labels={QUESTIONED_OBJECT_KEY: "important"})
        for name, node, cpu in (("a", "n2", "5"), ("b", "n2", "5"), ("z", "n1", "10")):
            alone(cluster, name, node, priority=-5, cpu=cpu, labels={QUESTIONED_OBJECT_KEY: name})

    assert playing(fill, nodes=("n0", "n1", "n2")) == ["a", "b", "important"]


def test_a_gang_costs_more_than_a_pod_that_is_as_important():
    def fill(cluster):
        gang_on(cluster, "g", "n1", "n2")
        alone(cluster, "z", "n3")

    assert playing(fill, nodes=("n1", "n2", "n3")) == ["g-0", "g-1"]


def test_a_gang_that_has_enough_pods_left_costs_no_more():
    def fill(cluster):
        gang_on(cluster, "g", "n1", "n2", minimum=1)
        alone(cluster, "z", "n3")

    assert playing(fill, nodes=("n1", "n2", "n3")) == ["g-1", "z"]


@pytest.mark.parametrize(("size", "goes"), [(2, "the gang"), (4, "the pod")])
def test_number_and_priority_are_weighed(size, goes):
    """The pod has the third of three priorities: it costs 2. Each pod of the gang that is elsewhere costs 1."""
    nodes = [f"n{number}" for number in range(size)]

    def fill(cluster):
        gang_on(cluster, "g", *nodes)
        alone(cluster, "w", "y", priority=5, cpu="1")
        alone(cluster, "x", "y", priority=2000, cpu="9")
        alone(cluster, "z", "z", priority=10, cpu="5")
        alone(cluster, "z-low", "z", priority=5, cpu="5")

    left = [name for name in playing(fill, nodes=(*nodes, "y", "z")) if name not in ("w", "x")]
    assert left == (["z", "z-low"] if goes == "the gang" else [f"g-{number}" for number in range(size)])


def test_where_a_gang_goes_anyway_its_other_nodes_are_cheap():
    """Of the nodes of g the second is taken before that of a pod that would be one more."""

    def fill(cluster):
        gang_on(cluster, "g", "a", "c")
        alone(cluster, "late", "b", priority=1)

    assert playing(fill, nodes=("a", "b", "c"), members=2) == ["late"]


def test_the_pod_of_a_gang_comes_back_before_one_that_is_as_important():
    def fill(cluster):
        cluster.group(2, "g")
        cluster.pod("z-gang", "g", node="n1", cpu="5")
        cluster.pod("y-gang", "g", node="n2", cpu="1")
        cluster.pod("held", by=None, node="n2", cpu="9", priority=2000)
        alone(cluster, "a", "n1", cpu="5")

    async def work():
        cluster = Gangs(("n1", "n2"), cpu="10")
        fill(cluster)
        async with scheduling(cluster, PREEMPTING) as running:
            cluster.pod("new", by=None, cpu="5", priority=1000)
            await settle(running, 60)
            return cluster.bound()

    assert run(work()) == ["held", "new", "y-gang", "z-gang"]


@pytest.mark.parametrize(("config", "stay"), [(PREEMPTING, ["g-0", "g-1", "z"]), (HONORING, ["a", "z"])])
def test_budgets_count_for_all_pods_of_a_gang_only_if_they_are_honored(config, stay):
    """The one pod costs less, and its budget is used up."""

    def fill(cluster):
        cluster.disruption_budget("kept")
        alone(cluster, "a", "n1", labels={"app": "kept"})
        gang_on(cluster, "g", "n2", "n3")
        alone(cluster, "z", "n4", priority=2000)

    assert playing(fill, nodes=("n1", "n2", "n3", "n4"), config=config) == stay


def test_a_budget_of_pods_elsewhere_keeps_a_gang_where_it_is():
    """The one pod costs more. The gang's budget allows for the pod that is in the way, not for all."""

    def fill(cluster):
        cluster.disruption_budget("kept", allowed=1)
        gang_on(cluster, "g", "n1", "n2", labels={"app": "kept"})
        alone(cluster, "between", "n3", priority=5)
        alone(cluster, "z", "n4", priority=10)

    nodes = ("n1", "n2", "n3", "n4")
    assert playing(fill, nodes=nodes) == ["between", "z"]
    assert playing(fill, nodes=nodes, config=HONORING) == ["g-0", "g-1", "z"]


def naive(scheduler, cache, rows, priority, gone=()):
    """What each row costs, pod by pod."""
    cluster = scheduler.cluster
    lesser = {
        row: [pod for pod in cluster.pods_on(row).values() if pod.priority < priority]
        for row in range(len(cluster.table.names))
    }
    listed = sorted({pod.priority for row in rows for pod in lesser[row]})
    costs = []
    for row in rows:
        first = max((pod.priority for pod in lesser[row]), default=None)
        cost = listed.index(first) if first is not None else 0
        for gang in {gang.id: gang for pod in lesser[row] if (gang := cache.of(pod)) is not None}.values():
            rest = [pod for pod in gang.bound.values() if pod.row != row or pod.priority >= priority]
            if rest and len(rest) < gang.options.min and gang.id not in gone:
                less = [pod for pod in rest if pod.priority < priority]
                cost += sum(int(np.searchsorted(listed, pod.priority)) + 1 for pod in less)
        costs.append(cost)
    return costs


@pytest.mark.parametrize("seed", range(12))
def test_costs_as_pod_by_pod(seed):
    async def work():
        draw = Random(seed)
        nodes = [f"n{number}" for number in range(8)]
        cluster = Gangs(nodes, cpu="100")
        for name in ("a", "b", "c", "d"):
            size = draw.randint(1, 6)
            cluster.group(draw.randint(1, size), name)
            for number in range(size):
                place, height = draw.choice(nodes[:6]), draw.choice((0, 1, 2, 50))
                cluster.pod(f"{name}-{number}", name, node=place, priority=height)
        for number in range(6):
            cluster.pod(f"l-{number}", by=None, node=draw.choice(nodes), priority=draw.choice((0, 1, 2, 3, 50)))
        async with scheduling(cluster, PREEMPTING) as running:
            await asyncio.sleep(1)
            scheduler = running.scheduler
            plugin = scheduler.profiles["default-scheduler"].plugins["Coscheduling"]
            for priority in (1, 3, 10):
                rows = np.array(sorted(draw.sample(range(8), draw.randint(1, 8))))
                found = plugin._preemption._costs.of(rows, priority)
                assert found.costs.tolist() == naive(scheduler, plugin.cache, rows.tolist(), priority)
                gone = plugin.cache.gangs["default/b"]
                found.gone([gone])
                assert found.costs.tolist() == naive(scheduler, plugin.cache, rows.tolist(), priority, (gone.id,))

    run(work())


def test_costs_of_members_by_annotation_whenever_they_are_asked_for():
    """Before they are confirmed, afterwards, and when they are in another gang by now."""
    held = asyncio.Event()

    async def holding(call, proceed):
        if call.path.endswith("/binding"):
            await held.wait()
        return await proceed()

    async def work():
        cluster = Gangs(("n1", "n2"), cpu="2")
        async with scheduling(cluster, PREEMPTING, fault=holding) as running:
            scheduler = running.scheduler
            plugin = scheduler.profiles["default-scheduler"].plugins["Coscheduling"]
            rows = np.array([0, 1])

            def agree():
                found = plugin._preemption._costs.of(rows, 10).costs.tolist()
                assert found == naive(scheduler, plugin.cache, rows.tolist(), 10)
                return found

            cluster.pods("a-0", "a-1", "a-2", gang="a", by={"min_available": "3"})
            await asyncio.sleep(1)
            assert len(scheduler.cluster.assumed) == 3
            agree()
            held.set()
            await settle(running)
            assert not scheduler.cluster.assumed
            assert sum(agree()) > 0
            cluster.change("a-0", notes={"gang.scheduling.koordinator.sh/name": "b"})
            cluster.change("a-1", notes={"gang.scheduling.koordinator.sh/name": "b"})
            await settle(running)
            agree()
            assert len(plugin.cache.gangs["default/b"].bound) == 2

    run(work())


def test_the_rest_of_a_gang_goes_in_the_order_of_names():
    """Whichever of them was bound, or seen, first: a journal that is resumed does not know."""
    evicted = []

    async def noting(call, proceed):
        if call.path.endswith("/eviction") or call.method == "DELETE":
            evicted.append(call.path.split("/pods/")[1].removesuffix("/eviction"))
        return await proceed()

    async def work():
        cluster = Gangs(("n1", "n2", "n3"), cpu="10")
        cluster.group(3, "g")
        async with scheduling(cluster, PREEMPTING, fault=noting) as running:
            for number in (2, 0, 1):
                cluster.pod(f"g-{number}", "g", node=f"n{number + 1}", cpu="10", priority=number)
                await settle(running)
            cluster.group(1, "new")
            cluster.pod("new", gang="new", cpu="10", priority=1000)
            await settle(running, 60)

    run(work())
    assert len(evicted) == 3
    assert evicted[1:] == sorted(evicted[1:])


def test_members_that_are_being_bound_go_with_the_others():
    """The API server does not show yet that they have a node."""

    async def work():
        cluster = Gangs(("n1", "n2"), cpu="10")
        release = asyncio.Event()

        async def fault(call, proceed):
            if call.path.endswith("/binding") and "/g-" in call.path:
                await release.wait()
            return await proceed()

        async with scheduling(cluster, PREEMPTING, fault=fault) as running:
            cluster.group(2, "g")
            cluster.pods("g-0", "g-1", gang="g", cpu="10")
            await asyncio.sleep(2)
            assert len(running.scheduler.cluster.assumed) == 2
            cluster.pod("new", by=None, cpu="10", priority=1000)
            await asyncio.sleep(2)
            release.set()
            await settle(running, 60)
            return cluster.bound()

    assert run(work()) == ["new"]


def test_members_that_leave_are_not_counted_among_those_that_stay():
    """One of three has to make room for one job, then another one for the next: the third would be alone."""

    async def work():
        cluster = Gangs(("n1", "n2", "n3"), cpu="10")
        cluster.group(2, "g")
        for number in range(3):
            cluster.pod(f"g-{number}", "g", node=f"n{number + 1}", cpu="10", finalizers=["example.com/wait"])
        async with scheduling(cluster, PREEMPTING) as running:
            await settle(running)
            cluster.pod("first", by=None, cpu="10", priority=1000)
            await settle(running, 10)
            before = cluster.leaving()
            cluster.pod("second", by=None, cpu="10", priority=1000)
            await settle(running, 10)
            return before, cluster.leaving()

    before, after = run(work())
    assert len(before) == 1
    assert after == ["g-0", "g-1", "g-2"]

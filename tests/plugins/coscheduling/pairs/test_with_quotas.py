"""Gangs and quotas: a gang uses its quota as a whole, or not at all, and is woken by what quotas get back."""

import asyncio

import pytest

from tests.plugins.coscheduling.running import API, LABEL
from tests.plugins.elasticquota.objects import PREFIX, quota
from tests.plugins.reservation.pairs.cluster import PairCluster, configuration, profile
from tests.plugins.reservation.running import scheduling
from tests.virtualtime import run

IN_TEAM = {PREFIX + "name": "team"}
PLUGINS = ("Coscheduling", "ElasticQuota")
CONFIG = configuration(profile(*PLUGINS))
PREEMPTS = configuration(profile(*PLUGINS, args={"Coscheduling": {"enablePreemption": True}}))


class Teams(PairCluster):
    """With a quota of so many CPUs, which lends nothing."""

    def __init__(self, cpus, nodes=("n1",), cpu="20", **labels):
        super().__init__(nodes, cpu=cpu)
        for name in ("quotas", "koordinator-system"):
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.team(cpus, **labels)

    def team(self, cpus, name="team", least=None, **labels):
        amounts = {"cpu": cpus, "memory": "640Gi"}
        smallest = amounts if least is None else {"cpu": least, "memory": "640Gi"}
        self.insert(quota(name, amounts, smallest, **{"allow_lent_resource": "false", **labels}))

    def gang(self, name, count, minimum=None, cpu="2", of="team", **spec):
        """Puts a gang in, the pods of which are called `name`-0, ..."""
        thing = {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name}}
        self.insert(thing | {"spec": {"minMember": count if minimum is None else minimum}})
        for number in range(count):
            self.alone(f"{name}-{number}", cpu, of, {LABEL: name}, **spec)

    def alone(self, name, cpu="2", of="team", labels=None, **spec):
        labels = {**(labels or {}), **({PREFIX + "name": of} if of else {})}
        self.put(name, requests={"cpu": cpu, "memory": "1Gi"}, labels=labels, **spec)

    def bound(self):
        """The names of all pods with a node."""
        pods = self.registry.list(self.resource("Pod"))
        return sorted(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName"))

    def remove(self, *names):
        for name in names:
            self.registry.delete(self.resource("Pod"), "default", name, grace_period_seconds=0)


def in_use(running, name="team"):
    """CPUs that a quota has in use, by its books."""
    books = running.scheduler.profiles["default-scheduler"].plugins["ElasticQuota"].books
    return books.quota(name).used.get("cpu", 0) // 10**6


def playing(scenario, cpus, config=CONFIG, **options):
    async def work():
        there = Teams(cpus, **options)
        async with scheduling(there, config) as running:
            await asyncio.sleep(2)
            await scenario(there, running)

    run(work())


def test_a_gang_that_is_larger_than_its_quota_is_refused_as_a_whole_at_once():
    """Neither room nor quota is held for those that would have been within it; one attempt says so."""

    async def scenario(there, running):
        there.gang("g", 4)
        await asyncio.sleep(2)
        assert there.bound() == []
        assert (in_use(running), dict(running.scheduler.cluster.assumed)) == (0, {})
        refused = [there.said(f"g-{number}") for number in range(4)]
        assert sum("Insufficient quotas" in text for text in refused) == 4
        assert sum(text.startswith("0/1 nodes are available: 1 GangGroup") for text in refused) == 3
        attempts = sum(running.attempts.values())
        await asyncio.sleep(200)
        assert sum(running.attempts.values()) <= attempts + 1, "nothing has happened that would help"
        there.alone("small", "6")
        await asyncio.sleep(5)
        assert there.bound() == ["small"]

    playing(scenario, 6)


@pytest.mark.parametrize("lends", ["true", "false"])
def test_what_a_quota_gets_back_wakes_the_gang_at_once(lends):
    """The last pod that is one too many goes."""

    async def scenario(there, running):
        for name in ("first", "second"):
            there.alone(name, "2")
        await asyncio.sleep(5)
        there.gang("g", 3)
        await asyncio.sleep(60)
        assert there.bound() == ["first", "second"]
        there.remove("first")
        await asyncio.sleep(60)
        assert there.bound() == ["second"]
        there.remove("second")
        await asyncio.sleep(2)
        assert there.bound() == ["g-0", "g-1", "g-2"]
        assert in_use(running) == 6000

    playing(scenario, 6, allow_lent_resource=lends)


def test_runtime_that_another_quota_gives_back_wakes_the_gang_at_once():
    """The other quota has borrowed what the cluster has; its pods end."""

    async def scenario(there, running):
        there.team(20, "other", least=2, allow_lent_resource="true")
        for number in range(7):
            there.alone(f"other-{number}", "2", "other")
        await asyncio.sleep(10)
        before = len(there.bound())
        assert before == 7
        there.gang("g", 4)
        await asyncio.sleep(60)
        assert len(there.bound()) == 7, "20 CPUs, of which 14 are in use"
        there.remove("other-0")
        await asyncio.sleep(2)
        assert [name for name in there.bound() if name.startswith("g")] == [f"g-{number}" for number in range(4)]
        assert in_use(running) == 8000

    playing(scenario, 20, allow_lent_resource="true")


def test_a_quota_that_grows_wakes_the_gang():
    async def scenario(there, running):
        there.gang("g", 4)
        await asyncio.sleep(30)
        assert there.bound() == []
        patch = {"spec": {part: {"cpu": "8", "memory": "640Gi"} for part in ("min", "max")}}
        there.patch("ElasticQuota", "team", patch, "quotas", api_version="scheduling.sigs.k8s.io/v1alpha1")
        await asyncio.sleep(3)
        assert len(there.bound()) == 4

    playing(scenario, 6)


def test_a_gang_that_does_not_fit_on_the_nodes_gives_its_quota_back():
    async def scenario(there, running):
        there.gang("g", 3, cpu="8")
        await asyncio.sleep(5)
        assert (there.bound(), in_use(running)) == ([], 0)
        there.alone("other", "16")
        await asyncio.sleep(5)
        assert there.bound() == ["other"]

    playing(scenario, 100, cpu="20")


def test_two_gangs_that_each_need_the_quota_do_not_hold_it_against_each_other():
    async def scenario(there, running):
        there.gang("a", 3)
        there.gang("b", 3)
        await asyncio.sleep(10)
        won = {name[0] for name in there.bound()}
        assert (len(there.bound()), len(won)) == (3, 1)
        there.remove(*there.bound())
        await asyncio.sleep(3)
        assert {name[0] for name in there.bound()} == {"a", "b"} - won

    playing(scenario, 6)


def test_members_beyond_what_the_quota_has_are_tried_without_the_gang():
    """Two are enough, three are there, and the quota has room for two."""

    async def scenario(there, running):
        there.gang("g", 3, minimum=2)
        await asyncio.sleep(20)
        assert len(there.bound()) == 2
        there.team(4, "more")
        (left,) = {f"g-{number}" for number in range(3)} - set(there.bound())
        there.patch("Pod", left, {"metadata": {"labels": {PREFIX + "name": "more"}}}, "default", api_version="v1")
        await asyncio.sleep(5)
        assert len(there.bound()) == 3

    playing(scenario, 4)


def test_job_preemption_evicts_no_pod_where_the_quota_is_what_is_missing():
    """Pods of other quotas would make room on the node, which is not what the gang lacks."""

    async def scenario(there, running):
        there.alone("low", "18", "", priority=0)
        await asyncio.sleep(3)
        there.gang("g", 3, priority=100)
        await asyncio.sleep(60)
        assert there.bound() == ["low"]
        assert any("Insufficient quotas" in there.said(f"g-{number}") for number in range(3))

    playing(scenario, 4, config=PREEMPTS)

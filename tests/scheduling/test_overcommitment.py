"""Nodes that others over-commit: found, counted, told of once, and seen to end."""

import asyncio
import json

import pytest

from koordsched.observability.logging import level_of
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.scheduling.serving import embedded_with_users, serving
from tests.virtualtime import run
from tests.waiting import until


class World:
    """A node of 4 CPUs, a scheduler, and what it says."""

    def __init__(self, embedded, scheduler, caplog):
        self.embedded = embedded
        self.scheduler = scheduler
        self._caplog = caplog

    async def settle(self, seconds=10):
        await asyncio.sleep(seconds)

    def bind(self, name, *containers, **more):
        """Somebody else puts a pod onto the node."""
        self.embedded.insert(pod(name, *containers, on="alder", **more))

    def resize(self, **allocatable):
        resource = self.embedded.resource("Node")
        self.embedded.registry.patch(
            resource, None, "alder", {"status": {"allocatable": allocatable}}, "merge", "status"
        )

    def delete(self, name):
        self.embedded.registry.delete(self.embedded.resource("Pod"), "default", name, grace_period_seconds=0)

    def delete_node(self):
        self.embedded.registry.delete(self.embedded.resource("Node"), None, "alder")

    @property
    def told(self):
        """The notes of the events about the node."""
        found = [e for e in self.embedded.events() if e["reason"] == "OverCommitted"]
        assert all(e["type"] == "Warning" and e["regarding"]["kind"] == "Node" for e in found)
        return [e["note"] for e in found]

    @property
    def logged(self):
        return [r.getMessage() for r in self._caplog.records if "over-committed" in r.getMessage()]

    def metric(self, name):
        found = {}
        for metric in self.scheduler.metrics.collect():
            for sample in metric.samples:
                if sample.name == name:
                    found[sample.labels["resource"]] = sample.value
        return found

    @property
    def counted(self):
        return self.metric("koordsched_node_overcommitments_total")

    @property
    def now(self):
        return self.metric("koordsched_overcommitted_nodes")


def in_world(caplog, story, configuration=None, **size):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4", **size))
        async with scheduler_on(embedded, configuration) as running:
            with caplog.at_level(level_of(1), "koordsched.scheduling.overcommitment"):
                await story(World(embedded, running.scheduler, caplog))

    run(main())


NOTE = "its pods request more than it has: "
ONE, OTHER, ALL = (container(ports=[(ip, "TCP", 80)]) for ip in ("10.0.0.1", "10.0.0.2", ""))
CASES = {
    "fits": ([container(cpu="4")], None),
    "cpu": ([container(cpu="3"), container(cpu="2")], ("cpu", "cpu 5000m of 4000m")),
    "memory": ([container(memory="9Gi")], ("memory", f"memory {9 << 30} of {8 << 30}")),
    "extended resource that the node does not have": ([container(gpu="1")], ("ex.com/gpu", "ex.com/gpu 1 of 0")),
    "host port, two addresses": ([ONE, OTHER], None),
    "host port, one address": ([ONE, ONE], ("hostPort", "hostPort TCP/80 2 of 1")),
    "host port, all addresses and one": ([ALL, OTHER], ("hostPort", "hostPort TCP/80 2 of 1")),
    "host port, two protocols": ([ALL, container(ports=[("", "UDP", 80)])], None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_exceeded(case, caplog):
    pods, expected = CASES[case]

    async def story(world):
        for i, made in enumerate(pods):
            world.bind(f"p{i}", made)
        await world.settle()
        resource, text = expected or ("", "")
        assert world.told == ([NOTE + text] if expected else [])
        assert world.logged == ([f"node alder is over-committed: {text}"] if expected else [])
        assert world.counted == ({resource: 1} if expected else {})
        assert world.now == ({resource: 1} if expected else {})

    in_world(caplog, story)


def test_an_episode_is_told_of_once_and_each_new_resource_in_the_log(caplog):
    async def story(world):
        world.bind("a", container(cpu="3"))
        world.bind("b", container(cpu="3"))
        await world.settle(60)
        world.bind("c", container(cpu="1"))  # more of the same
        await world.settle(60)
        world.bind("d", container(memory="9Gi"))  # something else
        await world.settle(60)
        assert world.told == [f"{NOTE}cpu 6000m of 4000m"]
        assert world.logged == [
            "node alder is over-committed: cpu 6000m of 4000m",
            f"node alder is over-committed: cpu 7000m of 4000m, memory {9 << 30} of {8 << 30}",
        ]
        assert world.counted == {"cpu": 1, "memory": 1}
        for name in "abcd":
            world.delete(name)
        await world.settle(1200)
        assert world.now == {}
        assert world.logged[2:] == ["node alder is not over-committed any more"]
        world.bind("e", container(cpu="5"))
        await world.settle()
        assert world.told[1:] == [f"{NOTE}cpu 5000m of 4000m"]
        assert world.counted == {"cpu": 2, "memory": 1}

    in_world(caplog, story)


def test_a_kubelet_that_shrinks_what_it_offers(caplog):
    async def story(world):
        world.bind("a", container(cpu="3"))
        world.bind("b", container(gpu="1"))
        await world.settle()
        assert world.told == []
        world.resize(cpu="2")
        await world.settle()
        assert world.now == {"cpu": 1}
        world.resize(cpu="4", **{"ex.com/gpu": None}, pods="1")  # a device plugin restarts; fewer pods are allowed
        await world.settle()
        assert world.now == {"ex.com/gpu": 1, "pods": 1}
        world.resize(**{"ex.com/gpu": "2"}, pods="2")
        await world.settle()
        assert world.now == {}
        assert world.counted == {"cpu": 1, "ex.com/gpu": 1, "pods": 1}
        assert world.told == [f"{NOTE}cpu 3000m of 2000m"]  # one episode: something was always exceeded

    in_world(caplog, story, gpu="2")


def test_names_that_pods_make_up(caplog):
    """They may be as many as fit into a pod: what the node has comes first, and labels and texts are bounded."""

    async def story(world):
        world.bind("a", container(cpu="5", gpu="3", **{f"a.com/{i:03}": "1" for i in range(300)}))
        await world.settle()
        named = ", ".join(f"a.com/{i:03} 1 of 0" for i in range(8))
        text = f"cpu 5000m of 4000m, ex.com/gpu 3 of 2, {named} and 292 more"
        assert world.told == [NOTE + text]
        assert world.logged == [f"node alder is over-committed: {text}"]
        for i in range(3):
            world.delete("ab"[i % 2])
            await world.settle()
            world.bind("ba"[i % 2], container(cpu="5", **{f"{i}.com/{k}": "1" for k in range(300)}))
            await world.settle()
        assert len(world.now) < 100
        assert len(world.counted) < 100
        assert sum(world.counted.values()) == 2 + 3 + 4 * 300
        assert (world.counted["cpu"], world.counted["ex.com/gpu"]) == (4, 1)

    in_world(caplog, story, gpu="2")


def test_a_node_that_goes_and_comes_back_begins_anew(caplog):
    async def story(world):
        world.bind("a", container(cpu="5"))
        await world.settle()
        world.delete_node()
        await world.settle()
        assert world.now == {}
        world.embedded.insert(node("alder", cpu="4"))
        await world.settle()
        assert world.now == {"cpu": 1}
        assert len(world.told) == 2

    in_world(caplog, story)


def test_what_does_not_last_is_not_told_of(caplog):
    """Watches are independent: a smaller node may be seen before the pods that made room for it are seen to go."""

    async def story(world):
        world.bind("a", container(cpu="3"))
        await world.settle()
        world.resize(cpu="2")
        await world.settle(1)
        assert world.now == {"cpu": 1}
        world.delete("a")
        await world.settle()
        assert (world.told, world.logged, world.counted, world.now) == ([], [], {}, {})

    in_world(caplog, story)


@pytest.mark.parametrize("args", [{"ignoredResources": ["ex.com/gpu"]}, {"ignoredResourceGroups": ["ex.com"]}])
def test_what_the_configuration_leaves_to_others_is_not_counted(args, caplog):
    profile = {"schedulerName": "default-scheduler", "pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}

    async def story(world):
        world.bind("a", container(gpu="1", cpu="5"))
        await world.settle()
        assert world.now == {"cpu": 1}

    in_world(caplog, story, configuration={**DEFAULT_CONFIG, "profiles": [profile]})


def test_our_own_pods_never_make_it_so(caplog):
    """Scheduled, assumed, confirmed, ended: a full node is not an over-committed one."""

    async def story(world):
        for i in range(12):
            world.embedded.insert(pod(f"p{i}", container(cpu="1", memory="1Gi")))
        await world.settle(30)
        for i in range(4):
            world.delete(f"p{i}")
        await world.settle(600)
        assert (world.told, world.counted) == ([], {})
        assert world.scheduler.cluster.table.pods_count.data[0] == 4

    in_world(caplog, story)


async def test_the_page_names_nodes_and_amounts():
    embedded = embedded_with_users()
    embedded.insert(node("alder", cpu="4"))
    embedded.insert(node("birch", cpu="4"))
    embedded.insert(pod("p", container(cpu="5"), on="alder"))
    async with serving(embedded) as running:
        status, text = await running.client.get("/debug/overcommitment")
        assert (status, json.loads(text)) == (
            200,
            {"nodes": [{"node": "alder", "exceeded": [{"resource": "cpu", "used": 5000, "available": 4000}]}]},
        )
        assert (await running.client.get("/debug/overcommitment", token="mallory"))[0] == 403
        await until(lambda: [e for e in embedded.events() if e["reason"] == "OverCommitted"], "the event")

"""Quarantines end to end: pods that fell hollow nodes, and what the scheduler makes of it."""

import asyncio
import json

import pytest

from koordsched.plugins.workloadquarantine.record import PREFIX
from tests.parity.koord import custom_resources
from tests.plugins.nodecircuitbreaker import running as breakers
from tests.plugins.nodecircuitbreaker.running import template
from tests.virtualtime import run

NAME = "WorkloadQuarantine"
FELLS = {"koordsched.io/fells-node": "30s"}
KEY = "quarantine.koordsched.io/deployment.bomb"


class World(breakers.World):
    """Hollow nodes, and pods of Deployments."""

    def scheduler(self, *others, seed=1, **args):
        """A scheduler with quarantines that leads, with its controllers."""
        profile = {
            "plugins": {"multiPoint": {"enabled": [{"name": name} for name in (NAME, *others)]}},
            "pluginConfig": [{"name": NAME, "args": args}],
        }
        return self.running({**breakers.DEFAULT_CONFIG, "profiles": [profile]}, seed)

    def of(self, deployment, name, revision="1", **more):
        """A pod of a revision of a Deployment."""
        self.pod(name, f"{deployment}-{revision}", labels={"pod-template-hash": revision}, **more)

    def annotations(self):
        """What is written on the namespace about quarantines."""
        found = self.embedded.get("Namespace", "default")["metadata"].get("annotations") or {}
        return {key: json.loads(text) for key, text in found.items() if key.startswith(PREFIX)}

    async def lift(self, key=KEY):
        """As `kubectl annotate namespace default KEY-`."""
        await self.write(None, key)

    async def write(self, text, key=KEY):
        """Annotates the namespace; None takes the annotation away."""
        status, answer = await self.embedded.call(
            "PATCH",
            "/api/v1/namespaces/default",
            {"metadata": {"annotations": {key: text}}},
            headers={"content-type": "application/merge-patch+json"},
        )
        assert status == 200, answer


def quarantines(running):
    return running.scheduler.profiles["default-scheduler"].plugins[NAME].quarantines


def on(node):
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


async def bombs(world, count=2, revision="1"):
    """Pods that fell a node each, one after the other."""
    for number in range(count):
        world.of("bomb", f"bomb-{revision}-{number}", revision, annotations=FELLS, **on(f"node-{number:02}"))
        await asyncio.sleep(40)


def test_a_workload_that_fells_nodes_is_held_back_until_a_person_lifts_that():
    async def main():
        world = World(template("node", 60))
        async with world.scheduler() as running:
            await bombs(world, 1)
            assert quarantines(running).held == {}
            world.of("web", "web-1", **on("node-01"))
            await bombs(world, 2, "2")
            # Two revisions of one Deployment; the neighbour that came to one of the nodes is another workload.
            assert list(map(str, quarantines(running).held)) == ["Deployment default/bomb"]
            found = world.annotations()
            assert set(found) == {KEY}
            assert (found[KEY]["nodes"], found[KEY]["placed"]) == (["node-00", "node-01"], 3)
            world.of("bomb", "bomb-next", "3")
            world.of("web", "web-next")
            await asyncio.sleep(5)
            assert world.node_of("web-next")
            assert world.node_of("bomb-next") is None
            message = world.condition("bomb-next")
            assert message.startswith(
                "0/60 nodes are available: Deployment bomb is quarantined: "
                "2 of 3 nodes with new pods of it went down (chance "
            )
            assert f"(kubectl annotate namespace default {KEY}- lifts this)" in message
            assert {"default", "bomb-2"} == {name for name, _ in world.told("WorkloadQuarantined")}
            await asyncio.sleep(3600)
            assert world.node_of("bomb-next") is None
            await world.lift()
            await asyncio.sleep(5)
            assert world.node_of("bomb-next")
            assert (world.annotations(), quarantines(running).held) == ({}, {})
            assert dict(quarantines(running).ends) == {"quarantined": 1, "acknowledged": 1, "expired": 0}

    run(main())


def test_a_long_cool_down_ends_it():
    async def main():
        world = World(template("node", 60))
        async with world.scheduler(coolDown="30m") as running:
            await bombs(world)
            world.of("bomb", "bomb-next")
            await asyncio.sleep(1700)
            assert world.node_of("bomb-next") is None
            await asyncio.sleep(120)
            assert world.node_of("bomb-next")
            assert world.annotations() == {}
            assert quarantines(running).ends["expired"] == 1
            assert len(world.told("QuarantineExpired")) == 1

    run(main())


@pytest.mark.parametrize("text", ["{", '{"kind":"a"}', '{"kind":"StatefulSet","name":"other"}'])
def test_an_annotation_that_says_nothing_goes(text):
    async def main():
        world = World(template("node", 2))
        async with world.scheduler():
            await world.write(text)
            await asyncio.sleep(5)
            assert world.annotations() == {}
            [(_, note)] = world.told("InvalidAnnotation")
            assert note.startswith(f"ignored: annotation {KEY}: ")

    run(main())


def test_an_annotation_that_makes_sense_by_then_stays():
    async def main():
        world = World(template("node", 2))
        await world.write("{")
        async with world.scheduler() as running:
            quarantines(running).senseless["default", KEY] = None
            await world.write(json.dumps({"kind": "Deployment", "name": "bomb"}))
            await asyncio.sleep(5)
            assert world.annotations() == {KEY: {"kind": "Deployment", "name": "bomb"}}

    run(main())


def test_a_new_leader_holds_back_what_the_old_one_did():
    async def main():
        world = World(template("node", 60))
        async with world.scheduler(coolDown="1h"):
            await bombs(world)
            assert set(world.annotations()) == {KEY}
        for number in range(2):
            world.delete(f"bomb-1-{number}")
        async with world.scheduler(seed=2, coolDown="1h") as running:
            world.of("bomb", "bomb-next")
            await asyncio.sleep(10)
            assert world.node_of("bomb-next") is None
            assert dict(quarantines(running).ends) == {"quarantined": 0, "acknowledged": 0, "expired": 0}
        # Lifted while no scheduler runs.
        await world.lift()
        async with world.scheduler(seed=3, coolDown="1h"):
            await asyncio.sleep(5)
            assert world.node_of("bomb-next")

    run(main())


def test_evidence_is_rebuilt_from_nodes_and_pods():
    async def main():
        world = World(template("node", 60))
        await asyncio.sleep(120)  # nodes that were just made are not ready yet
        async with world.scheduler():
            await bombs(world, 1)
        # The second node goes down while no scheduler runs.
        world.of("bomb", "bomb-1-1", annotations=FELLS, nodeName="node-01")
        await asyncio.sleep(60)
        async with world.scheduler(seed=2) as running:
            await asyncio.sleep(3)
            assert list(map(str, quarantines(running).held)) == ["Deployment default/bomb"]

    run(main())


def test_an_outage_blames_no_workload():
    async def main():
        world = World(template("node", 60))
        async with world.scheduler() as running:
            for number in range(12):
                world.of("web", f"web-{number}", **on(f"node-{number:02}"))
            await asyncio.sleep(60)
            for number in range(0, 60, 2):
                await world.annotate(f"node-{number:02}", **{"koordsched.io/fail": "not-ready"})
            await asyncio.sleep(60)
            assert len(quarantines(running).suspicions) == 1
            assert quarantines(running).held == {}

    run(main())


def test_old_pods_daemons_and_maintenance_are_not_suspected():
    async def main():
        world = World(template("node", 60))
        async with world.scheduler(soonAfter="1m") as running:
            for number in range(3):
                world.of("old", f"old-{number}", **on(f"node-{number:02}"))
            await asyncio.sleep(120)
            for number in range(3):
                world.pod(f"daemon-{number}", "daemon", "DaemonSet", nodeName=f"node-{number:02}")
                world.of("new", f"new-{number}", **on(f"node-{number + 3:02}"))
            await asyncio.sleep(20)
            for number in range(6):
                name = f"node-{number:02}"
                if number >= 3:
                    merge = {"content-type": "application/merge-patch+json"}
                    await world.embedded.call(
                        "PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, headers=merge
                    )
                    await asyncio.sleep(1)
                await world.annotate(name, **{"koordsched.io/fail": "not-ready"})
            await asyncio.sleep(10)
            assert quarantines(running).suspicions == {}

    run(main())


def test_a_machine_that_starts_anew_went_down_too():
    async def main():
        world = World(template("node", 60))

        def boots(name, boot):
            resource = world.embedded.resource("Node")
            status = world.embedded.get("Node", name)["status"]
            info = {**status["nodeInfo"], "bootID": boot}
            world.embedded.registry.replace_status(resource, None, name, {**status, "nodeInfo": info})

        for number in range(3):
            boots(f"node-{number:02}", "first")
        async with world.scheduler() as running:
            for number in range(3):
                world.of("bomb", f"bomb-{number}", **on(f"node-{number:02}"))
            await asyncio.sleep(60)
            boots("node-00", "first")
            boots("node-01", "second")
            boots("node-02", "second")
            await asyncio.sleep(3)
            assert list(map(str, quarantines(running).held)) == ["Deployment default/bomb"]
            assert world.annotations()[KEY]["nodes"] == ["node-01", "node-02"]

    run(main())


def test_quotas_and_preemption_beside_it():
    """A pod that is held back evicts none, and its quota holds for the others."""

    async def main():
        world = World(template("node", 60, cpu="1"))
        for thing in custom_resources():
            world.embedded.insert(thing)
        whole = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
        async with world.scheduler("ElasticQuota", "NodeCircuitBreaker"):
            await bombs(world)
            for number in range(58):
                world.of("web", f"web-{number}", containers=whole)
            await asyncio.sleep(5)
            world.of("bomb", "bomb-next", containers=whole, priority=1000)
            await asyncio.sleep(20)
            assert world.node_of("bomb-next") is None
            assert all(world.node_of(f"web-{number}") for number in range(58))

    run(main())

"""Circuit breakers end to end: hollow nodes on which pods fail, and what the scheduler makes of it."""

import asyncio

import pytest

from koordsched.plugins import CONTROLLERS
from tests.journal.recording import Recorded
from tests.parity.koord import custom_resources
from tests.plugins.nodecircuitbreaker.running import NAME, World, configuration, template
from tests.virtualtime import run

START_ERROR = "koordsched.io/start-error"
ON_BAD = {"kubernetes.io/hostname": "bad-0"}


def breakers(running):
    return running.scheduler.profiles["default-scheduler"].plugins[NAME].breakers


async def break_it(world, owners=("web", "db", "cache")):
    """Pods of these owners fail on the bad node."""
    for owner in owners:
        world.pod(f"{owner}-1", owner, nodeSelector=ON_BAD)
    await asyncio.sleep(5)


@pytest.mark.parametrize("reason", ["CreateContainerError", "RunContainerError"])
def test_a_broken_node_is_left_alone_until_a_probe_runs(reason):
    async def main():
        world = World(template("good", 9), template("bad", 1, fails=reason))
        async with world.scheduler(coolDown="30s", probation="20s") as running:
            await break_it(world)
            assert world.written("bad-0")["state"] == "open"
            assert breakers(running).count() == {"open": 1, "half-open": 0, "held": 0}
            [(node, note)] = world.told("CircuitBreakerOpened")
            assert node == "bad-0"
            assert note.startswith("circuit breaker: no pods for 30s: 3 failures of 3 workloads within 10m0s")
            assert reason in note
            # No pod goes there, though it is as empty as others.
            for number in range(30):
                world.pod(f"more-{number}", "more")
            world.pod("bound-to-it", "stubborn", nodeSelector=ON_BAD)
            await asyncio.sleep(10)
            assert "bad-0" not in {world.node_of(f"more-{number}") for number in range(30)}
            assert world.node_of("bound-to-it") is None
            text = "1 node(s) had an open circuit breaker"
            assert text in world.condition("bound-to-it")
            assert "preemption: 0/10 nodes are available: 10 Preemption is not helpful" in world.condition(
                "bound-to-it"
            )
            # The cool-down ends: one probe, which fails.
            await asyncio.sleep(20)
            assert world.node_of("bound-to-it") == "bad-0"
            await asyncio.sleep(5)
            found = world.written("bad-0")
            assert (found["state"], found["openings"]) == ("open", 2)
            assert world.told("CircuitBreakerOpened")[-1][1].startswith(
                f"circuit breaker: no pods for 60s: its probe default/bound-to-it failed: {reason}"
            )
            # Repaired: the next probe runs, and closes it.
            await world.annotate("bad-0", **{START_ERROR: None})
            world.pod("second", "stubborn", nodeSelector=ON_BAD)
            world.pod("third", "stubborn", nodeSelector=ON_BAD)
            await asyncio.sleep(62)
            assert sorted(map(str, map(world.node_of, ("second", "third")))) == ["None", "bad-0"]
            assert world.written("bad-0")["state"] == "half-open"
            await asyncio.sleep(30)
            assert world.written("bad-0") is None
            assert {world.node_of("second"), world.node_of("third")} == {"bad-0"}
            assert [node for node, _ in world.told("CircuitBreakerClosed")] == ["bad-0"]
            assert dict(breakers(running).transitions) == {"open": 2, "half-open": 2, "closed": 1, "held": 0}

    run(main())


def test_a_new_leader_goes_on_where_the_old_one_was():
    async def main():
        world = World(template("good", 9), template("bad", 1, fails="CreateContainerError"))
        args = {"coolDown": "60s", "probation": "60s"}
        async with world.scheduler(**args):
            await break_it(world)
            opened = world.written("bad-0")
            assert opened["state"] == "open"
        await asyncio.sleep(30)
        # The pods that failed are gone: only what is written on the node says it.
        for owner in ("web", "db", "cache"):
            world.delete(f"{owner}-1")
        async with world.scheduler(seed=2, **args) as running:
            world.pod("probe", "stubborn", nodeSelector=ON_BAD)
            await asyncio.sleep(10)
            assert (world.written("bad-0"), world.node_of("probe")) == (opened, None)
            assert breakers(running).transitions.total() == 0
            await world.annotate("bad-0", **{START_ERROR: None})
            await asyncio.sleep(20)
            assert world.node_of("probe") == "bad-0"
            assert world.written("bad-0")["state"] == "half-open"
            assert world.written("bad-0")["probe"] == world.embedded.get("Pod", "probe")["metadata"]["uid"]
        # Halfway through the probation; the probe is known to the next one, which lets no other pass.
        async with world.scheduler(seed=3, **args) as running:
            world.pod("other", "stubborn", nodeSelector=ON_BAD)
            await asyncio.sleep(40)
            assert world.node_of("other") is None
            assert "1 node(s) had a half-open circuit breaker and a pod on trial" in world.condition("other")
            await asyncio.sleep(30)
            assert (world.node_of("other"), world.written("bad-0")) == ("bad-0", None)

    run(main())


def test_a_probe_that_went_while_no_scheduler_ran_holds_up_no_other():
    async def main():
        world = World(template("good", 9), template("bad", 1, fails="CreateContainerError"))
        args = {"coolDown": "10s", "probation": "60s"}
        async with world.scheduler(**args):
            await break_it(world)
            world.pod("probe", "stubborn", nodeSelector=ON_BAD)
            await world.annotate("bad-0", **{START_ERROR: None})
            await asyncio.sleep(20)
            assert "probe" in world.written("bad-0")
        world.delete("probe")
        async with world.scheduler(seed=2, **args):
            world.pod("next", "stubborn", nodeSelector=ON_BAD)
            await asyncio.sleep(5)
            assert world.node_of("next") == "bad-0"

    run(main())


def test_one_broken_deployment_opens_nothing():
    async def main():
        world = World(template("good", 5))
        async with world.scheduler() as running:
            for number in range(20):
                node = f"good-{number % 5}"
                world.pod(f"web-{number}", "web", nodeName=node)
                world.embedded.registry.patch(
                    world.embedded.resource("Pod"),
                    "default",
                    f"web-{number}",
                    {
                        "status": {
                            "phase": "Pending",
                            "startTime": "2030-01-01T00:00:00Z",
                            "containerStatuses": [
                                {"name": "c", "image": "i", "state": {"waiting": {"reason": "RunContainerError"}}}
                            ],
                        }
                    },
                    subresource="status",
                )
            await asyncio.sleep(10)
            assert breakers(running).transitions.total() == 0
            assert len(breakers(running).evidence) == 20

    run(main())


def test_never_more_than_a_share_of_a_zone():
    async def main():
        world = World(template("good", 16), template("bad", 4, fails="RunContainerError"), template("other", 5, "b"))
        async with world.scheduler(coolDown="1h", maxCoolDown="2h", ownerNodes=10) as running:
            for owner in ("web", "db", "cache"):
                for number in range(4):
                    world.pod(f"{owner}-{number}", owner, nodeSelector={"kubernetes.io/hostname": f"bad-{number}"})
            await asyncio.sleep(20)
            # A tenth of the 20 nodes of the zone.
            assert breakers(running).count() == {"open": 2, "half-open": 0, "held": 2}
            held = world.told("CircuitBreakerHeld")
            assert {node for node, _ in held} == set(breakers(running).held)
            assert len(held) == 2
            assert "too many of zone a are restricted already" in held[0][1]
            # An operator says that one is well: another one of the zone takes its turn.
            opened = next(node for node in ("bad-0", "bad-1") if world.written(node))
            await world.annotate(opened, **{"koordsched.io/circuit-breaker": None})
            await asyncio.sleep(3)
            assert breakers(running).count() == {"open": 2, "half-open": 0, "held": 1}
            assert world.written(opened) is None

    run(main())


def test_an_operator_opens_and_closes():
    async def main():
        world = World(template("node", 2))
        async with world.scheduler(coolDown="30s", maxOpenPercentage=50):
            await world.annotate("node-0", **{"koordsched.io/circuit-breaker": '{"state":"open"}'})
            for number in range(6):
                world.pod(f"p-{number}", "p")
            await asyncio.sleep(5)
            assert {world.node_of(f"p-{number}") for number in range(6)} == {"node-1"}
            await world.annotate("node-0", **{"koordsched.io/circuit-breaker": None})
            world.pod("q", "p", nodeSelector={"kubernetes.io/hostname": "node-0"})
            await asyncio.sleep(3)
            assert world.node_of("q") == "node-0"
            await world.annotate("node-0", **{"koordsched.io/circuit-breaker": "nonsense"})
            await asyncio.sleep(5)
            [(node, note)] = world.told("InvalidAnnotation")
            assert node == "node-0"
            assert note.startswith("ignored: annotation koordsched.io/circuit-breaker: JSON is malformed")
            assert (
                "koordsched.io/circuit-breaker" not in world.embedded.get("Node", "node-0")["metadata"]["annotations"]
            )

    run(main())


def test_a_pod_is_woken_by_room_that_comes_after_its_node_may_be_used_again():
    async def main():
        world = World(template("node", 2))
        on_it = {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}
        half = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "6"}}}]
        async with world.scheduler(coolDown="30s", maxOpenPercentage=50):
            await world.annotate("node-0", **{"koordsched.io/circuit-breaker": '{"state":"open"}'})
            world.pod("waits", "waits", containers=half, **on_it)
            await asyncio.sleep(5)
            assert "open circuit breaker" in world.condition("waits")
            world.pod("full", "full", containers=half, nodeName="node-0")
            await asyncio.sleep(60)
            assert "Insufficient cpu" in world.condition("waits")
            world.delete("full")
            await asyncio.sleep(15)
            assert world.node_of("waits") == "node-0"

    run(main())


def test_daemons_are_not_refused_and_no_probes():
    async def main():
        world = World(template("good", 9), template("bad", 1, fails="FailedCreatePodSandBox"))
        async with world.scheduler(coolDown="20s", sandboxTimeout="30s"):
            for owner in ("web", "db", "cache"):
                world.pod(f"{owner}-1", owner, nodeSelector=ON_BAD)
            await asyncio.sleep(20)
            assert world.written("bad-0") is None
            await asyncio.sleep(15)
            assert world.written("bad-0")["state"] == "open"
            assert "no sandbox" in world.written("bad-0")["reason"]
            world.pod("network", "network", "DaemonSet", nodeSelector=ON_BAD)
            await asyncio.sleep(2)
            assert world.node_of("network") == "bad-0"
            await asyncio.sleep(20)
            found = world.written("bad-0")
            assert (found["state"], "probe" in found) == ("half-open", False)

    run(main())


def test_containers_that_crash_at_their_start():
    async def main():
        world = World(template("node", 10))
        async with world.scheduler():
            crash = {"koordsched.io/run-duration": "2s", "koordsched.io/exit-code": "1"}
            later = {"koordsched.io/run-duration": "40s", "koordsched.io/exit-code": "1"}
            for owner in ("web", "db", "cache"):
                world.pod(f"{owner}-1", owner, annotations=crash, nodeName="node-1")
                world.pod(f"{owner}-2", owner, annotations=later, nodeName="node-2")
            await asyncio.sleep(120)
            assert world.written("node-1")["state"] in ("open", "half-open")
            assert world.written("node-2") is None

    run(main())


def test_workloads_that_fail_everywhere_open_nothing_for_long():
    async def main():
        world = World(template("node", 30))
        crash = {"koordsched.io/run-duration": "1s", "koordsched.io/exit-code": "1"}
        async with world.scheduler(maxOpenPercentage=100) as running:
            # Three broken workloads, side by side on one node after the other.
            for node in range(6):
                for owner in ("web", "db", "cache"):
                    world.pod(f"{owner}-{node}", owner, annotations=crash, nodeName=f"node-{node:02}")
                await asyncio.sleep(5)
            assert breakers(running).transitions["open"] == 3
            assert breakers(running).count() == {"open": 0, "half-open": 0, "held": 0}
            notes = [note for _, note in world.told("CircuitBreakerClosed")]
            assert len(notes) == 3
            assert all("fails on other nodes as well" in note for note in notes)

    run(main())


def test_quota_and_preemption_beside_it():
    """Nothing is evicted for a node with an open breaker, and other nodes are used as ever."""

    async def main():
        world = World(template("good", 1, cpu="2"), template("bad", 1, fails="CreateContainerError", cpu="2"))
        for thing in custom_resources():
            world.embedded.insert(thing)
        important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "important"}}
        world.embedded.insert({**important, "value": 1000})
        whole = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]
        async with world.scheduler("ElasticQuota", coolDown="1h", maxCoolDown="1h"):
            await break_it(world)
            assert world.written("bad-0")["state"] == "open"
            world.pod("victim", containers=whole, nodeSelector={"kubernetes.io/hostname": "good-0"})
            await asyncio.sleep(2)
            assert world.node_of("victim") == "good-0"
            world.pod("hopeless", containers=whole, priority=1000, nodeSelector=ON_BAD)
            await asyncio.sleep(5)
            assert world.node_of("hopeless") is None
            assert {world.node_of(f"{owner}-1") for owner in ("web", "db", "cache")} == {"bad-0"}
            world.pod("urgent", containers=whole, priority=1000)
            await asyncio.sleep(10)
            assert world.node_of("urgent") == "good-0"
            assert world.embedded.get("Pod", "victim") is None

    run(main())


def test_a_standby_takes_over_what_it_followed():
    async def main():
        world = World(template("good", 9), template("bad", 1, fails="CreateContainerError"))
        args = {"coolDown": "40s", "probation": "20s"}
        standby = Recorded(world.embedded, configuration(**args), seed=2, controllers=CONTROLLERS)
        standby.scheduler.start()
        async with world.scheduler(**args) as leader:
            await break_it(world)
            opened = world.written("bad-0")
            assert opened["state"] == "open"
            followed = standby.scheduler.profiles["default-scheduler"].plugins[NAME].breakers
            assert list(followed.records.values()) == list(breakers(leader).records.values())
            assert followed.transitions.total() == 0
            assert breakers(leader).transitions.total() == 1
        await world.annotate("bad-0", **{START_ERROR: None})
        world.pod("probe", "stubborn", nodeSelector=ON_BAD)
        work = asyncio.create_task(standby.scheduler.run())
        await asyncio.sleep(5)
        assert (world.node_of("probe"), world.written("bad-0")) == (None, opened)
        await asyncio.sleep(40)
        assert world.node_of("probe") == "bad-0"
        await asyncio.sleep(25)
        assert world.written("bad-0") is None
        assert dict(followed.transitions) == {"open": 0, "half-open": 1, "closed": 1, "held": 0}
        work.cancel()
        await standby.scheduler.stop()
        await standby.lanes.close()
        assert len(world.told("CircuitBreakerOpened")) == 1

    run(main())

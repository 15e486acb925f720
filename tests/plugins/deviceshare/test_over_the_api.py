"""DeviceShare end to end: hollow nodes report devices, refuse pods that cannot have theirs, and lose GPUs."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from koordsched.fakecluster.admission.devices import PodWebhook
from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.fakecluster.devices import CORE, DEFINITION, DEVICE_ALLOCATED, FAIL_DEVICES, MEMORY, RATIO, gpus, template
from tests.virtualtime import run
from tests.yamlfiles import document, documents

EXAMPLES = Path(__file__).parents[3] / "config" / "examples"
GPU, RDMA = "koordinator.sh/gpu", "koordinator.sh/rdma"
HINT, JOINT = (f"scheduling.koordinator.sh/device-{name}" for name in ("allocate-hint", "joint-allocate"))
CONFIGURATION = document(EXAMPLES / "devices" / "scheduler.yaml")


class World:
    """An API server with hollow nodes; `scheduler()` runs one, any number of times."""

    def __init__(self, nodes, content, webhooks=()):
        self.embedded = Embedded(webhooks=webhooks)
        self.embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        self.embedded.insert(DEFINITION)
        self.hollow = HollowNodes(
            self.embedded.registry, HollowOptions(count=nodes, template=content, gpu_shared=bool(webhooks))
        )
        self.hollow.start()

    @asynccontextmanager
    async def scheduler(self, seed=1):
        """A scheduler, when nodes have reported."""
        await asyncio.sleep(5)
        async with scheduler_on(self.embedded, {**DEFAULT_CONFIG, **CONFIGURATION}, seed=seed) as running:
            yield running

    async def apply(self, thing):
        """As a user does."""
        status, answer = await self.embedded.call("POST", "/api/v1/namespaces/default/pods", thing)
        assert status == 201, answer

    async def pod(self, name, annotations=None, runs=None, **amounts):
        """A new pod that requests so much of resources, e.g. gpu=100."""
        names = {"gpu": GPU, "core": CORE, "memory": MEMORY, "ratio": RATIO, "rdma": RDMA}
        wanted = {names[key]: str(amount) for key, amount in amounts.items()}
        annotations = {key: json.dumps(value) for key, value in (annotations or {}).items()}
        if runs:
            annotations["koordsched.io/run-duration"] = runs
        resources = {"requests": {"cpu": "1", **wanted}, "limits": wanted}
        containers = [{"name": "c", "image": "i", "resources": resources}]
        spec = {"containers": containers, "restartPolicy": "Never"}
        metadata = {"name": name, "annotations": annotations}
        await self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def fail(self, node, devices):
        """Lets devices of a node fail, or heals them with None."""
        changes = {"metadata": {"annotations": {FAIL_DEVICES: devices}}}
        headers = {"content-type": "application/merge-patch+json"}
        assert (await self.embedded.call("PATCH", f"/api/v1/nodes/{node}", changes, headers=headers))[0] == 200

    def pods(self):
        """All pods, by name."""
        found = self.embedded.registry.list(self.embedded.resource("Pod"), "default")
        return {each["metadata"]["name"]: each for each in found}

    def given(self, name):
        """Node and devices of a pod, (type, minor) -> entry; None while it waits."""
        pod = self.pods()[name]
        if not pod["spec"].get("nodeName"):
            return None
        text = pod["metadata"]["annotations"].get(DEVICE_ALLOCATED, "{}")
        entries = {(kind, each["minor"]): each for kind, found in json.loads(text).items() for each in found}
        return pod["spec"]["nodeName"], entries

    def condition(self, name):
        """The message of a pod that waits."""
        conditions = self.pods()[name]["status"].get("conditions", [])
        return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def minors(given, kind="gpu"):
    """The minors that a pod was given."""
    return sorted(minor for each, minor in given[1] if each == kind)


def test_the_pods_of_the_example_get_what_their_comments_say():
    async def main():
        world = World(None, EXAMPLES / "devices" / "node-template.yaml")

        async def apply(name):
            for thing in documents(EXAMPLES / "devices" / f"{name}.yaml"):
                await world.apply(thing)
            await asyncio.sleep(3)

        async with world.scheduler():
            await apply("shared")
            node, entries = world.given("half")
            ((_, entry),) = entries.items()
            assert (node, entry["resources"]) == ("small-0", {CORE: "50", MEMORY: "4Gi", RATIO: "50"})
            node, entries = world.given("by-memory")
            ((_, entry),) = entries.items()
            assert (node, entry["resources"]) == ("small-0", {MEMORY: "3Gi", RATIO: "37"})
            assert world.given("too-much-memory") is None
            assert "1 Insufficient gpu devices" in world.condition("too-much-memory")
            await apply("joint")
            given = world.given("joint")
            assert (given[0], minors(given), minors(given, "rdma")) == ("h800-0", [0, 1], [1, 2])
            functions = [entry["extension"]["vfs"] for key, entry in given[1].items() if key[0] == "rdma"]
            assert [len(each) for each in functions] == [1, 1]
            await apply("partition")
            assert world.given("training") is None
            world.embedded.registry.delete(world.embedded.resource("Pod"), "default", "joint")
            await asyncio.sleep(10)
            assert minors(world.given("training")) == list(range(8))
            phases = {name: each["status"]["phase"] for name, each in world.pods().items()}
            assert phases == {
                "half": "Running",
                "by-memory": "Running",
                "too-much-memory": "Pending",
                "training": "Running",
            }

    run(main())


def test_a_failed_gpu_gets_no_pods_until_it_is_healed():
    async def main():
        world = World(1, template(gpus(2)))
        async with world.scheduler():
            await world.pod("first", gpu=100)
            await asyncio.sleep(2)
            assert minors(world.given("first")) == [0]
            await world.fail("node-0", "gpu/1:Xid79")
            await asyncio.sleep(4)
            await world.pod("second", gpu=100)
            await world.pod("part", core=10, ratio=10)
            await asyncio.sleep(30)
            assert world.given("second") is world.given("part") is None
            assert "Insufficient" in world.condition("second")
            await world.fail("node-0", None)
            await asyncio.sleep(30)
            assert minors(world.given("second")) == [1]
            assert world.given("part") is None
            # The one that has it goes on, and what it leaves is given out again.
            await world.fail("node-0", "gpu/0")
            await asyncio.sleep(10)
            assert world.pods()["first"]["status"]["phase"] == "Running"
            world.embedded.registry.delete(world.embedded.resource("Pod"), "default", "first")
            await asyncio.sleep(30)
            assert world.given("part") is None
            await world.fail("node-0", None)
            await asyncio.sleep(30)
            assert minors(world.given("part")) == [0]

    run(main())


def test_a_pod_that_comes_to_a_gpu_that_fails_at_this_moment_is_refused():
    async def main():
        world = World(1, template(gpus(1)))
        async with world.scheduler():
            await world.pod("p", gpu=100)
            # Before the node has reported it.
            await world.fail("node-0", "gpu/0:Xid79")
            await asyncio.sleep(1)
            status = world.pods()["p"]["status"]
            assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
            assert "gpu 0 is unhealthy: Xid79" in status["message"]
            # It holds nothing: the next one has room when the GPU is healed.
            await world.fail("node-0", None)
            await world.pod("q", gpu=100)
            await asyncio.sleep(30)
            assert world.pods()["q"]["status"]["phase"] == "Running"

    run(main())


@pytest.mark.parametrize("webhooks", [(), tuple(PodWebhook)])
def test_with_and_without_the_webhooks_pods_get_the_same(webhooks):
    async def main():
        world = World(1, template(gpus(4)), webhooks)
        async with world.scheduler():
            await world.pod("two", gpu=200)
            await world.pod("half", gpu=50)
            await asyncio.sleep(3)
            found = {name: [entry["resources"] for entry in world.given(name)[1].values()] for name in ("two", "half")}
            whole, half = {CORE: "100", MEMORY: "8Gi", RATIO: "100"}, {CORE: "50", MEMORY: "4Gi", RATIO: "50"}
            assert found == {"two": [whole, whole], "half": [half]}
            assert all(each["status"]["phase"] == "Running" for each in world.pods().values())

    run(main())


WISHES = (
    ({}, {"gpu": 100}),
    ({}, {"gpu": 200}),
    ({}, {"gpu": 30}),
    ({}, {"core": 20, "ratio": 50}),
    ({}, {"memory": "5Gi"}),
    ({}, {"rdma": 50}),
    ({JOINT: {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}}, {"gpu": 100, "rdma": 1}),
    ({JOINT: {"deviceTypes": ["gpu", "rdma"]}, HINT: {"rdma": {"vfSelector": {}}}}, {"gpu": 200, "rdma": 1}),
)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nodes_refuse_nothing_that_was_chosen_for_them(seed):
    """Pods of all kinds come and go, GPUs fail and heal, schedulers take turns. Only a pod that was on its way when its
    device failed may be refused.
    """

    async def main():
        rng = Random(seed)
        world = World(4, EXAMPLES / "node-templates" / "gpu-a100.yaml")
        nodes = [f"a100-{number}" for number in range(4)]
        number, failures = 0, {}
        for turn in range(3):
            async with world.scheduler(seed=seed + turn):
                for _ in range(40):
                    for _ in range(rng.randrange(4)):
                        annotations, amounts = rng.choice(WISHES)
                        number += 1
                        await world.pod(f"p-{number}", annotations, f"{rng.choice((5, 30, 120))}s", **amounts)
                    if rng.random() < 0.2:
                        node = rng.choice(nodes)
                        failures[node] = None if failures.get(node) else f"gpu/{rng.randrange(8)},rdma/1"
                        await world.fail(node, failures[node])
                    await asyncio.sleep(rng.random() * 4)
        for node in nodes:
            await world.fail(node, None)
        async with world.scheduler(seed=seed + 3):
            await asyncio.sleep(600)
        phases, refused = {}, []
        for name, pod in world.pods().items():
            phases.setdefault(pod["status"]["phase"], []).append(name)
            if pod["status"]["phase"] == "Failed":
                refused.append(pod["status"]["message"])
        assert all("is unhealthy: " in message for message in refused), refused
        assert len(phases["Succeeded"]) > 0.8 * number
        assert "Pending" not in phases
        # There were more pods than devices at times.
        assert any(event["reason"] == "FailedScheduling" for event in world.embedded.events())

    run(main())

"""What goes on meanwhile, against the embedded API server on virtual time."""

import asyncio
from contextlib import suppress

import orjson
import pytest

from bench.api import Api
from bench.population import Population
from bench.unrest import Unrest
from bench.workloads import Churn, Deletion, Nodes, Objects, Pods, Workload, load
from tests.embedded import Embedded
from tests.virtualtime import run

CATALOG = load()
NODES = [Nodes(count=4)]
MEASURE = Pods(kind="basic", count=2)


def workload(**given) -> Workload:
    return Workload(nodes=NODES, measure=MEASURE, **given)


class Cluster:
    """An API server with the ground and the first pods of a workload."""

    def __init__(self, given: Workload) -> None:
        self.api = Api(Embedded().transport())
        self.workload = given
        self.population = Population(self.api, CATALOG, given)

    async def fill(self) -> str:
        """Returns the version from which on watches see what happens."""
        await self.population.create_ground()
        await self.population.create_init("bench-1", "nobody")
        return (await self.api.list_all("/api/v1/namespaces"))[1]

    async def unrest_for(self, seconds: float, version: str) -> None:
        going_on = asyncio.create_task(Unrest(self.api, CATALOG, self.workload, "bench-1").run(version))
        await asyncio.sleep(seconds)
        going_on.cancel()
        with suppress(asyncio.CancelledError):
            await going_on

    async def items(self, path: str) -> list[dict]:
        return [orjson.loads(bytes(item)) for item in (await self.api.list_all(path))[0]]

    async def names(self, path: str) -> list[str]:
        return sorted(item["metadata"]["name"] for item in await self.items(path))


@pytest.mark.parametrize(
    ("mode", "interval", "seconds", "pods"),
    [
        # Five pods per second, the first at once.
        ("create", 0.2, 1.1, ["churn-0", "churn-1", "churn-2", "churn-3", "churn-4", "churn-5"]),
        ("recreate", 1.0, 2.5, ["churn-2"]),
    ],
)
def test_churn(mode, interval, seconds, pods):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "churn-${index}", "namespace": "default"},
        "spec": {"selector": {"app": "foo"}, "ports": [{"port": 80}]},
    }
    churn = Churn(mode, interval, pods=["high-priority-large-cpu"], nodes=["without-room"], objects=[service])

    async def main():
        cluster = Cluster(workload(churn=churn))
        await cluster.unrest_for(seconds, await cluster.fill())
        assert await cluster.names("/api/v1/pods") == pods
        assert {pod["spec"]["schedulerName"] for pod in await cluster.items("/api/v1/pods")} == {"bench-1"}
        assert [n for n in await cluster.names("/api/v1/nodes") if n.startswith("churn")] == pods
        assert [n for n in await cluster.names("/api/v1/services") if n.startswith("churn")] == pods
        await cluster.population.clear()
        assert await cluster.names("/api/v1/pods") == []
        assert await cluster.names("/api/v1/nodes") == ["node-0", "node-1", "node-2", "node-3"]
        assert not [n for n in await cluster.names("/api/v1/services") if n.startswith("churn")]

    run(main())


def test_deletions_at_a_rate():
    """Two a second: of ten pods, half are gone after a little over two seconds, and all at last."""

    async def main():
        cluster = Cluster(workload(init=[Pods(kind="light", count=10)], delete=Deletion("default", 2.0)))
        version = await cluster.fill()
        await cluster.unrest_for(2.1, version)
        assert len(await cluster.names("/api/v1/pods")) == 5
        await cluster.unrest_for(3.1, version)
        assert await cluster.names("/api/v1/pods") == []

    run(main())


def test_pods_with_finalizers_stay_until_they_are_cleared():
    pending = [Pods(kind="with-finalizer", count=3)]

    async def main():
        cluster = Cluster(workload(pending=pending, delete=Deletion("default", 100.0)))
        await cluster.unrest_for(1.0, await cluster.fill())
        pods = await cluster.items("/api/v1/pods")
        assert [bool(pod["metadata"].get("deletionTimestamp")) for pod in pods] == [True] * 3
        assert {pod["spec"]["schedulerName"] for pod in pods} == {"nobody"}
        await cluster.population.clear()
        assert await cluster.names("/api/v1/pods") == []

    run(main())


@pytest.mark.parametrize(("seconds", "left"), [(0.9, 2), (1.1, 0)])
def test_kubelets_end_pods_after_their_grace_period(seconds, left):
    init = [Pods(kind="low-priority-graceful", count=2)]

    async def main():
        cluster = Cluster(workload(init=init, kubelets=True))
        version = await cluster.fill()
        watched = asyncio.create_task(cluster.unrest_for(seconds, version))
        await asyncio.sleep(0)
        for name in await cluster.names("/api/v1/pods"):
            response = await cluster.api.transport.request("DELETE", f"/api/v1/namespaces/default/pods/{name}")
            assert response.status == 200
        await watched
        assert len(await cluster.names("/api/v1/pods")) == left

    run(main())


def test_quotas_are_defined_before_they_are_made():
    async def main():
        cluster = Cluster(CATALOG.workload("Quotas").scaled(nodes=2, pods=20))
        await cluster.fill()
        quotas = await cluster.names("/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas")
        assert quotas == sorted(f"team-{number}" for number in range(20))
        assert "koordinator-system" in await cluster.names("/api/v1/namespaces")
        measured = cluster.population.measured("measured", "bench-1")
        assert [pod["metadata"]["namespace"] for pod in measured] == [f"team-{number}" for number in range(20)]
        await cluster.population.clear_ground()
        assert await cluster.names("/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas") == []
        assert await cluster.names("/api/v1/nodes") == []

    run(main())


def test_what_others_made_is_left_alone():
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}
    objects = [Objects(service | {"metadata": {"name": "web-${index}", "namespace": "default"}}, count=2)]

    async def main():
        cluster = Cluster(workload(objects=objects))
        await cluster.api.create(service | {"metadata": {"name": "web-0", "namespace": "default"}})
        await cluster.fill()
        services = "/api/v1/namespaces/default/services"
        assert {"web-0", "web-1"} <= set(await cluster.names(services))
        await cluster.population.clear_ground()
        assert [name for name in await cluster.names(services) if name.startswith("web")] == ["web-0"]

    run(main())


def test_nodes_of_others_are_noticed():
    async def main():
        cluster = Cluster(workload())
        await cluster.fill()
        assert await cluster.population.strangers() == 0
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "real"}}
        await cluster.api.create(node)
        assert await cluster.population.strangers() == 1
        await cluster.population.clear_ground()
        assert await cluster.names("/api/v1/nodes") == ["real"]

    run(main())


def test_nodes_have_no_taints_even_where_the_server_taints_new_ones():
    async def main():
        cluster = Cluster(workload())
        await cluster.fill()
        paths = [f"/api/v1/nodes/node-{number}" for number in range(3)]
        await cluster.api.patch_all(
            paths, {"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}}
        )
        await cluster.population.create_ground()
        assert [node["spec"].get("taints") for node in await cluster.items("/api/v1/nodes")] == [None] * 4

    run(main())

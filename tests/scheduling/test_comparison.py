"""The debug dump: cache against API server, nodes, queue."""

import asyncio
import json

import pytest

from koordsched.client.errors import Ambiguous
from koordsched.cluster.state import ClusterState
from koordsched.scheduling import comparison
from koordsched.scheduling.comparison import Differences, compare, dump_nodes, dump_queue
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


@pytest.mark.parametrize("page", [500, 1], ids=["all at once", "one by one"])
def test_agreement_and_every_kind_of_difference(page, monkeypatch):
    monkeypatch.setattr(comparison, "_PAGE", page)

    async def main():
        embedded = Embedded()
        for name in ("alder", "beech", "cedar"):
            embedded.insert(node(name))
        for name in ("p1", "p2", "p3"):
            embedded.insert(pod(name, container(cpu="1"), on="alder"))
        embedded.insert(pod("big", container(cpu="100")))
        async with scheduler_on(embedded) as running:
            await asyncio.sleep(2)
            cluster = running.scheduler.cluster
            assert (await compare(cluster, running.transport)).lines() == ["cache and API server agree"]
            cluster.remove_node("cedar")
            cluster.table.row_of["ghost"] = cluster.table.row_of["beech"]
            cluster.assigned["uid-default-p1"].node = "beech"
            cluster.assigned["gone"] = cluster.assigned.pop("uid-default-p2")
            found = await compare(cluster, running.transport)
            assert found == Differences(
                missing_nodes=["cedar"],
                redundant_nodes=["ghost"],
                missing_pods=["default/p2"],
                redundant_pods=["default/p2"],
                elsewhere=["default/p1: beech, alder"],
            )
            assert found.lines() == [
                "nodes missing in the cache: cedar",
                "nodes in the cache that do not exist: ghost",
                "pods missing in the cache: default/p2",
                "pods in the cache that do not exist: default/p2",
                "pods on another node than in the cache: default/p1: beech, alder",
            ]

    run(main())


def test_a_list_that_does_not_end_is_given_up():
    async def main():
        same = {"items": [{"metadata": {"name": "alder", "uid": "1"}}], "metadata": {"continue": "more"}}

        async def endless(call, proceed):
            return 200, {}, json.dumps(same).encode()

        with pytest.raises(Ambiguous, match="/api/v1/nodes: the list does not end"):
            await compare(ClusterState(), Embedded().transport(endless))

    run(main())


def test_long_lists_are_cut():
    names = [f"n{number:03}" for number in range(60)]
    (line,) = Differences(missing_nodes=names).lines()
    assert line.endswith("n049 and 10 more")


def test_dump_of_nodes_and_queue():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="2"))
        embedded.insert(pod("p1", container(cpu="1", memory="1Gi"), on="alder"))
        embedded.insert(pod("lost", container(), on="gone"))
        embedded.insert(pod("big", container(cpu="100")))
        promised = pod("promised", container(cpu="50"))
        promised["status"]["nominatedNodeName"] = "alder"
        embedded.insert(promised)
        async with scheduler_on(embedded) as running:
            await asyncio.sleep(0)
            running.scheduler.queue.nominator.add(running.scheduler._pending.by_uid["uid-default-promised"])
            blocks = list(dump_nodes(running.scheduler.cluster, running.scheduler.queue))
            assert blocks == [
                "Node name: alder\nDeleted: false\n"
                "Requested Resources: milliCPU: 1000, memory: 1073741824\n"
                "Allocatable Resources: milliCPU: 2000, memory: 8589934592\n"
                "Scheduled Pods(number: 1): default/p1\nNominated Pods(number: 1): default/promised",
                "Node name: gone\nDeleted: true\nRequested Resources: \nAllocatable Resources: \n"
                "Scheduled Pods(number: 1): default/lost\nNominated Pods(number: 0): ",
            ]
            lines = dump_queue(running.scheduler.queue).splitlines()
            assert lines[0] == running.scheduler.queue.summary()
            assert {line.split(",")[0] for line in lines[1:]} == {"name: default/big", "name: default/promised"}

    run(main())

"""A server that lost what it had, or was restored from a backup: nothing is decided before all of it is read anew."""

import asyncio
from random import Random

import pytest

from koordsched.client.errors import NotSent
from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.server import ApiServer
from koordsched.fakecluster.store import Store
from tests.embedded import Embedded, _WallClock, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

SYSTEM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
SLOW = 20.0
"""Seconds that lists of nodes take after the loss: other kinds are there long before."""


def lose(embedded, first_rv):
    """The server starts again, empty."""
    old = embedded.server
    embedded.registry = new_cluster(
        _WallClock(embedded.clock), Random(2), asyncio.get_running_loop().call_later, Store(first_rv=first_rv)
    )
    embedded.server = ApiServer(embedded.registry, rng=Random(2))
    old.hub.close_all()


@pytest.mark.parametrize(
    ("first_rv", "uid", "writes"),
    [(1_000_000, "after", 0), (1, "before", 0), (1, "after", 500)],
    ids=["versions go on", "versions go back", "versions have passed"],
)
def test_no_pod_is_placed_by_what_was_before(first_rv, uid, writes):
    lost, back = asyncio.Event(), asyncio.Event()
    asked = []

    async def fault(call, proceed):
        if lost.is_set() and not back.is_set():
            raise NotSent("connection refused")
        if call.path == "/api/v1/namespaces":
            asked.append(call)
        if lost.is_set() and call.path == "/api/v1/nodes" and "watch" not in call.query:
            await asyncio.sleep(SLOW)
        return await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert({**SYSTEM, "metadata": {"name": "kube-system", "uid": "before"}})
        embedded.insert(node("alder", cpu="4"))
        for i in range(50):
            embedded.insert(pod(f"old-{i}", container(cpu="10m"), on="alder"))
        async with scheduler_on(embedded, fault=fault) as running:
            await asyncio.sleep(5)
            lost.set()
            asked.clear()
            lose(embedded, first_rv)
            embedded.rng = Random(2)
            embedded.insert({**SYSTEM, "metadata": {"name": "kube-system", "uid": uid}})
            embedded.insert(node("birch", cpu="4"))
            for i in range(writes):
                embedded.insert({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"map-{i}"}})
            await asyncio.sleep(1)
            back.set()
            await asyncio.sleep(5)
            bound = []

            def changed(kind, old, new):
                if new["spec"].get("nodeName"):
                    bound.append((new["metadata"]["name"], new["spec"]["nodeName"]))

            embedded.registry.subscribe(embedded.resource("Pod"), changed, replay=False)
            for i in range(3):
                embedded.insert(pod(f"new-{i}", container(cpu="1")))
            await asyncio.sleep(SLOW - 10)
            assert bound == []
            assert running.scheduler.watches.missing()
            await asyncio.sleep(120)
            assert dict(bound) == {f"new-{i}": "birch" for i in range(3)}
            assert all(running.attempts[f"default/new-{i}"] == 1 for i in range(3)), "none was tried in vain"
            assert running.scheduler.watches.missing() == []
            assert running.scheduler.cluster.table.row_of.keys() == {"birch"}
            assert len(asked) < len(running.scheduler.watches.reflectors), "once for those that come back together"

    run(main())


def test_the_same_server_is_not_read_anew():
    async def main():
        embedded = Embedded()
        embedded.insert(SYSTEM)
        embedded.insert(node("alder", cpu="4"))
        async with scheduler_on(embedded) as running:
            await asyncio.sleep(5)
            lists = {path: each.lists for path, each in running.scheduler.watches.reflectors.items()}
            embedded.registry.store.begin_anew()
            await asyncio.sleep(60)
            again = {path: each.lists for path, each in running.scheduler.watches.reflectors.items()}
            assert again == {path: count + 1 for path, count in lists.items()}

    run(main())

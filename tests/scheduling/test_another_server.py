"""A server that lost what it had, or was restored from a backup: nothing is decided before all of it is read anew."""

import asyncio
from random import Random

import pytest

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


@pytest.mark.parametrize("ahead", [True, False], ids=["versions go on", "versions go back"])
def test_no_pod_is_placed_by_what_was_before(ahead):
    lost = asyncio.Event()

    async def fault(call, proceed):
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
            lose(embedded, 1_000_000 if ahead else 1)
            embedded.rng = Random(2)
            embedded.insert({**SYSTEM, "metadata": {"name": "kube-system", "uid": "after" if ahead else "before"}})
            embedded.insert(node("birch", cpu="4"))
            bound = []

            def changed(kind, old, new):
                if new["spec"].get("nodeName"):
                    bound.append((new["metadata"]["name"], new["spec"]["nodeName"]))

            embedded.registry.subscribe(embedded.resource("Pod"), changed, replay=False)
            for i in range(3):
                embedded.insert(pod(f"new-{i}", container(cpu="1")))
            await asyncio.sleep(SLOW - 5)
            assert bound == []
            assert running.scheduler.watches.missing()
            await asyncio.sleep(120)
            assert dict(bound) == {f"new-{i}": "birch" for i in range(3)}
            assert all(running.attempts[f"default/new-{i}"] == 1 for i in range(3)), "none was tried in vain"
            assert running.scheduler.watches.missing() == []
            assert running.scheduler.cluster.table.row_of.keys() == {"birch"}

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

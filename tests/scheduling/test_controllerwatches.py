"""What controllers have watched besides what decisions depend on."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

from koordsched.api import core
from koordsched.scheduling.controllerwatches import ControllerWatches
from tests.embedded import PATHS, Embedded
from tests.plugins.objects import node
from tests.virtualtime import run


class Watched:
    """A watch of all nodes, and what is heard of them."""

    def __init__(self, embedded):
        self.seen, self.gone = [], []
        watches = ControllerWatches(embedded.transport(), embedded.clock, Random(1))
        path = f"/{PATHS['Node']}"
        self.watch = watches(path, core.Node, {}, lambda seen: self.seen.append(seen.metadata.name), self.gone.append)

    @asynccontextmanager
    async def running(self):
        """One run of the watch, from its first list on."""
        work = asyncio.create_task(self.watch.run())
        await self.watch.synced.wait()
        yield
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def test_what_went_between_two_runs_is_gone_with_the_second():
    async def main():
        embedded = Embedded()
        for name in ("alder", "birch"):
            embedded.insert(node(name))
        watched = Watched(embedded)
        async with watched.running():
            assert sorted(watched.seen) == ["alder", "birch"]
        uid = embedded.get("Node", "alder")["metadata"]["uid"]
        embedded.registry.delete(embedded.resource("Node"), None, "alder")
        embedded.insert(node("cedar"))
        async with watched.running():
            assert sorted(watched.seen) == ["alder", "birch", "cedar"]
            assert watched.gone == [uid]

    run(main())


def test_objects_are_seen_again_when_they_change():
    async def main():
        embedded = Embedded()
        for name in ("alder", "birch"):
            embedded.insert(node(name))
        watched = Watched(embedded)
        async with watched.running():
            watched.seen.clear()
            merge = {"content-type": "application/merge-patch+json"}
            labelled = {"metadata": {"labels": {"a": "b"}}}
            status, _ = await embedded.call("PATCH", f"/{PATHS['Node']}/alder", labelled, headers=merge)
            assert status == 200
            await asyncio.sleep(1)
            assert watched.seen == ["alder"]

    run(main())


def test_what_cannot_be_watched_is_logged(caplog):
    async def main():
        embedded = Embedded()
        embedded.server.forbidden.add("nodes")
        watched = Watched(embedded)
        work = asyncio.create_task(watched.watch.run())
        await asyncio.sleep(1)
        assert not watched.watch.synced.is_set()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    run(main())
    assert "/api/v1/nodes cannot be watched (forbidden) for a controller" in caplog.text


def test_what_was_seen_is_complete_until_the_end_of_the_run():
    async def main():
        watched = Watched(Embedded())
        async with watched.running():
            assert watched.watch.synced.is_set()
        assert not watched.watch.synced.is_set()

    run(main())

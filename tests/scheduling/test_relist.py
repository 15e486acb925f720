"""Listing anew: what is gone goes, once and in slices, while scheduling goes on."""

import asyncio
import json
from collections import Counter, deque

import pytest

from koordsched.api import core
from koordsched.api.decoding import Decoder
from koordsched.client.jsonformat import JsonFormat
from koordsched.client.objectapplier import ObjectApplier
from koordsched.cluster.state import ClusterState
from koordsched.plugins import KINDS
from koordsched.scheduling.handlers import NodeHandler
from koordsched.scheduling.unreadable import NODES, PODS
from koordsched.scheduling.watching import ObjectSink
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.simulation.loop import SimulationLoop
from tests.simulation.replica import WorkingClock


class Moves:
    """What would move waiting pods."""

    def __init__(self):
        self.labels = []

    def move_all(self, event, old, new):
        self.labels.append(event.label)


def listed(applier, version, items):
    """A complete listing."""
    deque(applier.begin(streamed=False), maxlen=0)
    for item in items:
        applier.upsert(json.dumps(item).encode())
    deque(applier.complete(version), maxlen=0)


def thing(name, uid, version, **more):
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": version}, **more}


UNREADABLE = {"metadata": {"name": "a", "uid": "3", "resourceVersion": "3"}, "status": 5, "provisioner": 5}

CASES = (
    ("the same", [thing("a", "1", "1"), thing("b", "2", "2")], ["a", "b"]),
    ("changed", [thing("a", "1", "3"), thing("b", "2", "2")], ["a", "b"]),
    ("one is gone", [thing("a", "1", "1")], ["a"]),
    ("all are gone", [], []),
    # Nothing is believed of an object whose name belongs to another one by now, which cannot be read.
    ("another one has its name", [UNREADABLE, thing("b", "2", "2")], ["b"]),
)


@pytest.mark.parametrize(("items", "left"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_nodes(items, left):
    cluster, moves = ClusterState(), Moves()
    applier = ObjectApplier(NODES, JsonFormat(Decoder(core.Node)), NodeHandler(cluster, moves, None), None)
    listed(applier, "2", [thing("a", "1", "1"), thing("b", "2", "2")])
    moves.labels.clear()
    listed(applier, "3", items)
    assert sorted(cluster.table.row_of) == left
    assert moves.labels == ["NodeDelete"] * (2 - len(left))


@pytest.mark.parametrize(("items", "left"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_other_objects(items, left):
    cluster, moves = ClusterState(), Moves()
    kind = KINDS["storage.k8s.io/v1", "StorageClass"]
    store = cluster.objects.of(kind)
    applier = ObjectApplier(kind.path, JsonFormat(Decoder(kind.type)), ObjectSink(store, moves), None)
    listed(applier, "2", [thing("a", "1", "1"), thing("b", "2", "2")])
    moves.labels.clear()
    version = store.version
    listed(applier, "3", items)
    assert sorted(obj.metadata.name for obj in store) == left
    changed = [item for item in items if item["metadata"]["resourceVersion"] == "3" and item is not UNREADABLE]
    expected = ["Update"] * len(changed) + ["Delete"] * (2 - len(left))
    assert moves.labels == [f"storage.k8s.io/StorageClass{change}" for change in expected]
    # Who keeps what was derived from the objects need not do it again for those that are the same.
    assert store.version - version == len(moves.labels)


class MeteredLoop(SimulationLoop):
    """Knows how much work was done within one turn, at most."""

    burned = longest = 0.0

    def burn(self, seconds):
        super().burn(seconds)
        self.burned += seconds

    def _run_once(self):
        self.burned = 0.0
        super()._run_once()
        self.longest = max(self.longest, self.burned)


class SlowList:
    """The fault of a transport: pages of pods take a second each once they are slow; watches can be cut."""

    def __init__(self):
        self.slow = False
        self._cut = asyncio.Event()

    def cut(self):
        self._cut.set()
        self._cut = asyncio.Event()

    async def __call__(self, call, proceed):
        if self.slow and call.path == PODS and "watch" not in call.query:
            await asyncio.sleep(1)
        status, headers, body = await proceed()
        return status, headers, body if isinstance(body, bytes) else self._watch(body, self._cut)

    async def _watch(self, chunks, cut):
        ended = asyncio.create_task(cut.wait())
        while True:
            chunk = asyncio.create_task(anext(chunks))
            await asyncio.wait({chunk, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                chunk.cancel()
                return
            yield chunk.result()


def on_metered_time(main):
    with asyncio.Runner(loop_factory=MeteredLoop) as runner:
        runner.run(main())


def running_pods(embedded, count, nodes):
    for i in range(count):
        embedded.insert(pod(f"p{i}", container(cpu="1m"), on=f"n{i % nodes}"))


def test_scheduling_goes_on_while_pods_are_listed_anew():
    async def main():
        loop = asyncio.get_running_loop()
        embedded = Embedded()
        embedded.clock = WorkingClock(loop, 0.0, 1e-5)
        for i in range(20):
            embedded.insert(node(f"n{i}", cpu="4"))
        running_pods(embedded, 400, 20)
        network = SlowList()
        async with scheduler_on(embedded, fault=network) as running:
            scheduler = running.scheduler
            reflector = scheduler.watches.reflectors[PODS]
            reflector._page_size = 50
            embedded.insert(pod("large", container(cpu="16")))
            await asyncio.sleep(5)
            assert not embedded.get("Pod", "large")["spec"].get("nodeName")
            forgotten = Counter()
            forget = scheduler.pod_handler.forget

            def counting(uid):
                """Taking a pod out is work, too."""
                forgotten[uid] += uid in scheduler.cluster.assigned
                loop.burn(1e-3)
                forget(uid)

            scheduler.pod_handler.forget = counting
            gone = [embedded.get("Pod", f"p{i}")["metadata"]["uid"] for i in range(0, 400, 4)]
            network.slow = True
            network.cut()
            await asyncio.sleep(0)
            for i in range(0, 400, 4):
                embedded.registry.delete(embedded.resource("Pod"), "default", f"p{i}", grace_period_seconds=0)
            embedded.registry.collection(embedded.resource("Pod")).compact()
            loop.longest = 0.0
            await asyncio.sleep(3)
            assert (reflector.lists, len(scheduler.cluster.assigned)) == (2, 400)
            embedded.insert(node("big", cpu="32"))
            await asyncio.sleep(1)
            # Its binding is known to the server, but not from the listing, which is older and under way.
            assert embedded.get("Pod", "large")["spec"]["nodeName"] == "big"
            assert list(scheduler.cluster.assumed) == [embedded.get("Pod", "large")["metadata"]["uid"]]
            embedded.insert(pod("later", container(cpu="1")))
            await asyncio.sleep(30)
            assert forgotten == Counter(gone)
            assert scheduler.cluster.assumed == {}
            on_server = {each["metadata"]["uid"]: each["spec"]["nodeName"] for each in every_pod(embedded)}
            assert {uid: each.node for uid, each in scheduler.cluster.assigned.items()} == on_server
            assert len(on_server) == 302
            assert 0.004 < loop.longest < 0.013

    on_metered_time(main)


def every_pod(embedded):
    return embedded.registry.list(embedded.resource("Pod"))


def test_a_pod_that_is_listed_as_it_is_known_stays_as_it_is():
    async def main():
        embedded = Embedded()
        for i in range(3):
            embedded.insert(node(f"n{i}", cpu="4"))
        running_pods(embedded, 30, 3)
        async with scheduler_on(embedded) as running:
            cluster = running.scheduler.cluster
            before, serial = dict(cluster.assigned), cluster.table.log.serial
            embedded.insert(pod("new", container(cpu="1m"), on="n1"))
            await running.scheduler.catch_up()
            assert len(cluster.assigned) == 31
            assert all(cluster.assigned[uid] is pod for uid, pod in before.items())
            assert cluster.table.log.serial - serial == 1

    on_metered_time(main)

"""Plugins that fail when called with one pod, node or object: it is placed all the same, and so are the others.

They are called again about what they failed for.
"""

import asyncio
import logging

from koordsched.api.core import Namespace
from koordsched.api.meta import ObjectMeta
from koordsched.cluster.builtinkinds import NAMESPACES
from koordsched.cluster.state import ClusterState
from tests.embedded import Embedded, scheduler_on
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


class Failing:
    """An observer that fails for pods named `bad…`, at every call."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.heard = []

    def _take(self, pod_):
        if pod_.name.startswith("bad"):
            raise KeyError(pod_.name)
        self.heard.append(pod_.name)

    def pod_seen(self, pod_, assigned):
        self._take(pod_)

    def pod_assigned(self, pod_, assigned):
        self._take(pod_)

    def pod_gone(self, uid):
        raise KeyError(uid)


class Listening(Failing):
    def _take(self, pod_):
        self.heard.append(pod_.name)

    def pod_gone(self, uid):
        self.heard.append(uid)


def test_pods_nodes_and_objects_that_a_plugin_fails_for(caplog):
    caplog.set_level(logging.ERROR)
    nodes, namespaces = [], []

    def hook(row, node_):
        if node_.metadata.name == "bad":
            raise ValueError("this node")

    def subscriber(old, new):
        if new is not None and new.metadata.name == "bad":
            raise ValueError("this namespace")

    async def main():
        embedded = Embedded()
        embedded.insert(node("bad", cpu="4"))
        async with scheduler_on(embedded) as running:
            cluster = running.scheduler.cluster
            failing, listening = Failing(cluster), Listening(cluster)
            for observer in (failing, listening):
                cluster.add_observer(observer)
            cluster.table._hooks[:0] = [hook]
            cluster.table._hooks.append(lambda row, node_: nodes.append(node_.metadata.name))
            store = cluster.objects.of(NAMESPACES)
            store.subscribe(subscriber)
            store.subscribe(lambda old, new: namespaces.append(new.metadata.name if new is not None else None))
            embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bad"}})
            changed = {**embedded.get("Node", "bad")["status"]["allocatable"], "cpu": "8"}
            status = {**embedded.get("Node", "bad")["status"], "allocatable": changed}
            embedded.registry.replace_status(embedded.resource("Node"), None, "bad", status)
            names = ("bad-1", "good", "bad-2")
            for name in names:
                embedded.insert(pod(name, container(cpu="2")))
            await asyncio.sleep(20)
            assert [embedded.get("Pod", name)["spec"].get("nodeName") for name in names] == ["bad"] * 3
            assert set(listening.heard) == {*names}
            assert set(failing.heard) == {"good"}
            assert (nodes[-1], namespaces[-1]) == ("bad", "bad")
            for name in names:
                embedded.registry.delete(embedded.resource("Pod"), "default", name, grace_period_seconds=0)
            await asyncio.sleep(5)
            assert not running.scheduler.cluster.assigned
            assert len(listening.heard) > len(set(listening.heard))

    run(main())
    shown = [record.message for record in caplog.records if "further errors of this kind" in record.message]
    assert len(shown) == 3, "one of each kind, however many pods"


def test_a_pod_that_a_plugin_fails_for_is_told_why_it_waits():
    async def main():
        embedded = Embedded()
        async with scheduler_on(embedded) as running:
            running.scheduler.cluster.add_observer(Failing(running.scheduler.cluster))
            embedded.insert(pod("bad", container(cpu="2")))
            await asyncio.sleep(5)
            [condition] = embedded.get("Pod", "bad")["status"]["conditions"]
            assert condition["reason"] == "Unschedulable"
            embedded.insert(node("alder", cpu="4"))
            await asyncio.sleep(20)
            assert embedded.get("Pod", "bad")["spec"]["nodeName"] == "alder"

    run(main())


class Once:
    """An observer, accountant, hook and subscriber; each of its methods fails once for each object."""

    facets = 0

    def __init__(self):
        self.failed, self.heard = set(), []

    def _hear(self, *what):
        if what not in self.failed:
            self.failed.add(what)
            raise KeyError(*what)
        self.heard.append(what)

    def pod_seen(self, pod_, assigned):
        self._hear("seen", pod_.name)

    def pod_assigned(self, pod_, assigned):
        self._hear("assigned", pod_.name, assigned)

    def pod_gone(self, uid):
        self._hear("gone", uid)

    def pod_added(self, row, pod_):
        self._hear("added", pod_.name)
        return 0

    def pod_removed(self, row, pod_):
        self._hear("removed", pod_.name)
        return 0

    def node(self, row, node_):
        self._hear("node", node_.metadata.name)

    def node_gone(self, row):
        self._hear("node gone", row)

    def changed(self, old, new):
        self._hear("changed", *(each and each.metadata.resource_version for each in (old, new)))


async def _relist(running):
    for reflector in running.scheduler.watches.reflectors.values():
        await reflector.relist(if_served=True)


def test_what_failed_is_called_again_and_a_relist_changes_nothing_about_that():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4"))
        async with scheduler_on(embedded) as running:
            cluster, once = running.scheduler.cluster, Once()
            cluster.add_observer(once)
            cluster.add_accountant(once)
            cluster.table.on_node(once.node)
            cluster.table.on_removal(once.node_gone)
            namespaces = cluster.objects.of(NAMESPACES)
            namespaces.subscribe(once.changed)
            embedded.insert(node("beech", cpu="4"))
            embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
            embedded.insert(pod("waits", container(cpu="8")))
            embedded.insert(pod("bound", container(cpu="3"), on="alder"))
            await asyncio.sleep(0.1)
            row = cluster.table.row_of["alder"]
            assert cluster.table.requested[0].data.item(row) == 3000
            await _relist(running)
            await asyncio.sleep(3)
            version = namespaces.get("", "new").metadata.resource_version
            told = [("seen", "waits"), ("seen", "bound"), ("added", "bound"), ("node", "alder"), ("node", "beech")]
            assert {*told, ("changed", None, version)} <= {*once.heard}
            assert not cluster.listener_errors.owed
            once.heard.clear()
            await _relist(running)
            await asyncio.sleep(100)
            assert once.heard == [], "it is called no more than necessary"
            embedded.registry.delete(embedded.resource("Pod"), "default", "bound", grace_period_seconds=0)
            embedded.registry.delete(embedded.resource("Node"), None, "beech")
            await asyncio.sleep(3)
            told = [("removed", "bound"), ("gone", "uid-bound"), ("node gone", 1)]
            assert {what for what, *_ in once.heard} >= {"removed", "gone", "node gone"}
            assert not cluster.listener_errors.owed

    run(main())


def test_an_observer_hears_the_newest_of_what_it_missed():
    bench = Bench(node("n"))
    cluster, told = bench.cluster, []

    class Observer:
        ill = False

        def __getattr__(self, name):
            return lambda *what: self._hear(name, *what)

        def _hear(self, name, first, *more):
            if self.ill:
                raise KeyError(name)
            told.append((name, first if isinstance(first, str) else first.priority, *more))

    observer = Observer()
    cluster.add_observer(observer)
    old, new = (bench.pod(pod("p", priority=priority)) for priority in (1, 2))
    observer.ill = True
    cluster.pod_seen(old)
    cluster.pod_seen(new)
    cluster.assume(new, 0)
    observer.ill = False
    cluster.listener_errors.retry_some()
    assert told == [("pod_seen", 2, True), ("pod_assigned", 2, True)]
    told.clear()
    observer.ill = True
    cluster.forget(new)
    observer.ill = False
    cluster.pod_seen(old)
    assert told == [("pod_seen", 1, False)]
    told.clear()
    observer.ill = True
    cluster.pod_seen(new)
    cluster.pod_gone(new.uid)
    observer.ill = False
    cluster.listener_errors.retry_some()
    cluster.listener_errors.retry_some()
    assert told == [("pod_gone", new.uid)]


def test_a_subscriber_hears_what_changed_since_it_heard_of_an_object():
    cluster, told, ill = ClusterState(), [], []

    def subscriber(old, new):
        if ill:
            raise KeyError
        told.append((old and old.metadata.uid, new and new.metadata.uid))

    store = cluster.objects.of(NAMESPACES)
    store.upsert(Namespace(metadata=ObjectMeta(name="a", uid="0")))
    ill.append(True)
    store.subscribe(subscriber)
    store.upsert(Namespace(metadata=ObjectMeta(name="a", uid="1")))
    store.upsert(Namespace(metadata=ObjectMeta(name="short", uid="7")))
    store.delete("", "short")
    ill.clear()
    store.upsert(Namespace(metadata=ObjectMeta(name="a", uid="2")))
    assert told == [(None, "2")]
    cluster.listener_errors.retry_some()
    assert not cluster.listener_errors.owed
    ill.append(True)
    store.upsert(Namespace(metadata=ObjectMeta(name="a", uid="3")))
    store.delete("", "a")
    ill.clear()
    cluster.listener_errors.retry_some()
    assert told == [(None, "2"), ("2", None)], "of one that came and went there is nothing to hear"


def test_a_row_that_lost_its_node_is_cleared_before_another_node_has_it():
    bench = Bench(node("n"))
    table, told, ill = bench.cluster.table, [], [True]

    def removed(row):
        if ill:
            raise KeyError
        told.append((row, table.nodes[row]))

    table.on_removal(removed)
    bench.cluster.remove_node("n")
    ill.clear()
    bench.add(node("m"))
    assert (table.row_of["m"], told) == (0, [(0, None)])
    ill.append(True)
    bench.cluster.remove_node("m")
    bench.add(node("k"))
    ill.clear()
    bench.cluster.listener_errors.retry_some()
    assert told == [(0, None)], "the row is that of a node by now"
    assert not bench.cluster.listener_errors.owed

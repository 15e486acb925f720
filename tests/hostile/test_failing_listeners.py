"""Plugins that fail when called with one pod, node or object: it is placed all the same, and so are the others."""

import asyncio
import logging

from koordsched.cluster.builtinkinds import NAMESPACES
from tests.embedded import Embedded, scheduler_on
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

"""A pod with a node that has another one in its next version: a backup of the store was put back."""

import asyncio

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term
from tests.virtualtime import run

HOST = "kubernetes.io/hostname"
WEB = {"app": "web"}
APART = pod_affinity(required_anti=[pod_term(HOST, WEB)])
BESIDE = pod_affinity(required=[pod_term(HOST, WEB)])


@pytest.mark.parametrize(
    ("waiting", "others", "cpu", "place"),
    [
        (pod("waiting", container(cpu="2")), [pod("other", container(cpu="3"), on="beech")], "3", "alder"),
        (pod("waiting", affinity=APART), [pod("other", labels=WEB, on="beech")], "1", "alder"),
        (
            pod("waiting", container(cpu="1"), affinity=BESIDE),
            [pod("other", container(cpu="3"), on="alder")],
            "1",
            "beech",
        ),
    ],
    ids=["room", "anti-affinity", "affinity"],
)
def test_pods_that_wait_for_either_node_are_woken(waiting, others, cpu, place):
    async def main():
        embedded = Embedded()
        for name in ("alder", "beech"):
            embedded.insert(node(name, cpu="4", labels={HOST: name}))
        moved = pod("moved", container(cpu=cpu), labels=WEB, on="alder")
        for each in (*others, moved):
            embedded.insert(each)
        async with scheduler_on(embedded):
            embedded.insert(waiting)
            await asyncio.sleep(30)
            assert "nodeName" not in embedded.get("Pod", "waiting")["spec"]
            moved["spec"]["nodeName"] = "beech"
            uid = embedded.get("Pod", "moved")["metadata"]["uid"]
            embedded.insert(moved)
            await asyncio.sleep(15)
            assert embedded.get("Pod", "moved")["metadata"]["uid"] == uid
            assert embedded.get("Pod", "waiting")["spec"].get("nodeName") == place

    run(main())

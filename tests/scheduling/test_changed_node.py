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


def test_a_machine_that_took_the_name_of_another_one_is_a_new_node():
    """The end of the former one was missed: what plugins know of it, such as how it was booted, does not pass on."""

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4") | {"spec": {"unschedulable": True}})
        async with scheduler_on(embedded) as running:
            cluster, removed = running.scheduler.cluster, []
            cluster.table.on_removal(removed.append)
            embedded.insert(pod("running", container(cpu="1"), on="alder"))
            embedded.insert(pod("waiting", container(cpu="3")))
            await asyncio.sleep(30)
            assert (removed, "nodeName" in embedded.get("Pod", "waiting")["spec"]) == ([], False)
            another = node("alder", cpu="4")
            another["metadata"]["uid"] = "another"
            embedded.insert(another)
            await asyncio.sleep(15)
            assert (len(removed), embedded.get("Pod", "waiting")["spec"].get("nodeName")) == (1, "alder")
            assert {each.name for each in cluster.pods_on(cluster.table.row_of["alder"]).values()} == {
                "running",
                "waiting",
            }

    run(main())


def test_a_pod_that_another_client_binds_waits_no_more_though_its_status_cannot_be_read():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="2"))
        async with scheduler_on(embedded) as running:
            large = pod("p", container(cpu="3"))
            embedded.insert(large)
            await asyncio.sleep(5)
            resources = {"requests": {"cpu": "many"}}
            status = {
                "name": "c",
                "image": "x",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "resources": resources,
            }
            large["metadata"]["uid"] = embedded.get("Pod", "p")["metadata"]["uid"]
            large["spec"]["nodeName"] = "alder"
            embedded.insert({**large, "status": {"phase": "Running", "containerStatuses": [status]}})
            await asyncio.sleep(5)
            embedded.insert(node("beech", cpu="4"))
            await asyncio.sleep(60)
            assert running.attempts["default/p"] == 1
            assert len(running.scheduler.queue) == 0

    run(main())

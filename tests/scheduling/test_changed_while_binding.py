"""A pod that changes while its binding is under way: what it was until then may have kept others out."""

import asyncio

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term
from tests.virtualtime import run

HOST = "kubernetes.io/hostname"
APART = pod_affinity(required_anti=[pod_term(HOST, {"app": "web"})])


@pytest.mark.parametrize(
    ("after", "waiting"),
    [
        (pod("first", container(cpu="3"), labels={"app": "db"}), pod("second", affinity=APART)),
        (pod("first", container(cpu="1"), labels={"app": "web"}), pod("second", container(cpu="2"))),
    ],
)
def test_others_are_woken_by_what_changed(after, waiting):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="4", labels={HOST: "alder"}))

        async def slow(call, proceed):
            if call.path.endswith("/first/binding"):
                await asyncio.sleep(5)
            return await proceed()

        async with scheduler_on(embedded, fault=slow):
            embedded.insert(pod("first", container(cpu="3"), labels={"app": "web"}))
            await asyncio.sleep(1)
            embedded.insert(waiting)
            await asyncio.sleep(1)
            embedded.insert(after)
            await asyncio.sleep(1)
            assert "nodeName" not in embedded.get("Pod", "second")["spec"]
            await asyncio.sleep(30)
            assert embedded.get("Pod", "first")["spec"]["nodeName"] == "alder"
            assert embedded.get("Pod", "second")["spec"].get("nodeName") == "alder"

    run(main())

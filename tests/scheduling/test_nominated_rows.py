"""Room that is promised to a pod is nobody else's; when the pod needs it no longer, others get it soon."""

import asyncio

from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

ANYTHING = [{"operator": "Exists"}]


def promised(name, node_name):
    """A pod that some scheduler before us promised a node."""
    thing = pod(name, container(cpu="1"), priority=100)
    thing["status"]["nominatedNodeName"] = node_name
    return thing


def test_who_waits_for_room_gets_it_when_it_was_promised_to_a_pod_that_went_elsewhere():
    """The first pod in line, kept out by a promise to the second, which cannot go there any more."""

    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="1", taints=[("dedicated",)]))
        only_there = {"nodeSelector": {"kubernetes.io/hostname": "alder"}, "tolerations": ANYTHING}
        embedded.insert(pod("first", container(cpu="1"), priority=100, **only_there))
        embedded.insert(node("birch", cpu="1"))
        embedded.insert(promised("second", "alder"))
        async with scheduler_on(embedded) as running:
            await asyncio.sleep(15)
            assert running.attempts == {"default/first": 2, "default/second": 1}
            nodes = {name: embedded.get("Pod", name)["spec"].get("nodeName") for name in ("first", "second")}
            assert nodes == {"first": "alder", "second": "birch"}

    run(main())

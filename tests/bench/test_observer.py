"""What counts as the beginning, and what as a binding, against the embedded API server."""

import asyncio
import math

from bench.api import Api
from bench.observer import Observer
from tests.embedded import Embedded
from tests.plugins.objects import node, pod
from tests.virtualtime import run

NOMINATED = {"status": {"nominatedNodeName": "n1"}}
MERGE = {"content-type": "application/merge-patch+json"}


def test_the_beginning_is_the_first_change_of_a_pod():
    """Whoever preempts first works long before anything is bound."""

    async def main():
        embedded = Embedded()
        embedded.insert(node("n1"))
        embedded.insert(pod("other"))
        embedded.insert(pod("measured-1"))
        transport = embedded.transport()
        _, version = await Api(transport).list_all("/api/v1/namespaces")
        pods = "/api/v1/namespaces/default/pods"
        async with Observer(transport, "measured-", version) as observer:
            await asyncio.sleep(1)
            await embedded.call("PATCH", f"{pods}/other/status", NOMINATED, headers=MERGE)
            await asyncio.sleep(1)
            assert observer.first_change == math.inf
            await embedded.call("PATCH", f"{pods}/measured-1/status", NOMINATED, headers=MERGE)
            await asyncio.sleep(1)
            assert not observer.bound
            began = observer.first_change
            assert began < math.inf
            await embedded.call(
                "POST", f"{pods}/measured-1/binding", {"metadata": {"name": "measured-1"}, "target": {"name": "n1"}}
            )
            await asyncio.sleep(1)
            assert observer.nodes == {"measured-1": "n1"}
            assert observer.first_change == began < observer.bound["measured-1"]

    run(main())

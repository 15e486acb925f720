"""What a pod shows once it is bound, when its last refusal was written slowly."""

import asyncio

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import node, pod
from tests.virtualtime import run


@pytest.mark.parametrize("slow", ["before", "after"])
def test_a_refusal_does_not_arrive_after_the_binding(slow):
    async def main():
        embedded = Embedded()

        async def fault(call, proceed):
            if call.method != "PATCH" or "/pods/late" not in call.path:
                return await proceed()
            if slow == "before":
                await asyncio.sleep(5)
                return await proceed()
            answer = await proceed()
            await asyncio.sleep(5)
            return answer

        async with scheduler_on(embedded, fault=fault):
            embedded.insert(pod("late"))
            await asyncio.sleep(1)
            embedded.insert(node("alder"))
            await asyncio.sleep(20)
            late = embedded.get("Pod", "late")
            scheduled = [each for each in late["status"]["conditions"] if each["type"] == "PodScheduled"]
            assert late["spec"]["nodeName"] == "alder"
            assert [each["status"] for each in scheduled] == ["True"]

    run(main())

"""What wakes a pod for which no node has room with what its devices take."""

from __future__ import annotations

from typing import Any

import pytest

from koordsched.plugins.dynamicresources.allocatable.hints import room_made
from koordsched.queue.hints import QueueingHint
from tests.plugins.harness import Bench
from tests.plugins.objects import pod


@pytest.mark.parametrize(
    ("other", "helps"),
    [
        (pod("other", on="n1"), True),
        (pod("other") | {"status": {"nominatedNodeName": "n1"}}, True),
        (pod("other"), False),
    ],
    ids=["on a node", "nominated to a node", "on no node"],
)
def test_pods_that_leave_a_node_or_need_less_there_make_room(other: dict[str, Any], helps: bool) -> None:
    bench = Bench()
    waiting, there = bench.pod(pod("p")), bench.pod(other)
    hint = room_made("DynamicResources").fn
    assert hint is not None
    for old, new in ((there, None), (bench.pod(pod("other")), there)):
        assert hint(waiting, old, new) is (QueueingHint.QUEUE if helps else QueueingHint.SKIP)

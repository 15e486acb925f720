"""Dra spec section 7, cases 46 to 58: taints, and devices that share counters."""

from __future__ import annotations

import pytest

from koordsched.plugins.dynamicresources.structured import AllocationError, Features, InvalidPools
from tests.plugins.dynamicresources.structured.world import (
    World,
    alternative,
    claim,
    counters,
    device,
    either,
    request,
    taking,
)


def tainted() -> World:
    """Four devices, two of which keep requests off."""
    world = World()
    world.slice(
        "s1",
        device("d0", taints=[{"key": "a", "value": "1", "effect": "NoSchedule"}]),
        device("d1", taints=[{"key": "b", "effect": "NoExecute"}]),
        device("d2", taints=[{"key": "c", "effect": "None"}]),
        device("d3", taints=[{"key": "q", "effect": "Future"}]),
    )
    return world


def partitions(*in_use: str, features: Features | None = None) -> World:
    """A card in parts: all of it, two halves and a quarter."""
    world = World(features)
    world.slice("counters", sharedCounters=counters(40))
    world.slice("devices", taking("full", 40), taking("half0", 20), taking("half1", 20), taking("q0", 10))
    world.use(*in_use)
    return world


def test_dra_case_46_taints_keep_requests_off() -> None:
    world = tainted()
    assert world.got(request(number=2)) == ["d2", "d3"]
    assert world.got(request(number=3)) is None
    assert world.got(request(number=0)) is None
    world = World(Features(device_taints=False))
    world.slice("s1", device("d0", taints=[{"key": "a", "effect": "NoSchedule"}]))
    assert world.got(request()) == ["d0"]


def test_dra_case_47_tolerations() -> None:
    world = tainted()
    equal = [{"key": "a", "operator": "Equal", "value": "1"}]
    assert world.got(request(number=3, tolerations=equal)) == ["d0", "d2", "d3"]
    assert world.got(request(number=3, tolerations=[{"key": "a", "operator": "Equal", "value": "2"}])) is None
    executing = [{"operator": "Exists", "effect": "NoExecute"}]
    assert world.got(request(number=3, tolerations=executing)) == ["d1", "d2", "d3"]
    assert world.got(request(number=4, tolerations=[{"operator": "Exists"}])) == ["d0", "d1", "d2", "d3"]


def test_dra_case_48_tolerations_of_alternatives() -> None:
    tolerating = alternative("y", 3, tolerations=[{"key": "b", "operator": "Exists"}])
    assert tainted().got(either("r", alternative("x", 3), tolerating)) == ["r/y=d1", "r/y=d2", "r/y=d3"]


def test_dra_case_49_admin_access_does_not_tolerate() -> None:
    world = World()
    world.slice("s1", device("d0", taints=[{"key": "a", "effect": "NoSchedule"}]))
    assert world.got(request(adminAccess=True)) is None


def test_dra_case_50_partitions() -> None:
    world = partitions()
    assert world.got(request()) == ["full"]
    assert world.got(request(number=2)) == ["half0", "half1"]
    assert world.got(request(number=3)) is None
    assert world.got(request(number=0)) is None


def test_dra_case_51_partitions_in_use() -> None:
    assert partitions("half1").got(request()) == ["half0"]
    assert partitions("half1").got(request(number=2)) is None
    assert partitions("full", "half0").got(request()) is None


@pytest.mark.parametrize(
    ("devices", "sets", "problem"),
    [
        ([taking("a", 1, "other")], counters(40), "counter set other not found"),
        ([taking("a", 1, "mem", "k")], counters(40), "counter k not found in counter set mem"),
        ([taking("a", 1)], counters(40) + counters(40), "duplicate counter set name mem"),
    ],
)
def test_dra_case_52_counters_that_are_not_there(devices: list, sets: list, problem: str) -> None:  # type: ignore[type-arg]
    world = World()
    world.slice("counters", sharedCounters=sets)
    world.slice("devices", *devices)
    with pytest.raises(InvalidPools, match=f"drv/p: {problem}"):
        world.allocate(request())


def test_dra_case_53_counters_are_consumed_on_other_nodes() -> None:
    world = World()
    world.slice("c", sharedCounters=counters(40), allNodes=True)
    world.slice("s1", taking("a", 30))
    world.slice("s2", taking("b", 30), nodeName="n2")
    assert world.got(request()) == ["a"]
    world.use("b")
    assert world.got(request()) is None


def test_dra_case_54_what_does_not_go_together() -> None:
    world = World()
    world.slice("c", sharedCounters=counters(40))
    world.slice("s", taking("a", 30), taking("b", 20), taking("c", 20))
    assert world.got(request(number=2)) == ["b", "c"]


def test_dra_case_55_counters_of_another_node() -> None:
    world = World()
    world.slice("s1", "x", pool="n1")
    world.slice("c2", sharedCounters=counters(40), pool="n2", nodeName="n2", of=2)
    with pytest.raises(AllocationError, match="resource pool drv/n2 is currently being updated"):
        world.allocate(request(number=0))
    assert world.got(request()) == ["drv/n1/x"]
    world.slice("s2", taking("y", 20), pool="n2", nodeName="n2", of=2)
    assert world.got(request(number=0)) == ["drv/n1/x"]
    assert world.got(request(number=0), node="n2") == ["drv/n2/y"]


def test_invalid_counters_of_another_node() -> None:
    world = World()
    world.slice("s1", "x", pool="n1")
    world.slice("c2", sharedCounters=counters(40), pool="n2", nodeName="n2")
    world.slice("s2", taking("y", 20, "other"), pool="n2", nodeName="n2")
    assert world.got(request()) == ["drv/n1/x"]
    with pytest.raises(InvalidPools, match="drv/n2: counter set other not found"):
        world.allocate(request(number=2))
    with pytest.raises(AllocationError, match="resource pool drv/n2 is currently invalid"):
        world.allocate(request(number=0))


def test_dra_case_56_a_refused_partition_leaves_its_counters() -> None:
    world = World()
    world.slice("c", sharedCounters=counters(40))
    world.slice("s", taking("t", 40, taints=[{"key": "a", "effect": "NoSchedule"}]), taking("half0", 20))
    assert world.got(request()) == ["half0"]


def test_dra_case_57_counters_of_two_drivers() -> None:
    world = World()
    world.slice("ac", sharedCounters=counters(40), driver="a")
    world.slice("as", taking("full", 40), driver="a")
    world.slice("bc", sharedCounters=counters(10, "z"), driver="b")
    world.slice("bs", taking("x", 10, "z"), taking("y", 10, "z"), driver="b")
    of_b = request("b", 2, selector="device.driver == 'b'")
    assert world.got(of_b) is None
    assert world.got(claim(request("a", selector="device.driver == 'a'"), of_b)) is None


def test_dra_case_58_partitions_off() -> None:
    world = World(Features(partitionable_devices=False))
    world.slice("s", taking("full", 40), taking("half0", 20), "plain")
    assert world.got(request()) == ["plain"]
    assert world.got(request(number=2)) is None
    world = World(Features(partitionable_devices=False))
    world.slice("s", device("a", allNodes=True), perDeviceNodeSelection=True)
    assert world.got(request()) is None

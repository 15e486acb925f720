"""Dra spec section 7, cases 1 to 15: order and pools."""

from __future__ import annotations

import pytest

from koordsched.plugins.dynamicresources.structured import AllocationError, Features, InvalidPools
from tests.plugins.dynamicresources.structured.world import World, claim, counters, device, request


def s3(features: Features | None = None) -> World:
    """One slice of three devices."""
    world = World(features)
    world.slice("s1", "d0", "d1", "d2")
    return world


def test_dra_case_01_devices_in_use_are_skipped() -> None:
    world = s3()
    world.use("d1")
    assert world.got(request(number=2)) == ["d0", "d2"]
    assert world.got(request(number=3)) is None


def test_dra_case_02_slices_by_name_devices_in_list_order() -> None:
    world = World()
    world.slice("b", "x0")
    world.slice("a", "y1", "y0")
    assert world.got(request(number=3)) == ["y1", "y0", "x0"]


def test_dra_case_03_pools_by_driver_and_name() -> None:
    world = World()
    world.slice("c1", "d0", driver="z.drv", pool="a")
    world.slice("c2", "d0", driver="a.drv", pool="z")
    world.slice("c3", "d0", driver="a.drv", pool="b")
    assert world.got(request(number=3)) == ["a.drv/b/d0", "a.drv/z/d0", "z.drv/a/d0"]


def test_dra_case_04_pools_with_binding_conditions_come_last() -> None:
    world = World()
    world.slice("s1", device("d0", bindingConditions=["Ready"], bindingFailureConditions=["Failed"]), pool="a")
    world.slice("s2", "d0", pool="b")
    found = world.allocate(request(number=2))
    assert found is not None
    first, second = found.results[0].devices.results
    assert (first.pool, first.binding_conditions) == ("b", ())
    assert (second.pool, second.binding_conditions, second.binding_failure_conditions) == ("a", ("Ready",), ("Failed",))


def test_dra_case_05_binding_conditions_off() -> None:
    world = World(Features(binding_conditions=False))
    world.slice("s1", device("d0", bindingConditions=["Ready"]), "d1")
    assert world.got(request()) == ["d1"]
    assert world.got(request(number=2)) is None


def test_dra_case_06_only_the_newest_generation() -> None:
    world = World()
    world.slice("s1", "d0", "d1", of=1)
    world.slice("s2", "d1", generation=2, of=1)
    assert world.got(request()) == ["d1"]
    assert world.got(request(number=2)) is None


def test_dra_case_07_incomplete_pools() -> None:
    world = World()
    world.slice("s1", "d0", of=2)
    assert world.got(request()) is None
    world = World()
    world.slice("s1", "d0", of=1)
    world.slice("s2", "d1", of=1)
    assert world.got(request()) is None


def test_dra_case_08_an_incomplete_pool_is_skipped() -> None:
    world = World()
    world.slice("s1", "d0", pool="a", of=2)
    world.slice("s2", "d0", pool="b")
    assert world.got(request()) == ["drv/b/d0"]


def test_dra_case_09_a_pool_over_nodes() -> None:
    world = World()
    world.slice("s1", "d0")
    world.slice("s2", "d1", nodeName="n2")
    assert world.got(request(number=0)) == ["d0"]
    assert world.got(request(number=0), node="n2") == ["d1"]
    assert world.got(request(number=0), node="n3") is None


def test_dra_case_10_invalid_pools() -> None:
    world = World()
    world.slice("s1", "d0", "d0")
    with pytest.raises(InvalidPools, match="drv/p: duplicate device name d0"):
        world.allocate(request())
    world = World()
    world.slice("s1", "d0", "d0", pool="a")
    world.slice("s2", "d1", pool="b")
    assert world.got(request()) == ["drv/b/d1"]
    with pytest.raises(InvalidPools, match="drv/a: duplicate device name d0"):
        world.allocate(request(number=2))


def test_dra_case_11_the_same_name_on_two_nodes() -> None:
    world = World()
    world.slice("s1", "d0")
    world.slice("s2", "d0", nodeName="n2")
    assert world.got(request()) == ["d0"]
    assert world.got(request(), node="n2") == ["d0"]
    world.use("d0")
    assert world.got(request()) is None
    assert world.got(request(), node="n2") is None


@pytest.mark.parametrize("trouble", ["updated", "invalid"])
def test_dra_case_12_all_devices_and_pools_in_trouble(trouble: str) -> None:
    world = World()
    if trouble == "invalid":
        world.slice("s1", "d0", "d0", driver="other", pool="a")
    else:
        world.slice("s1", "d0", driver="other", pool="a", of=2)
    world.slice("s2", "d0", pool="b")
    state = "invalid" if trouble == "invalid" else "being updated"
    text = f"claim default/c, request r: asks for all devices, but resource pool other/a is currently {state}"
    with pytest.raises(AllocationError) as raised:
        world.allocate(claim(request(number=0)))
    assert str(raised.value) == text


def test_dra_case_13_a_slice_for_no_node() -> None:
    world = World()
    world.slice("s1", "d0", nowhere=True)
    assert world.got(request()) is None


@pytest.mark.parametrize("expected", [2, 1])
def test_dra_case_14_15_a_newer_generation_on_another_node(expected: int) -> None:
    world = World()
    world.slice("s1", "d0", of=expected)
    world.slice("s2", "d0", nodeName="n2", generation=2, of=1)
    assert world.got(request()) is None
    assert world.got(request(), node="n2") == ["d0"]
    world.remove("s2")
    if expected == 1:
        assert world.got(request()) == ["d0"]


def test_a_slice_for_the_nodes_of_some_names() -> None:
    world = World()
    named = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    world.slice("s1", "d0", nodeSelector={"nodeSelectorTerms": [{"matchFields": [named]}]})
    assert world.got(request()) is None
    assert world.got(request(), node="n2") == ["d0"]


def test_a_term_without_requirements_matches_no_node() -> None:
    world = World()
    world.slice("s1", "d0", nodeSelector={"nodeSelectorTerms": [{}]})
    assert world.got(request()) is None


def test_a_selector_that_cannot_be_parsed_fails_everywhere() -> None:
    world = s3()
    wrong = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}]}
    world.slice("bad", "d9", pool="q", nodeSelector=wrong)
    text = "gather pool information: failed to perform node selection for slice bad: failed to parse node selector "
    for node in ("n1", "n2"):
        with pytest.raises(AllocationError, match=text):
            world.allocate(request(), node=node)
    world.remove("bad")
    assert world.got(request()) == ["d0"]


def test_a_slice_for_all_nodes_takes_the_place_of_one_for_another_node() -> None:
    world = World()
    world.slice("a", "d0", of=2)
    world.slice("b", "d0", nodeName="n2", of=2)
    assert world.got(request()) == ["d0"]
    world.remove("b")
    world.slice("c", "d0", allNodes=True, of=2)
    with pytest.raises(InvalidPools, match="drv/p: duplicate device name d0"):
        world.allocate(request())
    world.remove("c")
    world.slice("b", "d0", nodeName="n2", of=2)
    assert world.got(request()) == ["d0"]


def test_a_device_is_taken_while_the_pool_of_a_node_that_is_not_there_appears() -> None:
    world = World()
    world.slice("a", "d0", allNodes=True)
    assert world.got(request()) == ["d0"]
    world.slice("counters", sharedCounters=counters(40), pool="q", nodeName="n4", of=2)
    world.use("d0")
    assert world.got(request()) is None

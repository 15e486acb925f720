"""Dra spec section 7, cases 59 to 81 and 93: constraints, consumable capacity, admin access, devices in use."""

from __future__ import annotations

from typing import Any

import pytest

from koordsched.plugins.dynamicresources.structured import AllocationError, DevicesInUse, Features
from tests.plugins.dynamicresources.structured.test_order_and_pools import s3
from tests.plugins.dynamicresources.structured.world import (
    World,
    allocation,
    alternative,
    claim,
    counters,
    device,
    either,
    request,
    taking,
)


def numa() -> World:
    """Four devices, three with a NUMA node."""
    world = World()
    world.slice("s1", device("d0", {"numa": 0}), device("d1", {"numa": 1}), device("d2", {"numa": 1}), "d3")
    return world


def with_values(*values: Any, features: Features | None = None) -> World:
    """Devices with these values of attribute k."""
    world = World(features)
    world.slice("s1", *(device(f"d{index}", {"k": value}) for index, value in enumerate(values)))
    return world


def match(attribute: str, *requests: str) -> dict[str, Any]:
    """A constraint that all have the same value."""
    return {"matchAttribute": attribute, "requests": list(requests)}


def distinct(attribute: str = "drv/k", *requests: str) -> dict[str, Any]:
    """A constraint that no two have the same value."""
    return {"distinctAttribute": attribute, "requests": list(requests)}


def shared(
    name: str = "g", capacity: str = "40Gi", key: str = "mem", policy: Any = None, **fields: Any
) -> dict[str, Any]:
    """A device that may be shared."""
    has: dict[str, Any] = {"value": capacity}
    if policy:
        has["requestPolicy"] = policy
    return device(name, allowMultipleAllocations=True, **({"capacity": {key: has}} if capacity else {}), **fields)


def part(amount: str, name: str = "r", number: int = 1, key: str = "mem") -> dict[str, Any]:
    """A request for so much of a capacity."""
    return request(name, number, capacity={"requests": {key: amount}})


def share(name: str, amount: str, share_id: str = "u") -> dict[str, Any]:
    """A share of a device that is allocated."""
    return {
        "request": "r",
        "driver": "drv",
        "pool": "p",
        "device": name,
        "shareID": share_id,
        "consumedCapacity": {"mem": amount},
    }


def consumed(world: World, *asked: Any) -> list[tuple[str, dict[str, str], bool]] | None:
    """The devices, what is consumed of them, and whether there is a share id."""
    found = world.allocate(*asked)
    if found is None:
        return None
    return [
        (each.device, dict(each.consumed_capacity), each.share_id is not None)
        for result in found.results
        for each in result.devices.results
    ]


def test_dra_case_59_match() -> None:
    world = numa()
    assert world.got(claim(request(number=2), constraints=[match("drv/numa")])) == ["d1", "d2"]
    assert world.got(claim(request(number=3), constraints=[match("drv/numa")])) is None


def test_dra_case_60_match_of_some_requests() -> None:
    asked = claim(request("a"), request("b"), request("c"), constraints=[match("drv/numa", "a", "c")])
    assert numa().got(asked) == ["a=d1", "b=d0", "c=d2"]


def test_dra_case_61_match_across_drivers() -> None:
    world = World()
    world.slice("s1", device("g0", {"x.io/pcie": "a"}), device("g1", {"x.io/pcie": "b"}), driver="gpu")
    world.slice("s2", device("n0", {"x.io/pcie": "b"}), driver="nic")
    gpu, nic = (request(name, selector=f"device.driver == '{name}'") for name in ("gpu", "nic"))
    found = world.got(claim(gpu, nic, constraints=[match("x.io/pcie")]))
    assert found == ["gpu=gpu/p/g1", "nic=nic/p/n0"]


def test_dra_case_62_types_must_match() -> None:
    world = with_values(1, "1", 1)
    assert world.got(claim(request(number=2), constraints=[match("drv/k")])) == ["d0", "d2"]


def test_dra_case_63_all_devices_must_match() -> None:
    world = World()
    world.slice("s1", device("d0", {"numa": 0}), device("d1", {"numa": 1}), device("d2", {"numa": 1}))
    with pytest.raises(AllocationError) as raised:
        world.allocate(claim(request(number=0), constraints=[match("drv/numa")]))
    text = "cannot add device drv/p/d1 because a claim constraint would not be satisfied"
    assert str(raised.value) == f"claim default/c, request r: {text}"


def test_dra_case_64_bare_names() -> None:
    world = World()
    world.slice("s1", device("d0", {"numa": 1}), driver="gpu")
    assert world.got(claim(request(), constraints=[match("drv/numa")])) is None
    world = World()
    world.slice("s1", device("d0", {"drv/numa": 1}), device("d1", {"numa": 1}))
    assert world.got(claim(request(number=2), constraints=[match("drv/numa")])) == ["d0", "d1"]


def test_dra_case_65_match_of_an_alternative() -> None:
    asked = claim(either("a", alternative("s")), request("b"), constraints=[match("drv/numa", "a/s", "b")])
    assert numa().got(asked) == ["a/s=d1", "b=d2"]


def test_dra_case_66_distinct() -> None:
    world = with_values("a", "a", "b")
    assert world.got(claim(request("x"), request("y"), constraints=[distinct()])) == ["x=d0", "y=d2"]
    assert world.got(claim(request(number=2), constraints=[distinct()])) == ["d0", "d2"]
    assert with_values("a", "a").got(claim(request(number=2), constraints=[distinct()])) is None


def test_dra_case_67_all_devices_of_a_request_are_distinct() -> None:
    world = with_values("a", "b", "a")
    assert world.got(claim(request(number=3), constraints=[distinct()])) is None
    assert world.got(claim(*(request(name) for name in "xyz"), constraints=[distinct()])) is None


def test_lists_match_by_what_they_have_in_common() -> None:
    lists = Features(list_attributes=True)
    values = ({"strings": ["a", "b"]}, {"string": "z"}, {"strings": ["b", "c"]}, {"string": "b"})
    world = with_values(*values, features=lists)
    assert world.got(claim(request(number=2), constraints=[match("drv/k")])) == ["d0", "d2"]
    assert world.got(claim(request(number=3), constraints=[match("drv/k")])) == ["d0", "d2", "d3"]
    assert world.got(claim(request(number=2), constraints=[distinct()])) == ["d0", "d1"]
    assert world.got(claim(request(number=3), constraints=[distinct()])) is None
    assert with_values(*values).got(claim(request(number=2), constraints=[distinct()])) == ["d1", "d3"]


def test_lists_match_nothing_while_their_feature_is_off() -> None:
    world = with_values({"strings": ["a"]}, {"strings": ["a"]})
    assert world.got(claim(request(number=1), constraints=[match("drv/k")])) == ["d0"]
    assert world.got(claim(request(number=2), constraints=[match("drv/k")])) is None


def test_lists_of_one_length_match_after_a_first_choice_that_was_none() -> None:
    """Devices whose lists are not equal may go together: none is left out because it is alone with its list."""
    values = ({"strings": each} for each in (["a", "b"], ["a", "c"], ["x", "y"]))
    world = with_values(*values, features=Features(list_attributes=True))
    asked = claim(request("any"), request("alike", 2), constraints=[match("drv/k", "alike")])
    assert world.got(asked) == ["any=d2", "alike=d0", "alike=d1"]


def test_dra_case_68_a_share_of_a_device() -> None:
    world = World()
    world.slice("s1", shared())
    assert consumed(world, part("10Gi")) == [("g", {"mem": "10Gi"}, True)]
    assert consumed(world, request()) == [("g", {"mem": "40Gi"}, True)]


def test_dra_case_69_two_shares_of_a_claim() -> None:
    world = World()
    world.slice("s1", shared())
    assert world.got(claim(part("30Gi", "a"), part("10Gi", "b"))) == ["a=g", "b=g"]
    assert world.got(claim(part("30Gi", "a"), part("11Gi", "b"))) is None
    assert world.got(part("1Gi", number=2)) is None


def test_dra_case_70_shares_that_are_allocated() -> None:
    world = World()
    world.slice("s1", shared())
    world.use(share("g", "30Gi"))
    assert world.got(part("10Gi")) == ["g"]
    assert world.got(part("11Gi")) is None


def test_dra_case_71_steps_begin_at_the_least() -> None:
    world = World()
    policy = {"default": "2Gi", "validRange": {"min": "2Gi", "max": "30Gi", "step": "4Gi"}}
    world.slice("s1", shared(policy=policy))
    for asked, given in (("1Gi", "2Gi"), ("3Gi", "6Gi"), ("6Gi", "6Gi"), ("7Gi", "10Gi")):
        assert consumed(world, part(asked)) == [("g", {"mem": given}, True)]


def test_dra_case_71_range_and_steps() -> None:
    world = World()
    policy = {"default": "4Gi", "validRange": {"min": "4Gi", "max": "20Gi", "step": "4Gi"}}
    world.slice("s1", shared(policy=policy))
    for asked, gets in (("1Gi", "4Gi"), ("9Gi", "12Gi"), ("20Gi", "20Gi")):
        assert consumed(world, part(asked)) == [("g", {"mem": gets}, True)]
    assert world.got(part("21Gi")) is None
    assert consumed(world, request()) == [("g", {"mem": "4Gi"}, True)]


def test_dra_case_72_valid_values() -> None:
    world = World()
    world.slice("s1", shared(policy={"default": "5Gi", "validValues": ["5Gi", "10Gi", "20Gi"]}))
    assert consumed(world, part("6Gi")) == [("g", {"mem": "10Gi"}, True)]
    assert world.got(part("21Gi")) is None


def test_dra_case_73_unknown_capacity() -> None:
    world = World()
    world.slice("s1", shared())
    assert world.got(part("1", key="other")) is None


def test_dra_case_74_capacity_of_devices_that_are_not_shared() -> None:
    world = World()
    world.slice(
        "s1", *(device(name, capacity={"mem": {"value": size}}) for name, size in (("a", "8Gi"), ("b", "16Gi")))
    )
    assert consumed(world, part("10Gi")) == [("b", {}, False)]


def test_dra_case_75_shares_of_a_device_without_capacity() -> None:
    world = World()
    world.slice("s1", shared(capacity=""))
    assert world.got(claim(*(request(name) for name in "abc"))) == ["a=g", "b=g", "c=g"]
    found = world.allocate(claim(*(request(name) for name in "abc")))
    assert found is not None
    assert len({each.share_id for each in found.results[0].devices.results}) == 3


def test_dra_case_76_shares_consume_counters_once() -> None:
    world = World()
    world.slice("c", sharedCounters=counters(40))
    fields = {"allowMultipleAllocations": True, "capacity": {"bw": {"value": "10"}}}
    world.slice("s", taking("g", 40, **fields))
    assert world.got(claim(part("1", "a", key="bw"), part("1", "b", key="bw"))) == ["a=g", "b=g"]
    world.use({"request": "r", "driver": "drv", "pool": "p", "device": "g", "shareID": "u"})
    assert world.got(part("1", key="bw")) == ["g"]


def test_dra_case_77_shares_of_distinct_devices() -> None:
    world = World()
    world.slice("s1", shared("g0", attributes={"id": {"int": 0}}), shared("g1", attributes={"id": {"int": 1}}))
    asked = claim(part("1Gi", "a"), part("1Gi", "b"), constraints=[distinct("drv/id")])
    assert world.got(asked) == ["a=g0", "b=g1"]


def test_dra_case_78_all_devices_that_are_large_enough() -> None:
    world = World()
    world.slice("s1", shared("g0", "10", "bw"), device("g1", capacity={"bw": {"value": "2"}}))
    assert world.got(part("5", number=0, key="bw")) == ["g0"]


def test_dra_case_79_consumable_capacity_off() -> None:
    world = World(Features(consumable_capacity=False))
    world.slice("s1", shared())
    with pytest.raises(AllocationError) as raised:
        world.allocate(part("1Gi"))
    off = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
    assert str(raised.value) == f"claim default/c, request r: {off}"
    assert world.got(claim(request("a"), request("b"))) is None
    world.use(share("g", "1Gi"))
    assert world.got(request()) is None


def test_dra_case_80_admin_access() -> None:
    world = s3()
    world.use("d0")
    found = world.allocate(request(adminAccess=True))
    assert found is not None
    assert [(each.device, each.admin_access) for each in found.results[0].devices.results] == [("d0", True)]
    admin_a, admin_b = request("a", adminAccess=True), request("b", adminAccess=True)
    assert world.got(claim(admin_a, admin_b)) == ["a=d0", "b=d1"]
    assert world.got(claim(admin_a), claim(admin_b, name="c2")) == ["a=d0", "b=d0"]
    found = world.allocate(request(adminAccess=False))
    assert found is not None
    assert found.results[0].devices.results[0].admin_access is None


def test_dra_case_81_admin_access_is_in_no_ones_way() -> None:
    world = World()
    world.slice("s1", "d0")
    normal, admin = claim(request("n")), claim(request("adm", adminAccess=True), name="c2")
    assert world.got(normal, admin) == ["n=d0", "adm=d0"]
    assert world.got(admin, normal) == ["adm=d0", "n=d0"]
    assert world.got(claim(request("n"), request("adm", adminAccess=True))) is None
    assert world.got(claim(request("adm", adminAccess=True), request("n"))) == ["adm=d0", "n=d0"]


def test_admin_access_to_a_device_that_is_used_up() -> None:
    world = World()
    world.slice("s1", shared())
    world.use(share("g", "40Gi"))
    assert world.got(part("1Gi")) is None
    found = world.got(request(adminAccess=True))
    assert found == ["g"]


def test_dra_case_93_devices_in_use() -> None:
    in_use = DevicesInUse(Features())
    admin = {"request": "r", "driver": "drv", "pool": "p", "device": "d0", "adminAccess": True}
    given = allocation(admin, "d1", share("g", "30Gi"))
    in_use.put("c", given)
    in_use.put(("in flight", "c"), given)
    pool = in_use.pools["drv", "p"]
    assert pool.exclusive.keys() == {"d1"}
    assert pool.share_ids("g") == {"u"}
    assert pool.consumed("g") == {"mem": (30 << 30) * 10**9}
    in_use.drop("c")
    assert in_use.pools["drv", "p"].exclusive.keys() == {"d1"}
    in_use.drop(("in flight", "c"))
    assert not in_use.pools

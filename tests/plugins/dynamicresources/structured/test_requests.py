"""Dra spec section 7, cases 16 to 34, 91: counts, alternatives, configuration, node selectors, score."""

from __future__ import annotations

from typing import Any

import pytest

from koordsched.api.core import NodeSelector
from koordsched.plugins.dynamicresources.structured import AllocationError
from tests.plugins.dynamicresources.structured.test_order_and_pools import s3
from tests.plugins.dynamicresources.structured.world import World, alternative, claim, device, either, request


def many(number: int) -> World:
    """One slice with so many devices."""
    world = World()
    world.slice("s1", *(f"d{index}" for index in range(number)))
    return world


def names(first: int, last: int) -> list[str]:
    """The names of devices in a range, both ends included."""
    return [f"d{index}" for index in range(first, last + 1)]


def selector_of(found: Any) -> NodeSelector | None:
    """The node selector of the first claim's allocation."""
    selector: NodeSelector | None = found.results[0].node_selector
    return selector


def requirements(found: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    """What its only term requires of labels."""
    selector = selector_of(found)
    assert selector is not None
    (term,) = selector.node_selector_terms
    assert not term.match_fields
    return [(each.key, each.operator, each.values) for each in term.match_expressions]


def is_node(found: Any, name: str = "n1") -> bool:
    """Whether the allocation is for that node alone."""
    selector = selector_of(found)
    if selector is None:
        return False
    (term,) = selector.node_selector_terms
    return not term.match_expressions and [(each.key, each.operator, each.values) for each in term.match_fields] == [
        ("metadata.name", "In", (name,))
    ]


def test_dra_case_16_all_devices() -> None:
    world = s3()
    assert world.got(request(number=0)) == ["d0", "d1", "d2"]
    world.use("d2")
    assert world.got(request(number=0)) is None
    found = world.allocate(request(number=0, adminAccess=True))
    assert found is not None
    results = found.results[0].devices.results
    assert [(each.device, each.admin_access) for each in results] == [("d0", True), ("d1", True), ("d2", True)]


def test_dra_case_17_all_of_none() -> None:
    assert s3().got(request(number=0, selector="false")) is None


def test_dra_case_18_more_devices_than_a_claim_may_have() -> None:
    text = "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    for world, asked in (
        (many(33), claim(request(number=0))),
        (many(40), claim(request(number=33))),
        (many(40), claim(request("a", 16), request("b", 17))),
    ):
        with pytest.raises(AllocationError) as raised:
            world.allocate(asked)
        assert str(raised.value) == text


def test_dra_case_19_the_limit_is_per_claim() -> None:
    found = many(50).allocate(claim(request(number=32)), claim(request(), name="c2"))
    assert found is not None
    first, second = found.results
    assert [each.device for each in first.devices.results] == names(0, 31)
    assert [each.device for each in second.devices.results] == ["d32"]


def test_dra_case_20_the_first_alternative_that_can_be_had() -> None:
    world = s3()
    assert world.got(either("r", alternative("four", 4), alternative("two", 2))) == ["r/two=d0", "r/two=d1"]


def test_dra_case_21_alternatives_are_revisited() -> None:
    asked = claim(either("a", alternative("two", 2), alternative("one", 1)), request("b", 2))
    assert s3().got(asked) == ["a/one=d0", "b=d1", "b=d2"]


def test_dra_case_22_alternatives_beyond_the_limit_are_dropped() -> None:
    asked = claim(request("a", 30), either("b", alternative("big", 3), alternative("small", 2)))
    expected = [f"a={name}" for name in names(0, 29)] + ["b/small=d30", "b/small=d31"]
    assert many(40).got(asked) == expected


def test_dra_case_23_a_class_of_an_alternative_is_missing() -> None:
    asked = claim(either("r", alternative("x", of="nope"), alternative("y")))
    with pytest.raises(AllocationError, match=r"^claim default/c, request x: could not retrieve device class nope"):
        s3().allocate(asked)


def test_dra_case_24_what_is_taken_first_is_given_back() -> None:
    world = World()
    world.slice("s1", device("d0", {"a": 1}), device("d1", {"a": 2}))
    choosy = request("first", selector="device.attributes['drv'].a == 1")
    assert world.got(claim(request("any"), choosy)) == ["any=d1", "first=d0"]
    assert world.got(claim(request("any")), claim(choosy, name="c2")) == ["any=d1", "first=d0"]


def test_dra_case_25_a_claim_without_requests() -> None:
    found = s3().allocate(claim())
    assert found is not None
    assert found.results[0].devices.results == ()
    assert found.results[0].node_selector is None


def test_dra_case_26_a_constraint_of_no_kind() -> None:
    text = "claim default/c, constraint #0: empty constraint (unsupported constraint type?)"
    with pytest.raises(AllocationError) as raised:
        s3().allocate(claim(request(), constraints=[{"requests": ["r"]}]))
    assert str(raised.value) == text


def _config(value: str, *requests: str) -> dict[str, Any]:
    return {"requests": list(requests), "opaque": {"driver": "drv", "parameters": {"is": value}}}


def _configured(found: Any) -> list[tuple[str, tuple[str, ...], str]]:
    return [(each.source, each.requests, each.opaque.parameters["is"]) for each in found.results[0].devices.config]


def test_dra_case_27_configuration_of_the_chosen_alternative() -> None:
    world = s3()
    world.add_class("g", config=[_config("kg")])
    world.add_class("h", config=[_config("kh")])
    asked = claim(
        either("r", alternative("x", 4, of="g"), alternative("y", of="h")),
        config=[_config("cx", "r/x"), _config("cy", "r/y"), _config("cr", "r"), _config("call")],
    )
    assert _configured(world.allocate(asked)) == [
        ("FromClass", ("r/y",), "kh"),
        ("FromClaim", ("r/y",), "cy"),
        ("FromClaim", ("r",), "cr"),
        ("FromClaim", (), "call"),
    ]


def test_dra_case_28_all_nodes() -> None:
    world = World()
    world.slice("a", "d0", allNodes=True)
    for node in ("n1", "n2"):
        assert selector_of(world.allocate(request(), node=node)) is None
    world.slice("b", "d0", pool="q")
    assert is_node(world.allocate(request(number=2)))


def _labelled(key: str, value: str) -> dict[str, Any]:
    expressions = [{"key": key, "operator": "In", "values": [value]}]
    return {"nodeSelectorTerms": [{"matchExpressions": expressions}]}


def test_dra_case_29_nodes_with_a_label() -> None:
    world = World(nodes={"n1": {"rack": "r1"}, "n2": {"rack": "r2"}})
    world.slice("s1", "d0", nodeSelector=_labelled("rack", "r1"))
    assert requirements(world.allocate(request())) == [("rack", "In", ("r1",))]
    assert world.got(request(), node="n2") is None
    world.node("n2", {"rack": "r1"})
    assert world.got(request(), node="n2") == ["d0"]
    world.node("n1", {})
    assert world.got(request()) is None


def test_dra_case_30_the_union_of_requirements() -> None:
    world = World(nodes={"n1": {"rack": "r1", "zone": "z1"}})
    world.slice("s1", "d0", pool="p", nodeSelector=_labelled("rack", "r1"))
    world.slice("s2", "d0", pool="q", nodeSelector=_labelled("zone", "z1"))
    world.slice("s3", "d0", pool="v", nodeSelector=_labelled("rack", "r1"))
    assert requirements(world.allocate(request(number=3))) == [("rack", "In", ("r1",)), ("zone", "In", ("z1",))]


def test_dra_case_31_configuration_for_several_requests() -> None:
    world = s3()
    world.add_class("dc", config=[_config("k1"), _config("k2")])
    asked = claim(request("a"), request("b"), config=[_config("ab", "a", "b"), _config("all")])
    assert _configured(world.allocate(asked)) == [
        ("FromClass", ("a", "b"), "k1"),
        ("FromClass", ("a", "b"), "k2"),
        ("FromClaim", ("a", "b"), "ab"),
        ("FromClaim", ("a", "b"), "ab"),
        ("FromClaim", (), "all"),
    ]


def test_dra_case_32_devices_select_nodes() -> None:
    world = World(nodes={"n1": {"z": "1"}, "n2": {"z": "1"}, "n3": {}})
    world.slice(
        "s1",
        device("a", nodeName="n1"),
        device("b", nodeSelector=_labelled("z", "1")),
        device("c", allNodes=True),
        device("d"),
        perDeviceNodeSelection=True,
    )
    assert world.got(request(number=3)) == ["a", "b", "c"]
    assert is_node(world.allocate(request(number=3)))
    assert world.got(request(number=4)) is None
    assert world.got(request(), node="n2") == ["b"]
    assert requirements(world.allocate(request(), node="n2")) == [("z", "In", ("1",))]
    assert world.got(request(number=2), node="n2") == ["b", "c"]
    assert requirements(world.allocate(request(number=2), node="n2")) == [("z", "In", ("1",))]
    assert world.got(request(number=3), node="n2") is None
    assert world.got(request(), node="n3") == ["c"]
    assert selector_of(world.allocate(request(), node="n3")) is None
    world.use("b")
    assert world.got(request(), node="n2") == ["c"]
    assert world.got(request(number=3)) is None


@pytest.mark.parametrize("binds", [True, False])
def test_dra_case_33_devices_that_bind_to_a_node(binds: bool) -> None:
    world = World()
    world.slice("s1", device("d0", bindsToNode=binds), allNodes=True)
    found = world.allocate(request(), node="n2")
    assert is_node(found, "n2") if binds else selector_of(found) is None


def test_dra_case_34_each_claim_has_its_own_node_selector() -> None:
    world = World()
    world.slice("a", device("d0", {"net": True}), pool="a", allNodes=True)
    world.slice("b", device("d0", {"net": False}), pool="b")
    network = claim(request(selector="device.attributes['drv'].net"), name="c1")
    local = claim(request(selector="not device.attributes['drv'].net"), name="c2")
    found = world.allocate(network, local)
    assert found is not None
    assert found.results[0].node_selector is None
    assert found.results[1].node_selector is not None


def test_dra_case_38_later_selectors_are_not_evaluated() -> None:
    world = s3()
    world.add_class("dc", "device.driver == 'nope'")
    assert world.got(request(selector="error")) is None


def test_dra_case_35_errors_of_devices_that_are_reached() -> None:
    world = World()
    world.slice("s1", device("d0", {"m": "x"}), device("d1", {"m": "y", "k": 1}))
    asked = request(selector="device.attributes['drv'].k == 1")
    with pytest.raises(AllocationError) as raised:
        world.allocate(asked)
    assert str(raised.value) == "claim default/c: selector #0: CEL runtime error: no such key: k"
    world.use("d0")
    assert world.got(asked) == ["d1"]


def test_dra_case_39_errors_of_class_selectors_name_the_class() -> None:
    world = s3()
    world.add_class("dc", "true", "error")
    with pytest.raises(AllocationError) as raised:
        world.allocate(request())
    assert str(raised.value) == "class dc: selector #1: CEL compile error: compilation failed"


def test_dra_case_91_score() -> None:
    world = s3()
    world.slice("more", *(f"m{index}" for index in range(6)), pool="more")
    no, yes = {"selector": "false"}, {}
    for chosen_r, chosen_q, score in (("x", "a", 16), ("y", "b", 14), ("z", "a", 14)):
        r = either("r", *(alternative(name, 2, **(yes if name == chosen_r else no)) for name in "xyz"))
        q = either("q", *(alternative(name, 1, **(yes if name == chosen_q else no)) for name in "ab"))
        found = world.allocate(claim(r, q, request("e")))
        assert found is not None
        assert found.score == score
    found = world.allocate(request("e"))
    assert found is not None
    assert found.score == 0

"""Clusters, claims and changes of them at random, small enough for a search without any skill."""

from __future__ import annotations

from random import Random
from typing import Any

from koordsched.api.resource import ResourceClaim
from koordsched.plugins.dynamicresources.structured import Features
from tests.plugins.dynamicresources.structured.world import World, claim, device, either, request
from tests.plugins.dynamicresources.structured.world import alternative as sub_request

SELECTORS = (
    "device.attributes['drv'].k == 1",
    "device.attributes['drv'].k <= 1",
    "device.attributes['drv'].u != 2",
    "device.driver == 'drv'",
    "true",
    "device.attributes['drv'].sometimes == 1",
    "error",
)
_SELECTOR_WEIGHTS = (6, 6, 4, 4, 4, 1, 0.3)


def features(rng: Random) -> Features:
    """Mostly the defaults."""
    if rng.random() < 0.75:
        return Features()
    return Features(
        partitionable_devices=rng.random() < 0.6,
        consumable_capacity=rng.random() < 0.6,
        device_taints=rng.random() < 0.6,
        binding_conditions=rng.random() < 0.6,
    )


def world(rng: Random) -> World:
    """Three nodes with labels, and slices of some pools."""
    made = World(features(rng), {f"n{number}": {"z": rng.choice("ab")} for number in (1, 2, 3)})
    made.add_class("sel", rng.choice(SELECTORS[:4]))
    for number in range(rng.randint(1, 4)):
        add_pool(rng, made, number)
    return made


def add_pool(rng: Random, made: World, number: int) -> None:
    """A pool of one to three slices, perhaps with counters, perhaps with something wrong."""
    driver = rng.choice(("drv", "drv", "other"))
    pool = rng.choice(("p", "q", "n1", f"x{number}"))
    generation = rng.choice((1, 1, 1, 1, 2))
    counted = rng.random() < 0.4
    where = _where(rng)
    wrong = rng.random() < 0.08
    if counted:
        sets = [
            {"name": name, "counters": {"m": {"value": str(rng.choice((2, 4)))}, "n": {"value": "3"}}} for name in "st"
        ]
        made.slice(f"c{number}", driver=driver, pool=pool, generation=generation, sharedCounters=sets, **_where(rng))
    for part in range(rng.choice((1, 1, 2))):
        devices = [
            some_device(rng, f"d{number}{part}{index}" if rng.random() < 0.98 else "same", counted=counted)
            for index in range(rng.randint(1, 4))
        ]
        if rng.random() < 0.15:
            where = {"perDeviceNodeSelection": True}
            for each in devices:
                each.update({key: value for key, value in _where(rng).items() if key != "nowhere"})
        elif rng.random() < 0.3:
            where = _where(rng)
        expected = 3 if wrong else 0
        made.slice(f"s{number}{part}", *devices, driver=driver, pool=pool, generation=generation, of=expected, **where)


def _where(rng: Random) -> dict[str, Any]:
    expressions = [{"key": "z", "operator": "In", "values": [rng.choice("ab")]}]
    return rng.choice(
        (
            {"nodeName": "n1"},
            {"nodeName": "n1"},
            {"nodeName": "n2"},
            {"allNodes": True},
            {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}},
        )
    )


def some_device(rng: Random, name: str, *, counted: bool) -> dict[str, Any]:
    """A device with some of everything."""
    attributes: dict[str, Any] = {"u": rng.randrange(100)}
    attributes["k" if rng.random() < 0.9 else "drv/k"] = rng.randrange(3)
    if rng.random() < 0.7:
        attributes["x.io/pcie"] = rng.choice(("a", "b"))
    if rng.random() < 0.7:
        attributes["sometimes"] = 1
    fields: dict[str, Any] = {}
    if counted and rng.random() < 0.8:
        uses = {"m": {"value": str(rng.choice((1, 2)))}}
        if rng.random() < 0.3:
            uses["n"] = {"value": "1"}
        unknown = rng.random() < 0.02
        fields["consumesCounters"] = [{"counterSet": "no" if unknown else rng.choice("st"), "counters": uses}]
    if rng.random() < 0.25:
        fields["allowMultipleAllocations"] = True
    if rng.random() < 0.4:
        fields["capacity"] = {"mem": {"value": rng.choice(("4", "8"))}}
        if rng.random() < 0.3 and "allowMultipleAllocations" in fields:
            fields["capacity"]["mem"]["requestPolicy"] = rng.choice(
                (
                    {"default": "2", "validRange": {"min": "2", "max": "6", "step": "2"}},
                    {"default": "1", "validValues": ["1", "3"]},
                )
            )
    if rng.random() < 0.15:
        fields["taints"] = [{"key": "t", "value": "1", "effect": rng.choice(("NoSchedule", "NoExecute", "None"))}]
    if rng.random() < 0.1:
        fields["bindingConditions"] = ["Ready"]
    return device(name, attributes, **fields)


def claims(rng: Random) -> list[ResourceClaim]:
    """One or two claims."""
    return [_claim(rng, f"c{number}") for number in range(rng.choice((1, 1, 2)))]


def _claim(rng: Random, name: str) -> ResourceClaim:
    requests = [_request(rng, key) for key in "abc"[: rng.choice((1, 1, 2, 2, 3))]]
    constraints = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        listed = [each["name"] for each in requests if rng.random() < 0.6]
        kind = rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
        constraints.append({kind: rng.choice(("drv/k", "x.io/pcie")), "requests": listed})
    return claim(*requests, name=name, constraints=constraints)


def _request(rng: Random, name: str) -> dict[str, Any]:
    if rng.random() < 0.25:
        return either(name, *(sub_request(f"s{sub}", **_fields(rng)) for sub in range(rng.randint(1, 3))))
    fields = _fields(rng)
    if rng.random() < 0.15:
        fields["adminAccess"] = True
    return request(name, **fields)


def _fields(rng: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {"number": rng.choice((0, 1, 1, 1, 2, 2, 3)), "of": rng.choice(("dc", "dc", "sel"))}
    if rng.random() < 0.5:
        fields["selector"] = rng.choices(SELECTORS, _SELECTOR_WEIGHTS)[0]
    if rng.random() < 0.2:
        fields["tolerations"] = [{"key": "t", "operator": rng.choice(("Exists", "Equal")), "value": rng.choice("12")}]
        if fields["tolerations"][0]["operator"] == "Exists":
            del fields["tolerations"][0]["value"]
    return fields


def with_capacity(rng: Random, asked: list[ResourceClaim], made: World) -> list[ResourceClaim]:
    """The same claims, or ones with requests of capacity where these are supported."""
    if not made.features.consumable_capacity or rng.random() < 0.7:
        return asked
    amount = rng.choice(("1", "2", "5"))
    return [claim(request("a", rng.choice((1, 2)), capacity={"requests": {"mem": amount}})), *asked[1:]]


def use(rng: Random, made: World) -> None:
    """Others have some of the devices, some as shares."""
    for spec in [each["spec"] for each in made.slices.values()]:
        for each in spec.get("devices", ()):
            if rng.random() < 0.8:
                continue
            result = {"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": each["name"]}
            if each.get("allowMultipleAllocations"):
                result |= {"shareID": f"u{rng.randrange(1000)}", "consumedCapacity": {"mem": rng.choice(("1", "2"))}}
            made.use(result)

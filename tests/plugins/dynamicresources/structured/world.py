"""Slices, nodes, claims and classes in short, and an allocator over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.api.resource import Device, DeviceAttribute, DeviceClass, ResourceClaim, ResourceSlice
from koordsched.plugins.dynamicresources.structured import (
    Allocation,
    Allocator,
    Demand,
    DevicesInUse,
    Features,
    InvalidPools,
    Outcome,
    SliceIndex,
)
from koordsched.plugins.dynamicresources.structured.devices import Equipment
from koordsched.plugins.dynamicresources.structured.failures import UNLIMITED, Deadline
from koordsched.plugins.dynamicresources.structured.selectors import Expired, SelectorFailure

Json = dict[str, Any]
DRIVER, POOL, NODE, CLASS = "drv", "p", "n1", "dc"


class _Domain:
    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name not in self._values:
            raise SelectorFailure(f"CEL runtime error: no such key: {name}")
        return self._values[name]


class _Domains:
    def __init__(self, driver: str, device: Device) -> None:
        self._values: dict[str, dict[str, Any]] = {}
        for name, attribute in device.attributes.items():
            domain, _, key = name.rpartition("/")
            self._values.setdefault(domain or driver, {})[key] = plain(attribute)

    def __getitem__(self, domain: str) -> _Domain:
        return _Domain(self._values.get(domain, {}))


class _Seen:
    def __init__(self, driver: str, device: Device) -> None:
        self.driver = driver
        self.attributes = _Domains(driver, device)


def plain(attribute: DeviceAttribute) -> Any:
    """The value of an attribute."""
    values = (attribute.int_value, attribute.bool_value, attribute.string_value, attribute.version_value)
    return next((value for value in values if value is not None), None)


def selects(text: str, driver: str, device: Device) -> bool:
    """Evaluates the part of CEL that is Python as well; an expression `error` fails on all devices."""
    if text == "error":
        raise SelectorFailure("CEL compile error: compilation failed", anywhere=True)
    return bool(eval(text, {"device": _Seen(driver, device), "true": True, "false": False}))


class PythonExpressions:
    """Expressions, counted."""

    def __init__(self) -> None:
        self.evaluated = 0

    def selects(self, text: str, equipment: Equipment, expired: Expired) -> bool:
        """See `Expressions`."""
        self.evaluated += 1
        return selects(text, equipment.model.driver, equipment.example)


def attribute(value: Any) -> Json:
    """An attribute of the value's type; versions are written as {"version": ...}."""
    if isinstance(value, dict):
        return value
    kind = {bool: "bool", int: "int", str: "string"}[type(value)]
    return {kind: value}


def device(name: str, attributes: dict[str, Any] | None = None, **fields: Any) -> Json:
    """A device."""
    made: Json = {"name": name, **fields}
    if attributes:
        made["attributes"] = {key: attribute(value) for key, value in attributes.items()}
    return made


def taking(name: str, amount: int, counter_set: str = "mem", counter: str = "m", **fields: Any) -> Json:
    """A partition."""
    consumes = [{"counterSet": counter_set, "counters": {counter: {"value": str(amount)}}}]
    return device(name, consumesCounters=consumes, **fields)


def counters(amount: int, counter_set: str = "mem", counter: str = "m") -> list[Json]:
    """What a slice says of shared counters."""
    return [{"name": counter_set, "counters": {counter: {"value": str(amount)}}}]


def request(name: str = "r", number: int = 1, of: str = CLASS, **fields: Any) -> Json:
    """A request for exactly so many devices."""
    return {"name": name, "exactly": alternative("", number, of, **fields)}


def alternative(name: str, number: int = 1, of: str = CLASS, selector: str = "", **fields: Any) -> Json:
    """A sub-request (without a name: the inside of a request); `number` 0 asks for all devices."""
    made: Json = {"name": name, "deviceClassName": of, **fields}
    made |= {"allocationMode": "ExactCount", "count": number} if number else {"allocationMode": "All"}
    if selector:
        made["selectors"] = [{"cel": {"expression": selector}}]
    if not name:
        del made["name"]
    return made


def either(name: str, *alternatives: Json) -> Json:
    """A request for the first of several."""
    return {"name": name, "firstAvailable": list(alternatives)}


def claim(
    *requests: Json, name: str = "c", constraints: Sequence[Json] = (), config: Sequence[Json] = ()
) -> ResourceClaim:
    """A claim."""
    devices = {"requests": list(requests), "constraints": list(constraints), "config": list(config)}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return convert({"metadata": metadata, "spec": {"devices": devices}}, ResourceClaim)


def allocation(*devices: str | Json) -> Any:
    """An allocation of devices, by name in the usual pool or as results."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": POOL, "device": each} if isinstance(each, str) else each
        for each in devices
    ]
    status = {"allocation": {"devices": {"results": results}}}
    return convert({"metadata": {"name": "x"}, "spec": {}, "status": status}, ResourceClaim).status.allocation


class World:
    """A cluster of slices, and nodes n1, n2, n3. Slices get the right `resourceSliceCount` unless it is given.

    `lenient`, `best_fit`: of the demands.
    """

    lenient = False
    best_fit = False

    def __init__(self, features: Features | None = None, nodes: dict[str, dict[str, str]] | None = None) -> None:
        self.features = features or Features()
        self.in_use = DevicesInUse(self.features)
        self.index = SliceIndex(self.features, self.in_use)
        self.expressions = PythonExpressions()
        shares = count()
        self.allocator = Allocator(self.index, self.expressions, self.features, lambda: f"share-{next(shares)}")
        self.classes: dict[str, DeviceClass] = {}
        self.add_class(CLASS)
        self.slices: dict[str, Json] = {}
        self.nodes: dict[str, dict[str, str]] = {}
        for name, labels in (nodes or {"n1": {}, "n2": {}, "n3": {}}).items():
            self.node(name, labels)

    def node(self, name: str, labels: dict[str, str] | None = None) -> int:
        """Adds or changes a node; its row."""
        self.nodes.setdefault(name, {})
        self.nodes[name] = labels or {}
        row = list(self.nodes).index(name)
        self.index.put_node(row, convert({"metadata": {"name": name, "labels": labels or {}}}, core.Node))
        return row

    def add_class(self, name: str, *selectors: str, config: Sequence[Json] = ()) -> None:
        """Adds a class."""
        spec = {"selectors": [{"cel": {"expression": each}} for each in selectors], "config": list(config)}
        self.classes[name] = convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)

    def slice(
        self,
        name: str,
        *devices: Json | str,
        driver: str = DRIVER,
        pool: str = POOL,
        generation: int = 1,
        of: int = 0,
        **where: Any,
    ) -> None:
        """Adds a slice of node n1, unless `where` says otherwise; `of`: the resourceSliceCount."""
        spec: Json = {"driver": driver, "pool": {"name": pool, "generation": generation, "resourceSliceCount": of}}
        reach = {"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection", "nowhere"}
        spec |= where if reach & where.keys() else {"nodeName": NODE, **where}
        if devices:
            spec["devices"] = [device(each) if isinstance(each, str) else each for each in devices]
        self.slices[name] = {"metadata": {"name": name}, "spec": spec}
        self._publish(driver, pool)

    def remove(self, name: str) -> None:
        """Deletes a slice."""
        spec = self.slices.pop(name)["spec"]
        self.index.remove_slice(name)
        self._publish(spec["driver"], spec["pool"]["name"])

    def _publish(self, driver: str, pool: str) -> None:
        """Counts the slices of a pool, and stores all of them."""
        mine = [
            each
            for each in self.slices.values()
            if (each["spec"]["driver"], each["spec"]["pool"]["name"]) == (driver, pool)
        ]
        for each in mine:
            told = each["spec"]["pool"]
            total = sum(other["spec"]["pool"]["generation"] == told["generation"] for other in mine)
            spec = each["spec"] | {"pool": told | {"resourceSliceCount": told["resourceSliceCount"] or total}}
            self.index.put_slice(convert(each | {"spec": spec}, ResourceSlice))

    def wire_slices(self) -> list[ResourceSlice]:
        """The slices as they were stored."""
        return [part.wire for part in self.index._slices.values()]

    def use(self, *devices: str | Json) -> None:
        """Other claims have these devices, all at once."""
        self.in_use.put(("other", len(self.in_use._held)), allocation(*devices))

    def demand(self, *claims: ResourceClaim | Json) -> Demand:
        """The demand of a pod; a request stands for a claim with only this."""
        made = [each if isinstance(each, ResourceClaim) else claim(each) for each in claims]
        return self.allocator.demand(made, self.classes.get, lenient=self.lenient, best_fit=self.best_fit)

    def allocate(
        self, *claims: ResourceClaim | Json, node: str = NODE, deadline: Deadline = UNLIMITED
    ) -> Allocation | None:
        """What the claims get; checks that the verdict on the node is the same."""
        demand = self.demand(*claims)
        row = list(self.nodes).index(node)
        verdicts = self.allocator.verdicts(demand, np.array([row]), deadline)
        outcome = Outcome(int(verdicts.outcomes[0]))
        try:
            found = self.allocator.allocate(demand, row, deadline)
        except InvalidPools:
            assert outcome is Outcome.INVALID
            raise
        except Exception:
            assert outcome in (Outcome.ERROR, Outcome.EXPIRED)
            raise
        assert outcome is (Outcome.NONE if found is None else Outcome.FITS)
        if found is not None:
            assert verdicts.scores[0] == found.score
        return found

    def got(self, *claims: ResourceClaim | Json, node: str = NODE) -> list[str] | None:
        """The devices that the claims get, as `request=device`; request r and the usual pool are left out."""
        found = self.allocate(*claims, node=node)
        if found is None:
            return None
        return [
            ("" if each.request == "r" else f"{each.request}=") + _short(each.driver, each.pool, each.device)
            for result in found.results
            for each in result.devices.results
        ]


def _short(driver: str, pool: str, name: str) -> str:
    return name if (driver, pool) == (DRIVER, POOL) else f"{driver}/{pool}/{name}"


Check = Callable[[World], None]

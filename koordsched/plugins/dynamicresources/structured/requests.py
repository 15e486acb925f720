"""The requests of a pod's claims, prepared for the search (dra spec 3.6, request preparation)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from koordsched.api.core import Quantity
from koordsched.api.resource import (
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from koordsched.plugins.dynamicresources.structured.constraints import Constraint
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.selectors import Attribute, read_by

MOST_DEVICES = 32
"""Of a claim."""

ClassOf = Callable[[str], DeviceClass | None]
"""Finds a class by its name."""


class Selector(NamedTuple):
    """An expression. `owner`: whose it is, for errors (`{claim}` stands for the claim's name)."""

    text: str
    owner: str


class Alternative(NamedTuple):
    """A request, or a sub-request of one. `name` is how results name it, `label` how errors do; `wanted`
    devices, 0 for all of them; `sub`: its position in the list of sub-requests, -1 if there is none.
    """

    number: int
    request: int
    claim: int
    name: str
    label: str
    sub: int
    device_class: DeviceClass
    selectors: tuple[Selector, ...]
    wanted: int
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, Quantity]

    @property
    def everything(self) -> bool:
        """Whether all devices are asked for."""
        return self.wanted == 0


class Request(NamedTuple):
    """A request: the first of its alternatives that can be had."""

    number: int
    claim: int
    name: str
    alternatives: tuple[Alternative, ...]


class ClaimDemand(NamedTuple):
    """A claim: its requests, by number, and constraints. `fixed`: the fewest devices that it takes, where these are
    not all devices of a node."""

    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...]


class Check(NamedTuple):
    """A check to be made on each node before the search: that all devices can be told (`alternative`), or that the
    claim is not too large. Or, as a check that always fails, an `error`."""

    alternative: Alternative | None = None
    claim: int = -1
    error: str = ""


class Prepared:
    """What pods with equal claims, of equal classes, share. `checks` are in upstream's order.

    `lenient`: an error of a device or a pool is no error of the attempt; the device is not selected. `wants_all`:
    whether a pool that is not in order is such an error. `best_fit`: devices are tried in the order of that name.
    """

    __slots__ = (
        "__weakref__",
        "alternatives",
        "best_fit",
        "checks",
        "claims",
        "lenient",
        "reads",
        "requests",
        "wants_all",
    )

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        class_of: ClassOf,
        features: Features,
        *,
        lenient: bool = False,
        best_fit: bool = False,
    ) -> None:
        self.lenient = lenient
        self.best_fit = best_fit
        self.alternatives: list[Alternative] = []
        self.requests: list[Request] = []
        self.checks: list[Check] = []
        self.claims: list[ClaimDemand] = []
        for number, claim in enumerate(claims):
            try:
                self._prepare(number, claim, class_of, features)
            except _Unprepared as error:
                self.checks.append(Check(claim=number, error=str(error)))
                break
        self.wants_all = not lenient and any(each.everything for each in self.alternatives)
        self.reads = self._reads()

    def _reads(self) -> tuple[Attribute, ...] | None:
        """The attributes that matter; None: all of them."""
        found = read_by({selector.text for each in self.alternatives for selector in each.selectors})
        if found is None:
            return None
        named = {(each.domain, each.name) for claim in self.claims for each in claim.constraints}
        return tuple(sorted(found | named))

    def _prepare(self, number: int, claim: ResourceClaim, class_of: ClassOf, features: Features) -> None:
        spec = claim.spec.devices
        found = []
        for wire in spec.requests:
            request = self._request(number, wire, class_of, features)
            self.requests.append(request)
            found.append(request)
        self.checks.append(Check(claim=number))
        self.claims.append(ClaimDemand(tuple(found), ()))
        constraints = tuple(_constraint(index, constraint, found) for index, constraint in enumerate(spec.constraints))
        self.claims[-1] = ClaimDemand(tuple(found), constraints)

    def _request(self, claim: int, wire: DeviceRequest, class_of: ClassOf, features: Features) -> Request:
        number = len(self.requests)
        if wire.exactly is not None:
            alternatives = [self._alternative(number, claim, wire.name, wire.exactly, class_of, features, sub=-1)]
        else:
            alternatives = [
                self._alternative(number, claim, f"{wire.name}/{each.name}", each, class_of, features, sub=sub)
                for sub, each in enumerate(wire.first_available)
            ]
        return Request(number, claim, wire.name, tuple(alternatives))

    def _alternative(
        self,
        request: int,
        claim: int,
        name: str,
        wire: ExactDeviceRequest | DeviceSubRequest,
        class_of: ClassOf,
        features: Features,
        sub: int,
    ) -> Alternative:
        label = name if isinstance(wire, ExactDeviceRequest) else wire.name
        for index, selector in enumerate(wire.selectors):
            if selector.cel is None:
                empty = "CEL expression empty (unsupported selector type?)"
                raise _Unprepared(f"claim {{claim}}, request {label}, selector #{index}: {empty}")
        found = class_of(wire.device_class_name)
        if found is None:
            raise _Unprepared(
                f"claim {{claim}}, request {label}: could not retrieve device class {wire.device_class_name}: "
                f'deviceclass.resource.k8s.io "{wire.device_class_name}" not found'
            )
        if wire.capacity is not None and wire.capacity.requests and not features.consumable_capacity:
            kind = "request" if sub < 0 else "subrequest"
            off = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
            raise _Unprepared(f"claim {{claim}}, {kind} {label}: {off}")
        if wire.allocation_mode not in ("", "ExactCount", "All"):
            raise _Unprepared(f"claim {{claim}}, request {label}: unsupported count mode {wire.allocation_mode}")
        made = Alternative(
            number=len(self.alternatives),
            request=request,
            claim=claim,
            name=name,
            label=label,
            sub=sub,
            device_class=found,
            selectors=(
                *_selectors(found.spec.selectors, f"class {found.metadata.name}"),
                *_selectors(wire.selectors, "claim {claim}"),
            ),
            wanted=0 if wire.allocation_mode == "All" else max(wire.count, 1),
            admin=isinstance(wire, ExactDeviceRequest) and bool(wire.admin_access),
            tolerations=wire.tolerations,
            capacity=wire.capacity.requests if wire.capacity is not None else {},
        )
        self.alternatives.append(made)
        if made.everything:
            self.checks.append(Check(alternative=made))
        return made


class _Unprepared(Exception):
    """No node can serve the claims, whatever it has."""


class Demand:
    """The unallocated claims of a pod. `names` are "namespace/name"; `claims` the objects, for their configuration."""

    __slots__ = ("claims", "names", "prepared")

    def __init__(self, claims: Sequence[ResourceClaim], prepared: Prepared) -> None:
        self.claims = tuple(claims)
        self.names = tuple(f"{each.metadata.namespace}/{each.metadata.name}" for each in claims)
        self.prepared = prepared

    def text(self, template: str, claim: int) -> str:
        """An error of a claim in words."""
        return template.replace("{claim}", self.names[claim])


def _selectors(wire: tuple[DeviceSelector, ...], owner: str) -> tuple[Selector, ...]:
    return tuple(
        Selector(each.cel.expression if each.cel is not None else "", f"{owner}: selector #{index}")
        for index, each in enumerate(wire)
    )


def _constraint(index: int, wire: DeviceConstraint, requests: Sequence[Request]) -> Constraint:
    if wire.match_attribute is None and wire.distinct_attribute is None:
        unknown = "empty constraint (unsupported constraint type?)"
        raise _Unprepared(f"claim {{claim}}, constraint #{index}: {unknown}")
    attribute = wire.match_attribute if wire.match_attribute is not None else wire.distinct_attribute or ""
    domain, _, name = attribute.rpartition("/")
    listed = frozenset(wire.requests)
    alternatives = frozenset(
        each.number
        for request in requests
        for each in request.alternatives
        if not listed or request.name in listed or each.name in listed
    )
    return Constraint(domain, name, wire.match_attribute is None, alternatives)

"""Resource names as small integers, and what a pod requests of each.

Sums are exact (nano-units) and rounded up once at the end, per pod, as upstream's `Resource.Add` does.
Source: component-helpers `resource/helpers.go`; default-plugins spec 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from weakref import WeakValueDictionary

from msgspec.structs import replace

from koordsched.api.core import Container, ContainerStatus, PodSpec, PodStatus, Quantities
from koordsched.api.quantity import LIMIT, NANO, QuantityError, nano_value

CPU, MEMORY, EPHEMERAL_STORAGE = 0, 1, 2
FIRST_SCALAR = 3
"""Indices below are the resources every node has; from here on extended ones, hugepages and the like."""

DEFAULT_MILLI_CPU = 100
DEFAULT_MEMORY = 200 << 20
"""What a container without a request counts in scoring (100m and 200 MiB)."""

_NANO_PER_MILLI = NANO // 1000


class ResourceName:
    """The index of a resource name, which is the name's for as long as this object is referenced."""

    __slots__ = ("__weakref__", "_given_up", "index")

    def __init__(self, index: int, given_up: list[int]) -> None:
        self.index = index
        self._given_up = given_up

    def __del__(self) -> None:
        self._given_up.append(self.index)  # nothing else: this may run anywhere, even in a garbage collection


class ResourceNames:
    """Resource names as small integers; cpu, memory and ephemeral-storage have fixed indices.

    Users may ask for resources of any name. So an index is given back when its name is not referenced any more,
    neither by a node that offers the resource nor by a pod that requests it. `names[index]` is the name, `index` the
    opposite.
    """

    __slots__ = ("_free", "_given_up", "_held", "_kept", "_renamed", "index", "names")

    def __init__(self) -> None:
        self._renamed: dict[str, str] = {}
        self.names: list[str] = []
        self.index: dict[str, int] = {}
        self._held: WeakValueDictionary[str, ResourceName] = WeakValueDictionary()
        self._kept: dict[str, ResourceName] = {}
        self._given_up: list[int] = []
        self._free: list[int] = []
        for name in ("cpu", "memory", "ephemeral-storage"):
            self.intern(name)

    def rename(self, names: Mapping[str, str]) -> None:
        """From now on, old names of resources in pods and nodes are replaced by new ones (old -> new)."""
        self._renamed.update(names)

    def read(self, quantities: Quantities) -> Quantities:
        """The same under new names; an old name stays where the new one is there, too."""
        if self._renamed.keys().isdisjoint(quantities):
            return quantities
        renamed = {old: new for old, new in self._renamed.items() if old in quantities and new not in quantities}
        return {renamed.get(name, name): quantity for name, quantity in quantities.items()}

    def read_spec(self, spec: PodSpec) -> PodSpec:
        """The same with what containers and overhead request, and their limits, under new names."""
        if not self._renamed or not self._has_old_names(spec):
            return spec
        return replace(
            spec,
            containers=tuple(map(self._read_container, spec.containers)),
            init_containers=tuple(map(self._read_container, spec.init_containers)),
            overhead=self.read(spec.overhead),
        )

    def _has_old_names(self, spec: PodSpec) -> bool:
        old = self._renamed.keys()
        for container in (*spec.containers, *spec.init_containers):
            given = container.resources
            if given is not None and not (old.isdisjoint(given.requests) and old.isdisjoint(given.limits)):
                return True
        return not old.isdisjoint(spec.overhead)

    def _read_container(self, container: Container) -> Container:
        given = container.resources
        if given is None:
            return container
        requests, limits = self.read(given.requests), self.read(given.limits)
        return replace(container, resources=replace(given, requests=requests, limits=limits))

    def intern(self, name: str) -> int:
        """The index of a name, which it has from now on for good: for names of the configuration."""
        return self._kept.setdefault(name, self.hold(name)).index

    def hold(self, name: str) -> ResourceName:
        """The name with its index, which is assigned when it is first seen."""
        found = self._held.get(name)
        if found is None:
            self._take_back()
            if self._free:
                index = self._free.pop()
                self.names[index] = name
            else:
                index = len(self.names)
                self.names.append(name)
            self.index[name] = index
            found = self._held[name] = ResourceName(index, self._given_up)
        return found

    def _take_back(self) -> None:
        while self._given_up:
            index = self._given_up.pop()
            if self.index.get(self.names[index]) == index:
                del self.index[self.names[index]]
            self.names[index] = ""
            self._free.append(index)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(slots=True, eq=False)
class Requests:
    """What a pod counts against a node.

    `amounts`: (resource index, amount) for every resource with a non-zero request; milli-CPU for cpu,
    whole units for the rest. `nonzero`: (milli-CPU, bytes) with defaults for containers that request
    nothing, as accounted on the node for scoring. `names`: what keeps the indices of extended resources.
    """

    amounts: tuple[tuple[int, int], ...]
    nonzero: tuple[int, int]
    names: tuple[ResourceName, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requests) and (self.amounts, self.nonzero) == (other.amounts, other.nonzero)

    def __hash__(self) -> int:
        return hash((self.amounts, self.nonzero))

    def __repr__(self) -> str:
        return f"Requests({self.amounts}, nonzero={self.nonzero})"

    def get(self, resource: int) -> int:
        """The amount requested of a resource index, 0 if none."""
        for index, amount in self.amounts:
            if index == resource:
                return amount
        return 0


def _round_up(name: str, nano: int) -> int:
    unit = _NANO_PER_MILLI if name == "cpu" else NANO
    return max(-LIMIT, min(LIMIT, -(-nano // unit)))


Nano = dict[str, int]
NOTHING: Mapping[str, int] = MappingProxyType({})


def _nano(quantities: Quantities) -> Nano:
    return {name: nano_value(quantity) for name, quantity in quantities.items()}


def _add(total: Nano, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Nano, floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        if name not in total or amount > total[name]:
            total[name] = amount


_MISSING: Nano = {"cpu": DEFAULT_MILLI_CPU * _NANO_PER_MILLI, "memory": DEFAULT_MEMORY * NANO}


def _container_request(container: Container, status: ContainerStatus | None, infeasible: bool) -> Nano:
    asked = _nano(container.resources.requests) if container.resources is not None else {}
    return _resized(asked, status, infeasible)


def _resized(asked: Nano, status: ContainerStatus | PodStatus | None, infeasible: bool) -> Nano:
    """In-place resize: the larger of what is asked, in force and allocated; without the ask if infeasible."""
    if status is None or status.resources is None:
        return asked
    result: Nano = {} if infeasible else asked
    _raise_to(result, _nano(status.resources.requests))
    _raise_to(result, _nano(status.allocated_resources))
    return result


def _effective(containers: Iterable[tuple[Container, Nano]], init: Iterable[tuple[Container, Nano]]) -> Nano:
    """The most the pod needs at any time: its long-running containers, or an init container's moment."""
    total: Nano = {}
    for _, request in containers:
        _add(total, request)
    sidecars: Nano = {}
    peaks: Nano = {}
    for container, request in init:
        if container.restart_policy == "Always":
            _add(total, request)
            _add(sidecars, request)
        else:
            moment = dict(request)
            _add(moment, sidecars)
            _raise_to(peaks, moment)
    _raise_to(total, peaks)
    return total


def _defaulted(
    containers: Iterable[tuple[Container, Nano]], init: Iterable[tuple[Container, Nano]], missing: Nano
) -> Nano:
    """The same with `missing` for containers that do not say what they request."""
    return _effective(
        [(c, {**missing, **request}) for c, request in containers],
        [(c, {**missing, **request}) for c, request in init],
    )


def _pod_level(spec: PodSpec, status: PodStatus | None = None, infeasible: bool = False) -> Nano:
    """What the pod requests as a whole, of the resources for which it says so."""
    if spec.resources is None:
        return {}
    asked = _nano(spec.resources.requests)
    named = [name for name in asked if name in ("cpu", "memory") or name.startswith("hugepages-")]
    found = _resized(asked, status, infeasible)
    return {name: found.get(name, 0) for name in named}


def effective_requests(spec: PodSpec, *, overhead: bool = True) -> Nano:
    """What a pod requests by its spec alone, exactly, in nano-units: for books kept in requests, like quotas.

    Raises QuantityError if a quantity cannot be parsed.
    """
    total = _effective(
        [(c, _container_request(c, None, infeasible=False)) for c in spec.containers],
        [(c, _container_request(c, None, infeasible=False)) for c in spec.init_containers],
    )
    total.update(_pod_level(spec))
    if overhead:
        _add(total, _nano(spec.overhead))
    return total


def limits_of(spec: PodSpec) -> Nano:
    """A pod's limits in nano-units: the sum over its containers or the largest moment of its init containers, pod-level
    limits in their place where given, overhead added to what is limited at all. Raises QuantityError.

    Source: component-helpers `resource/helpers.go`, PodLimits.
    """
    total = _effective(
        [(container, _container_limits(container)) for container in spec.containers],
        [(container, _container_limits(container)) for container in spec.init_containers],
    )
    for name, amount in (_nano(spec.resources.limits) if spec.resources is not None else {}).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = amount
    for name, amount in _nano(spec.overhead).items():
        if total.get(name):
            total[name] += amount
    return total


def _container_limits(container: Container) -> Nano:
    return _nano(container.resources.limits) if container.resources is not None else {}


def exceeded_by_parts(spec: PodSpec, claimed: Mapping[str, int]) -> str:
    """The first resource of which containers and claims to devices (`claimed`, nano-units) need more than the pod
    requests as a whole; "" if there is none. Raises QuantityError.
    """
    whole = _pod_level(spec)
    if not whole:
        return ""
    parts = _effective(
        [(container, _container_request(container, None, infeasible=False)) for container in spec.containers],
        [(container, _container_request(container, None, infeasible=False)) for container in spec.init_containers],
    )
    _add(parts, claimed)
    return next((name for name in sorted(whole) if parts.get(name, 0) > whole[name]), "")


@dataclass(slots=True, eq=False)
class PodDemand:
    """All readings of one pod's requests (see `demand_of`).

    `requests`: what it counts against a node. `scored`: the amounts that NodeResourcesFit scores an
    incoming pod with, by resource index: container defaults applied and pod-level resources ignored, as
    upstream does (default-plugins spec 3.6, quirk). Their indices are kept by `requests`.
    """

    requests: Requests
    scored: dict[int, int]


def demand_of(
    spec: PodSpec, status: PodStatus | None, names: ResourceNames, claimed: Mapping[str, int] = NOTHING
) -> PodDemand:
    """Computes a pod's requests from its spec and, for a running pod, the resizes in its status.

    `claimed`: what its claims to devices take of the node besides (nano-units); what the pod requests as a whole
    includes it.

    Raises QuantityError if a quantity cannot be parsed.
    """
    by_name: dict[str, ContainerStatus] = {}
    init_by_name: dict[str, ContainerStatus] = {}
    infeasible = False
    if status is not None:
        by_name = {s.name: s for s in status.container_statuses}
        init_by_name = {s.name: s for s in status.init_container_statuses}
        resize = status.condition("PodResizePending")
        infeasible = resize is not None and resize.reason == "Infeasible"
    containers = [(c, _container_request(c, by_name.get(c.name), infeasible)) for c in spec.containers]
    init = [
        (c, _container_request(c, init_by_name.get(c.name) if c.restart_policy == "Always" else None, infeasible))
        for c in spec.init_containers
    ]
    overhead = _nano(spec.overhead)
    pod_level = _pod_level(spec, status, infeasible)

    plain = _effective(containers, init)
    _add(plain, claimed)
    plain.update(pod_level)
    _add(plain, overhead)

    scored = _defaulted(containers, init, _MISSING)
    nonzero = dict(scored)
    _add(nonzero, claimed)
    if pod_level:
        # A pod that says what it requests as a whole gets defaults only for what it does not request at all.
        missing = {name: amount for name, amount in _MISSING.items() if name not in plain}
        nonzero = _defaulted(containers, init, missing)
        _add(nonzero, claimed)
        nonzero.update(pod_level)
    _add(scored, overhead)
    _add(nonzero, overhead)

    held = {name: names.hold(name) for name in (plain | scored) if name != "pods"}
    amounts = tuple(
        sorted(
            (held[name].index, rounded)
            for name, nano in plain.items()
            if name != "pods" and (rounded := _round_up(name, nano)) > 0
        )
    )
    return PodDemand(
        Requests(
            amounts,
            (_round_up("cpu", nonzero.get("cpu", 0)), _round_up("memory", nonzero.get("memory", 0))),
            tuple(name for name in held.values() if name.index >= FIRST_SCALAR),
        ),
        {held[name].index: _round_up(name, nano) for name, nano in scored.items() if name != "pods"},
    )


def allocatable_of(quantities: Quantities, names: ResourceNames) -> tuple[dict[int, int], int, list[str]]:
    """A node's allocatable by resource index, its pod slots, and what could not be read.

    Names without an index are left out: no pod requests them. An invalid quantity counts as zero (nothing is placed on
    amounts that we do not understand) and is reported.
    """
    amounts: dict[int, int] = {}
    slots = 0
    problems: list[str] = []
    for name, quantity in names.read(quantities).items():
        try:
            amount = max(0, _round_up(name, nano_value(quantity)))
        except QuantityError as error:
            problems.append(f"allocatable {name[:64]}: {error}")
            amount = 0
        if name == "pods":
            slots = amount
        elif (index := names.index.get(name)) is not None:
            amounts[index] = amount
    return amounts, slots, problems

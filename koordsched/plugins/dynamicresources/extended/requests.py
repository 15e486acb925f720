"""What the special claim of a pod requests on a node, and which containers use which request (dra spec 3.10).

Pure functions of the containers and of which resources DRA serves on the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from koordsched.api.core import Container, ContainerExtendedResourceRequest, PodSpec
from koordsched.api.quantity import NANO, nano_value
from koordsched.api.resource import DeviceRequest, ExactDeviceRequest

EXACT_COUNT = "ExactCount"

Served = tuple[tuple[str, str], ...]
"""(resource, name of its class) of the resources that a node gets through DRA, in the order of resources."""

_KEPT = 64
"""Sets of served resources for which the answer is kept: nodes of a cluster are equipped in few ways."""


@dataclass(frozen=True, slots=True)
class SpecialRequests:
    """`requests` of the special claim, in order of their names, and the `mappings` for the status of the pod.

    Without requests there is nothing to claim: no special claim may be allocated or created (defect B6).
    """

    requests: tuple[DeviceRequest, ...] = ()
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requests)


NOTHING = SpecialRequests()


class ContainerRequests:
    """What the containers of a pod request of resources that classes may stand for; replicas share one.

    Init containers have the first positions, then the others follow. Those that run as long as the pod does are
    *lasting*: regular containers, and init containers that are restarted always.
    """

    __slots__ = ("_containers", "_kept", "_lasting")

    def __init__(self, spec: PodSpec) -> None:
        self._containers = (*spec.init_containers, *spec.containers)
        plain_init = (container.restart_policy != "Always" for container in spec.init_containers)
        self._lasting = (*(not plain for plain in plain_init), *(True for _ in spec.containers))
        self._kept: dict[Served, SpecialRequests] = {}

    def on(self, served: Served) -> SpecialRequests:
        """What has to be claimed on a node where these resources are served by DRA."""
        if not served:
            return NOTHING
        found = self._kept.get(served)
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            found = self._kept[served] = self._made(served)
        return found

    def _made(self, served: Served) -> SpecialRequests:
        requests: list[DeviceRequest] = []
        mappings: list[ContainerExtendedResourceRequest] = []
        for resource, device_class in served:
            wanted = list(self._wanted(resource))
            claimed, used_by = _shared_by_containers(wanted)
            requests += (_request(name, device_class, count) for name, count in claimed)
            mappings += (
                ContainerExtendedResourceRequest(container_name=container, resource_name=resource, request_name=name)
                for container, name in used_by
            )
        return SpecialRequests(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))

    def _wanted(self, resource: str) -> Iterator[_Wanted]:
        for position, (container, lasting) in enumerate(zip(self._containers, self._lasting, strict=True)):
            count = _count(container, resource)
            if count > 0:
                name = f"container-{position}-request-{_index(container, resource)}"
                yield _Wanted(container.name, lasting, name, count)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Devices that a container needs. `request`: the name of a request of its own, if it has one."""

    container: str
    lasting: bool
    request: str
    count: int


_Claimed = list[tuple[str, int]]
"""(name of the request, devices)."""

_UsedBy = list[tuple[str, str]]
"""(container, name of a request that it uses)."""


def _shared_by_containers(wanted: Sequence[_Wanted]) -> tuple[_Claimed, _UsedBy]:
    """The requests for one resource, and the containers that use them, lasting containers first.

    A plain init container is done before later ones start, so it uses their devices. What it needs beyond these are
    devices for it alone, and all plain init containers use the same ones: those of the first that needs the most.
    """
    lasting = [(at, need) for at, need in enumerate(wanted) if need.lasting]
    claimed = [(need.request, need.count) for _, need in lasting]
    used_by = [(need.container, need.request) for _, need in lasting]
    rests: dict[str, int] = {}
    init_uses: _UsedBy = []
    for at, need in enumerate(wanted):
        if need.lasting:
            continue
        missing = need.count
        for later, other in lasting:
            if missing <= 0:
                break
            if later > at:
                missing -= other.count
                init_uses.append((need.container, other.request))
        if missing > 0:
            rests[need.request] = missing
            init_uses.append((need.container, need.request))
    if rests:
        largest = max(rests, key=rests.__getitem__)
        claimed.append((largest, rests[largest]))
        init_uses = [(container, largest if name in rests else name) for container, name in init_uses]
    return claimed, used_by + init_uses


def _request(name: str, device_class: str, count: int) -> DeviceRequest:
    exactly = ExactDeviceRequest(device_class_name=device_class, allocation_mode=EXACT_COUNT, count=count)
    return DeviceRequest(name=name, exactly=exactly)


def _count(container: Container, resource: str) -> int:
    """Whole devices; the API server admits no parts of one."""
    quantity = container.resources.requests.get(resource) if container.resources is not None else None
    if quantity is None:
        return 0
    whole, part = divmod(nano_value(quantity), NANO)
    return 0 if part else whole


def _index(container: Container, resource: str) -> int:
    """The position of the resource among all that the container requests, by name."""
    assert container.resources is not None, "it requests the resource"
    return sorted(container.resources.requests).index(resource)

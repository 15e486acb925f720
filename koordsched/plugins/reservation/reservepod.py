"""The reserve pod: what is scheduled in place of a Reservation, made of its template (reservation spec 3.1).

It exists in memory only. The API server does not look into templates, so everything in them is checked here that the
API server checks of pods and that decisions rely on.

Source: koordinator `pkg/util/reservation/reservation.go`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from koordsched.api.core import Container, Pod, PodSpec, PodStatus, Quantities, ResourceRequirements
from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import ObjectMeta, Wire
from koordsched.api.quantity import NANO, format_bytes, format_nano, nano_value
from koordsched.api.selectors import parse_integer
from koordsched.cluster.kept import kept
from koordsched.cluster.resources import effective_requests
from koordsched.plugins.reservation.kinds import (
    AVAILABLE,
    IS_PRE_ALLOCATION,
    PRIORITY,
    RESERVATION_NAME,
    RESERVATION_NODE,
    RESERVE_POD,
    Reservation,
)
from koordsched.plugins.reservation.malformed import MalformedReservation, check_quantities

HIGHEST_PRIORITY = (1 << 31) - 1
"""The priority of a Reservation that states none: it waits for no pod, and none is preempted for lack of it."""
DEFAULT_NAMESPACE = "default"
DEFAULT_SCHEDULER = "default-scheduler"
FAKE_CONTAINER = "__internal_fake_container__"
"""The container that has what was allocated, if that is not what the template requests."""

_TEMPLATE = "spec.template"

_TEMPLATES_BUDGET = 32 << 20
"""Bytes of templates that are known."""


class _Template(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


_decode_template = Decoder(_Template)


def validate(reservation: Reservation | None) -> str | None:
    """What a Reservation lacks so that it can be scheduled at all."""
    if reservation is None:
        return "the reservation is nil"
    spec = reservation.spec
    if spec.template is None:
        return "the reservation misses the template spec"
    if spec.owners is None or spec.owners == []:
        return "the reservation misses the owner spec"
    if spec.ttl is None and spec.expires is None:
        return "the reservation misses the expiration spec"
    return None


def reserve_pod(reservation: Reservation) -> Pod:
    """The pod that is scheduled in place of a Reservation, or stands for it on its node.

    Raises MalformedReservation.
    """
    template = _template_of(reservation)
    meta, spec = reservation.metadata, template.spec
    annotations = {
        **template.metadata.annotations,
        **meta.annotations,
        RESERVE_POD: "true",
        RESERVATION_NAME: meta.name,
    }
    if reservation.spec.pre_allocation:
        annotations[IS_PRE_ALLOCATION] = "true"
    if spec.node_name:
        annotations[RESERVATION_NODE] = spec.node_name
    spec = replace(
        spec,
        node_name=reservation.status.node_name,
        priority=_priority(reservation, spec),
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
    )
    return Pod(
        metadata=ObjectMeta(
            name=meta.uid,
            namespace=template.metadata.namespace or DEFAULT_NAMESPACE,
            uid=meta.uid,
            resource_version=meta.resource_version,
            generation=meta.generation,
            labels={**template.metadata.labels, **meta.labels},
            annotations=annotations,
            owner_references=template.metadata.owner_references,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
        ),
        spec=_with_allocatable(spec, reservation) if _is_available(reservation) else spec,
        status=PodStatus(phase=reservation.status.phase if reservation.terminated else ""),
    )


def scheduler_of(reservation: Reservation) -> str:
    """The name of the profile that is to schedule it. Raises MalformedReservation."""
    return _template_of(reservation).spec.scheduler_name or DEFAULT_SCHEDULER


def requests_of(reservation: Reservation) -> Quantities:
    """What a Reservation has once it is available, or wants: the requests of its template, as canonical quantities.

    Raises MalformedReservation.
    """
    if _is_available(reservation):
        check_quantities(reservation.status.allocatable, "status.allocatable")
        return reservation.status.allocatable
    return _requests(_template_of(reservation).spec)


def _is_available(reservation: Reservation) -> bool:
    return bool(reservation.status.node_name) and reservation.status.phase == AVAILABLE


def _template_of(reservation: Reservation) -> _Template:
    raw = reservation.spec.template
    try:
        return _read_template(msgspec.json.encode({} if raw is None else raw))
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise MalformedReservation(f"{_TEMPLATE}: {error}") from None


@kept(_TEMPLATES_BUDGET)
def _read_template(text: bytes) -> _Template:
    """Read and checked once: many Reservations have the same. Raises MalformedReservation."""
    try:
        template = _decode_template(text)
    except DecodeError as error:
        raise MalformedReservation(f"{_TEMPLATE}: {error}") from None
    for path, quantities in _all_quantities(template.spec, f"{_TEMPLATE}.spec"):
        check_quantities(quantities, path)
    return template


def _all_quantities(spec: PodSpec, path: str) -> Iterator[tuple[str, Quantities]]:
    """With the path of each, what is requested first."""
    yield from _of_containers(spec.containers, f"{path}.containers")
    yield from _of_containers(spec.init_containers, f"{path}.initContainers")
    if spec.resources is not None:
        yield from _of_resources(spec.resources, f"{path}.resources")
    yield f"{path}.overhead", spec.overhead


def _of_containers(containers: tuple[Container, ...], path: str) -> Iterator[tuple[str, Quantities]]:
    for at, container in enumerate(containers):
        if container.resources is not None:
            yield from _of_resources(container.resources, f"{path}[{at}].resources")


def _of_resources(resources: ResourceRequirements, path: str) -> Iterator[tuple[str, Quantities]]:
    yield f"{path}.requests", resources.requests
    yield f"{path}.limits", resources.limits


def _priority(reservation: Reservation, spec: PodSpec) -> int:
    if spec.priority is not None:
        return spec.priority
    number = parse_integer(reservation.metadata.labels.get(PRIORITY, ""))
    return number if number is not None and -(1 << 31) <= number < 1 << 31 else HIGHEST_PRIORITY


def _requests(spec: PodSpec) -> Quantities:
    """Sums of bytes stay in the format in which the template says them first."""
    binary: dict[str, bool] = {}
    for _, quantities in _all_quantities(spec, ""):
        for name, quantity in quantities.items():
            binary.setdefault(name, isinstance(quantity, str) and quantity.endswith("i"))
    return {
        name: format_bytes(amount // NANO) if binary[name] and amount % NANO == 0 else format_nano(amount)
        for name, amount in effective_requests(spec).items()
    }


def _with_allocatable(spec: PodSpec, reservation: Reservation) -> PodSpec:
    """The spec of a Reservation that has other resources than its template requests: scheduling may add to them."""
    requests, allocatable = _requests(spec), reservation.status.allocatable
    check_quantities(allocatable, "status.allocatable")
    if _amounts(requests) == _amounts(allocatable):
        return spec
    has = {**requests, **allocatable}
    fake = Container(name=FAKE_CONTAINER, resources=ResourceRequirements(requests=has, limits=has))
    return replace(
        spec,
        containers=(*(replace(container, resources=None) for container in spec.containers), fake),
        init_containers=tuple(replace(container, resources=None) for container in spec.init_containers),
        overhead={},
        resources=None,
    )


def _amounts(quantities: Quantities) -> dict[str, int]:
    return {name: nano_value(quantity) for name, quantity in quantities.items()}

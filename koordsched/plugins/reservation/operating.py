"""Pods that act as Reservations of what they request: operating mode (reservation spec 2.2, 3.2).

Such a pod is read as a Reservation that one owner may use, of policy Aligned, which is available while the pod is
running and ready. An annotation may name its owner, which then uses it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from koordsched.api import core
from koordsched.api.core import Quantities
from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import ObjectMeta
from koordsched.api.quantity import NANO, format_amount
from koordsched.cluster.facts import PodFact, PodFacts
from koordsched.cluster.pod import Pod
from koordsched.cluster.resources import CPU, EPHEMERAL_STORAGE, MEMORY
from koordsched.plugins.reservation.kinds import (
    ALIGNED,
    AVAILABLE,
    CURRENT_OWNER,
    OPERATING_MODE,
    PENDING,
    RESERVATION_OWNERS,
    CurrentOwner,
    Reservation,
    ReservationSpec,
    ReservationStatus,
)

_decode_owner = Decoder(CurrentOwner)


class Operating(NamedTuple):
    """What a pod on a node says of the Reservation that it is. Texts are those of its annotations."""

    ready: bool
    owners: str
    current_owner: str


def is_operating(labels: dict[str, str]) -> bool:
    """Whether the labels are those of a pod that acts as a Reservation."""
    return labels.get(OPERATING_MODE) == "Reservation"


def declare(facts: PodFacts) -> PodFact[Operating]:
    """The fact of pods that act as Reservations; others have none."""
    return facts.declare_status_of("reservation-operating-mode", _read, _shown, _annotated)


def _read(pod: core.Pod) -> Operating | None:
    meta = pod.metadata
    if not is_operating(meta.labels):
        return None
    ready = pod.status.condition("Ready")
    return Operating(
        pod.status.phase == "Running" and ready is not None and ready.status == "True",
        meta.annotations.get(RESERVATION_OWNERS, ""),
        meta.annotations.get(CURRENT_OWNER, ""),
    )


def _shown(operating: Operating) -> dict[str, Any]:
    if not operating.ready:
        return {}
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def _annotated(operating: Operating) -> dict[str, str]:
    texts = {RESERVATION_OWNERS: operating.owners, CURRENT_OWNER: operating.current_owner}
    return {key: text for key, text in texts.items() if text}


def reservation_of(pod: Pod, operating: Operating, names: list[str]) -> Reservation:
    """The Reservation that a pod on a node is. `names`: of resources, by index."""
    try:
        owners = msgspec.json.decode(operating.owners) if operating.owners else None
    except ValueError:
        owners = operating.owners  # a text is no list of owners: that is said where owners are read
    held: Quantities = {
        names[index]: format_amount(
            amount * (NANO // 1000 if index == CPU else NANO), binary=index in (MEMORY, EPHEMERAL_STORAGE)
        )
        for index, amount in pod.requests.amounts
    }
    return Reservation(
        ObjectMeta(
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            resource_version=pod.resource_version,
            labels=dict(pod.labels.labels),
            creation_timestamp=pod.created,
            deletion_timestamp="deleting" if pod.deleting else None,
        ),
        ReservationSpec(owners=owners, allocate_once=True, allocate_policy=ALIGNED),
        ReservationStatus(phase=AVAILABLE if operating.ready else PENDING, node_name=pod.node, allocatable=held),
    )


def current_owner(operating: Operating) -> CurrentOwner | None:
    """The owner that an annotation names; None if there is none, or it cannot be read."""
    try:
        found = _decode_owner(operating.current_owner.encode()) if operating.current_owner else None
    except DecodeError:
        return None
    return found if found is not None and found.uid else None

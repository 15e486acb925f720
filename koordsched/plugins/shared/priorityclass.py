"""Koordinator's priority bands and QoS classes of pods.

Source: koordinator `apis/extension/{priority,qos}.go`, `priority_utils.go`; nodenumaresource spec 2.
"""

from __future__ import annotations

from enum import Enum

from koordsched.api.core import PodSpec, Quantities
from koordsched.api.quantity import QuantityError, nano_value
from koordsched.cluster.shape import PodShape

PRIORITY_CLASS = "koordinator.sh/priority-class"
QOS_CLASS = "koordinator.sh/qosClass"
LABELS = (PRIORITY_CLASS, QOS_CLASS)
"""Labels of pods that these functions read: plugins that call them declare them as facts of the shape."""


class PriorityClass(Enum):
    """A band of priorities, by its name in labels."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""


_BY_NAME = {band.value: band for band in PriorityClass}
_BANDS = (
    (9000, 9999, PriorityClass.PROD),
    (7000, 7999, PriorityClass.MID),
    (5000, 5999, PriorityClass.BATCH),
    (3000, 3999, PriorityClass.FREE),
)
_OF_QOS = {
    "LSE": PriorityClass.PROD,
    "LSR": PriorityClass.PROD,
    "LS": PriorityClass.PROD,
    "SYSTEM": PriorityClass.PROD,
    "BE": PriorityClass.BATCH,
}
_OF_KUBERNETES = {"Guaranteed": "LSR", "Burstable": "LS", "BestEffort": "BE"}


def priority_class(shape: PodShape) -> PriorityClass:
    """The band that the label names, else the one of spec.priority; if that is none, the one that goes with the QoS."""
    band = PriorityClass.NONE
    label = shape.meta.labels.get(PRIORITY_CLASS)
    if label is not None:
        band = _BY_NAME.get(label, PriorityClass.NONE)
    elif shape.spec.priority is not None:
        priority = shape.spec.priority
        band = next((band for low, high, band in _BANDS if low <= priority <= high), PriorityClass.NONE)
    return band if band is not PriorityClass.NONE else _OF_QOS[qos_class(shape)]


def qos_class(shape: PodShape) -> str:
    """`LSE`, `LSR`, `LS`, `BE` or `SYSTEM`: what the label names, else what Kubernetes' own class stands for."""
    label = shape.meta.labels.get(QOS_CLASS, "")
    return label if label in _OF_QOS else _OF_KUBERNETES[kubernetes_qos(shape.spec)]


def kubernetes_qos(spec: PodSpec) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`, as the API server computes it.

    Source: upstream `pkg/apis/core/v1/helper/qos/qos.go`.
    """
    containers = (*spec.containers, *spec.init_containers)
    if spec.resources is not None:
        claims = [(spec.resources.requests, spec.resources.limits)]
    else:
        claims = [
            (container.resources.requests, container.resources.limits) if container.resources is not None else ({}, {})
            for container in containers
        ]
    asked = [(_compute(requests), _compute(limits)) for requests, limits in claims]
    if not any(requests or limits for requests, limits in asked):
        return "BestEffort"
    guaranteed = all(
        limits.keys() == {"cpu", "memory"} and all(limits.get(name) == amount for name, amount in requests.items())
        for requests, limits in asked
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _compute(quantities: Quantities) -> dict[str, int]:
    found = {}
    for name in ("cpu", "memory"):
        try:
            amount = nano_value(quantities.get(name, 0))
        except QuantityError:
            continue
        if amount > 0:
            found[name] = amount
    return found

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


def priority_class(shape: PodShape) -> PriorityClass:
    """The band that the label names, else the one of spec.priority; if that is none, the one that goes with the QoS."""
    band = PriorityClass.NONE
    label = shape.meta.labels.get(PRIORITY_CLASS)
    if label is not None:
        band = _BY_NAME.get(label, PriorityClass.NONE)
    elif shape.spec.priority is not None:
        priority = shape.spec.priority
        band = next((band for low, high, band in _BANDS if low <= priority <= high), PriorityClass.NONE)
    return band if band is not PriorityClass.NONE else _of_qos(shape)


def _of_qos(shape: PodShape) -> PriorityClass:
    """The band that goes with the QoS that the label names, else with Kubernetes' own class: BATCH with BestEffort."""
    band = _OF_QOS.get(shape.meta.labels.get(QOS_CLASS, ""))
    if band is not None:
        return band
    return PriorityClass.BATCH if _is_best_effort(shape.spec) else PriorityClass.PROD


def _is_best_effort(spec: PodSpec) -> bool:
    """Whether the pod neither requests nor limits CPU or memory.

    Source: upstream `pkg/apis/core/v1/helper/qos/qos.go`.
    """
    asking = (spec,) if spec.resources is not None else (*spec.containers, *spec.init_containers)
    return not any(
        _asks(each.resources.requests) or _asks(each.resources.limits) for each in asking if each.resources is not None
    )


def _asks(quantities: Quantities) -> bool:
    for name in ("cpu", "memory"):
        try:
            if nano_value(quantities.get(name, 0)) > 0:
                return True
        except QuantityError:
            continue
    return False

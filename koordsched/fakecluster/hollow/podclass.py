"""Priority and QoS class of a pod in Koordinator's terms (loadaware spec 2.2)."""

from __future__ import annotations

from typing import Any

from koordsched.fakecluster.admission.pods import qos_class as kubernetes_qos_class

_CLASS_LABEL, _QOS_LABEL = "koordinator.sh/priority-class", "koordinator.sh/qosClass"
_RANGES = (
    (9000, 9999, "koord-prod"),
    (7000, 7999, "koord-mid"),
    (5000, 5999, "koord-batch"),
    (3000, 3999, "koord-free"),
)
_CLASSES = frozenset(name for _, _, name in _RANGES)
_QOS = {"Guaranteed": "LSR", "Burstable": "LS", "BestEffort": "BE"}
_QOS_CLASSES = frozenset(("LSE", "LSR", "LS", "BE", "SYSTEM"))


def qos_class(pod: dict[str, Any]) -> str:
    """LSE, LSR, LS, BE or SYSTEM: by label, else by the QoS class of Kubernetes."""
    stated = (pod["metadata"].get("labels") or {}).get(_QOS_LABEL, "")
    if stated in _QOS_CLASSES:
        return str(stated)
    return _QOS[(pod.get("status") or {}).get("qosClass") or kubernetes_qos_class(pod["spec"])]


def priority_class(pod: dict[str, Any]) -> str:
    """koord-prod, koord-mid, koord-batch or koord-free: by label, else by priority, else by QoS class."""
    labels = pod["metadata"].get("labels") or {}
    stated = labels.get(_CLASS_LABEL)
    if stated in _CLASSES:
        return str(stated)
    if stated is None:
        priority = pod["spec"].get("priority") or 0
        for least, most, name in _RANGES:
            if least <= priority <= most:
                return name
    return "koord-batch" if qos_class(pod) == "BE" else "koord-prod"

"""pods/binding: the assignment of a pod to a node (upstream: registry/core/pod/storage, BindingREST)."""

from __future__ import annotations

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.preencoded import Preencoded
from koordsched.fakecluster.store import Object, Record


def bound_pod(
    record: Record,
    uid: str | None,
    node: str,
    annotations: dict[str, str] | None,
    labels: dict[str, str] | None,
    now: float,
    *,
    clear_nomination: bool,
) -> Object:
    """The pod as the binding leaves it, sharing what stays with the present version. 409 when it may not be bound."""
    old, name = record.obj(), record.name
    meta = dict(old["metadata"])
    spec = old["spec"]
    problem = ""
    if uid and uid != record.uid:
        problem = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
    elif record.deleting:
        problem = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        problem = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        problem = f"pod {name} has non-empty .spec.schedulingGates"
    if problem:
        text = f'Operation cannot be fulfilled on pods/binding "{name}": {problem}'
        raise ApiStatusError(409, "Conflict", text, {"name": name, "kind": "pods/binding"})
    if annotations:
        meta["annotations"] = {**(meta.get("annotations") or {}), **annotations}
    if labels:
        meta["labels"] = {**(meta.get("labels") or {}), **labels}
    status = dict(old.get("status") or {})
    if clear_nomination:
        status.pop("nominatedNodeName", None)
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "observedGeneration": meta.get("generation", 1),
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(now),
    }
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    status["conditions"] = [*conditions, scheduled]
    placed = spec.having("nodeName", node) if isinstance(spec, Preencoded) else {**spec, "nodeName": node}
    return {**old, "metadata": meta, "spec": placed, "status": status}

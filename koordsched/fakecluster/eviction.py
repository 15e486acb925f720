"""pods/eviction: a delete that PodDisruptionBudgets may refuse (upstream: registry/core/pod/storage/eviction.go)."""

from __future__ import annotations

from koordsched.api.selectors import SelectorError
from koordsched.fakecluster import errors
from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.deleteoptions import DeleteOptions
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import Object, Resource
from koordsched.fakecluster.selectors import label_test
from koordsched.fakecluster.store import Record

DISRUPTED_LIMIT = 2000
"""Evicted pods that a budget may still wait for."""


def evict(registry: Registry, namespace: str, name: str, options: DeleteOptions) -> None:
    """Delete a pod if its budgets allow. 429 when one does not (now), 500 when more than one covers it."""
    pods = registry.pods
    record = registry.record(pods, namespace, name)
    pod = record.obj()
    status = pod.get("status") or {}
    exempt = status.get("phase") in ("Succeeded", "Failed", "Pending") or record.deleting
    if not exempt:
        _spend(registry, record, pod, options.dry_run)
    registry.delete_record(
        pods, namespace, name, options.grace, options.uid, options.rv, options.propagation, options.dry_run
    )


def _spend(registry: Registry, record: Record, pod: Object, dry_run: bool) -> None:
    budgets = registry.resource("policy", "v1", "poddisruptionbudgets")
    covering = [r for r in registry.scan(budgets, record.namespace) if _covers(r.obj(), record)]
    if not covering:
        return
    if len(covering) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiStatusError(500, "InternalError", f"Internal error occurred: {text}")
    budget = covering[0].obj()
    ready = any(
        c.get("type") == "Ready" and c.get("status") == "True"
        for c in (pod.get("status") or {}).get("conditions") or ()
    )
    budget_status = budget.get("status") or {}
    if not ready:
        healthy = int(budget_status.get("currentHealthy") or 0)
        desired = int(budget_status.get("desiredHealthy") or 0)
        always = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if always or (healthy >= desired and desired > 0):
            return
    _disrupt(registry, budgets, covering[0], budget, record.name, dry_run)


def _covers(budget: Object, record: Record) -> bool:
    try:
        test = label_test((budget.get("spec") or {}).get("selector"))
    except SelectorError:
        return False
    return test is not None and test(record.labels)


def _disrupt(
    registry: Registry, budgets: Resource, stored: Record, budget: Object, pod_name: str, dry_run: bool
) -> None:
    """Take one disruption from the budget, or refuse with 429."""
    name = stored.name
    status = dict(budget.get("status") or {})
    generation = int(budget["metadata"].get("generation") or 0)
    if int(status.get("observedGeneration") or 0) < generation:
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {name} is still being processed by the server.",
        }
        raise errors.too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 10, [cause])
    allowed = int(status.get("disruptionsAllowed") or 0)
    disrupted = dict(status.get("disruptedPods") or {})
    if allowed < 0:
        raise errors.forbidden(budgets, name, "pdb disruptions allowed is negative")
    if len(disrupted) > DISRUPTED_LIMIT:
        raise errors.forbidden(
            budgets, name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        )
    if allowed == 0:
        needed = int(status.get("desiredHealthy") or 0)
        healthy = int(status.get("currentHealthy") or 0)
        text = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
        cause = {"reason": "DisruptionBudget", "message": text}
        refusal = errors.too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.", 0, [cause]
        )
        refusal.retry_after = None
        raise refusal
    if dry_run:
        return
    status["disruptionsAllowed"] = allowed - 1
    disrupted[pod_name] = rfc3339(registry.clock.now())
    status["disruptedPods"] = disrupted
    registry.replace_status(budgets, stored.namespace, name, status)

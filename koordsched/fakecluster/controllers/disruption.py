"""PodDisruptionBudget status: how many pods may be evicted at this moment.

Source of the rules: kube-controller-manager `pkg/controller/disruption/disruption.go`.
"""

from __future__ import annotations

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.controllers.conditions import Condition, with_condition
from koordsched.fakecluster.controllers.context import ControllerContext, settle_delay
from koordsched.fakecluster.controllers.ownership import Key, Object, controller_uid, key_of
from koordsched.fakecluster.controllers.percentages import scaled_value
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.selectorindex import LabelIndex, SelectorIndex, parse_selector
from koordsched.fakecluster.controllers.timestamps import seconds_of
from koordsched.fakecluster.controllers.workqueue import WorkQueue

_DISRUPTION_TIMEOUT_SECONDS = 120.0
"""How long an admitted eviction counts as a disruption although its pod has not been deleted."""


class _NoScale(Exception):
    """A pod's controller has no number of replicas that a percentage could refer to."""


class DisruptionController:
    """Keeps the status of every PodDisruptionBudget up to date."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._selectors: SelectorIndex[Key] = SelectorIndex()
        self._members: dict[Key, dict[Key, None]] = {}
        self._labels: dict[str, LabelIndex[Key]] = {}
        self.queue: WorkQueue[Key] = WorkQueue(context.registry, "disruption", self._reconcile)
        context.disruption_budgets.on_change(self._budget_changed)
        context.pods.on_change(self._pod_changed)
        for informer in (context.replica_sets, context.deployments, context.stateful_sets):
            informer.on_change(self._scale_changed)

    def _budget_changed(self, before: Object | None, after: Object | None) -> None:
        known = after or before
        if known is None:
            return
        key = key_of(known)
        if after is None:
            self._selectors.put(key, key[0], None)
            self._members.pop(key, None)
            return
        if before is None or before["spec"].get("selector") != after["spec"].get("selector"):
            selector = parse_selector(after["spec"].get("selector"))
            self._selectors.put(key, key[0], selector)
            self._members[key] = {}
            if selector is not None:
                self._members[key] = dict.fromkeys(self._labels_in(key[0]).matching(key[0], selector))
        self.queue.add(key)

    def _labels_in(self, namespace: str) -> LabelIndex[Key]:
        """The pods of a namespace by label, kept from its first budget on."""
        index = self._labels.get(namespace)
        if index is None:
            index = self._labels[namespace] = LabelIndex()
            for record in self._context.registry.scan(self._context.pod_resource, namespace):
                index.put(record.key, namespace, record.labels)
        return index

    def _pod_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        pod = after or before
        index = self._labels.get(pod.namespace) if pod is not None else None
        if pod is None or index is None:
            return
        if after is None:
            index.discard(pod.key)
        elif before is None or before.labels != after.labels:
            index.put(after.key, after.namespace, after.labels)
        if before is not None and after is not None and before.labels == after.labels:
            if (before.ready, before.deleting, before.owner_uid) == (after.ready, after.deleting, after.owner_uid):
                return
        elif before is not None:
            for key in self._selectors.matching(before.namespace, before.labels):
                self._members[key].pop(before.key, None)
                self.queue.add(key, settle_delay(len(self._members[key])))
        if after is not None:
            for key in self._selectors.matching(after.namespace, after.labels):
                self._members[key][after.key] = None
                self.queue.add(key, settle_delay(len(self._members[key])))

    def _scale_changed(self, before: Object | None, after: Object | None) -> None:
        if not self._members or before is None or after is None:
            return
        if before["spec"].get("replicas") != after["spec"].get("replicas"):
            labels = (after["spec"]["template"].get("metadata") or {}).get("labels") or {}
            for key in self._selectors.matching(after["metadata"]["namespace"], labels):
                self.queue.add(key)

    def _reconcile(self, key: Key) -> int:
        budget = self._context.disruption_budgets.get(key)
        if budget is None:
            return 0
        found = (self._context.pods.get(pod_key) for pod_key in self._members.get(key, ()))
        pods = [pod for pod in found if pod is not None]
        now, old = self._context.now(), budget.get("status") or {}
        disrupted = self._still_disrupted(key, old.get("disruptedPods") or {}, now)
        healthy = sum(pod.ready and not pod.deleting and pod.name not in disrupted for pod in pods)
        generation = budget["metadata"].get("generation", 0)
        condition: Condition = {"type": "DisruptionAllowed", "message": "", "observedGeneration": generation}
        try:
            expected, desired = self._demand(budget["spec"], pods)
        except _NoScale as reason:
            # As upstream, no eviction is allowed while the expected number of pods is unknown.
            expected, desired = old.get("expectedPods", 0), old.get("desiredHealthy", 0)
            allowed = 0
            condition |= {"status": "False", "reason": "SyncFailed", "message": str(reason)}
        else:
            allowed = max(0, healthy - desired) if expected else 0
            condition |= {"status": "True", "reason": "SufficientPods"}
            if not allowed:
                condition |= {"status": "False", "reason": "InsufficientPods"}
        status: Object = {
            "conditions": with_condition(old.get("conditions"), condition, rfc3339(now)),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": generation,
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        if status == old:
            return 0
        return self._context.write_status(self._context.disruption_budgets.resource, budget, status)

    def _still_disrupted(self, key: Key, disrupted: dict[str, str], now: float) -> dict[str, str]:
        """The admitted evictions whose pods are still there, not deleting, and not for too long."""
        kept = {}
        for name, since in disrupted.items():
            pod = self._context.pods.get((key[0], name))
            left = seconds_of(since) + _DISRUPTION_TIMEOUT_SECONDS - now
            if pod is not None and not pod.deleting and left > 0:
                kept[name] = since
                self.queue.add(key, left)
        return kept

    def _demand(self, spec: Object, pods: list[PodRecord]) -> tuple[int, int]:
        """(expected pods, of which must be healthy)"""
        if spec.get("maxUnavailable") is not None:
            expected = self._expected(pods)
            return expected, max(0, expected - scaled_value(spec["maxUnavailable"], expected, round_up=True))
        least = spec.get("minAvailable")
        if isinstance(least, str):
            expected = self._expected(pods)
            return expected, scaled_value(least, expected, round_up=True)
        return len(pods), least if least is not None else 0

    def _expected(self, pods: list[PodRecord]) -> int:
        """The sizes of the workloads that the pods belong to; pods without a controller do not count."""
        sizes: dict[str, int] = {}
        for pod in pods:
            if pod.owner_uid and pod.owner_uid not in sizes:
                uid, size = self._scale(pod)
                sizes[uid] = size
                sizes.setdefault(pod.owner_uid, 0)
        return sum(sizes.values())

    def _scale(self, pod: PodRecord) -> tuple[str, int]:
        """(uid, size) of the workload at the top of the pod's controllers."""
        context, name = self._context, f"{pod.owner_kind} of pod {pod.namespace}/{pod.name}"
        informers = {"ReplicaSet": context.replica_sets, "StatefulSet": context.stateful_sets}
        if pod.owner_kind not in informers:
            raise _NoScale(f"{name} does not implement the scale subresource")
        owner = informers[pod.owner_kind].with_uid(pod.owner_uid)
        if owner is None:
            raise _NoScale(f"{name} does not exist")
        deployment = context.deployments.with_uid(controller_uid(owner) or "")
        top = owner if deployment is None else deployment
        return top["metadata"]["uid"], top["spec"].get("replicas", 1)

"""Pods: what a real server stores when a pod is created, and what it lets be changed."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from koordsched.fakecluster.admission.devices import DeviceAdmission, PodWebhook
from koordsched.fakecluster.admission.limitranges import LimitRangeAdmission
from koordsched.fakecluster.admission.priority import PriorityAdmission
from koordsched.fakecluster.admission.quota import QuotaAdmission
from koordsched.fakecluster.defaults import default_pod_spec, default_requests
from koordsched.fakecluster.errors import ApiStatusError, FieldError
from koordsched.fakecluster.podclaimvalidation import claim_status_errors
from koordsched.fakecluster.podupdate import pod_update_errors
from koordsched.fakecluster.podvalidation import pod_spec_errors
from koordsched.fakecluster.preencoded import Preencoded, preencode
from koordsched.fakecluster.quantities import equal, positive
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.strategy import Strategy

Object = dict[str, Any]

_DEFAULT_TOLERATION_SECONDS = 300
_DEFAULT_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_KNOWN_SPECS = 256
"""Specs of recent pods whose completion is remembered."""


class _Completed(NamedTuple):
    """What admission makes of a spec."""

    spec: Preencoded
    qos: str


class PodStrategy(Strategy):
    """core/v1 Pod.

    A new pod may come with a pre-encoded spec, as the client sent it; what admission makes of it is remembered for the
    next pod that is sent alike. The spec of a stored pod is pre-encoded when it is valid, so that bindings and status
    updates need not encode it again. A pre-encoded spec is already complete.
    """

    counts_generations = True
    returns_deleted = True

    def __init__(self, registry: Registry, quotas: QuotaAdmission, webhooks: Collection[PodWebhook] = ()) -> None:
        self._quotas = quotas
        self._devices = DeviceAdmission(webhooks)
        self._priority = PriorityAdmission(registry)
        self._limits = LimitRangeAdmission(registry)
        self._pods = registry.pods
        self._completed = lru_cache(_KNOWN_SPECS)(self._complete)

    def defaults(self, obj: Object) -> None:
        spec = obj.get("spec")
        if spec.__class__ is Preencoded:
            return
        if spec is None:
            spec = obj["spec"] = {}
        default_pod_spec(spec)
        spec.setdefault("enableServiceLinks", True)
        default_requests(spec)

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        spec, meta = obj["spec"], obj["metadata"]
        completed = None
        if isinstance(spec, Preencoded):
            if _depends_on_spec_alone(spec) and not self._limits.concern(meta["namespace"]):
                completed = self._completed(spec.encoded, self._priority.epoch)
            if completed is None:
                obj["spec"] = orjson.loads(spec.encoded)
                self.defaults(obj)
            else:
                obj["spec"] = completed.spec
        if completed is None:
            self._admit_spec(resource, obj)
        spec = obj["spec"]
        status: Object = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            status["conditions"] = [_gated_condition(meta)]
        status["qosClass"] = qos_class(spec) if completed is None else completed.qos
        # A status in the request comes from a copied manifest.
        obj["status"] = status

    def charge(self, resource: Resource, obj: Object) -> None:
        self._quotas.charge_pod(resource, obj)

    def _admit_spec(self, resource: Resource, obj: Object) -> None:
        spec = obj["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = "default"
        _tolerate_node_failures(spec)
        self._priority.admit(resource, obj)
        self._devices.admit(spec)
        self._limits.admit(resource, obj)
        _merge_label_keys(spec, obj["metadata"].get("labels") or {})

    def _complete(self, encoded: bytes, epoch: int) -> _Completed | None:
        """The spec with defaults, admitted and valid; None when it is refused, in which case the error is about the pod
        itself.

        `epoch` is that of the PriorityClasses, on which the outcome depends.
        """
        pod: Object = {"metadata": {"namespace": ""}, "spec": orjson.loads(encoded)}
        self.defaults(pod)
        try:
            self._admit_spec(self._pods, pod)
        except ApiStatusError:
            return None
        spec = pod["spec"]
        qos = qos_class(spec)
        return None if pod_spec_errors(spec, "spec") else _Completed(preencode(spec), qos)

    def prepare_update(self, registry: Registry, obj: Object, old: Object, subresource: str) -> None:
        if subresource == "status":
            # Only what the kubelet and the scheduler write changes here; what admission decided stays.
            status = obj["status"] = dict(obj.get("status") or {})
            status["qosClass"] = (old.get("status") or {}).get("qosClass") or qos_class(obj["spec"])
            status.setdefault("phase", "Pending")
            return
        spec = obj.get("spec") or {}
        if not subresource:
            self._devices.readmit(spec, old["spec"])
        if old["spec"].get("schedulingGates") and not spec.get("schedulingGates") and subresource != "delete":
            status = dict(old.get("status") or {})
            kept = [c for c in status.get("conditions") or () if c.get("reason") != "SchedulingGated"]
            if kept:
                status["conditions"] = kept
            else:
                status.pop("conditions", None)
            obj["status"] = status

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        if spec.__class__ is Preencoded:
            return []
        wrong = pod_spec_errors(spec, "spec")
        if not wrong:
            obj["spec"] = preencode(spec)
        return wrong

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource == "status":
            return claim_status_errors(obj, old)
        return pod_update_errors(obj, old) if not subresource else []

    def grace_period(self, obj: Object, requested: int | None) -> int:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        if requested is None:
            requested = spec.get("terminationGracePeriodSeconds")
        return max(0, 30 if requested is None else int(requested))


def _tolerate_node_failures(spec: Object) -> None:
    """DefaultTolerationSeconds: five minutes on a node that is not ready or not reachable."""
    tolerations = spec.get("tolerations") or []
    for key in _DEFAULT_TOLERATED:
        covered = any(
            t.get("key") in (key, None, "") and t.get("effect") in ("NoExecute", None, "") for t in tolerations
        )
        if not covered:
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _DEFAULT_TOLERATION_SECONDS,
                }
            )
    spec["tolerations"] = tolerations


def _gated_condition(meta: Object) -> Object:
    return {
        "type": "PodScheduled",
        "observedGeneration": meta.get("generation", 1),
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": None,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _depends_on_spec_alone(spec: Preencoded) -> bool:
    """Whether admission looks at nothing of the pod but its spec: no (mis)matchLabelKeys, which refer to its labels."""
    return b"atchLabelKeys" not in spec.encoded


def _merge_label_keys(spec: Object, labels: dict[str, str]) -> None:
    """matchLabelKeys and mismatchLabelKeys become requirements of the selectors they stand beside, in place."""
    for constraint in spec.get("topologySpreadConstraints") or ():
        _merge_keys(constraint, labels)
    affinity = spec.get("affinity")
    if not affinity:
        return
    for kind in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(kind) or {}
        for term in part.get(_REQUIRED) or ():
            _merge_keys(term, labels)
        for weighted in part.get(_PREFERRED) or ():
            _merge_keys(weighted.get("podAffinityTerm") or {}, labels)


def _merge_keys(term: Object, labels: dict[str, str]) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field) or ():
            if key not in labels:
                continue
            requirement = {"key": key, "operator": operator, "values": [labels[key]]}
            expressions = selector.setdefault("matchExpressions", [])
            if requirement not in expressions:
                expressions.append(requirement)


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort (upstream: pkg/apis/core/v1/helper/qos)."""
    if spec.get("resources"):
        parts = [spec["resources"]]
    else:
        parts = [c.get("resources") or {} for kind in ("containers", "initContainers") for c in spec.get(kind) or ()]
    some, guaranteed = False, True
    for resources in parts:
        requests, limits = resources.get("requests"), resources.get("limits")
        if not requests and not limits:
            guaranteed = False
            continue
        for name in ("cpu", "memory"):
            request, limit = (requests or {}).get(name), (limits or {}).get(name)
            if positive(request) or positive(limit):
                some = True
            if guaranteed and not (positive(limit) and (request is None or equal(request, limit))):
                guaranteed = False
    if not some:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"

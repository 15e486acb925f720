"""On which nodes a DaemonSet's pods belong.

Source of the rules: kube-controller-manager `pkg/controller/daemon` (NodeShouldRunDaemonPod), `daemonset_util.go`
(AddOrUpdateDaemonPodTolerations, ReplaceDaemonSetPodNodeNameNodeAffinity).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordsched.api.selectors import SelectorError, ValueTest, value_test
from koordsched.fakecluster.controllers.nodes import NodeRecord
from koordsched.fakecluster.controllers.ownership import Object
from koordsched.fakecluster.controllers.tolerations import Toleration, untolerated

_ADDED_TOLERATIONS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TOLERATION = ("node.kubernetes.io/network-unavailable", "NoSchedule")

_Term = Callable[[NodeRecord], bool]


def daemon_tolerations(spec: Object) -> list[Toleration]:
    """The template's tolerations and those that every daemon has: it outlives unready and cordoned nodes."""
    added = [*_ADDED_TOLERATIONS, *([_HOST_NETWORK_TOLERATION] if spec.get("hostNetwork") else [])]
    own = list(spec.get("tolerations") or ())
    return own + [
        toleration
        for key, effect in added
        if (toleration := {"key": key, "operator": "Exists", "effect": effect}) not in own
    ]


def pin_to_node(spec: Object, node: str) -> None:
    """Adds the node affinity that lets the scheduler bind the pod to that node alone; changes `spec` in place."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    # Expressions of the template were checked when the node was chosen; field terms are replaced as upstream does.
    pinned = [{**term, "matchFields": [field]} for term in terms]
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": pinned}


class DaemonPlacement:
    """The node demands of one pod template, compiled."""

    def __init__(self, spec: Object) -> None:
        self._node_name = spec.get("nodeName") or ""
        self._selector: dict[str, str] = spec.get("nodeSelector") or {}
        self._tolerations = daemon_tolerations(spec)
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        self._terms: list[_Term] | None = None
        if required is not None:
            self._terms = [_compile_term(term) for term in required.get("nodeSelectorTerms") or ()]

    def should_start(self, node: NodeRecord) -> bool:
        """Whether a pod belongs on the node."""
        return self._fits(node) and untolerated(node.taints, self._tolerations, ("NoSchedule", "NoExecute")) is None

    def may_stay(self, node: NodeRecord) -> bool:
        """Whether a pod that is there may stay: a new NoSchedule taint does not evict it."""
        return self._fits(node) and untolerated(node.taints, self._tolerations, ("NoExecute",)) is None

    def _fits(self, node: NodeRecord) -> bool:
        if self._node_name and self._node_name != node.name:
            return False
        if not self._selector.items() <= node.labels.items():
            return False
        return self._terms is None or any(term(node) for term in self._terms)


def _compile_term(term: Object) -> _Term:
    labels = [_compile_requirement(entry) for entry in term.get("matchExpressions") or ()]
    fields = [_compile_requirement(entry) for entry in term.get("matchFields") or ()]
    if not labels and not fields:
        return lambda node: False  # An empty term matches nothing.

    def matches(node: NodeRecord) -> bool:
        return all(test(node.labels.get(key)) for key, test in labels) and all(
            key == "metadata.name" and test(node.name) for key, test in fields
        )

    return matches


def _compile_requirement(entry: dict[str, Any]) -> tuple[str, ValueTest]:
    try:
        return entry["key"], value_test(entry["operator"], tuple(entry.get("values") or ()))
    except SelectorError:
        # What the API's validation would have refused matches no node.
        return entry["key"], lambda value: False

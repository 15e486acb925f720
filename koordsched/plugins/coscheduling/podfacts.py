"""What the plugin reads of pods beyond their spec, and how it is kept.

A gang and its options do not join the shape: members, and pods of other gangs that are alike, share one, with all that
is cached for it. Of pending pods labels and annotations are at hand. Of pods on nodes the annotations that define a
gang are pod facts: after a restart a gang may have no others. All members share one tuple of them, and other pods have
none.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordsched.api import core
from koordsched.cluster.facts import PodFact
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.plugins.coscheduling.kinds import (
    GANG_NAME,
    GROUPS,
    MATCH_POLICY,
    MATCH_POLICY_ALIAS,
    MIN_AVAILABLE,
    MODE,
    NETWORK_TOPOLOGY_INDEX,
    NETWORK_TOPOLOGY_SELECTOR,
    NETWORK_TOPOLOGY_SPEC,
    TOTAL_NUMBER,
    WAITING_TIME,
    WRITTEN,
)
from koordsched.plugins.coscheduling.options import Membership, membership

KEPT = (
    GANG_NAME,
    MIN_AVAILABLE,
    TOTAL_NUMBER,
    MODE,
    WAITING_TIME,
    GROUPS,
    MATCH_POLICY,
    MATCH_POLICY_ALIAS,
    NETWORK_TOPOLOGY_SPEC,
)
"""The annotations that a pod defines a gang by."""

_NONE: Mapping[str, str] = {}
_RUNNING = "Running"


def _is_member(wire: core.Pod) -> bool:
    meta = wire.metadata
    return membership(meta.namespace, meta.labels, meta.annotations) is not None


def _member_runs(wire: core.Pod) -> bool | None:
    return True if wire.status.phase == _RUNNING and _is_member(wire) else None


def _member_owners(wire: core.Pod) -> tuple[str, ...] | None:
    """None as well for a pod whose only owner is its controller, which every pod keeps."""
    owners = wire.metadata.owner_references
    if not owners or (len(owners) == 1 and owners[0].controller) or not _is_member(wire):
        return None
    return tuple(owner.name for owner in owners)


class GangFacts:
    """Gang annotations of all pods. One per cluster state (`cluster.shared(GangFacts)`)."""

    __slots__ = ("_facts", "_name", "_owners", "_running")

    def __init__(self, cluster: ClusterState) -> None:
        """Declares what is read; it must be made before the first pod is read."""
        # Pods with one selector are pulled together: this changes scores.
        cluster.shape_facts.declare(annotations=[NETWORK_TOPOLOGY_SELECTOR])
        cluster.read_annotations.update((NETWORK_TOPOLOGY_INDEX, *WRITTEN))
        self._facts: tuple[PodFact[str], ...] = tuple(cluster.pod_facts.declare(key, str, str) for key in KEPT)
        self._name = self._facts[0]
        self._running: PodFact[bool] = cluster.pod_facts.declare_status_of(
            "gang-member-runs", _member_runs, lambda runs: {"phase": _RUNNING}
        )

        self._owners: PodFact[tuple[str, ...]] = cluster.pod_facts.declare_status_of(
            "gang-member-owners", _member_owners, lambda owners: {}
        )

    def annotations(self, pod: Pod) -> Mapping[str, str]:
        """The annotations of `KEPT` that a pod has; of a pending pod all annotations."""
        if pod.wire is not None:
            return pod.wire.metadata.annotations
        if not pod.facts:
            return _NONE
        return {fact.annotation: text for fact in self._facts if (text := fact.of(pod)) is not None}

    def runs(self, pod: Pod) -> bool:
        """Whether a member runs."""
        return self._running.of(pod) is True

    def owners(self, pod: Pod) -> tuple[str, ...]:
        """The names of all owners of a member."""
        if pod.wire is not None:
            return tuple(owner.name for owner in pod.wire.metadata.owner_references)
        return self._owners.of(pod) or ((pod.owner.name,) if pod.owner is not None else ())

    def membership(self, pod: Pod) -> Membership | None:
        """The gang of a pod; None for most pods."""
        if pod.wire is not None:
            annotations: Mapping[str, str] = pod.wire.metadata.annotations
        else:
            name = self._name.of(pod)
            annotations = {GANG_NAME: name} if name is not None else _NONE
        return membership(pod.namespace, pod.labels.labels, annotations)

"""The event that wakes pods which a quota refused."""

from __future__ import annotations

from dataclasses import dataclass

from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.cluster.pod import Pod

ROOM = ClusterEvent(
    EventResource("elasticquotas.v1alpha1.scheduling.sigs.k8s.io"), ActionType.UPDATE, "ElasticQuotaRoom"
)
"""Announced when a pod that a quota refused may fit now; comes with a `Room`."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where there may be more room than before: in quotas that use less, and in trees that share differently.

    `yielding`: a pod on a node that may be preempted from now on.
    """

    quotas: frozenset[str]
    trees: frozenset[str]
    yielding: Pod | None = None

"""policy/v1: how many pods of an application may be disrupted at a time."""

from __future__ import annotations

from koordsched.api.meta import Int32, LabelSelector, ObjectMeta, Wire


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """The pods it protects."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    """What is left of it; `disrupted_pods` are evictions under way, by pod name."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Wire, frozen=True):
    """A pod disruption budget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()

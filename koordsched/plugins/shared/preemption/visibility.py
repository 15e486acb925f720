"""Whether disruption budgets can be read: while they may not be, no victim is known to be unprotected."""

from __future__ import annotations

from koordsched.cluster.builtinkinds import POD_DISRUPTION_BUDGETS
from koordsched.cluster.state import ClusterState


def why_not(cluster: ClusterState) -> str:
    """Why no pod may be preempted now, "" if the budgets can be seen."""
    return "not allowed to read pod disruption budgets." if cluster.objects.of(POD_DISRUPTION_BUDGETS).hidden else ""

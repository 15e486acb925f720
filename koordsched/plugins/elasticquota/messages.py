"""The texts users see (elasticquota spec 5.1)."""

from __future__ import annotations

from collections.abc import Mapping

from koordsched.plugins.elasticquota.arithmetic.amounts import text

NOT_ELIGIBLE_NEVER = "not eligible due to preemptionPolicy=Never."
NOT_ELIGIBLE_TERMINATING = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def listed(amounts: Mapping[str, int], binary: frozenset[str] = frozenset()) -> str:
    """`cpu:1,memory:1Gi`, in the order of these texts; `binary` names resources to print in powers of 1024."""
    if not amounts:
        return "<empty>"
    return ",".join(sorted(f"{name}:{text(name, n, binary=name in binary or None)}" for name, n in amounts.items()))


def no_victims(node: str, pod: str) -> str:
    """The node has no pod that may be evicted for the preemptor."""
    return f"No victims found on node {node} for preemptor pod {pod}"


def not_enough(quota: str) -> str:
    """A node whose evictable pods hold too little of the quota."""
    return f"quota {quota} stays exceeded without its preemptible pods of lower priority on the node"

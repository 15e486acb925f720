"""What the pods of a shape want on nodes of one kind: their request, as the policies of these nodes change it.

Source: nodenumaresource spec 3.2.
"""

from __future__ import annotations

from typing import NamedTuple

from koordsched.framework.topologyhints import NUMAPolicy
from koordsched.plugins.nodenumaresource.columns import Mode
from koordsched.plugins.nodenumaresource.podrequest import PodRequest
from koordsched.plugins.nodenumaresource.policies import BindPolicy
from koordsched.plugins.nodenumaresource.reasons import NOT_INTEGER, POLICY_MISMATCH


class Demand(NamedTuple):
    """`numa`: the policy in force. `binds`: how the pod gets CPUs of its own, None if it gets none; `required`: it must
    be so. `problem`: why no node of this kind will do, "" if it may. `cap`: NUMA nodes have no more CPU left than CPUs
    that agree with this policy, for whatever pod.
    """

    request: PodRequest
    numa: NUMAPolicy
    binds: BindPolicy | None
    required: bool
    problem: str = ""
    cap: BindPolicy = BindPolicy.NONE


def demand_on(request: PodRequest, mode: Mode) -> Demand:
    """What the pod wants on nodes of that mode."""
    numa = mode.numa
    if numa and request.numa is not NUMAPolicy.NONE and request.numa is not numa:
        return Demand(request, numa, None, False, POLICY_MISMATCH)
    numa = request.numa or numa
    if request.binds:
        required = request.required is not BindPolicy.NONE or mode.bind is not BindPolicy.NONE
        policy = request.required if request.required is not BindPolicy.NONE else mode.bind
        if policy is BindPolicy.NONE:
            policy = request.preferred
        return Demand(request, numa, policy, required, cap=policy if required else BindPolicy.NONE)
    if not request.cpu or mode.bind is BindPolicy.NONE:
        return Demand(request, numa, None, False, cap=mode.bind)
    problem = NOT_INTEGER if request.cpu % 1000 else ""
    return Demand(request, numa, mode.bind, True, problem, mode.bind)

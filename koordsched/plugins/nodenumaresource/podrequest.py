"""What a pod asks for: CPUs of its own, a policy for NUMA nodes (nodenumaresource spec 2.2, 2.3, 3.1)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from koordsched.cluster.resources import CPU
from koordsched.cluster.shape import PodShape
from koordsched.framework.status import SKIP, Code, Status
from koordsched.framework.topologyhints import NUMAPolicy
from koordsched.plugins.nodenumaresource import allocation
from koordsched.plugins.nodenumaresource.allocation import Allocation
from koordsched.plugins.nodenumaresource.kinds import NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC, RESOURCE_STATUS
from koordsched.plugins.nodenumaresource.policies import BindPolicy, ExclusivePolicy
from koordsched.plugins.nodenumaresource.reasons import NOT_INTEGER
from koordsched.plugins.shared.priorityclass import QOS_CLASS, PriorityClass, priority_class

DEFAULT = "Default"

NUMA_POLICIES = {
    "": NUMAPolicy.NONE,
    "BestEffort": NUMAPolicy.BEST_EFFORT,
    "Restricted": NUMAPolicy.RESTRICTED,
    "SingleNUMANode": NUMAPolicy.SINGLE_NUMA_NODE,
}
NUMA_POLICY_NAMES = {policy: name for name, policy in NUMA_POLICIES.items()}
_BIND_POLICIES = {policy.value: policy for policy in BindPolicy}
_EXCLUSIVE_POLICIES = {policy.value: policy for policy in ExclusivePolicy}
_QOS_WITH_CPUS = ("LSE", "LSR")


class ResourceSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation about CPUs."""

    required_cpu_bind_policy: str = msgspec.field(default="", name="requiredCPUBindPolicy")
    preferred_cpu_bind_policy: str = msgspec.field(default="", name="preferredCPUBindPolicy")
    preferred_cpu_exclusive_policy: str = msgspec.field(default="", name="preferredCPUExclusivePolicy")


class NUMATopologySpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation about NUMA nodes."""

    numa_topology_policy: str = msgspec.field(default="", name="numaTopologyPolicy")
    single_numa_node_exclusive: str = msgspec.field(default="", name="singleNUMANodeExclusive")

    @property
    def exclusive(self) -> bool:
        """Whether the pod may not share a NUMA node with pods that use several, or the other way round."""
        wanted = self.single_numa_node_exclusive
        return wanted == "Required" or (not wanted and bool(self.numa_topology_policy))


_resource_specs = msgspec.json.Decoder(ResourceSpec)
_numa_topology_specs = msgspec.json.Decoder(NUMATopologySpec)
_encoder = msgspec.json.Encoder()


class PodRequest(NamedTuple):
    """What the pods of a shape ask for.

    `status`: how PreFilter answers; without success the rest does not matter. `requests`: (resource, amount).
    `binds`: the pod is to have CPUs of its own wherever it goes; `required` and `preferred` say which, `exclusive` what
    it would rather not share. `numa`: the pod's own policy, None if it names an unknown one; `exclusive_numa`: it may
    not share a NUMA node with pods that use several, or the other way round. `designated`: what it has to get, for a
    scheduling hint says so.
    """

    status: Status | None
    requests: tuple[tuple[str, int], ...] = ()
    cpu: int = 0
    binds: bool = False
    required: BindPolicy = BindPolicy.NONE
    preferred: BindPolicy = BindPolicy.NONE
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    numa: NUMAPolicy | None = NUMAPolicy.NONE
    exclusive_numa: bool = False
    designated: Allocation | None = None

    @property
    def cpus(self) -> int:
        """Whole CPUs."""
        return self.cpu // 1000


def resource_spec_of(shape: PodShape) -> ResourceSpec:
    """The annotation about CPUs. Raises msgspec.MsgspecError if it cannot be read."""
    text = shape.meta.annotations.get(RESOURCE_SPEC)
    return _resource_specs.decode(text) if text is not None else ResourceSpec()


def numa_topology_spec_of(shape: PodShape) -> NUMATopologySpec:
    """The annotation about NUMA nodes. Raises msgspec.MsgspecError if it cannot be read."""
    text = shape.meta.annotations.get(NUMA_TOPOLOGY_SPEC)
    return _numa_topology_specs.decode(text) if text is not None else NUMATopologySpec()


def exclusive_policy_of(shape: PodShape) -> ExclusivePolicy:
    """What a pod with CPUs of its own would rather not share; nothing if that cannot be read."""
    try:
        spec = resource_spec_of(shape)
    except (msgspec.MsgspecError, RecursionError):
        return ExclusivePolicy.NONE
    return _EXCLUSIVE_POLICIES.get(spec.preferred_cpu_exclusive_policy, ExclusivePolicy.NONE)


def pod_request(shape: PodShape, names: list[str], default: BindPolicy) -> PodRequest:
    """`names`: those of resources, by index; `default`: the policy of pods that state none."""
    annotation = RESOURCE_SPEC
    try:
        spec = resource_spec_of(shape)
        annotation = NUMA_TOPOLOGY_SPEC
        numa = numa_topology_spec_of(shape)
    except (msgspec.MsgspecError, RecursionError) as error:
        return PodRequest(Status(Code.ERROR, (f"annotation {annotation}: {error}",)))
    requests = tuple((names[index], amount) for index, amount in shape.requests.amounts if amount)
    if not requests:
        return PodRequest(SKIP)
    designated = None
    if (text := shape.meta.annotations.get(RESOURCE_STATUS)) is not None:
        try:
            designated = allocation.parse(text)
        except (ValueError, RecursionError) as error:
            return PodRequest(Status(Code.UNRESOLVABLE, (f"annotation {RESOURCE_STATUS}: {error}",)))
    request = PodRequest(
        None,
        requests,
        shape.requests.get(CPU),
        numa=NUMA_POLICIES.get(numa.numa_topology_policy),
        exclusive_numa=numa.exclusive,
        designated=designated if designated != allocation.NOTHING else None,
    )
    if shape.meta.labels.get(QOS_CLASS) not in _QOS_WITH_CPUS or priority_class(shape) is not PriorityClass.PROD:
        return request
    preferred = _bind_policy(spec.preferred_cpu_bind_policy or DEFAULT, default)
    required = _bind_policy(spec.required_cpu_bind_policy, default)
    if spec.required_cpu_bind_policy and (required is not BindPolicy.NONE or not _is_default(spec)):
        preferred = required
    if preferred is BindPolicy.NONE:
        return request
    if request.cpu % 1000:
        return PodRequest(Status(Code.UNRESOLVABLE, (NOT_INTEGER,)))
    return request._replace(
        binds=request.cpu > 0,
        required=required,
        preferred=preferred,
        exclusive=_EXCLUSIVE_POLICIES.get(spec.preferred_cpu_exclusive_policy, ExclusivePolicy.NONE),
    )


def _is_default(spec: ResourceSpec) -> bool:
    return spec.required_cpu_bind_policy == DEFAULT


def _bind_policy(text: str, default: BindPolicy) -> BindPolicy:
    """Names that the scheduler does not know bind no CPUs, `ConstrainedBurst` among them."""
    return default if text == DEFAULT else _BIND_POLICIES.get(text, BindPolicy.NONE)


def completed(shape: PodShape, policy: BindPolicy, *, required: bool) -> str | None:
    """The annotation about CPUs with what was decided; None if it says that already.

    `required`: the policy had to be kept, by the pod's or the node's wish (nodenumaresource spec 3.6).
    """
    spec = resource_spec_of(shape)
    wanted, preferred = spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy
    if required and wanted in ("", DEFAULT):
        wanted = policy.value
    if preferred == DEFAULT or not (wanted or preferred):
        preferred = policy.value
    if (wanted, preferred) == (spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy):
        return None
    changed = msgspec.structs.replace(spec, required_cpu_bind_policy=wanted, preferred_cpu_bind_policy=preferred)
    return _encoder.encode(changed).decode()

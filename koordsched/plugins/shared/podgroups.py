"""PodGroup: pods that are scheduled together, by Kubernetes' own API (coscheduling spec, Appendix A)."""

from __future__ import annotations

from koordsched.api import core
from koordsched.api.core import PodResourceClaim, PodSpec
from koordsched.api.meta import ObjectMeta, Wire
from koordsched.cluster.events import EventResource
from koordsched.cluster.facts import PodFact
from koordsched.cluster.kinds import Kind, Need
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState

POD_GROUP_SCHEDULED = "PodGroupScheduled"

POD = "Pod"
POD_GROUP = "PodGroup"
"""The disruption modes: what is evicted at once."""


class BasicPolicy(Wire, frozen=True):
    """Each pod may run without the others."""


class GangPolicy(Wire, frozen=True):
    """All or nothing. `min_count`: how many pods run at least, if any do."""

    min_count: int = 0


class SchedulingPolicy(Wire, frozen=True):
    """One of both."""

    basic: BasicPolicy | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(Wire, frozen=True):
    """All pods run on nodes with the same value of a label."""

    key: str = ""


class SchedulingConstraints(Wire, frozen=True):
    """Where the pods may run; at most one constraint."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupSpec(Wire, frozen=True):
    """What is asked for, as far as the scheduler reads it. `resource_claims`: what its pods have together, where an
    entry of a pod equals one of these.
    """

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | None = None
    priority: int | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()


class Condition(Wire, frozen=True):
    """A condition of an object; other than a pod's, it says of which generation it is."""

    type: str = ""
    status: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class PodGroupStatus(Wire, frozen=True):
    """How far scheduling is."""

    conditions: tuple[Condition, ...] = ()


class PodGroup(Wire, frozen=True):
    """A group of pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def id(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def min_count(self) -> int:
        """How many pods have to be placed at least; 0 where each may be by itself."""
        gang = self.spec.scheduling_policy.gang
        return max(gang.min_count, 0) if gang is not None else 0

    @property
    def priority(self) -> int:
        """How important it is as a whole."""
        return self.spec.priority or 0

    @property
    def goes_as_a_whole(self) -> bool:
        """Whether none of its pods is evicted without the others."""
        return self.spec.disruption_mode == POD_GROUP

    @property
    def topology_key(self) -> str:
        """The label that all nodes of its pods have the same value of; "" for none."""
        constraints = self.spec.scheduling_constraints
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if there is one."""
        return next((condition for condition in self.status.conditions if condition.type == kind), None)


def group_name(spec: PodSpec) -> str:
    """The PodGroup that a pod names; "" for most pods."""
    return spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else ""


class GroupNames:
    """Which group a pod names. One per cluster: the fact is read once of each pod."""

    def __init__(self, cluster: ClusterState) -> None:
        self._name: PodFact[str] = cluster.pod_facts.declare_spec("scheduling-group", _group_name, _in_spec)

    @staticmethod
    def shared(cluster: ClusterState) -> GroupNames:
        """Those of the cluster, created once."""
        return cluster.shared(GroupNames, GroupNames)

    def of(self, pod: Pod) -> str:
        """The name of the group that the pod is in; "" for most pods."""
        if pod.wire is not None:
            return group_name(pod.wire.spec)
        return self._name.of(pod) or ""


def _group_name(wire: core.Pod) -> str | None:
    return group_name(wire.spec) or None


def _in_spec(name: str) -> dict[str, object]:
    return {"schedulingGroup": {"podGroupName": name}}


def _is_member(spec: PodSpec) -> bool:
    return bool(group_name(spec))


POD_GROUPS = Kind(
    "scheduling.k8s.io/v1alpha2",
    "podgroups",
    PodGroup,
    EventResource("scheduling.k8s.io/PodGroup"),
    verbs={"status": ("patch",)},
    need=Need(("GangScheduling", "DynamicResources"), _is_member, "pods of PodGroups wait"),
)

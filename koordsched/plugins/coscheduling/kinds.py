"""PodGroup: pods that are placed together or not at all. Labels and annotations of gangs, and of pods (coscheduling
spec 2.1, 2.2).
"""

from __future__ import annotations

from koordsched.api.meta import Int32, ObjectMeta, Wire
from koordsched.cluster.kinds import Kind, Need, no_pod

_GANG = "gang.scheduling.koordinator.sh/"
_POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
_SCHEDULING = "scheduling.koordinator.sh/"

# Labels of pods that name the gang.
POD_GROUP = _POD_GROUP
POD_GROUP_NAME = _POD_GROUP + "/name"
"""Deprecated."""
POD_GROUP_MIN_AVAILABLE = _POD_GROUP + "/min-available"
"""Deprecated."""

# Annotations of pods.
GANG_NAME = _GANG + "name"
MIN_AVAILABLE = _GANG + "min-available"
WAITING_TIME = _GANG + "waiting-time"
NETWORK_TOPOLOGY_INDEX = _GANG + "network-topology-index"
"""An int that orders the pods of a job."""
NETWORK_TOPOLOGY_SELECTOR = _SCHEDULING + "network-topology-selector"
"""Pods with the same value are placed near each other."""

# Annotations of pods and PodGroups.
TOTAL_NUMBER = _GANG + "total-number"
MODE = _GANG + "mode"
GROUPS = _GANG + "groups"
MATCH_POLICY = _GANG + "match-policy"
MATCH_POLICY_ALIAS = _POD_GROUP + "/match-policy"
NETWORK_TOPOLOGY_SPEC = _GANG + "network-topology-spec"
"""How the job is to be gathered."""

# Annotations that PreBind writes.
BIND_GANG_GROUP_ID = "internal." + _SCHEDULING + "bind-gang-group-id"
BIND_GANG_MEMBER_COUNT = "internal." + _SCHEDULING + "bind-gang-member-count"
BIND_GANG_GROUP_ID_DEPRECATED = _SCHEDULING + "bind-gang-group-id"
BIND_GANG_MEMBER_COUNT_DEPRECATED = _SCHEDULING + "bind-gang-member-count"
WRITTEN = (
    BIND_GANG_GROUP_ID,
    BIND_GANG_MEMBER_COUNT,
    BIND_GANG_GROUP_ID_DEPRECATED,
    BIND_GANG_MEMBER_COUNT_DEPRECATED,
)

# Labels of pods that preemption reads of victims.
DISABLE_PREEMPTIBLE = _SCHEDULING + "disable-preemptible"
QUOTA_PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
QUESTIONED_OBJECT_KEY = _SCHEDULING + "questioned-object-key"

STRICT = "Strict"
NON_STRICT = "NonStrict"

ONLY_WAITING = "only-waiting"
WAITING_AND_RUNNING = "waiting-and-running"
ONCE_SATISFIED = "once-satisfied"
MATCH_POLICIES = (ONLY_WAITING, WAITING_AND_RUNNING, ONCE_SATISFIED)

PENDING = "Pending"
PRE_SCHEDULING = "PreScheduling"
SCHEDULING = "Scheduling"
SCHEDULED = "Scheduled"
RUNNING = "Running"
FAILED = "Failed"
FINISHED = "Finished"


class PodGroupSpec(Wire, frozen=True):
    """How many members have to be placed together, and how long they wait for each other.

    `minResources` is accepted and never read, as in upstream.
    """

    min_member: Int32 = 0
    schedule_timeout_seconds: Int32 | None = None


class PodGroupStatus(Wire, frozen=True):
    """How far the gang is."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: Int32 = 0
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    schedule_start_time: str | None = None


class PodGroup(Wire, frozen=True):
    """A gang. Options beyond the numbers are in annotations."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def id(self) -> str:
        """The gang id: `namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


# The status is no subresource, so it is written to the object itself. Gangs that pods declare need no PodGroup.
POD_GROUPS = Kind(
    "scheduling.sigs.k8s.io/v1alpha1",
    "podgroups",
    PodGroup,
    verbs={"": ("patch",)},
    need=Need(("Coscheduling",), no_pod, "pods wait whose label names a PodGroup"),
)

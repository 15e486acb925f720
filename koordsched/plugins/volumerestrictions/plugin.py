"""The plugin: inline disks per node, claims of access mode ReadWriteOncePod in the whole cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from koordsched.cluster.builtinkinds import PERSISTENT_VOLUME_CLAIMS
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.events import NODE, PERSISTENT_VOLUME_CLAIM, POD, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.framework.dryruns import DryRunFilter, FilterDryRun, PodIndependent, Tally
from koordsched.framework.handle import Handle
from koordsched.framework.interface import CycleState, PreFilter, PreFilterResult
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.shared.matching.rows import refused
from koordsched.plugins.shared.volumes.claims import BY_NAMED_CLAIM, ClaimKey, claim_not_found, named_claims
from koordsched.plugins.volumerestrictions.disks import DisksInUse, conflict, has_disks
from koordsched.queue.hints import GroupBy, HintRegistration, QueueingHint, Scope

REASON_DISK = "node(s) had no available disk"
REASON_SINGLE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
SINGLE_POD = "ReadWriteOncePod"


class ClaimsInUse:
    """How many pods on nodes name each claim; one per cluster."""

    facets = 0

    def __init__(self, cluster: ClusterState) -> None:
        self._users: dict[ClaimKey, int] = {}
        cluster.add_accountant(self, amendable=False, concerns=lambda shape: bool(named_claims(shape)))

    def pod_added(self, row: int, pod: Pod) -> int:
        """Counts the pod as a user of its claims."""
        for name in named_claims(pod.shape):
            key = (pod.namespace, name)
            self._users[key] = self._users.get(key, 0) + 1
        return 0

    def pod_removed(self, row: int, pod: Pod) -> int:
        """Takes it back."""
        for name in named_claims(pod.shape):
            key = (pod.namespace, name)
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
        return 0

    def __contains__(self, key: ClaimKey) -> bool:
        return key in self._users


class VolumeRestrictions(PreFilter, DryRunFilter):
    """Refuses nodes where a disk of the pod is mounted, and all nodes while its single-pod claim is in use.

    What is in use is read as it is now, so hypothetical pods need no state of their own: what-ifs update the counts.
    """

    name = "VolumeRestrictions"

    def __init__(self, args: None, handle: Handle) -> None:
        """Takes no arguments."""
        self._claims = handle.cluster.objects.of(PERSISTENT_VOLUME_CLAIMS)
        self._claims_in_use = handle.cluster.shared(ClaimsInUse)
        self._disks_in_use = handle.cluster.shared(DisksInUse)
        self._code_disk = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, REASON_DISK)
        self._code_single_pod = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, REASON_SINGLE_POD)

    def skips_shape(self, shape: PodShape) -> bool:
        """Pods without claims and without disks."""
        return not has_disks(shape) and not named_claims(shape)

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """SKIP without inline disks and single-pod claims in use; UNRESOLVABLE if a claim does not exist."""
        names = named_claims(pod.shape)
        for name in names:
            if self._claims.get(pod.namespace, name) is None:
                return Status(Code.UNRESOLVABLE, (claim_not_found(name),))
        return SUCCESS if has_disks(pod.shape) or (names and self._is_claim_in_use(pod)) else SKIP

    def _is_claim_in_use(self, pod: Pod) -> bool:
        """Whether another pod has one of the claims that only one pod may have."""
        for name in named_claims(pod.shape):
            claim = self._claims.get(pod.namespace, name)
            exclusive = claim is not None and SINGLE_POD in claim.spec.access_modes
            if exclusive and (pod.namespace, name) in self._claims_in_use:
                return True
        return False

    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """Disks first, then claims."""
        in_use = self._is_claim_in_use(pod)
        taken = self._disks_in_use.conflicting(pod.shape)
        if not in_use and not len(taken):
            return None
        conflicts = np.zeros(table.size, dtype=np.bool_)
        conflicts[taken] = True
        conflicts = conflicts[rows]
        if in_use:
            return np.where(conflicts, self._code_disk, self._code_single_pod).astype(np.int32)
        return refused(conflicts, self._code_disk)

    def dry_run(self, cycle: CycleState, pod: Pod, coming: Iterable[Pod]) -> FilterDryRun:
        """Pods with disks or claims are dry-run one by one; without them there are fewer conflicts."""
        return PodIndependent(self, cycle, pod, one_by_one_in_doubt=_WITH_VOLUMES)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """New nodes, pods that free a disk or claim, and claims that were missing."""
        return [
            HintRegistration(
                self.name, ClusterEvent(POD, ActionType.DELETE), _after_pod_deleted, GroupBy(lambda pod: pod.namespace)
            ),
            HintRegistration(self.name, ClusterEvent(NODE, ActionType.ADD), None, Scope.SHAPE),
            HintRegistration(self.name, ClusterEvent(PERSISTENT_VOLUME_CLAIM, ActionType.ADD), None, BY_NAMED_CLAIM),
        ]


_WITH_VOLUMES = Tally(VolumeRestrictions, lambda pod: int(has_disks(pod.shape) or bool(named_claims(pod.shape))))


def _after_pod_deleted(pod: Pod, old: Any, new: Any) -> QueueingHint:
    if old is None or old.namespace != pod.namespace:
        return QueueingHint.SKIP
    shares = not set(named_claims(pod.shape)).isdisjoint(named_claims(old.shape))
    return QueueingHint.QUEUE if shares or conflict(pod.shape, old.shape) else QueueingHint.SKIP

"""Claims that the pods of a PodGroup have together: an entry of the pod's spec equals one of the group's (dra spec 4).

They are reserved for the group, not for its pods. With the feature gates DRAWorkloadResourceClaims and GenericWorkload.
"""

from __future__ import annotations

from koordsched.api.resource import ResourceClaim, ResourceClaimConsumerReference
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.plugins.dynamicresources.claims import is_reserved_for, names_of_entries
from koordsched.plugins.shared.podgroups import POD_GROUPS, GroupNames, PodGroup

GATES = frozenset(("DRAWorkloadResourceClaims", "GenericWorkload"))

_Id = tuple[str, str]
"""(namespace, name) of a group."""


class ClaimGroups:
    """The PodGroups there are, and which of them have pods on nodes.

    Nothing is known here that does not follow from the objects there are: nothing has to be recorded.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self._names = GroupNames.shared(cluster)
        self._groups = cluster.objects.of(POD_GROUPS)
        self._of_pod: dict[str, _Id] = {}
        """Of the pods that have a node, by uid."""
        self._placed: dict[_Id, int] = {}
        cluster.add_observer(self)

    def name_of(self, pod: Pod) -> str:
        """The name of the group that the pod is in; "" for most pods."""
        return self._names.of(pod)

    def user_of(self, claim: ResourceClaim, pod: Pod) -> ResourceClaimConsumerReference | None:
        """The group that the claim is reserved for when the pod gets it; None if that is the pod itself."""
        group = self._group_of(pod)
        if group is None or not group.spec.resource_claims:
            return None
        name = claim.metadata.name
        if not any(named == name and entry in group.spec.resource_claims for entry, named in names_of_entries(pod)):
            return None
        meta = group.metadata
        return ResourceClaimConsumerReference(POD_GROUPS.group, POD_GROUPS.plural, meta.name, meta.uid)

    def idle_user(self, claim: ResourceClaim, pod: Pod) -> str:
        """The uid of the pod's group if the claim is reserved for it and none of its pods has a node; "" if not so."""
        group = self._group_of(pod)
        if group is None or not is_reserved_for(claim, group.metadata.uid):
            return ""
        return "" if self._placed.get((pod.namespace, group.metadata.name)) else group.metadata.uid

    def _group_of(self, pod: Pod) -> PodGroup | None:
        name = self._names.of(pod)
        return self._groups.get(pod.namespace, name) if name else None

    # --- what happens ------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""
        self.pod_assigned(pod, assigned)

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""
        name = self._names.of(pod) if assigned else ""
        found, known = (pod.namespace, name) if name else None, self._of_pod.get(pod.uid)
        if found == known:
            return
        self.pod_gone(pod.uid)
        if found is not None:
            self._of_pod[pod.uid] = found
            self._placed[found] = self._placed.get(found, 0) + 1

    def pod_gone(self, uid: str) -> None:
        """See PodObserver."""
        known = self._of_pod.pop(uid, None)
        if known is None:
            return
        self._placed[known] -= 1
        if not self._placed[known]:
            del self._placed[known]

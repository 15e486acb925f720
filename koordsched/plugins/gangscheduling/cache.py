"""The pods of every pod group, as they come and go. One for all profiles.

Nothing is known here that does not follow from the objects there are: nothing has to be recorded.
"""

from __future__ import annotations

from collections.abc import Callable

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import WARNING, Handle
from koordsched.framework.jobs import Ending
from koordsched.plugins.gangscheduling import messages
from koordsched.plugins.shared.podgroups import POD_GROUPS, GroupNames, PodGroup


class Members:
    """The pods that name one group, which need not exist.

    `pods` by uid, all that are not finished, of any scheduler. `placed`: uids of those that have a node, if only an
    assumed one; `held`: uids of those that Permit has wait.
    """

    __slots__ = ("held", "placed", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.placed: set[str] = set()
        self.held: set[str] = set()

    def pending(self) -> list[Pod]:
        """Those without a node."""
        return [pod for pod in self.pods.values() if pod.uid not in self.placed]


class PodGroupCache:
    """Observes pods and PodGroups. `members` by the id of the group."""

    def __init__(self, cluster: ClusterState, handle: Handle) -> None:
        self._activate = handle.activate
        self._renounce = handle.renounce
        self._events = handle.events
        self._of_pod: dict[str, str] = {}
        self._listeners: list[Callable[[str, Ending, str], None]] = []
        self.members: dict[str, Members] = {}
        self._names = GroupNames.shared(cluster)
        self.groups = cluster.objects.of(POD_GROUPS)
        self.groups.subscribe(self._group_changed)
        cluster.add_observer(self)

    @staticmethod
    def shared(handle: Handle) -> PodGroupCache:
        """The cache of a cluster, created once."""
        return handle.cluster.shared(lambda cluster: PodGroupCache(cluster, handle), PodGroupCache)

    # --- reading -----------------------------------------------------------------------------------

    def name_of(self, pod: Pod) -> str:
        """The name of the group that the pod is in; "" for most pods."""
        return self._names.of(pod)

    def id_of(self, pod: Pod) -> str:
        """The id of the group that the pod is in; "" for most pods."""
        name = self.name_of(pod)
        return f"{pod.namespace}/{name}" if name else ""

    def group(self, group_id: str) -> PodGroup | None:
        """The group of that id."""
        namespace, _, name = group_id.partition("/")
        return self.groups.get(namespace, name)

    def why_not(self, group: PodGroup) -> str:
        """Why the pods of a group are kept out of the queue; "" if they are not."""
        members = self.members.get(group.id)
        known = len(members.pods) if members is not None else 0
        return messages.NOT_ENOUGH if known < group.min_count else ""

    def is_member(self, uid: str, group_id: str) -> bool:
        """Whether the pod of this uid is in the group."""
        return self._of_pod.get(uid) == group_id

    # --- what happens ------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""
        group_id = self.id_of(pod)
        known = self._of_pod.get(pod.uid)
        if known is not None and known != group_id:
            self.pod_gone(pod.uid)
        if not group_id:
            return
        self._of_pod[pod.uid] = group_id
        members = self.members.setdefault(group_id, Members())
        members.pods[pod.uid] = pod
        (members.placed.add if assigned else members.placed.discard)(pod.uid)
        if known != group_id and (group := self.group(group_id)) is not None and len(members.pods) == group.min_count:
            # With this one there are enough: those that came before are let in.
            self._activate([each for each in members.pending() if each.uid != pod.uid])

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """See PodObserver."""
        group_id = self._of_pod.get(pod.uid)
        if group_id is None:
            return
        members = self.members[group_id]
        if assigned:
            members.placed.add(pod.uid)
        else:
            members.placed.discard(pod.uid)
            members.held.discard(pod.uid)

    def pod_gone(self, uid: str) -> None:
        """See PodObserver."""
        group_id = self._of_pod.pop(uid, None)
        if group_id is None:
            return
        members = self.members[group_id]
        del members.pods[uid]
        members.placed.discard(uid)
        members.held.discard(uid)
        if not members.pods:
            del self.members[group_id]
        elif (group := self.group(group_id)) is not None and len(members.pods) == group.min_count - 1:
            # The others are kept out of the queue now, and need their room together.
            self._renounce(members.pending())

    def _group_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        if new is None:
            return
        policy = new.spec.scheduling_policy
        if policy.gang is None and policy.basic is None and (old is None or old.spec != new.spec):
            self._events.event(POD_GROUPS, new.metadata, WARNING, "InvalidPodGroup", messages.NO_POLICY, once=True)
        kept_out = old is None or bool(self.why_not(old))
        members = self.members.get(new.id)
        if members is not None and kept_out and not self.why_not(new):
            self._activate(members.pending())

    # --- how attempts end ----------------------------------------------------------------------------

    def on_ending(self, listener: Callable[[str, Ending, str], None]) -> None:
        """Calls it with the id of a group, how an attempt at it ended, and the message."""
        self._listeners.append(listener)

    def ended(self, group_id: str, ending: Ending, message: str) -> None:
        """An attempt at a group ended."""
        for listener in self._listeners:
            listener(group_id, ending, message)

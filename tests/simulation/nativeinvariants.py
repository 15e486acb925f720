"""Groups by Kubernetes' own PodGroup: all or nothing whenever some are placed, and none waits that would fit."""

from collections import defaultdict

from tests.simulation.history import History
from tests.simulation.invariants import PODS, is_finished, is_gone
from tests.simulation.nativeusers import API_VERSION, KIND, NAMESPACE, group_of, minimum_of

GROUPS = f"/apis/{API_VERSION}/podgroups"


class NativeInvariants:
    """Who places some pods of a group has to have enough of them, by one state of the group that it may know."""

    def __init__(self, invariants, server):
        self._invariants = invariants
        self._server = server
        resource = server.resource(KIND, API_VERSION)
        self._groups = History().follow(server, resource)
        server.registry.subscribe_changes(resource, self._changed)
        server.registry.subscribe_changes(server.resource("Pod"), self._pod_changed)
        self._group_of = {}

    def _changed(self, change):
        self._invariants.tell(change)
        self._invariants.one_acts(f"a write to PodGroup {change.record.name}")

    def _pod_changed(self, change):
        if group_of(change.new):
            self._group_of[change.record.uid] = group_of(change.new)

    def placed_together(self, uids, decision, on_their_way):
        """A replica placed these pods in one attempt. `on_their_way`: uids of those that it was binding."""
        if not decision.acts or PODS in decision.listing or GROUPS in decision.listing:
            return
        known = {
            pod["metadata"]["uid"]
            for pod in self._invariants.pods.at(decision.versions[PODS])
            if pod["spec"].get("nodeName") and not is_finished(pod)
        }
        there = {*uids, *on_their_way, *known, *self._invariants.bound}
        for name in sorted({self._group_of[uid] for uid in uids if uid in self._group_of}):
            count = sum(self._group_of.get(uid) == name for uid in there)
            states = self._groups.states_since((NAMESPACE, name), decision.versions.get(GROUPS, 0))
            if not any(state is not None and count >= minimum_of(state) for state in states):
                self._invariants.fail(f"{decision.writer} places {count} pods of group {name}, which are not enough")

    # --- the end of a run ------------------------------------------------------------------------------

    def groups(self, waiting, broken):
        """Name -> (the minimum, bound members, members that wait) of the groups whose pods may be tried.

        `waiting`: uid -> pod; `broken`: uids of pods that cannot be understood.
        """
        members, found = defaultdict(list), {}
        for pod in self._server.objects("Pod"):
            if group_of(pod) and not is_finished(pod) and pod["metadata"]["uid"] not in broken:
                members[group_of(pod)].append(pod)
        for group in self._server.objects(KIND, API_VERSION):
            name = group["metadata"]["name"]
            there, least = members[name], minimum_of(group)
            if len(there) >= least and not any(map(is_gone, there)):
                bound = [pod for pod in there if pod["spec"].get("nodeName")]
                found[name] = least, bound, [pod for pod in there if pod["metadata"]["uid"] in waiting]
        return found

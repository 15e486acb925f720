"""A plugin that only keeps which pods are in which gang, for tests of the controller alone."""

from koordsched.framework.interface import PostBind
from koordsched.plugins.coscheduling.podfacts import GangFacts


class Books:
    """Gangs by the pods that observers are told of."""

    def __init__(self, cluster, facts):
        self._cluster = cluster
        self._facts = facts
        self._gang_of = {}
        self._children = {}
        self._callbacks = []
        cluster.add_observer(self)

    def children(self, gang):
        return self._children.get(gang, {})

    def bound(self, gang):
        pods = self._children.get(gang, {})
        return {key: pod for key, pod in pods.items() if pod.node and not self._cluster.is_assumed(pod.uid)}

    def on_change(self, changed):
        self._callbacks.append(changed)

    def pod_seen(self, pod, assigned):
        found = self._facts.membership(pod)
        if found is not None:
            self._gang_of[pod.uid] = found.id, pod.key
            self._children.setdefault(found.id, {})[pod.key] = pod
            self._tell(found.id)

    def pod_assigned(self, pod, assigned):
        pass

    def pod_gone(self, uid):
        gang, key = self._gang_of.pop(uid, (None, None))
        if gang is not None and self._children[gang].get(key).uid == uid:
            del self._children[gang][key]
            self._tell(gang)

    def _tell(self, gang):
        for changed in self._callbacks:
            changed(gang)


class Gangs(PostBind):
    """Counts members, and leaves scheduling alone."""

    name = "Gangs"

    def __init__(self, args, handle):
        self.facts = handle.cluster.shared(GangFacts)
        self.books = handle.cluster.shared(lambda cluster: Books(cluster, self.facts), Books)

    def post_bind(self, cycle, pod, node):
        pass

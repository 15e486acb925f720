"""What the scheduler believes, and what wakes its pods."""

from koordsched.cluster import state
from koordsched.cluster.changelog import ChangeLog, Facet
from koordsched.cluster.events import ASSIGNED_POD_DELETE
from koordsched.cluster.ports import HostPorts
from koordsched.cluster.shape import PodShapes
from koordsched.cluster.state import ClusterState
from koordsched.queue.groupindex import KeyedGroups
from koordsched.queue.nominator import Nominator
from koordsched.queue.queue import SchedulingQueue
from koordsched.queue.timers import QueueTimers
from koordsched.scheduling import handlers
from koordsched.scheduling.handlers import NodeHandler, PodHandler
from tests.simulation.mutations.registry import mutation

# --- cluster state ---------------------------------------------------------------------------------


@mutation(ClusterState, "forget")
def failed_binding_not_forgotten(original):
    return lambda self, pod: False


@mutation(ClusterState, "assume")
def assumed_twice(original):
    def assume(self, pod, row):
        original(self, pod, row)
        self._account(pod, row, 1)

    return assume


@mutation(ClusterState, "_account")
def pod_count_not_taken_back(original):
    def account(self, pod, row, sign):
        facets = original(self, pod, row, sign)
        if sign < 0:
            self.table.pods_count.data[row] += 1
        return facets

    return account


def _is_elsewhere(cluster, pod):
    known = cluster.assigned.get(pod.uid)
    return known is not None and known.node != pod.node and not cluster.is_assumed(pod.uid)


@mutation(ClusterState, "set_pod")
def pod_on_another_node_counted_where_it_was(original):
    def set_pod(self, pod):
        if _is_elsewhere(self, pod):
            pod.node = self.assigned[pod.uid].node
        return original(self, pod)

    return set_pod


@mutation(PodHandler, "_assigned")
def pod_on_another_node_wakes_no_pod(original):
    def assigned(self, pod, anew):
        if _is_elsewhere(self.cluster, pod):
            self.cluster.set_pod(pod)
        else:
            original(self, pod, anew)

    return assigned


@mutation(ClusterState, "upsert_node")
def orphans_left_behind_when_their_node_returns(original):
    def upsert_node(self, node):
        kept = self.orphans.pop(node.metadata.name, None)
        answer = original(self, node)
        if kept is not None:
            self.orphans[node.metadata.name] = kept
        return answer

    return upsert_node


@mutation(PodShapes, "resized")
def resize_that_the_status_shows_not_counted(original):
    def resized(self, shape, spec, status, taken=()):
        return original(self, shape, spec, status, taken) if taken else shape.requests

    return resized


@mutation(state, "counts_the_same")
def resize_of_a_known_pod_not_counted_anew(original):
    return lambda a, b: a.shape is b.shape and a.labels is b.labels and a.deleting == b.deleting


@mutation(HostPorts, "add")
def host_ports_not_given_back(original):
    return lambda self, row, ports, sign=1: original(self, row, ports, sign) if sign > 0 else None


@mutation(ChangeLog, "touch")
def taint_changes_not_logged(original):
    return lambda self, row, facets: original(self, row, facets & ~Facet.TAINTS)


# --- handlers and queue ----------------------------------------------------------------------------


@mutation(PodHandler, "_assigned")
def confirmation_of_an_assumed_pod_ignored(original):
    def assigned(self, pod, anew):
        if not self.cluster.is_assumed(pod.uid):
            original(self, pod, anew)

    return assigned


@mutation(ClusterState, "remove_pod")
def deleted_while_assumed_keeps_its_place(original):
    return lambda self, uid: None if uid in self.assumed else original(self, uid)


@mutation(PodHandler, "known")
def pods_missing_in_a_list_stay(original):
    return lambda self: iter(())


@mutation(NodeHandler, "known")
def nodes_missing_in_a_list_stay(original):
    return lambda self: iter(())


@mutation(handlers, "pod_events")
def changes_of_waiting_pods_move_nothing(original):
    return lambda old, new: []


@mutation(SchedulingQueue, "move_all")
def the_end_of_pods_wakes_no_pod(original):
    def move_all(self, event, *objects, **more):
        return 0 if event == ASSIGNED_POD_DELETE else original(self, event, *objects, **more)

    return move_all


@mutation(KeyedGroups, "concerned")
def labels_that_pods_need_wake_no_pod(original):
    return lambda self, old, new: None if original(self, old, new) is None else self._always


@mutation(QueueTimers, "flush_backoff")
def back_off_never_ends(original):
    return lambda self: 0


@mutation(SchedulingQueue, "move_all")
def unschedulable_pods_never_woken(original):
    return lambda self, event, old=None, new=None, **more: 0


@mutation(SchedulingQueue, "add_unschedulable_if_not_present")
def failed_pod_not_queued_again(original):
    def give_up_on_errors(self, queued, *plugins, **more):
        if not any(plugins):
            self.done(queued.pod.uid)
            return queued.place
        return original(self, queued, *plugins, **more)

    return give_up_on_errors


@mutation(Nominator, "stamp_of")
def nominated_pods_ignored(original):
    return lambda self, node: 0

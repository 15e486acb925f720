"""Deliberate defects, by name: proof that the simulation finds what it claims to look for.

Each is a small change of the code under test, of a kind that a hurried hand could make.
"""

from contextlib import contextmanager
from unittest.mock import patch

import orjson

from koordsched.client import reflector
from koordsched.client.errors import Ambiguous, ClientError
from koordsched.client.intake import Intake
from koordsched.client.lanes import Lane, Lanes
from koordsched.client.leaderelection import Elector
from koordsched.client.transport import Request
from koordsched.cluster.changelog import ChangeLog, Facet
from koordsched.cluster.podevents import ASSIGNED_DELETE
from koordsched.cluster.ports import HostPorts
from koordsched.cluster.state import ClusterState
from koordsched.controllers.elasticquota.status import StatusWriter
from koordsched.extender.extenders import Extenders
from koordsched.extender.refusals import Refusals
from koordsched.framework.handle import WriteFailed
from koordsched.framework.permit import WaitingPod
from koordsched.framework.status import SUCCESS
from koordsched.plugins.elasticquota import accounting
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.plugin import ElasticQuota
from koordsched.plugins.nodevolumelimits.plugin import NodeVolumeLimits
from koordsched.plugins.volumebinding.binder import Binder
from koordsched.plugins.volumebinding.reservation import Reservations
from koordsched.plugins.volumerestrictions.plugin import VolumeRestrictions
from koordsched.queue.inflight import InFlight
from koordsched.queue.nominator import Nominator
from koordsched.queue.queue import SchedulingQueue
from koordsched.queue.timers import QueueTimers
from koordsched.scheduling import handlers
from koordsched.scheduling.apiwrites import ApiWrites
from koordsched.scheduling.binding import BindingCycle
from koordsched.scheduling.handlers import NodeHandler, PodHandler
from koordsched.scheduling.podstatus import PodStatusWriter
from koordsched.scheduling.scheduler import Scheduler
from koordsched.scheduling.watching import ObjectSink

MUTATIONS = {}
"""Name -> (object, attribute, made from the original)."""


def mutation(where, attribute):
    """Registers a function that makes the defective attribute from the sound one."""

    def register(make):
        MUTATIONS[make.__name__.replace("_", "-")] = (where, attribute, make)
        return make

    return register


@contextmanager
def mutated(name):
    """Inside, the named defect is in force."""
    where, attribute, make = MUTATIONS[name]
    with patch.object(where, attribute, make(getattr(where, attribute))):
        yield


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


@mutation(ClusterState, "upsert_node")
def orphans_left_behind_when_their_node_returns(original):
    def upsert_node(self, node):
        kept = self.orphans.pop(node.metadata.name, None)
        answer = original(self, node)
        if kept is not None:
            self.orphans[node.metadata.name] = kept
        return answer

    return upsert_node


@mutation(HostPorts, "add")
def host_ports_not_given_back(original):
    return lambda self, row, ports, sign: original(self, row, ports, sign) if sign > 0 else None


@mutation(ChangeLog, "touch")
def taint_changes_not_logged(original):
    return lambda self, row, facets: original(self, row, facets & ~Facet.TAINTS)


# --- handlers and queue ----------------------------------------------------------------------------


@mutation(PodHandler, "_assigned")
def confirmation_of_an_assumed_pod_ignored(original):
    def assigned(self, pod):
        if not self._cluster.is_assumed(pod.uid):
            original(self, pod)

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
def the_end_of_pods_wakes_nobody(original):
    def move_all(self, event, *objects, **more):
        return 0 if event == ASSIGNED_DELETE else original(self, event, *objects, **more)

    return move_all


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


# --- writes ----------------------------------------------------------------------------------------


def _bind(on_ambiguous):
    async def bind(self, pod, node):
        target = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding"
        meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": {"kind": "Node", "name": node}}
        try:
            await self._lanes.submit(Lane.BINDING, Request("POST", target, orjson.dumps(body)))
        except Ambiguous as error:
            on_ambiguous(error)
        except ClientError as error:
            raise WriteFailed(str(error)) from error

    return bind


@mutation(ApiWrites, "bind")
def binding_in_doubt_taken_for_a_failure(original):
    def fail(error):
        raise WriteFailed(str(error)) from error

    return _bind(fail)


@mutation(ApiWrites, "bind")
def binding_in_doubt_taken_for_a_success(original):
    return _bind(lambda error: None)


@mutation(ApiWrites, "is_bound")
def conflict_never_looked_into(original):
    async def is_bound(self, pod, node):
        return True

    return is_bound


@mutation(PodStatusWriter, "_body")
def status_written_to_whoever_has_the_name(original):
    def body(self, wish):
        patch = orjson.loads(original(self, wish))
        del patch["metadata"]
        return orjson.dumps(patch)

    return body


# --- quotas ------------------------------------------------------------------------------------------


@mutation(ElasticQuota, "pre_filter")
def quotas_not_asked(original):
    return lambda self, cycle, pod: SUCCESS


@mutation(QuotaBooks, "_set_assigned")
def quota_not_given_back_by_a_failed_binding(original):
    def set_assigned(self, member, assigned):
        if assigned:
            original(self, member, assigned)
        else:
            member.assigned = False

    return set_assigned


@mutation(QuotaBooks, "pod_seen")
def moved_pod_counted_in_both_quotas(original):
    def pod_seen(self, pod, assigned):
        known = self._members.get(pod.uid)
        before = known.group.tally if known is not None else None
        original(self, pod, assigned)
        now = self._members.get(pod.uid)
        if before is not None and now is not None and now.group.tally is not before:
            accounting.ask(before, 1)

    return pod_seen


@mutation(QuotaBooks, "pod_seen")
def usage_counted_once_more_when_seen_again(original):
    def pod_seen(self, pod, assigned):
        known = self._members.get(pod.uid)
        again = known is not None and known.assigned and assigned
        original(self, pod, assigned)
        if again:
            accounting.place(known.group.tally, 1)

    return pod_seen


@mutation(QuotaBooks, "_changed")
def room_in_a_quota_not_told(original):
    def changed(self, less_used, **more):
        self.version += 1

    return changed


@mutation(ObjectSink, "known")
def objects_missing_in_a_list_stay(original):
    return lambda self: iter(())


@mutation(StatusWriter, "_on")
def status_believed_to_be_what_was_written(original):
    def on(self, obj):
        known = self._shown.get((obj.metadata.namespace, obj.metadata.name))
        return known[1] if known is not None else original(self, obj)

    return on


# --- volumes -----------------------------------------------------------------------------------------


@mutation(Reservations, "undo")
def promised_volumes_not_given_back(original):
    return lambda self, made: None


@mutation(Binder, "_is_done")
def volumes_not_waited_for(original):
    return lambda self, *asked: True


@mutation(NodeVolumeLimits, "filter")
def attach_limits_ignored(original):
    return lambda self, cycle, pod, table, rows: None


@mutation(VolumeRestrictions, "filter")
def exclusive_claims_shared(original):
    return lambda self, cycle, pod, table, rows: None


# --- attempts that take their time ---------------------------------------------------------------------


def _kept(is_one):
    """A placement is not taken back if its failure is one of these."""

    def make(original):
        def undo(self, placement, status, now):
            if is_one(status):
                with patch.object(self, "_release", lambda placement: None):
                    original(self, placement, status, now)
            else:
                original(self, placement, status, now)

        return undo

    return make


@mutation(BindingCycle, "undo")
def place_kept_after_waiting_in_vain(original):
    return _kept(lambda status: status.plugin == "Gatekeeper")(original)


@mutation(BindingCycle, "undo")
def place_kept_after_an_extender_failed_to_bind(original):
    return _kept(lambda status: "extender" in status.message)(original)


@mutation(Extenders, "filter")
def word_of_an_extender_ignored(original):
    async def filter_nodes(self, pod, table, rows, interested):
        await original(self, pod, table, rows, interested)
        return list(rows), Refusals()

    return filter_nodes


@mutation(InFlight, "record")
def events_during_an_attempt_forgotten(original):
    return lambda self, event, old, new: None


@mutation(WaitingPod, "wait")
def refusals_on_permit_overlooked(original):
    async def wait(self):
        await original(self)
        return SUCCESS

    return wait


@mutation(ApiWrites, "is_bound")
def binding_in_doubt_never_looked_into(original):
    async def is_bound(self, pod, node):
        return False

    return is_bound


# --- watching and leading --------------------------------------------------------------------------


@mutation(Intake, "advance")
def stale_watch_events_applied(original):
    def advance(self, version):
        original(self, version)
        return True

    return advance


@mutation(reflector, "is_older")
def lists_from_the_past_believed(original):
    return lambda version, other: False


@mutation(Elector, "is_leader")
def writes_not_fenced(original):
    return lambda self: True


@mutation(Elector, "_take")
def lease_believed_in_for_too_long(original):
    def take(self, response, began):
        original(self, response, began)
        self._deadline = self._clock.boottime() + 2 * self._config.lease_duration

    return take


@mutation(Elector, "_taken")
def lease_taken_before_it_expires(original):
    return lambda self: False


@mutation(Lanes, "quiet_for")
def lease_released_while_writes_are_under_way(original):
    return lambda self, seconds: True


@mutation(Scheduler, "catch_up")
def new_leader_starts_from_what_it_has(original):
    async def catch_up(self):
        pass

    return catch_up

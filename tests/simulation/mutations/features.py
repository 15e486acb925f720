"""Loads, quotas, volumes, and attempts that take their time."""

from unittest.mock import patch

from koordsched.extender.extenders import Extenders
from koordsched.extender.refusals import Refusals
from koordsched.framework.permit import WaitingPod
from koordsched.framework.status import SUCCESS
from koordsched.plugins.elasticquota.arithmetic import accounting
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.controller.status import StatusWriter
from koordsched.plugins.elasticquota.plugin import ElasticQuota
from koordsched.plugins.loadaware.loads import Loads
from koordsched.plugins.loadaware.plugin import LoadAwareScheduling
from koordsched.plugins.nodevolumelimits.plugin import NodeVolumeLimits
from koordsched.plugins.volumebinding.assumedvolumes import VolumeAssumptions
from koordsched.plugins.volumebinding.binder import Binder
from koordsched.plugins.volumerestrictions.plugin import VolumeRestrictions
from koordsched.queue.hints import QueueingHint
from koordsched.queue.inflight import InFlight
from koordsched.scheduling.apiwrites import ApiWrites
from koordsched.scheduling.binding import BindingCycle
from koordsched.scheduling.watching import ObjectSink
from tests.simulation.mutations.registry import mutation

# --- loads ------------------------------------------------------------------------------------------


@mutation(Loads, "pod_assigned")
def load_of_a_failed_binding_stays(original):
    def pod_assigned(self, pod, assigned):
        if assigned:
            original(self, pod, assigned)

    return pod_assigned


@mutation(Loads, "pod_seen")
def loads_of_pods_placed_by_others_ignored(original):
    return lambda self, pod, assigned: None


@mutation(LoadAwareScheduling, "_after_easing")
def pods_not_told_of_loads_that_ease(original):
    return lambda self, pod, old, new: QueueingHint.SKIP


# --- quotas ----------------------------------------------------------------------------------------


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
    def changed(self, less_used, yielding=None):
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


# --- volumes ---------------------------------------------------------------------------------------


@mutation(VolumeAssumptions, "undo")
def promised_volumes_not_given_back(original):
    return lambda self, uid: None


@mutation(Binder, "_is_done")
def volumes_not_waited_for(original):
    return lambda self, *asked: True


@mutation(NodeVolumeLimits, "filter")
def attach_limits_ignored(original):
    return lambda self, cycle, pod, table, rows: None


@mutation(VolumeRestrictions, "filter")
def exclusive_claims_shared(original):
    return lambda self, cycle, pod, table, rows: None


# --- attempts that take their time -----------------------------------------------------------------


def _kept(is_one):
    """A placement is not taken back if its failure is one of these."""

    def make(original):
        def undo(self, placement, status, now):
            if is_one(status):
                with patch.object(self, "_free", lambda placement: None):
                    original(self, placement, status, now)
            else:
                original(self, placement, status, now)

        return undo

    return make


@mutation(BindingCycle, "undo")
def place_kept_after_waiting_in_vain(original):
    return _kept(lambda status: status.plugin == "Gatekeeper")(original)


@mutation(BindingCycle, "undo", world="extenders")
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

"""Defects of Coscheduling, and of attempts that place several pods."""

from koordsched.engine.transaction import Transaction
from koordsched.framework.status import Code, Status
from koordsched.plugins.coscheduling.cache import GangCache
from koordsched.plugins.coscheduling.controller.loops import PodGroupController
from koordsched.plugins.coscheduling.gang import Gang
from koordsched.plugins.coscheduling.plugin import Coscheduling
from koordsched.plugins.coscheduling.preemption import JobPreemption
from koordsched.plugins.coscheduling.round import Round
from koordsched.scheduling.jobcycle import JobAttempt
from tests.simulation.mutations.registry import mutation

WORLD = "gangs"

# --- all or nothing ----------------------------------------------------------------------------------


@mutation(Coscheduling, "_enough", world=WORLD)
def any_number_of_members_enough(original):
    return lambda self, group: True


@mutation(Gang, "missing", world=WORLD)
def one_member_too_few_enough(original):
    return property(lambda self: original.fget(self) - 1)


@mutation(Coscheduling, "unreserve", world=WORLD)
def members_that_lost_their_place_still_counted(original):
    return lambda self, cycle, pod, row: None


@mutation(Transaction, "rollback", world=WORLD)
def first_member_left_behind_by_a_rollback(original):
    def rollback(self, to=None):
        if to is None and len(self._steps) > 1:
            del self._steps[0]
        original(self, to)

    return rollback


@mutation(JobPreemption, "_whole_gangs", world=WORLD)
def gangs_among_victims_torn_apart(original):
    return lambda self, job, rooms: rooms


@mutation(Coscheduling, "on_plain_table", world=f"{WORLD}+reservations")
def room_for_a_job_made_inside_of_an_overlay(original):
    return not original


# --- whose turn it is --------------------------------------------------------------------------------


@mutation(JobAttempt, "_returning", world=WORLD)
def first_of_a_failed_job_not_given_back(original):
    def returning(self, *args):
        return [each for each in original(self, *args) if each.queued is not self._queued]

    return returning


@mutation(Coscheduling, "taken_up", world=WORLD)
def representatives_never_relieved(original):
    return lambda self, pod: None


@mutation(GangCache, "wake", world=WORLD)
def gangs_not_tried_when_they_are_complete(original):
    return lambda self, group: None


@mutation(GangCache, "satisfy", world=WORLD)
def satisfied_gangs_not_noticed(original):
    return lambda self, group: None


@mutation(Coscheduling, "permit", world=WORLD)
def pods_that_go_on_alone_held_for_other_gangs(original):
    def permit(self, cycle, pod, row):
        answer, gang = original(self, cycle, pod, row), self.cache.of(pod)
        if gang is None or self._enough(gang.group):
            return answer
        return Status(Code.WAIT), gang.options.waiting_time if gang.options is not None else 0.0

    return permit


@mutation(GangCache, "_let_go", world=WORLD)
def others_still_represented_by_a_pod_that_goes_on_alone(original):
    def let_go(self, group):
        before = group.representative
        original(self, group)
        group.representative = group.representative or before

    return let_go


@mutation(JobAttempt, "_returning", world=WORLD)
def others_of_a_failed_job_forgotten(original):
    return lambda self, *args: original(self, *args)[:1]


@mutation(Round, "renounced", world=WORLD)
def nominations_of_members_kept(original):
    return lambda self: ()


# --- what defines gangs, and what is said of them ----------------------------------------------------


@mutation(GangCache, "_pod_group_changed", world=WORLD)
def changes_of_pod_groups_ignored(original):
    def pod_group_changed(self, old, new):
        if old is None or new is None:
            original(self, old, new)

    return pod_group_changed


@mutation(GangCache, "_pod_group_gone", world=WORLD)
def gangs_outlive_their_pod_groups(original):
    return lambda self, gang: None


@mutation(Coscheduling, "_written", world=WORLD)
def with_how_many_a_pod_was_bound_not_written(original):
    return lambda self, pod: {}


@mutation(PodGroupController, "_changed", world=WORLD)
def pod_groups_not_looked_at_when_members_change(original):
    return lambda self, gang: None

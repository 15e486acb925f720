"""Jobs: pods that are placed in one attempt, as many as are needed, or none.

A plugin says which pods go together (`JobScheduling`). The scheduling cycle takes the first of them from the queue and
places all in one transaction: each member by the same steps as any pod, up to Permit. While the plugin's Permit says
WAIT, the next member is placed; once it says SUCCESS, all members stay where they are. If one has no place, everything
is taken back.

A `GroupJob` is tried to its end, whichever members have no place: those that have one stay if there are enough.
Its members leave the queue together, and those that get no place return through back-off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import ClassVar

from koordsched.cluster.pod import Pod
from koordsched.framework.interface import Permit, PostFilterResult
from koordsched.framework.turns import Turns


class Job(ABC):
    """One attempt to place the pods of a job. `name`: what logs call it; `first`: the member taken from the queue."""

    name: str
    first: Pod

    @abstractmethod
    def next(self) -> Pod | None:
        """The member to place after those that were placed; None if all were tried. `first` is one of them."""

    @abstractmethod
    def fail(self, pod: Pod, message: str) -> None:
        """A member has no place. AfterPostFilter may have said so before."""

    @abstractmethod
    def fall_short(self) -> None:
        """All members were placed, and there are not enough."""

    @abstractmethod
    def rejection(self) -> str:
        """Why those that were placed do not stay; after `fail` or `fall_short`."""

    @abstractmethod
    def renounced(self) -> Sequence[Pod]:
        """The members that are promised no node any more; after `fail` or `fall_short`, if no room is being made."""

    @abstractmethod
    def untried(self) -> Sequence[Pod]:
        """The members that were not tried, in order."""

    def show(self, message: str) -> Sequence[Pod]:
        """Those of them that do not show this message yet. Default: all."""
        return self.untried()

    def makes_no_room(self) -> str:
        """Why no pods are evicted for single members; "" if they may be, as by default."""
        return ""


class Ending(StrEnum):
    """How an attempt at a GroupJob ended; the values are metric labels."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    WAITING_ON_PREEMPTION = "waiting_on_preemption"
    ERROR = "error"


class GroupPreemption(ABC):
    """Room for a group as a whole: first all potential victims are gone, and the group is tried; if it has a place, as
    many of them stay as leave it there. That takes long in large clusters, so it is done in steps (`framework.turns`).
    """

    @abstractmethod
    def victims(self, members: Sequence[Pod], *, enabled: bool) -> Turns[Sequence[Pod] | str]:
        """All pods on nodes that may be evicted for these members, or why none may be. `enabled`: whether the profile
        evicts pods for groups.
        """

    @abstractmethod
    def choose(self, places: Sequence[tuple[Pod, int]]) -> Turns[PostFilterResult]:
        """Which of them have to go, with the nominations of the members. `places`: the members with their rows, in
        order, as they were placed with all victims gone; now these are back, and the members have no place.
        """

    @abstractmethod
    def settle(self) -> Turns[None]:
        """The hypotheses are over, and all is as it was: what was read of all nodes is read anew, before the next
        decision needs it at once.
        """


class GroupJob(ABC):
    """One attempt to place the pods of a group, all of which are tried.

    `name`: what logs call it; `first`: the member taken from the queue; `members`: all without a node, `first`
    included, of which those take part that are in the queue.
    """

    name: str
    first: Pod
    members: Sequence[Pod]

    @abstractmethod
    def refusal(self, members: Sequence[Pod]) -> str:
        """Why it is an error to try these members, in the order in which they would be tried; "" if it is none."""

    @abstractmethod
    def unschedulable(self) -> tuple[str, str]:
        """There are not enough: what the group reads, and what members read that had a place."""

    @abstractmethod
    def waiting_on_preemption(self) -> str:
        """There would be enough once pods are evicted: what the group reads, and members that have a place."""

    @abstractmethod
    def erroneous(self, error: str) -> str:
        """A member met an error, which ends the attempt: what the group and all other members read."""

    @abstractmethod
    def ended(self, ending: Ending, message: str) -> None:
        """How the attempt ended. Explanations do not say it."""

    def makes_no_room(self) -> str:
        """Why no pods are evicted for single members; "" if they may be, as by default."""
        return ""

    def preemption(self) -> GroupPreemption | None:
        """Makes room for the group as a whole. Default: nothing does."""
        return None


class JobScheduling(Permit):
    """Has some pods placed together. Its Permit says when there are enough.

    Of several in one profile, a job needs the SUCCESS of each: those of `group_jobs` are asked first for a job.
    """

    group_jobs: ClassVar[bool] = False
    """Whether its jobs are GroupJobs."""

    @abstractmethod
    def taken_up(self, pod: Pod) -> None:
        """The pod left the queue, and an attempt at it begins."""

    @abstractmethod
    def begin_job(self, pod: Pod) -> Job | GroupJob | None:
        """The job to attempt with this pod; None if the pod is placed by itself. `end_job` follows.

        Explanations ask, too: without `taken_up`, and with no pods at the end.
        """

    @abstractmethod
    def end_job(self, job: Job | GroupJob, placed: Iterable[Pod], resting: Iterable[Pod]) -> None:
        """The attempt is decided; changes that waited for that follow. `placed`: the members that stay where they are;
        `resting`: those that return to the queue, to wait for events on behalf of all.
        """

    def explain_job(self, job: Job) -> list[str]:
        """What users should know of a job that has no place, in lines of text. It has ended, and nothing is placed."""
        return []

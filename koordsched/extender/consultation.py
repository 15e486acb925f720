"""Asking HTTP extenders during one attempt to place a pod (core spec 3.6, 3.9).

While a call is under way changes of the cluster wait in the inbox, so that all steps of the attempt read one state; no
other pod is taken, as in upstream's serial cycle, while bindings, leases and everything else go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np

from koordsched.cluster.pod import Pod
from koordsched.engine.attempt import Attempt
from koordsched.extender.client import ExtenderError, HttpExtender
from koordsched.extender.extenders import Extenders
from koordsched.extender.transientreasons import TransientReasons
from koordsched.framework.bestrows import Totals
from koordsched.framework.interface import PostFilterResult
from koordsched.framework.preemption import PreemptionOffer
from koordsched.framework.status import Code, ReasonTable, Status
from koordsched.framework.turns import Pause
from koordsched.framework.verdicts import Verdicts
from koordsched.scheduling.inbox import Inbox
from koordsched.scheduling.recording import Recorder

_log = logging.getLogger(__name__)


class ExtenderConsultations:
    """Begins consultations, one at a time. `reasons`: one table serves all profiles."""

    def __init__(self, extenders: Extenders, inbox: Inbox, recorder: Recorder, reasons: ReasonTable) -> None:
        self.extenders = extenders
        self.inbox = inbox
        self.recorder = recorder
        self.said = TransientReasons(reasons)

    def __call__(self, pod: Pod) -> ExtenderConsultation | None:
        """A consultation about the pod; None if no extender is interested in it."""
        interested = self.extenders.interested_in(pod)
        if not interested:
            return None
        self.inbox.hold()
        return ExtenderConsultation(self, interested)


class ExtenderConsultation:
    """What the interested extenders say during one attempt. Calls leave the loop, and may raise ExtenderError."""

    def __init__(self, consultations: ExtenderConsultations, interested: Sequence[HttpExtender]) -> None:
        self._extenders = consultations.extenders
        self._inbox = consultations.inbox
        self._recorder = consultations.recorder
        self._said = consultations.said
        self._interested = interested

    async def end(self) -> None:
        """The attempt has come to its decision: changes that waited are applied."""
        self._said.clear()
        await self._recorder.let_in(self._inbox.release)

    def abandon(self) -> None:
        """The attempt is cancelled: the same, at once."""
        self._said.clear()
        self._inbox.release_now()

    async def filter(self, attempt: Attempt, filter_again: Callable[[], Verdicts]) -> Verdicts:
        """The plugins' verdicts, less the nodes that extenders refuse; a node that was tried first comes alone."""
        verdicts = attempt.verdicts
        if not verdicts.alone:
            return await self._ask_filters(attempt)
        try:
            asked = await self._ask_filters(attempt)
            if asked.feasible:
                return asked
        except ExtenderError as error:
            node = attempt.cluster.table.names[int(verdicts.rows[0])]
            _log.warning("evaluation of %s on node %s, tried first, failed: %s", attempt.pod.title, node, error)
        filter_again()
        return await self._ask_filters(attempt)

    async def _ask_filters(self, attempt: Attempt) -> Verdicts:
        verdicts = attempt.verdicts
        if not verdicts.feasible or attempt.error() is not None:
            return verdicts
        rows = verdicts.rows
        table = attempt.cluster.table
        left, refusals = await self._extenders.filter(attempt.pod, table, rows.tolist(), self._interested)
        if len(left) == len(rows):
            return verdicts
        codes = verdicts.codes.copy()
        refused = np.setdiff1d(rows, np.array(left, dtype=np.intp))
        refusals.write(codes, refused, attempt.profile.handle.reasons, self._said)
        attempt.verdicts = Verdicts(codes, verdicts.plan, verdicts.pre_filtered)
        return attempt.verdicts

    async def prioritize(self, attempt: Attempt) -> Totals | None:
        """What extenders add to the total of each feasible row, in the order of `verdicts.rows`; None for nothing."""
        rows = attempt.verdicts.rows.tolist()
        return await self._extenders.prioritize(attempt.pod, attempt.cluster.table, rows, self._interested)

    async def post_filter(self, attempt: Attempt, pause: Pause | None = None) -> PostFilterResult:
        """What the PostFilter plugins would do, with the extenders asked about each preemption that one offers.

        `pause` is awaited between the steps of long searches.
        """
        with closing(attempt.profile.post_filter(attempt.cycle, attempt.verdicts.codes)) as chain:
            agreed: PostFilterResult | None = None
            while True:
                try:
                    result = chain.send(agreed)
                except StopIteration as end:
                    outcome: PostFilterResult = end.value
                    return outcome
                agreed = await self._agreed(attempt, result) if isinstance(result, PreemptionOffer) else None
                if result is None and pause is not None:
                    await pause()

    async def _agreed(self, attempt: Attempt, offer: PreemptionOffer) -> PostFilterResult:
        if not any(extender.preempts for extender in self._interested):
            return offer
        cluster = attempt.cluster
        try:
            left = await self._extenders.preempt(
                attempt.pod,
                cluster.table,
                offer.candidates(),
                lambda node: cluster.pods_on(cluster.table.row_of[node]),
                self._interested,
            )
        except ExtenderError as error:
            return PostFilterResult(Status(Code.ERROR, (str(error),)))
        return offer.choose(left)

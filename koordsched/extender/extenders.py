"""All extenders of a configuration: the pods they are interested in, and the combined answer for each verb."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from koordsched.client.externalwrites import ExternalWrites
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.config.wire import Extender
from koordsched.extender.client import ExtenderError, HttpExtender, in_order
from koordsched.extender.objects import ExtenderObjects
from koordsched.extender.refusals import Refusals
from koordsched.extender.wire import FilterReply, MetaVictims, node_arguments, victim_arguments
from koordsched.framework.bestrows import Totals
from koordsched.framework.interface import MAX_SCORE
from koordsched.framework.preemption import Victims
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.observability.instruments import exponential_buckets
from koordsched.observability.metrics import Metrics
from koordsched.scheduling.recording import NOT_RECORDING, Question, Recorder

_log = logging.getLogger(__name__)

MAX_EXTENDER_SCORE = 10
"""What an extender may give a node at most, before weighting."""

_LARGEST_TOTAL = 1 << 61
"""A score cannot make a total overflow, whatever the extender says."""

T = TypeVar("T")


class Extenders:
    """The extenders, those that must not fail first. `objects`: how pods and nodes are shown to them.

    `is_bound` reads a pod back from the API server; `fence` says whether we may act at all; `bindings` hears of the
    bindings that extenders make. `virtual`: uids of pods that there is nothing to bind of at the API server.
    """

    def __init__(
        self,
        configs: Sequence[Extender],
        objects: ExtenderObjects,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        is_bound: Callable[[Pod, str], Awaitable[bool]],
        fence: Callable[[], bool],
        recorder: Recorder = NOT_RECORDING,
        bindings: ExternalWrites,
        virtual: Container[str] = (),
    ) -> None:
        """Raises ExtenderConfigError."""
        durations = metrics.histograms(
            "koordsched_extender_request_duration_seconds",
            "Time of requests to HTTP extenders.",
            ("extender", "verb", "result"),
            exponential_buckets(0.001, 2, 15),
        )
        self._all = in_order([HttpExtender(config, durations, clock) for config in configs])
        self._in_cycle = [each for each in self._all if each.filters or each.prioritizes or each.preempts]
        self._binders = [each for each in self._all if each.binds]
        self._objects = objects
        self._prioritizing = metrics.running("prioritizing_extender")
        self._is_bound = is_bound
        self._fence = fence
        self._recorder = recorder
        self._bindings = bindings
        self._virtual = virtual

    def interested_in(self, pod: Pod) -> list[HttpExtender]:
        """Those that a scheduling cycle for the pod has to ask about anything."""
        return [extender for extender in self._in_cycle if extender.is_interested(pod)]

    async def close(self) -> None:
        """Closes all connections."""
        for extender in self._all:
            await extender.close()

    # --- filter ------------------------------------------------------------------------------------

    async def filter(
        self, pod: Pod, table: NodeTable, rows: Sequence[int], interested: Sequence[HttpExtender]
    ) -> tuple[list[int], Refusals]:
        """The rows that every extender lets pass, and what was said about others. Raises ExtenderError."""
        refusals = Refusals()
        left = list(rows)
        for extender in interested:
            if not left:
                break
            if not extender.filters:
                continue
            by_name = {table.names[row]: row for row in left}
            try:
                question = Question("filter", (extender.url,), table, left)
                reply = await self._recorder.consult(question, partial(self._filter_with, extender, pod, table, left))
                unknown = next((name for name in reply.kept if name not in by_name), None)
                if unknown is not None:
                    raise ExtenderError(
                        f'extender "{extender.url}" claims a filtered node "{unknown}" '
                        "which is not found in the input node list"
                    )
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                _log.warning("extender %s is skipped, its failure may be ignored: %s", extender.url, error)
                continue
            refusals.add(reply, table.row_of)
            kept = set(reply.kept)
            left = [row for name, row in by_name.items() if name in kept]
        return left, refusals

    async def _filter_with(
        self, extender: HttpExtender, pod: Pod, table: NodeTable, rows: Sequence[int]
    ) -> FilterReply:
        return await extender.filter(self._node_arguments(extender, pod, table, rows))

    # --- prioritize --------------------------------------------------------------------------------

    async def prioritize(
        self, pod: Pod, table: NodeTable, rows: Sequence[int], interested: Sequence[HttpExtender]
    ) -> Totals | None:
        """What to add to the total of each row; None if no extender scores. An extender that fails gives no scores."""
        asked = [extender for extender in interested if extender.prioritizes]
        if not asked:
            return None
        position = {table.names[row]: at for at, row in enumerate(rows)}
        question = Question("prioritize", tuple(extender.url for extender in asked), table, rows)
        answers = await self._recorder.consult(
            question, lambda: asyncio.gather(*(self._scores_of(extender, pod, table, rows) for extender in asked))
        )
        added = [0] * len(rows)
        for extender, answer in zip(asked, answers, strict=True):
            factor = extender.weight * (MAX_SCORE // MAX_EXTENDER_SCORE)
            for node, score in answer:
                at = position.get(node)
                if at is not None:
                    added[at] += score * factor
        bounded = [max(-_LARGEST_TOTAL, min(_LARGEST_TOTAL, value)) for value in added]
        return np.array(bounded, dtype=np.int64)

    async def _scores_of(
        self, extender: HttpExtender, pod: Pod, table: NodeTable, rows: Sequence[int]
    ) -> list[tuple[str, int]]:
        self._prioritizing.inc()
        try:
            return await extender.prioritize(self._node_arguments(extender, pod, table, rows))
        except ExtenderError as error:
            _log.warning("extender %s gives no scores: %s", extender.url, error)
            return []
        finally:
            self._prioritizing.dec()

    # --- preempt -----------------------------------------------------------------------------------

    async def preempt(
        self,
        pod: Pod,
        table: NodeTable,
        candidates: Mapping[str, Victims],
        pods_on: Callable[[str], Mapping[str, Pod]],
        interested: Sequence[HttpExtender],
    ) -> Mapping[str, Victims]:
        """The candidates (node -> victims) that every extender agrees to. `pods_on`: uid -> pod on a node.

        Raises ExtenderError.
        """
        for extender in interested:
            if not candidates:
                break
            if not extender.preempts:
                continue
            try:
                rows = [table.row_of[node] for node in candidates]
                question = Question("preempt", (extender.url,), table, rows, candidates)
                reply = await self._recorder.consult(question, partial(self._preempt_with, extender, pod, candidates))
                candidates = self._agreed(extender, candidates, reply, pods_on)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                _log.warning("extender %s is skipped, its failure may be ignored: %s", extender.url, error)
        return candidates

    async def _preempt_with(
        self, extender: HttpExtender, pod: Pod, candidates: Mapping[str, Victims]
    ) -> dict[str, MetaVictims]:
        return await extender.preempt(self._victim_arguments(extender, pod, candidates))

    @staticmethod
    def _agreed(
        extender: HttpExtender,
        candidates: Mapping[str, Victims],
        reply: Mapping[str, MetaVictims],
        pods_on: Callable[[str], Mapping[str, Pod]],
    ) -> Mapping[str, Victims]:
        agreed: dict[str, Victims] = {}
        for node, victims in reply.items():
            if node not in candidates:
                raise ExtenderError(
                    f'extender: {extender.url} claims to preempt on node "{node}", which it was not offered'
                )
            there = pods_on(node)
            for uid in victims.uids:
                if uid not in there:
                    raise ExtenderError(
                        f"extender: {extender.url} claims to preempt pod (UID: {uid}) on node: {node}, "
                        "but the pod is not found on that node"
                    )
            if victims.uids:
                agreed[node] = Victims(tuple(there[uid] for uid in dict.fromkeys(victims.uids)), victims.violations)
            elif not extender.ignorable:
                raise ExtenderError(f'expected at least one victim pod on node "{node}"')
        return agreed

    # --- bind --------------------------------------------------------------------------------------

    def may_bind(self, pod: Pod) -> bool:
        """Whether there is a binder extender for the pod."""
        return bool(self._binders_of(pod))

    async def bind(self, pod: Pod, node: str) -> Status | None:
        """Lets the binder extender bind the pod; None if there is none for it, or it failed and may."""
        for extender in self._binders_of(pod):
            try:
                await self._bind_with(extender, pod, node)
            except ExtenderError as error:
                # Its answer is not the server's: it may report an error for a binding that was carried out.
                if error.asked and await self._is_bound(pod, node):
                    return SUCCESS
                if not extender.ignorable:
                    return Status(Code.ERROR, (str(error),))
                _log.warning("extender %s is skipped, its failure may be ignored: %s", extender.url, error)
                continue
            return SUCCESS
        return None

    def _binders_of(self, pod: Pod) -> list[HttpExtender]:
        return [each for each in self._binders if pod.uid not in self._virtual and each.is_interested(pod)]

    async def _bind_with(self, extender: HttpExtender, pod: Pod, node: str) -> None:
        """Raises ExtenderError. After a cancellation it is unknown whether the extender will bind."""
        answered = False
        self._bindings.began()
        try:
            await extender.bind(pod, node, self._fence)
            answered = True
        except ExtenderError as error:
            answered = not error.uncertain
            raise
        finally:
            self._bindings.ended(answered=answered)

    # --- arguments ---------------------------------------------------------------------------------

    def _node_arguments(self, extender: HttpExtender, pod: Pod, table: NodeTable, rows: Sequence[int]) -> bytes:
        shown = self._objects.pod(pod)
        if extender.node_cache_capable:
            return node_arguments(shown, None, [table.names[row] for row in rows])
        return node_arguments(shown, (self._objects.node(table, row) for row in rows), None)

    def _victim_arguments(self, extender: HttpExtender, pod: Pod, candidates: Mapping[str, Victims]) -> bytes:
        shown = self._objects.pod(pod)
        if extender.node_cache_capable:
            meta = {
                node: {"Pods": [{"UID": victim.uid} for victim in victims.pods], "NumPDBViolations": victims.violations}
                for node, victims in candidates.items()
            }
            return victim_arguments(shown, None, meta)
        whole = {
            node: {
                "Pods": [self._objects.victim(victim) for victim in victims.pods],
                "NumPDBViolations": victims.violations,
            }
            for node, victims in candidates.items()
        }
        return victim_arguments(shown, whole, None)

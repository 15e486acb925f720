"""The plugin: holds back the pods of quarantined workloads, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from koordsched.cluster.pod import Pod
from koordsched.framework.explaining import ExplainsRefusals
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    CycleState,
    PreFilter,
    PreFilterResult,
)
from koordsched.framework.status import SKIP, Code, Status
from koordsched.plugins.shared.workloads import Workload, workload_of
from koordsched.plugins.workloadquarantine.args import WorkloadQuarantineArgs
from koordsched.plugins.workloadquarantine.quarantines import RELEASED, Quarantines
from koordsched.plugins.workloadquarantine.record import key_of
from koordsched.queue.hints import GroupBy, HintRegistration, QueueingHint


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """A quarantine. `annotation`: that of the namespace whose removal lifts it."""

    namespace: str
    kind: str
    name: str
    since: str
    until: str
    nodes: tuple[str, ...]
    placed: int
    chance: str
    annotation: str


class WorkloadQuarantine(PreFilter, ExplainsRefusals):
    """Rejects the pod before any node is checked: nothing that happens on nodes can help."""

    name = "WorkloadQuarantine"

    def __init__(self, args: WorkloadQuarantineArgs, handle: Handle) -> None:
        self.quarantines = Quarantines.shared(args, handle)

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """UNRESOLVABLE if the pod's workload is quarantined."""
        held = self.quarantines.held
        if not held or (workload := workload_of(pod)) not in held:
            return SKIP
        cycle.beyond_nodes = True
        return Status(Code.UNRESOLVABLE, (self.quarantines.text(workload),))

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """The end of the quarantine."""
        return [HintRegistration(self.name, RELEASED, _after_release, GroupBy(workload_of))]

    def explain_refusal(self, pod: Pod) -> Details | None:
        """The quarantine of the pod's workload."""
        return self.details(workload_of(pod))

    def details(self, workload: Workload) -> Details | None:
        """The quarantine of a workload."""
        record = self.quarantines.held.get(workload)
        if record is None:
            return None
        return Details(
            *workload, record.since, record.until, record.nodes, record.placed, record.chance, key_of(workload)
        )


def _after_release(pod: Pod, old: Any, released: Workload) -> QueueingHint:
    return QueueingHint.QUEUE if workload_of(pod) == released else QueueingHint.SKIP

"""DynamicResources without its function: dynamic resource allocation is not supported.

A pod that uses resource claims is refused with a clear text instead of being placed without its devices, and the
condition of one that finds no node names the requested resources that a DeviceClass provides. For all other pods it
answers like upstream's plugin (default-plugins spec 3.12): score 0, and its name in the message when no node fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koordsched.cluster.builtinkinds import DEVICE_CLASSES
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.config.plugin_args import DynamicResourcesArgs
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    CycleState,
    PostFilter,
    PostFilterResult,
    PreBind,
    PreEnqueue,
    PreFilterResult,
    Reserve,
    Scores,
    ShapeFilter,
    ShapePreFilter,
    ShapeScore,
)
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.queue.hints import HintRegistration

UNSUPPORTED = "pod uses resource claims, and dynamic resource allocation is not supported by this scheduler"
NOTHING_TO_DEALLOCATE = "no new claims to deallocate"
NO_STATE = "not found"
OF_CLASS = "{} is provided by DeviceClass {}, but this scheduler does not support dynamic resource allocation"
GATE = "DRAExtendedResource"
_IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""In front of the name of a class: the resource that every class has (dra spec 3.10)."""


class DynamicResources(PreEnqueue, ShapePreFilter, ShapeFilter, PostFilter, ShapeScore, Reserve, PreBind):
    """Refuses pods with spec.resourceClaims; otherwise without effect on placement."""

    name = "DynamicResources"
    facets = 0

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        """The time limits in the arguments have nothing to limit here."""
        self._classes = handle.cluster.objects.of(DEVICE_CLASSES) if GATE in handle.features else None
        self._names = handle.cluster.table.resource_names

    def pre_enqueue(self, pod: Pod) -> Status:
        """Admits every pod to the queue: pods with claims are rejected in the cycle, with a condition."""
        return SUCCESS

    def pre_filter_shape(self, shape: PodShape) -> PreFilterResult | Status:
        """UNRESOLVABLE with resource claims, otherwise SKIP."""
        return Status(Code.UNRESOLVABLE, (UNSUPPORTED,)) if shape.spec.resource_claims else SKIP

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """Passes all: pods with claims do not get here."""
        return None

    def post_filter(self, cycle: CycleState, pod: Pod, codes: Codes) -> PostFilterResult:
        """Nothing to deallocate; an error if another plugin's PreFilter stopped the chain before this one's.

        The error ends the chain, so such pods are not preempted for: as upstream (core spec 4.2).
        """
        if self.name in cycle.not_pre_filtered:
            return PostFilterResult(Status(Code.ERROR, (NO_STATE,)))
        return PostFilterResult(Status(Code.UNSCHEDULABLE, (NOTHING_TO_DEALLOCATE, *self._of_classes(pod))))

    def _of_classes(self, pod: Pod) -> Iterator[str]:
        if self._classes is None:
            return
        names = [self._names.names[index] for index, amount in pod.shape.requests.amounts if amount]
        for name in sorted(names):
            if name.startswith(_IMPLICIT):
                yield OF_CLASS.format(name, name.removeprefix(_IMPLICIT))
            elif found := [each.metadata for each in self._classes if each.spec.extended_resource_name == name]:
                newest = max(each.creation_timestamp or "" for each in found)
                named = min(each.name for each in found if (each.creation_timestamp or "") == newest)
                yield OF_CLASS.format(name, named)

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """0."""
        return 0

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """Nothing to reserve."""
        return SUCCESS

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """Nothing to undo."""

    def pre_bind_pre_flight(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Nothing to do before binding."""
        return SKIP

    async def pre_bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Not called, since the preflight says SKIP."""
        return SUCCESS

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """None: no event makes a pod with claims schedulable here."""
        return []

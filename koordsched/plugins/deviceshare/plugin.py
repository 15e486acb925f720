"""The plugin: PreFilter, Filter, Score, Reserve, PreBind and queueing hints (deviceshare spec 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from koordsched.api import core
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.events import ASSIGNED_POD, NODE, ActionType, ClusterEvent
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.explaining import ExplainsNodes
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    CycleState,
    Normalization,
    PreBind,
    PreFilter,
    PreFilterResult,
    Reserve,
    Scores,
    ShapeFilter,
    ShapeScore,
)
from koordsched.framework.reservations import Reserved, ScoresReserved, as_reserved, confined
from koordsched.framework.serving import Kinds, ServesSeveral
from koordsched.framework.status import PASS, SKIP, SUCCESS, Code, Codes, Status
from koordsched.framework.topologyhints import UNDECIDED, Amounts
from koordsched.plugins.deviceshare.adapters import DevicePluginAdapters
from koordsched.plugins.deviceshare.allocating import Allocating
from koordsched.plugins.deviceshare.args import DEFAULT_STRATEGY, DEFAULT_TEMPLATES, DeviceShareArgs
from koordsched.plugins.deviceshare.compiled import CompiledRequests
from koordsched.plugins.deviceshare.devicescore import DeviceScore
from koordsched.plugins.deviceshare.explanation import Explainer
from koordsched.plugins.deviceshare.feasibility import Feasibility
from koordsched.plugins.deviceshare.hints import DeviceHintProvider
from koordsched.plugins.deviceshare.nodescores import NodeScores
from koordsched.plugins.deviceshare.reasons import NO_TEMPLATE, Refusal
from koordsched.plugins.deviceshare.reserved import NO_SHARE, ReservedDevices, Share
from koordsched.plugins.deviceshare.serving import Serving
from koordsched.plugins.deviceshare.templates import Templates
from koordsched.plugins.deviceshare.templatesource import TEMPLATES_CHANGED, TemplateSource
from koordsched.plugins.shared.devices import kinds
from koordsched.plugins.shared.devices.allocation import Allocation
from koordsched.plugins.shared.devices.kinds import DEVICES
from koordsched.plugins.shared.devices.nodes import DEVICES_CHANGED, DeviceNodes
from koordsched.plugins.shared.devices.preference import GPUPreferences
from koordsched.plugins.shared.devices.resources import GPU
from koordsched.plugins.shared.matching.rows import count_of
from koordsched.queue.hints import HintRegistration, QueueingHint, Scope

DEVICE_PLUGIN_ADAPTION = "DevicePluginAdaption"
"""The feature gate with which allocations are written for vendors' own device plugins."""


class DeviceShare(PreFilter, ShapeFilter, ShapeScore, Reserve, PreBind, ExplainsNodes, ScoresReserved, ServesSeveral):
    """Gives pods GPUs, or parts of them, NICs and FPGAs."""

    name = "DeviceShare"
    only_patches = True
    normalization = Normalization.MAX

    def __init__(self, args: DeviceShareArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        args = args or DeviceShareArgs()
        templates = args.gpu_shared_resource_templates_config or DEFAULT_TEMPLATES
        improved = args.improved_allocation
        cluster = handle.cluster
        self._cluster, self.table, self._handle = cluster, cluster.table, handle
        self.nodes: DeviceNodes = cluster.shared(lambda state: DeviceNodes(state, handle), key=DeviceNodes)
        self.columns = columns = self.nodes.columns
        self.compiled = CompiledRequests(templates.matched_resources)
        self.templates = Templates()
        score = DeviceScore(args.scoring_strategy or DEFAULT_STRATEGY)
        self._allocating = Allocating(columns, self.compiled, self.templates, score, improved=improved)
        self._feasibility = Feasibility(
            self.name,
            self.compiled,
            self._allocating,
            self.templates,
            handle.reasons,
            frozenset((model.vendor, model.model) for model in args.gpu_share_unsupported_models),
            improved=improved,
        )
        self._serving = Serving(self.compiled, self._allocating, self._feasibility, self.templates)
        self._scores = NodeScores(columns, score)
        self._reserved = ReservedDevices(columns)
        self._aligns = not args.disable_device_numa_topology_alignment
        if self._aligns:
            handle.topology_hint_providers.append(
                DeviceHintProvider(self.compiled, self._allocating, self._feasibility)
            )
        self._adapters = DevicePluginAdapters(handle) if DEVICE_PLUGIN_ADAPTION in handle.features else None
        self._reasons = handle.reasons
        self._preferences = cluster.shared(GPUPreferences).by_profile
        self._explainer = Explainer(columns, self.compiled, self._allocating)
        TemplateSource(cluster, handle, templates, self.templates, columns)
        handle.reserved_allocations.append(self)

    @cached_property
    def facets(self) -> int:  # type: ignore[override]  # the plugin that aligns may be made after this one
        """Devices, and what decides about NUMA nodes."""
        alignment = self._handle.numa_alignment
        return self.columns.facets | (alignment.facets if alignment is not None else 0)

    def knows(self, row: int) -> bool:
        """Whether the node reports devices, or pods hold some there."""
        return self._feasibility.is_known(row)

    def allocations_on(self, row: int) -> Iterator[tuple[Pod, Allocation]]:
        """The pods on a row that were given devices, with what they were given."""
        for pod in self._cluster.pods_on(row).values():
            given = self.columns.allocation.of(pod)
            if given:
                yield pod, given

    # --- filter ----------------------------------------------------------------------------------

    def skips_shape(self, shape: PodShape) -> bool:
        """Pods that ask for no device, and whose annotations can be read."""
        request = self.compiled.of(shape)
        return not request.types and not request.problem

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """Rejects pods whose requests or annotations make no sense, or that match no template."""
        problem = self._problem(pod.shape)
        if problem:
            return Status(Code.UNRESOLVABLE, (problem,))
        return SUCCESS if self.compiled.of(pod.shape).types else SKIP

    def _problem(self, shape: PodShape) -> str:
        """Why pods of the shape fit nowhere, "" if they may fit."""
        request = self.compiled.of(shape)
        if request.templated and not self.templates.matched(request.devices.types[GPU].amounts):
            return NO_TEMPLATE
        return request.problem

    def filter_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """See ShapeFilter."""
        request = self.compiled.of(shape)
        if not request.types:
            return None
        codes = self._feasibility.codes(shape, table, rows)
        if codes is None:
            return None
        affinities = self._affinities(shape, table, rows)
        if affinities is None:
            return codes
        # Where NUMA nodes were chosen, the devices on them were considered; only earlier checks remain.
        decided = (affinities != UNDECIDED) & ~self._feasibility.refused_first(request, rows)
        codes[decided] = PASS
        return codes if codes.any() else None

    def _affinities(self, shape: PodShape, table: NodeTable, rows: Rows) -> Amounts | None:
        alignment = self._handle.numa_alignment
        if alignment is None:
            return None
        every = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        return alignment.affinities(shape, table, every)

    # --- score -----------------------------------------------------------------------------------

    def skips(self, shape: PodShape) -> bool:
        """Pods that ask for no device."""
        return not self.compiled.of(shape).types

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """By how much of the devices would be in use."""
        request = self.compiled.of(shape)
        if not request.types:
            return np.zeros(count_of(rows), dtype=np.int64)
        return self._scores.of(request, rows, self._affinities(shape, table, rows))

    # --- reserve and bind --------------------------------------------------------------------------

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """Picks devices."""
        numa_affinity = cycle.numa_affinity if self._aligns else None
        if cycle.reservations is None:
            given = self._given(pod.shape, row, numa_affinity)
        else:
            with as_reserved(self._cluster, cycle.reservations, row) as reserved:
                given = self._given(pod.shape, row, numa_affinity, self._reserved.share(reserved))
        if isinstance(given, Refusal):
            return Status(given.code, given.texts)
        if given:
            cycle.state[self.name] = given
            self._cluster.allocate(pod, self.columns.allocation, given)
        return SUCCESS

    def _given(
        self, shape: PodShape, row: int, numa_affinity: int | None, share: Share = NO_SHARE
    ) -> Allocation | Refusal:
        """What a pod gets on a row; nothing where the kubelet decides."""
        if not self.compiled.of(shape).types or not self._feasibility.is_known(row):
            return ()
        preferred = self._preferred(shape, row)
        if preferred and GPU in share.preferred:
            preferred = sorted(preferred, key=lambda minor: minor not in share.preferred[GPU])
        return self._allocating.allocate(shape, row, numa_affinity or 0, preferred, share)

    def _preferred(self, shape: PodShape, row: int) -> Sequence[int]:
        """The GPUs that another plugin would give to a pod that wants a part of one."""
        devices = self.compiled.of(shape).devices
        preference = self._preferences.get(self._handle.profile)
        if preference is None or devices.gpus is None or not devices.gpus.shared or devices.types[GPU].number != 1:
            return ()
        return preference.preferred(shape, row)

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """Gives back what Reserve took."""
        if cycle.state.pop(self.name, None) is not None and self.columns.allocation.of(pod) is not None:
            self._cluster.allocate(pod, self.columns.allocation, None)

    def pre_bind_pre_flight(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SKIP for pods that were given nothing, and say so."""
        return SUCCESS if self.name in cycle.state or _shows_allocation(pod) else SKIP

    async def pre_bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Annotates the pod with what it was given.

        What an earlier, failed attempt wrote, for another node, is removed: the pod would be counted with it. The table
        itself gets the ids of the devices by the watch: an attempt at other pods may be under way.
        """
        given: Allocation | None = cycle.state.get(self.name)
        if given is None:
            cycle.patch.annotate(kinds.DEVICE_ALLOCATED, None)
            return SUCCESS
        device = self._cluster.objects.of(DEVICES).get("", node)
        if device is None:
            return Status(Code.ERROR, (f'device.scheduling.koordinator.sh "{node}" not found',))
        ids = {(info.type, info.minor or 0): info.id for info in device.spec.devices}
        given = tuple(each._replace(id=ids.get((each.type, each.minor), "")) for each in given)
        cycle.patch.annotate(kinds.DEVICE_ALLOCATED, self.columns.allocation.text(given))
        if self._adapters is None:
            return SUCCESS
        return await self._adapters.adapt(cycle, pod, given, device)

    # --- reservations ------------------------------------------------------------------------------

    def concerns(self, shape: PodShape, row: int) -> bool:
        """See ReservedAllocation."""
        return bool(self.compiled.of(shape).types) and self._feasibility.is_known(row)

    def allocates_from(self, cycle: CycleState, pod: Pod, row: int, reserved: Reserved | None) -> Status:
        """See ReservedAllocation."""
        mask = self._mask_within(pod.shape, row, reserved)
        found = self._allocating.trial(pod.shape, row, mask, self._reserved.share(reserved))
        return Status(found.code, found.texts) if isinstance(found, Refusal) else SUCCESS

    def score_reserved(self, cycle: CycleState, pod: Pod, row: int, reserved: Reserved) -> int:
        """See ReservedAllocation: as nodes are scored, with the devices that the pod may have."""
        if not self._reserved.whole(reserved):
            return 0
        request, share = self.compiled.of(pod.shape), self._reserved.share(reserved)
        supply = self._allocating.supply(request, row, self._mask_within(pod.shape, row, reserved), share.required)
        return self._scores.of_supply(request, supply)

    def score_using(self, cycle: CycleState, pod: Pod, row: int, reserved: Reserved) -> int | None:
        """See ScoresReserved: a reservation without devices makes the node worth nothing, as upstream."""
        return self.score_reserved(cycle, pod, row, reserved) if self.concerns(pod.shape, row) else None

    def confined(self, row: int, reserved: Reserved) -> AbstractContextManager[None]:
        """See ReservedAllocation."""
        return self._reserved.confined(row, reserved)

    def _mask_within(self, shape: PodShape, row: int, reserved: Reserved | None) -> int:
        """The NUMA nodes that the pod would have to use with the reservation, 0 for any."""
        alignment = self._handle.numa_alignment
        if not self._aligns or alignment is None or not alignment.concerns(shape, row):
            return 0
        with confined(self._handle.reserved_allocations, row, reserved):
            affinities = self._affinities(shape, self.table, slice(row, row + 1))
        return max(0, affinities.item(0)) if affinities is not None else 0

    # --- several pods ------------------------------------------------------------------------------

    def served(self, before: Kinds, shape: PodShape, rows: RowArray, most: int) -> tuple[Amounts, Codes]:
        """See ServesSeveral."""
        return self._serving.served(before, shape, rows, most)

    # --- explanations ------------------------------------------------------------------------------

    def explain_nodes(self, shape: PodShape, rows: RowArray) -> list[list[str]]:
        """What the pod wants of the nodes' devices, and what these have."""
        known: dict[bytes, list[str]] = {}
        found = []
        for row, key in zip(rows.tolist(), self._feasibility.keys(self.compiled.of(shape), rows), strict=True):
            state = key.tobytes()
            if state not in known:
                known[state] = self._explainer.explain(shape, row)
            found.append(known[state])
        return found

    def remedy(self, shape: PodShape, row: int) -> str:
        """How many devices would have to be freed, or what else is missing."""
        codes = self.filter_rows(shape, self.table, slice(row, row + 1))
        reasons = self._reasons[codes.item(0)].texts if codes is not None else ()
        return self._explainer.remedy(shape, row, reasons)

    # --- queueing hints ----------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Deleted pods, new nodes, nodes with other devices or NUMA policies, other templates: if the pod fits now, or
        might after preemption.
        """
        alignment = self._handle.numa_alignment
        changed = [DEVICES_CHANGED, *([alignment.changed] if alignment is not None else [])]
        return [
            *(HintRegistration(self.name, event, self._after_node_changed, Scope.SHAPE) for event in changed),
            HintRegistration(self.name, ClusterEvent(NODE, ActionType.ADD), self._after_node_added, Scope.SHAPE),
            HintRegistration(
                self.name, ClusterEvent(ASSIGNED_POD, ActionType.DELETE), self._after_pod_left, Scope.SHAPE
            ),
            HintRegistration(self.name, TEMPLATES_CHANGED, self._after_templates_changed, Scope.SHAPE),
        ]

    def _after_node_changed(self, pod: Pod, old: None, new: int) -> QueueingHint:
        return self._if_helps(pod, new)

    def _after_pod_left(self, pod: Pod, old: Pod, new: Pod | None) -> QueueingHint:
        row = self.table.row_of.get(old.node)
        return QueueingHint.SKIP if row is None else self._if_helps(pod, row)

    def _after_node_added(self, pod: Pod, old: None, new: core.Node) -> QueueingHint:
        row = self.table.row_of.get(new.metadata.name)
        return QueueingHint.SKIP if row is None else self._if_helps(pod, row)

    def _after_templates_changed(self, pod: Pod, old: Any, new: Any) -> QueueingHint:
        if not self.compiled.of(pod.shape).templated or self._problem(pod.shape):
            return QueueingHint.SKIP
        rows = np.array(list(self.table.row_of.values()), dtype=np.intp)
        codes = self.filter_rows(pod.shape, self.table, rows)
        if codes is None:
            return QueueingHint.QUEUE
        verdicts = zip(rows.tolist(), codes.tolist(), strict=True)
        helps = any(code == PASS or self._might_preempt(pod, row, code) for row, code in verdicts)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _if_helps(self, pod: Pod, row: int) -> QueueingHint:
        """Whether the pod has room on the row, or might have without pods of lower priority. Reserve refuses some pods
        that pass the filter: they must get devices, too.
        """
        if self._problem(pod.shape):
            return QueueingHint.SKIP
        codes = self.filter_rows(pod.shape, self.table, slice(row, row + 1))
        if codes is None:
            aligned = self._handle.numa_alignment is not None  # then what they get depends on the NUMA nodes
            refused = not aligned and isinstance(self._given(pod.shape, row, None), Refusal)
            return QueueingHint.SKIP if refused else QueueingHint.QUEUE
        return QueueingHint.QUEUE if self._might_preempt(pod, row, codes.item(0)) else QueueingHint.SKIP

    def _might_preempt(self, pod: Pod, row: int, code: int) -> bool:
        """Whether pods of lower priority are on a row that is refused for a reason that may depend on them."""
        if self._reasons[code].code is not Code.UNSCHEDULABLE or pod.shape.never_preempts:
            return False
        return any(other.priority < pod.priority for other in self._cluster.pods_on(row).values())


def _shows_allocation(pod: Pod) -> bool:
    return pod.wire is not None and kinds.DEVICE_ALLOCATED in pod.wire.metadata.annotations

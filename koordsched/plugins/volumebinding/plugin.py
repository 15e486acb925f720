"""The plugin: claims and volumes at each extension point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from koordsched.cluster.builtinkinds import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.cluster.state import ClusterState
from koordsched.config.plugin_args import VolumeBindingArgs
from koordsched.framework.dryruns import DryRunFilter, FilterDryRun, PodIndependent
from koordsched.framework.handle import Handle, WriteFailed
from koordsched.framework.interface import (
    CycleState,
    PodScore,
    PreBind,
    PreFilter,
    PreFilterResult,
    Reserve,
    Scores,
)
from koordsched.framework.status import PASS, SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.shared.volumes.claims import uses_claims
from koordsched.plugins.volumebinding.assumed import Assumed
from koordsched.plugins.volumebinding.assumedvolumes import AssumedVolumes, VolumeAssumptions
from koordsched.plugins.volumebinding.binder import Binder, BindingFailed
from koordsched.plugins.volumebinding.capacity import StorageCapacities
from koordsched.plugins.volumebinding.claims import ClaimReader, Claims
from koordsched.plugins.volumebinding.hints import registrations
from koordsched.plugins.volumebinding.migration import MigratedPlugins
from koordsched.plugins.volumebinding.placing import TEXTS, Placer, Placing
from koordsched.plugins.volumebinding.volumes import Volumes
from koordsched.queue.hints import HintRegistration


class VolumeBooks:
    """What is assumed of claims and volumes; one per cluster, so that profiles see each other's assumptions."""

    def __init__(self, cluster: ClusterState) -> None:
        objects = cluster.objects
        claims = Assumed(objects.of(PERSISTENT_VOLUME_CLAIMS))
        volumes = Assumed(objects.of(PERSISTENT_VOLUMES))
        classes = objects.of(STORAGE_CLASSES)
        self.volumes = Volumes(cluster.table, volumes, MigratedPlugins(cluster.table, objects.of(CSI_NODES)))
        self.reader = ClaimReader(claims, classes)
        capacities = StorageCapacities(cluster.table, objects.of(CSI_STORAGE_CAPACITIES))
        self.placer = Placer(cluster.table, self.volumes, classes, objects.of(CSI_DRIVERS), capacities)
        self.assumptions = VolumeAssumptions(volumes, claims)


class _CycleState:
    """The pod's claims, where they can be placed once that was asked, and what was reserved."""

    __slots__ = ("assumed_volumes", "claims", "placing")

    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self.placing: Placing | None = None
        self.assumed_volumes: AssumedVolumes | None = None


class VolumeBinding(PreFilter, DryRunFilter, PodScore, Reserve, PreBind):
    """Refuses nodes where a volume of the pod is not and cannot be; binds volumes before the pod.

    Storage capacity is not scored: the feature gate for that is off, and `shape` in the arguments waits for it.
    """

    name = "VolumeBinding"

    def __init__(self, args: VolumeBindingArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        args = args or VolumeBindingArgs()
        self._table = handle.cluster.table
        self._count = handle.count
        self._books = handle.cluster.shared(VolumeBooks)
        handle.states.keep(self.name, self._books.assumptions)
        self._binder = Binder(handle.cluster, self._books.volumes, handle.writes, float(args.bind_timeout_seconds))
        codes = [
            handle.reasons.intern(
                self.name, Code.UNRESOLVABLE, *(text for bit, text in TEXTS.items() if problems & bit)
            )
            for problems in range(1, 1 << len(TEXTS))
        ]
        self._code_of = np.array([PASS, *codes], dtype=np.int32)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Changes of everything that volumes depend on."""
        return registrations(self.name)

    # --- filter ----------------------------------------------------------------------------------

    def skips_shape(self, shape: PodShape) -> bool:
        """Pods without claims."""
        return not uses_claims(shape)

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """SKIP without claims; UNRESOLVABLE if a claim cannot be used, or should have been bound by others."""
        return self._read(cycle, pod)

    def _read(self, cycle: CycleState, pod: Pod) -> Status:
        claims = self._books.reader.read(pod)
        if isinstance(claims, Status):
            return claims
        cycle.state[self] = _CycleState(claims)
        return SUCCESS

    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """All problems of a node are reported at once. Other pods do not matter, so what-ifs change nothing."""
        state = self._state(cycle, pod)
        if state is None:
            return None
        problems = self._placing(state).problems[rows]
        return self._code_of[problems] if problems.any() else None

    def dry_run(self, cycle: CycleState, pod: Pod, coming: Iterable[Pod]) -> FilterDryRun:
        """Other pods do not matter."""
        return PodIndependent(self, cycle, pod)

    def _state(self, cycle: CycleState, pod: Pod) -> _CycleState | None:
        """What PreFilter left, or would have; None for a pod without claims."""
        state: _CycleState | None = cycle.state.get(self)
        if state is None and self._read(cycle, pod).ok:
            state = cycle.state[self]
        return state

    def _placing(self, state: _CycleState) -> Placing:
        if state.placing is None or len(state.placing.problems) != self._table.size:
            state.placing = self._books.placer.place(state.claims)
        return state.placing

    # --- score -----------------------------------------------------------------------------------

    def abstains(self, cycle: CycleState, pod: Pod) -> bool:
        """Always, as `pre_score` says."""
        return True

    def abstains_from(self, shape: PodShape) -> bool:
        """Always."""
        return True

    def pre_score(self, cycle: CycleState, pod: Pod, rows: RowArray) -> Status:
        """SKIP always."""
        return SKIP

    def score(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Scores:
        """Not called, since PreScore says SKIP."""
        return 0

    # --- reserve and bind --------------------------------------------------------------------------

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """Assumes the volumes of the node for the pod's claims; not for virtual pods, which get none bound."""
        if pod.virtual:
            return SUCCESS
        state = self._state(cycle, pod)
        if state is not None and not state.claims.all_bound:
            state.assumed_volumes = self._books.assumptions.make(
                pod.uid, self._placing(state), row, self._table.names[row]
            )
        return SUCCESS

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """Takes the assumptions back. Annotations and references that were written stay."""
        state: _CycleState | None = cycle.state.get(self)
        if state is not None and state.assumed_volumes is not None:
            self._books.assumptions.undo(pod.uid)
            state.assumed_volumes = None

    def pre_bind_pre_flight(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SKIP if all claims are bound."""
        state: _CycleState | None = cycle.state.get(self)
        return SUCCESS if state is not None and state.assumed_volumes is not None else SKIP

    async def pre_bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Has the claims bound; an ERROR if that fails or takes longer than bindTimeoutSeconds."""
        state: _CycleState | None = cycle.state.get(self)
        if state is None or state.assumed_volumes is None:
            return SUCCESS
        try:
            await self._binder.bind(pod, node, state.assumed_volumes, cycle.waiting_for_others)
        except WriteFailed as error:
            self._count("scheduler_volume_scheduling_stage_error_total", "bind")
            return Status(Code.ERROR, (str(error),))
        except BindingFailed as error:
            self._count("scheduler_volume_scheduling_stage_error_total", "bind")
            return Status(Code.ERROR, (f"binding volumes: {error}",))
        self._books.assumptions.end(pod.uid)
        return SUCCESS

"""The plugin: claims and devices at each extension point."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from koordsched.api.resource import ResourceClaim
from koordsched.cluster.builtinkinds import RESOURCE_CLAIMS
from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.config.duration import Duration
from koordsched.config.plugin_args import DynamicResourcesArgs
from koordsched.framework.dryruns import DryRunFilter, FilterDryRun, PodIndependent
from koordsched.framework.explaining import ExplainsPods, ExplainsRefusals, ExplainsVerdicts
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    MAX_SCORE,
    CycleState,
    PodScore,
    PostFilter,
    PostFilterResult,
    PreBind,
    PreEnqueue,
    PreFilter,
    PreFilterResult,
    Reserve,
    Scores,
    SettlesOffline,
    ShapeScore,
    TellsPodsApart,
)
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.dynamicresources.alike import identity_of
from koordsched.plugins.dynamicresources.allocatable import TakingFailed
from koordsched.plugins.dynamicresources.allocatable.filtering import ANY_POD
from koordsched.plugins.dynamicresources.allocatable.hints import room_made
from koordsched.plugins.dynamicresources.binding import ClaimBinding
from koordsched.plugins.dynamicresources.books import DeviceBooks, books_of
from koordsched.plugins.dynamicresources.claims import ClaimProblem
from koordsched.plugins.dynamicresources.claimstates import ClaimsRefusal, refusal_of
from koordsched.plugins.dynamicresources.claimwriter import FINALIZER, ClaimFailed, ClaimWriter
from koordsched.plugins.dynamicresources.conditions import BindingFailed, BindingTimeout
from koordsched.plugins.dynamicresources.cyclestate import AllocatedClaim, Chosen, DeviceCycle
from koordsched.plugins.dynamicresources.deallocation import Deallocation
from koordsched.plugins.dynamicresources.explanation import Explainer
from koordsched.plugins.dynamicresources.extended import ServedResources
from koordsched.plugins.dynamicresources.extended.claim import in_memory
from koordsched.plugins.dynamicresources.extended.hints import registration as after_special_claim_gone
from koordsched.plugins.dynamicresources.filtering import DeviceFilter
from koordsched.plugins.dynamicresources.hints import Hints
from koordsched.plugins.dynamicresources.prefilter import problem_of
from koordsched.plugins.dynamicresources.readiness import Readiness
from koordsched.plugins.dynamicresources.settling import settle
from koordsched.plugins.dynamicresources.structured import AllocationError, InvalidPools, SearchExpired
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors
from koordsched.queue.hints import HintRegistration

NO_STATE = "not found"
NOT_CHOSEN = "claim allocation not found for node"


class DynamicResources(
    PreEnqueue,
    PreFilter,
    DryRunFilter,
    PostFilter,
    PodScore,
    ShapeScore,
    Reserve,
    PreBind,
    ExplainsPods,
    ExplainsRefusals,
    ExplainsVerdicts,
    SettlesOffline,
    TellsPodsApart,
):
    """Finds devices for the claims of pods, and writes before the binding who has which."""

    name = "DynamicResources"
    facets = 0

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        """The arguments must be valid."""
        args = args or DynamicResourcesArgs()
        books = self._books = books_of(handle)
        self.cluster = handle.cluster
        self._table = handle.cluster.table
        self._rng = handle.rng
        self._selectors = NodeSelectors()
        self._hints = Hints(self.name, books.claims_of)
        self._served: ServedResources | None = books.served
        binding_timeout = _seconds(args.binding_timeout) if books.features.binding_conditions else None
        self._filter = DeviceFilter(
            self.name,
            books,
            self._served,
            handle.reasons,
            handle.clock,
            _seconds(args.filter_timeout) or 0.0,
            binding_timeout,
            lenient=bool(args.skip_faulty_devices),
            best_fit=bool(args.best_fit),
        )
        self._explainer = Explainer(books, self._filter, handle.cluster.table)
        writer = ClaimWriter(
            handle.writes,
            handle.live_clock,
            timestamps=books.features.binding_conditions,
            show=lambda claim: handle.show(RESOURCE_CLAIMS, claim),
        )
        readiness = None
        if binding_timeout is not None:
            readiness = Readiness(
                books.claims,
                books.claim_changes,
                handle.live_clock,
                binding_timeout,
                handle.profile,
                handle.count,
                handle.observe,
            )
        self.binding = ClaimBinding(handle, books, writer, readiness)
        self._deallocation = Deallocation(books.claims, books.groups, writer, handle.rng, handle.launch, handle.events)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Changes of claims, classes, slices and nodes, and of the claims that the pod's status names."""
        registrations = self._hints.registrations()
        if self._served is not None:
            registrations.append(after_special_claim_gone(self.name))
        if self._books.allocatable is not None:
            registrations.append(room_made(self.name))
        return registrations

    def identity(self, pod: Pod) -> Hashable | None:
        """What the pod's new claims ask for."""
        return identity_of(pod, self._books)

    # --- before nodes are looked at --------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Status:
        """UNRESOLVABLE while a claim of the pod is missing, going, or not its own.

        Virtual pods are tried: what is wrong is said of the object that they stand for after that alone.
        """
        if pod.virtual or not pod.shape.spec.resource_claims:
            return SUCCESS
        try:
            self._books.claims_of(pod)
        except ClaimProblem as problem:
            return Status(Code.UNRESOLVABLE, (str(problem),))
        return SUCCESS

    def skips_shape(self, shape: PodShape) -> bool:
        """Pods that neither claim devices nor request a resource that a class can stand for."""
        return not shape.spec.resource_claims and not (self._served is not None and self._served.may_concern(shape))

    def skips(self, pod: Pod | PodShape) -> bool:
        """False: what PreFilter says decides about Filter; what is scored is 0 for all others."""
        return False

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """SKIP without claims; UNRESOLVABLE or an ERROR if a claim cannot be allocated anywhere."""
        try:
            claims = self._books.claims_of(pod)
        except ClaimProblem as problem:
            return Status(Code.UNRESOLVABLE, (str(problem),))
        special, leftover = None, False
        if self._served is not None and self._served.concerns(pod.shape):
            existing = self._books.special_claims.of(pod)
            leftover = existing is not None
            special = existing or in_memory(pod, self._books.special_uid(pod.uid))
        if not claims and special is None:
            return SKIP
        claims, shared = self._with_shared(cycle, claims)
        status = problem_of(
            claims,
            self._books.in_flight,
            self._books.device_class,
            prioritized_list=self._books.features.prioritized_list,
        )
        if not status.ok:
            return status
        allocated = [
            AllocatedClaim(place, claim, self._selectors.terms(selector) if selector is not None else None)
            for place, claim in enumerate(claims)
            if (allocation := claim.status.allocation) is not None
            for selector in (allocation.node_selector,)
        ]
        cycle.state[self] = DeviceCycle(
            claims, allocated, special, leftover=leftover, shared=shared, in_job=bool(cycle.job_members)
        )
        return SUCCESS

    def _with_shared(
        self, cycle: CycleState, claims: tuple[ResourceClaim, ...]
    ) -> tuple[tuple[ResourceClaim, ...], Sequence[ResourceClaim]]:
        """The claims with what is in flight for members of the same job, and those for which something is."""
        if not cycle.job_members:
            return claims, ()
        found = [
            self._books.in_flight.shared_with(claim.metadata.uid, cycle.job_members)
            if claim.status.allocation is None
            else None
            for claim in claims
        ]
        both = zip(claims, found, strict=True)
        return tuple(flying or claim for claim, flying in both), [flying for flying in found if flying is not None]

    # --- nodes ---------------------------------------------------------------------------------------

    def filter(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Codes | None:
        """Whether the claims are, or can be, allocated on each row."""
        state = self._state(cycle)
        return self._filter.verdicts(state, pod, table, rows) if state is not None else None

    def dry_run(self, cycle: CycleState, pod: Pod, coming: Iterable[Pod]) -> FilterDryRun:
        """Other pods do not matter: devices are free when claims say so. But where devices take
        something of the node, the room that is left matters.
        """
        state = self._state(cycle)
        return PodIndependent(self, cycle, pod, one_by_one=ANY_POD if state is not None and state.takes else None)

    def treats_alike(self, shape: PodShape) -> bool:
        """Pods without claims: there is nothing to free for them."""
        return self.skips_shape(shape)

    def post_filter(self, cycle: CycleState, pod: Pod, codes: Codes) -> PostFilterResult:
        """Frees a claim that keeps the pod from nodes; an error if another plugin's PreFilter stopped the chain before
        this one's.

        The error ends the chain, so such pods are not preempted for: as upstream (core spec 4.2).
        """
        if self.name in cycle.not_pre_filtered:
            return PostFilterResult(Status(Code.ERROR, (NO_STATE,)))
        return self._deallocation.decide(self._state(cycle), pod)

    def _state(self, cycle: CycleState) -> DeviceCycle | None:
        state: DeviceCycle | None = cycle.state.get(self)
        return state

    # --- scores --------------------------------------------------------------------------------------

    def score_rows(self, shape: PodShape, table: NodeTable, rows: Rows) -> Scores:
        """0: what pods of a shape get without a look at their claims."""
        return 0

    def abstains(self, cycle: CycleState, pod: Pod) -> bool:
        """Unless an alternative was chosen somewhere."""
        state = self._state(cycle)
        return state is None or state.scores is None

    def abstains_from(self, shape: PodShape) -> bool:
        """Without claims there are no alternatives."""
        return self.skips_shape(shape)

    def pre_score(self, cycle: CycleState, pod: Pod, rows: RowArray) -> Status:
        """SKIP if it abstains."""
        return SKIP if self.abstains(cycle, pod) else SUCCESS

    def score(self, cycle: CycleState, pod: Pod, table: NodeTable, rows: RowArray) -> Scores:
        """8 less the number of the alternative, for each request that has some."""
        state = self._state(cycle)
        return state.scores[rows] if state is not None and state.scores is not None else 0

    def normalize(self, cycle: CycleState, pod: Pod, scores: Scores) -> Scores:
        """100 for the highest."""
        if isinstance(scores, int):
            return scores
        highest = int(scores.max(initial=0))
        return scores * MAX_SCORE // highest if highest else scores

    # --- reserve and bind ------------------------------------------------------------------------------

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """Chooses devices on the row for the claims that have none; from now on they are in use.

        Virtual pods get none, as they get no volumes: claims are reserved for Pods.
        """
        state = self._state(cycle)
        if state is None or pod.virtual:
            return SUCCESS
        claims, demand = self._filter.demand_on(state, pod, row)
        chosen: tuple[Chosen, ...] = ()
        if demand is not None:
            try:
                found = self._books.allocator.allocate(demand, row, self._filter.deadline())
            except (AllocationError, InvalidPools, SearchExpired):
                found = None
            if found is None:
                return Status(Code.ERROR, (NOT_CHOSEN,))
            chosen = tuple(Chosen(*pair) for pair in zip(claims, found.results, strict=True))
        if self._books.allocatable is not None:
            try:
                self._books.allocatable.begin(state, pod, chosen)
            except TakingFailed as failure:
                return Status(Code.ERROR, (str(failure),))
        state.chosen = chosen
        for claim, allocation in chosen:
            self._books.begin(claim, allocation, FINALIZER, pod.uid)
        for claim in state.shared:
            if claim.status.allocation is None or not self._books.in_flight.join(claim.metadata.uid, pod.uid):
                return Status(Code.ERROR, (NOT_CHOSEN,))
            state.chosen = (*state.chosen, Chosen(claim, claim.status.allocation))
        return SUCCESS

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """Takes it back. What PreBind wrote is undone but for the allocation, with which the next attempt goes on."""
        state = self._state(cycle)
        if state is not None:
            state.chosen = ()
            if self._books.allocatable is not None:
                self._books.allocatable.end(state, pod)
            self.binding.release(state, pod)
        self._books.give_up(pod.uid)

    def pre_bind_pre_flight(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """SKIP without claims, unless an earlier binding has left something."""
        if pod.virtual:
            return SKIP
        state = self._state(cycle)
        claims = state is not None and bool(state.claims or state.chosen)
        return SUCCESS if claims or self.binding.has_left(state, pod) else SKIP

    async def pre_bind(self, cycle: CycleState, pod: Pod, node: str) -> Status:
        """Writes who has the devices, and waits until they are ready; an ERROR if that fails."""
        try:
            await self.binding.bind(cycle, self._state(cycle), pod, node)
        except (ClaimFailed, BindingFailed, BindingTimeout) as error:
            return Status(Code.ERROR, (str(error),))
        return SUCCESS

    # --- explanations, and evaluations without an API server ---------------------------------------------

    @property
    def books(self) -> DeviceBooks:
        """What is known of claims and devices."""
        return self._books

    def explain_refusal(self, pod: Pod) -> ClaimsRefusal | None:
        """All claims of the pod, if one of them keeps it from being tried."""
        return refusal_of(pod, self._books, self.cluster)

    def explain_pod(self, cycle: CycleState) -> list[str]:
        """Which claims have their devices already."""
        state = self._state(cycle)
        return self._explainer.notes(state) if state is not None else []

    def explain_verdicts(self, cycle: CycleState, rows: RowArray) -> list[list[str]]:
        """How many devices each request could have on each row, and what keeps it from the others."""
        state = self._state(cycle)
        return self._explainer.lines(state, cycle.pod, rows) if state is not None else [[] for _ in rows]

    def remedy_of(self, cycle: CycleState, row: int) -> str:
        """Which devices would have to be free, or there."""
        state = self._state(cycle)
        return self._explainer.remedy(state, cycle.pod, row) if state is not None else ""

    def nearest(self, cycle: CycleState, rows: RowArray) -> int:
        """Where fewest devices would have to be freed, else where fewest are missing."""
        state = self._state(cycle)
        return self._explainer.nearest(state, cycle.pod, rows) if state is not None else 0

    def waits_for(self, cycle: CycleState, row: int) -> str:
        """Devices that other claims have, if they would do."""
        state = self._state(cycle)
        return self._explainer.waits_for(state, cycle.pod, row) if state is not None else ""

    def settle(self, cycle: CycleState, pod: Pod) -> list[str]:
        """The claims get what Reserve chose."""
        state = self._state(cycle)
        return settle(state, pod, self._books, self.cluster) if state is not None else []


def _seconds(duration: Duration | None) -> float | None:
    return duration.seconds if duration is not None else None

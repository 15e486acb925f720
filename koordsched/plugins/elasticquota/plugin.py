"""The plugin: admits pods by their quota, makes room inside it, and says why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordsched.api.quantity import nano_value
from koordsched.cluster.pod import Pod
from koordsched.framework.explaining import ExplainsRefusals
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    CycleState,
    PostFilter,
    PostFilterResult,
    PreFilter,
    PreFilterResult,
    Reserve,
)
from koordsched.framework.status import SKIP, SUCCESS, Code, Codes, Status
from koordsched.plugins.elasticquota.admission import Admission
from koordsched.plugins.elasticquota.args import ElasticQuotaArgs
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.explanation import Details, explain_refusal
from koordsched.plugins.elasticquota.hints import hints
from koordsched.plugins.elasticquota.preemption import QuotaPreemption
from koordsched.plugins.elasticquota.prospects import Prospects
from koordsched.plugins.elasticquota.settings import Settings
from koordsched.plugins.elasticquota.victims import QuotaVictims
from koordsched.queue.hints import HintRegistration


class ElasticQuota(PreFilter, PostFilter, Reserve, ExplainsRefusals):
    """Source: upstream `pkg/scheduler/plugins/elasticquota`; elasticquota spec.

    The books observe the pods of the cluster state, so Reserve has nothing to add: a pod counts as used from the moment
    it is assumed, in all profiles.
    """

    name = "ElasticQuota"

    def __init__(self, args: ElasticQuotaArgs, handle: Handle) -> None:
        self.books = QuotaBooks.shared(handle.cluster, settings_of(args, handle.features), handle.clock.wall)
        books = self.books
        books.before_reading = handle.states.updated_by(self.name, lambda: books.version, books.bring_up_to_date)
        handle.states.keep(self.name, books)
        self.admission = Admission(
            self.books, by_runtime=args.enable_runtime_quota, checks_parents=args.enable_check_parent_quota
        )
        victims = QuotaVictims(handle, self.books, spares_default_quota=args.disable_default_quota_preemption)
        self._preemption = QuotaPreemption(self.name, handle, self.books, self.admission, victims)
        self._prospects = Prospects(handle, self.books, self.admission, victims)

    def events_to_register(self) -> Sequence[HintRegistration[Pod]]:
        """Room in a quota, victims in it, and changes of the pod's own that matter to its quota."""
        return hints(self.name, self.admission, self._prospects)

    def pre_filter(self, cycle: CycleState, pod: Pod) -> PreFilterResult | Status:
        """UNSCHEDULABLE if the quota has no room; SKIP for a pod without a quota."""
        if self.admission.admits_at_once(pod):
            return SUCCESS
        claimant = self.admission.claimant(pod)
        if claimant is None:
            return SKIP
        refusal = self.admission.refusal(claimant)
        if refusal is None:
            return SUCCESS
        cycle.beyond_nodes = True
        return Status(Code.UNSCHEDULABLE, (refusal.message,))

    def post_filter(self, cycle: CycleState, pod: Pod, codes: Codes) -> PostFilterResult:
        """Looks for pods of the same quota that can make room. Virtual pods preempt through their own plugins alone."""
        if pod.virtual:
            return PostFilterResult(Status(Code.UNSCHEDULABLE))
        if cycle.makes_no_room:
            result = PostFilterResult(Status(Code.UNSCHEDULABLE))
        else:
            result = self._preemption.post_filter(cycle, pod, codes)
        # What is missing now counts: with the members of a gang that are placed, for the time being.
        result.also(self._prospects.preempts(pod) if result.status.ok else self._prospects.in_vain(pod))
        return result

    def reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """Nothing to do: the books follow the cluster state."""
        return SUCCESS

    def unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """Nothing to undo: the books follow the cluster state."""

    def explain_refusal(self, pod: Pod) -> Details | None:
        """Which quota lacks what, and what holds it."""
        return explain_refusal(self.books, self.admission, pod)


def settings_of(args: ElasticQuotaArgs, features: frozenset[str]) -> Settings:
    """What the books depend on."""
    return Settings(
        default_max=_amounts(args.default_quota_group_max),
        system_max=_amounts(args.system_quota_group_max),
        scales_mins=args.enable_min_quota_scale,
        guarantees="ElasticQuotaGuaranteeUsage" in features,
        multiple_trees="MultiQuotaTree" in features,
        default_quota="DisableDefaultQuota" not in features,
        pod_overhead="ElasticQuotaIgnorePodOverhead" not in features,
        ignores_overdue="ElasticQuotaIgnoreTerminatingPod" in features,
        ignores_terminating="ElasticQuotaImmediateIgnoreTerminatingPod" in features,
    )


def _amounts(quantities: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, nano_value(quantity)) for name, quantity in quantities.items()))

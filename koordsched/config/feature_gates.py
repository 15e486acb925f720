"""Feature gates: the known ones, and the text of `--feature-gates`.

Source of stages and defaults: Kubernetes v1.36 (core spec 3.10, default-plugins spec 3.12).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from koordsched.config.errors import ConfigError, aggregate
from koordsched.config.foreign_gates import FOREIGN_GATES


class Stage(StrEnum):
    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class Gate:
    """A known gate: its stage, its default, and whether the default can be changed."""

    stage: Stage
    default: bool
    locked: bool = False


def _gates(stage: Stage, default: bool, names: str, *, locked: bool = False) -> dict[str, Gate]:
    return {name: Gate(stage, default, locked) for name in names.split()}


NETWORK_TOPOLOGY_MANAGER = "NetworkTopologyManager"
"""A gate here, so that journals and all commands know of it as of other gates."""

KNOWN_GATES: Mapping[str, Gate] = {
    **_gates(
        Stage.GA,
        True,
        "DRAAdminAccess DynamicResourceAllocation SchedulerQueueingHints",
        locked=True,
    ),
    **_gates(Stage.GA, True, "DRAPrioritizedList"),
    **_gates(
        Stage.BETA,
        True,
        """
        ComponentFlagz ComponentStatusz ContextualLogging
        DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
        DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout
        NodeDeclaredFeatures NominatedNodeNameForExpectation OpportunisticBatching PodLevelResources
        SchedulerAsyncPreemption SchedulerPopFromBackoffQ
        """,
    ),
    **_gates(
        Stage.BETA,
        False,
        "CoordinatedLeaderElection DRADeviceTaintRules SchedulerAsyncAPICalls",
    ),
    # Of client-go, where it is on by default: here first lists come in pages unless streams are asked for.
    **_gates(Stage.BETA, False, "WatchListClient"),
    **_gates(
        Stage.ALPHA,
        False,
        """
        DRAListTypeAttributes DRANodeAllocatableResources DRAWorkloadResourceClaims
        GangScheduling GenericWorkload StorageCapacityScoring TaintTolerationComparisonOperators
        TopologyAwareWorkloadScheduling VolumeLimitScaling WorkloadAwarePreemption
        """,
    ),
    # Koordinator's own (elasticquota spec 2.5).
    **_gates(
        Stage.ALPHA,
        False,
        """
        DisableDefaultQuota ElasticQuotaGuaranteeUsage ElasticQuotaIgnorePodOverhead ElasticQuotaIgnoreTerminatingPod
        ElasticQuotaImmediateIgnoreTerminatingPod MultiQuotaTree
        """,
    ),
    # Koordinator's own (deviceshare spec 3.9).
    **_gates(Stage.ALPHA, False, "DevicePluginAdaption"),
    # Koordinator's own (reservation spec 2.4).
    **_gates(
        Stage.ALPHA,
        False,
        "CleanExpiredReservationAllocated LazyReservationRestore OmitNodeLabelsForReservation SkipReservationFitsNode",
    ),
    # Koordinator's own (coscheduling spec 2.5).
    **_gates(Stage.BETA, True, "EnableBatchScheduleNodeSnapshot GangPendingPodsConditionPatch"),
    **_gates(Stage.ALPHA, False, "CrossSchedulerNomination EnableInlineBatchSchedule SkipFilterWithNominatedPods"),
    # What koord-scheduler's flag --enable-network-topology-manager switches: a journal and a replay know gates.
    **_gates(Stage.ALPHA, False, NETWORK_TOPOLOGY_MANAGER),
    # Our own: NodeNUMAResource counts free CPUs in Filter for every pod that gets some (nodenumaresource spec 6.7).
    **_gates(Stage.ALPHA, False, "NUMAResourceFilterByFreeCPUs"),
}

WITHOUT_EFFECT: Mapping[str, str] = {
    "CrossSchedulerNomination": "what other schedulers have nominated pods for is not kept free",
    "EnableBatchScheduleNodeSnapshot": "no snapshots are made",
    "EnableInlineBatchSchedule": "all pods of a gang are placed in one attempt anyway",
    "GangPendingPodsConditionPatch": "all pods of a gang that is not placed show why",
    "LazyReservationRestore": "nothing is restored before it is needed",
    "SkipFilterWithNominatedPods": "a node has to fit with and without the pods that are nominated to it",
}
"""Gates of koord-scheduler that change nothing here, and why."""


class FeatureGates:
    """Which features are on. Immutable."""

    __slots__ = ("_enabled", "_explicit")

    def __init__(self, enabled: Mapping[str, bool], explicit: Mapping[str, bool]) -> None:
        self._enabled = dict(enabled)
        self._explicit = dict(explicit)

    @classmethod
    def defaults(cls, known: Mapping[str, Gate] = KNOWN_GATES) -> "FeatureGates":
        return cls({name: gate.default for name, gate in known.items()}, {})

    @classmethod
    def parse(cls, texts: Iterable[str], known: Mapping[str, Gate] = KNOWN_GATES) -> "FeatureGates":
        """Read `Name=true,Other=false` texts; a later mention wins, AllAlpha and AllBeta set what is not named.

        Gates of other components are accepted and have no effect.
        Raises ConfigError for what is no gate, no boolean, or locked; texts of component-base `feature_gate.go`.
        """
        explicit: dict[str, bool] = {}
        for text in texts:
            for item in filter(None, text.split(",")):
                explicit.update([_assignment(item)])
        complaints = [complaint for name, value in explicit.items() if (complaint := _complaint(name, value, known))]
        if complaints:
            raise aggregate(complaints)
        enabled = {name: gate.default for name, gate in known.items()}
        for group, stage in (("AllAlpha", Stage.ALPHA), ("AllBeta", Stage.BETA)):
            if group in explicit:
                enabled.update({name: explicit[group] for name, gate in known.items() if gate.stage is stage})
        enabled.update({name: value for name, value in explicit.items() if name in known})
        return cls(enabled, explicit)

    def enabled(self, name: str) -> bool:
        """Whether a known gate is on. Raises KeyError for an unknown one."""
        return self._enabled[name]

    def __repr__(self) -> str:
        given = ",".join(f"{name}={str(value).lower()}" for name, value in self._explicit.items())
        return f"FeatureGates({given!r})"

    @property
    def explicit(self) -> Mapping[str, bool]:
        """What was asked for by name."""
        return dict(self._explicit)

    def items(self) -> Iterable[tuple[str, bool]]:
        """Every known gate with its state, by name."""
        return sorted(self._enabled.items())


def changed(enabled: Collection[str]) -> tuple[str, ...]:
    """The known gates that differ from their default while these are on, each as `Name=true`, by name."""
    return tuple(
        f"{name}={str(name in enabled).lower()}"
        for name, gate in sorted(KNOWN_GATES.items())
        if (name in enabled) != gate.default
    )


def stage_of(name: str) -> str:
    """The stage of a known gate as upstream's metrics have it: empty for GA. Raises KeyError for an unknown one."""
    stage = KNOWN_GATES[name].stage
    return "" if stage is Stage.GA else stage.value


def _assignment(item: str) -> tuple[str, bool]:
    name, equals, text = (part.strip() for part in item.partition("="))
    name = name.removeprefix("kube:")  # the component may be named, and there is only one
    if not equals:
        raise ConfigError(f"missing bool value for {name}")
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return name, True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return name, False
    raise ConfigError(f'invalid value of {name}={text}, err: strconv.ParseBool: parsing "{text}": invalid syntax')


def _complaint(name: str, value: bool, known: Mapping[str, Gate]) -> str | None:
    gate = known.get(name)
    if gate is None:
        accepted = name in ("AllAlpha", "AllBeta") or name in FOREIGN_GATES
        return None if accepted else f"unrecognized feature gate: {name}"
    if gate.locked and value != gate.default:
        wanted, locked = str(value).lower(), str(gate.default).lower()
        return f"cannot set feature gate {name} to {wanted}, feature is locked to {locked}"
    return None

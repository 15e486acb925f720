"""Which plugins exist, where each one runs, and what its arguments are: one table entry per plugin.

Here are kube-scheduler's, and those of Koordinator that are not implemented. Others bring their entry with their
declaration (`framework.declaration`); `koordsched.plugins.CATALOG` has all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeAlias

from koordsched.config import plugin_args as args
from koordsched.config import plugin_args_defaults as defaults
from koordsched.config import plugin_args_validation as rules
from koordsched.config.extension_points import ExtensionPoint
from koordsched.config.feature_gates import FeatureGates

# The two functions of an entry belong to its own struct; the table as a whole cannot say so, hence Any.
Defaulter: TypeAlias = Callable[[Any, FeatureGates], Any]
Validator: TypeAlias = Callable[[Any, str, FeatureGates], list[str]]
Adviser: TypeAlias = Callable[[Any], Iterable[str]]


def _no_further_defaults(given: args.PluginArgs, gates: FeatureGates) -> args.PluginArgs:
    return given


def _no_rules(given: args.PluginArgs, path: str, gates: FeatureGates) -> list[str]:
    return []


def _no_advice(given: args.PluginArgs) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class ArgsKind:
    """The arguments of a plugin: struct, defaults that a struct's own cannot express, and rules.

    `validate(args, path, gates)` returns complaints. With `by_constructor` the rules are not part of the file's
    validation but asked when the plugin is built, and reported as its failure to start. `advise(args)` says what of
    valid arguments has no effect, each text beginning with the field.
    """

    struct: type[args.PluginArgs]
    default: Defaulter = _no_further_defaults
    validate: Validator = _no_rules
    by_constructor: bool = False
    advise: Adviser = _no_advice

    @property
    def name(self) -> str:
        """The `kind` in the file."""
        return self.struct.__name__


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """A plugin that can be enabled.

    `any_args`: it takes arguments that nothing is known of here, and keeps them. `needs_pre_score`: listed at score but
    not at preScore, it fails every pod that several nodes fit.
    """

    points: frozenset[ExtensionPoint]
    args: ArgsKind | None = None
    any_args: bool = False
    needs_pre_score: bool = False


@dataclass(frozen=True, slots=True)
class PluginCatalog(Mapping[str, PluginEntry]):
    """Plugin name -> entry. Immutable."""

    entries: Mapping[str, PluginEntry] = field(default_factory=dict)

    def __getitem__(self, name: str) -> PluginEntry:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def extended(self, entries: Mapping[str, PluginEntry]) -> "PluginCatalog":
        """This catalog with more plugins, or other ones under the same names."""
        return PluginCatalog({**self.entries, **entries})

    def guess(self, name: str) -> str:
        """What to add to a complaint about a name: nothing if it is known, or like none that is."""
        near = () if name in self.entries else get_close_matches(name, self.entries, n=1)
        return "".join(f'; did you mean "{other}"?' for other in near)

    def args_kinds(self) -> dict[str, ArgsKind]:
        """Every kind of arguments, by its name."""
        return {entry.args.name: entry.args for entry in self.values() if entry.args is not None}


def entry(points: str, kind: ArgsKind | None = None, *, needs_pre_score: bool = False) -> PluginEntry:
    """A table entry; `points` are extension points by their names in the file, separated by blanks."""
    return PluginEntry(frozenset(map(ExtensionPoint, points.split())), kind, needs_pre_score=needs_pre_score)


# default-plugins spec 2.1; normalisation and AddPod/RemovePod are parts of score and preFilter.
IN_TREE = PluginCatalog(
    {
        "SchedulingGates": entry("preEnqueue"),
        "PrioritySort": entry("queueSort"),
        "NodeUnschedulable": entry("filter"),
        "NodeName": entry("filter"),
        "TaintToleration": entry("filter preScore score"),
        "NodeAffinity": entry(
            "preFilter filter preScore score", ArgsKind(args.NodeAffinityArgs, validate=rules.node_affinity)
        ),
        "NodePorts": entry("preFilter filter"),
        "NodeResourcesFit": entry(
            "preFilter filter preScore score placementScore",
            ArgsKind(args.NodeResourcesFitArgs, defaults.resources_fit, rules.resources_fit, by_constructor=True),
        ),
        "VolumeRestrictions": entry("preFilter filter"),
        "NodeVolumeLimits": entry("preFilter filter"),
        "VolumeBinding": entry(
            "preFilter filter preScore score reserve preBind",
            ArgsKind(args.VolumeBindingArgs, defaults.volume_binding, rules.volume_binding),
        ),
        "VolumeZone": entry("preFilter filter"),
        "PodTopologySpread": entry(
            "preFilter filter preScore score",
            ArgsKind(args.PodTopologySpreadArgs, defaults.topology_spread, rules.topology_spread),
        ),
        "InterPodAffinity": entry(
            "preFilter filter preScore score", ArgsKind(args.InterPodAffinityArgs, validate=rules.inter_pod_affinity)
        ),
        "DynamicResources": entry(
            "preEnqueue preFilter filter postFilter score reserve preBind",
            ArgsKind(args.DynamicResourcesArgs, defaults.dynamic_resources, rules.dynamic_resources),
        ),
        "DefaultPreemption": entry(
            "preEnqueue postFilter", ArgsKind(args.DefaultPreemptionArgs, validate=rules.default_preemption)
        ),
        "NodeResourcesBalancedAllocation": entry(
            "preScore score",
            ArgsKind(args.NodeResourcesBalancedAllocationArgs, defaults.balanced_allocation, rules.balanced_allocation),
        ),
        "ImageLocality": entry("score"),
        "DefaultBinder": entry("bind"),
        "NodeDeclaredFeatures": entry("preFilter filter"),
        "GangScheduling": entry("preEnqueue permit"),
        "TopologyPlacementGenerator": entry("placementGenerate"),
        "PodGroupPodsCount": entry("placementScore"),
    }
)

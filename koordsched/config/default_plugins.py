"""The plugins every profile starts from, and how a profile changes them (core spec 2.2, step 1).

Source: `pkg/scheduler/apis/config/v1/default_plugins.go`.
"""

import msgspec

from koordsched.config.feature_gates import FeatureGates
from koordsched.config.wire import Plugin, Plugins, PluginSet

ALL = "*"

_DEFAULT: tuple[Plugin, ...] = (
    Plugin("SchedulingGates"),
    Plugin("PrioritySort"),
    Plugin("NodeUnschedulable"),
    Plugin("NodeName"),
    Plugin("TaintToleration", 3),
    Plugin("NodeAffinity", 2),
    Plugin("NodePorts"),
    Plugin("NodeResourcesFit", 1),
    Plugin("VolumeRestrictions"),
    Plugin("NodeVolumeLimits"),
    Plugin("VolumeBinding"),
    Plugin("VolumeZone"),
    Plugin("PodTopologySpread", 2),
    Plugin("InterPodAffinity", 2),
    Plugin("DynamicResources", 2),
    Plugin("DefaultPreemption"),
    Plugin("NodeResourcesBalancedAllocation", 1),
    Plugin("ImageLocality", 1),
    Plugin("DefaultBinder"),
)
# The plugins a gate adds at the end, in this order.
_GATED = (
    ("NodeDeclaredFeatures", (Plugin("NodeDeclaredFeatures"),)),
    ("GangScheduling", (Plugin("GangScheduling"),)),
    ("TopologyAwareWorkloadScheduling", (Plugin("TopologyPlacementGenerator"), Plugin("PodGroupPodsCount", 1))),
)


def default_plugins(gates: FeatureGates) -> Plugins:
    """The default profile: everything through multiPoint."""
    enabled = _DEFAULT
    for gate, plugins in _GATED:
        if gates.enabled(gate):
            enabled += plugins
    return Plugins(multi_point=PluginSet(enabled))


def merge(defaults: Plugins, custom: Plugins) -> Plugins:
    """The user's sets over the default ones, for every extension point and multiPoint."""
    names = (info.name for info in msgspec.structs.fields(Plugins))
    return Plugins(**{name: _merge_set(getattr(defaults, name), getattr(custom, name)) for name in names})


def _merge_set(default: PluginSet, custom: PluginSet) -> PluginSet:
    """Default plugins that are not disabled, replaced in place where the user names them, then the user's others.

    A name the user gives twice stays twice: building the profile reports it.
    """
    disabled = tuple(Plugin(plugin.name) for plugin in custom.disabled + default.disabled)
    removed = {plugin.name for plugin in disabled}
    kept = () if ALL in removed else tuple(plugin for plugin in default.enabled if plugin.name not in removed)
    chosen = {plugin.name: index for index, plugin in enumerate(custom.enabled)}  # the last mention replaces
    replacing = {chosen[plugin.name] for plugin in kept if plugin.name in chosen}
    in_place = tuple(custom.enabled[chosen[plugin.name]] if plugin.name in chosen else plugin for plugin in kept)
    appended = tuple(plugin for index, plugin in enumerate(custom.enabled) if index not in replacing)
    return PluginSet(in_place + appended, disabled)

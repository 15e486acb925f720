"""What a user should know about a valid configuration: settings and plugins without effect here."""

from collections.abc import Collection, Iterator

import msgspec

from koordsched.config.catalog import PluginCatalog
from koordsched.config.contenttypes import unknown_types
from koordsched.config.default_plugins import ALL
from koordsched.config.feature_gates import WITHOUT_EFFECT, changed
from koordsched.config.plugin_args import PluginArgs
from koordsched.config.resolving import Profile, Resolved
from koordsched.config.wire import KubeSchedulerConfiguration, KubeSchedulerProfile, Plugins

_EVERY_NODE = "every node is considered for every pod"


def warnings(resolved: Resolved, catalog: PluginCatalog, built: Collection[str] | None = None) -> list[str]:
    """One text per finding. `built` names the plugins that have code behind them; None = all in the catalog."""
    found = [*_settings(resolved.source), *_gates(resolved.features), *_gates_alone(resolved.features)]
    if built is not None:
        found += [
            f'plugin "{name}" is not implemented and will be ignored (profiles: {", ".join(profiles)})'
            for name, profiles in unimplemented(resolved, built).items()
        ]
    found += _outvoted(resolved)
    for i, profile in enumerate(resolved.source.profiles):
        found += _unused_args(profile, f"profiles[{i}]", resolved.profiles[i].plugins.names(), catalog)
        found += _unknown_disabled(profile, f"profiles[{i}]", catalog)
        found += _unprepared(resolved.profiles[i], f"profiles[{i}]", catalog)
        found += _claims_left(resolved.profiles[i], f"profiles[{i}]")
    return found


def _gates(on: Collection[str]) -> Iterator[str]:
    for assignment in changed(on):
        name = assignment.partition("=")[0]
        if name in WITHOUT_EFFECT:
            yield f"feature gate {assignment} has no effect: {WITHOUT_EFFECT[name]}"


def _settings(given: KubeSchedulerConfiguration) -> Iterator[str]:
    if given.parallelism != KubeSchedulerConfiguration().parallelism:
        yield f"parallelism: {given.parallelism} has no effect: nodes are evaluated together, as columns"
    # 0 (adaptive) is the default and 100 is what is done anyway.
    if given.percentage_of_nodes_to_score not in (0, 100):
        yield f"percentageOfNodesToScore: {given.percentage_of_nodes_to_score} has no effect: {_EVERY_NODE}"
    for i, profile in enumerate(given.profiles):
        if profile.percentage_of_nodes_to_score not in (None, 0, 100):
            value = profile.percentage_of_nodes_to_score
            yield f"profiles[{i}].percentageOfNodesToScore: {value} has no effect: {_EVERY_NODE}"
    for unknown in unknown_types(given.client_connection):
        yield f'clientConnection: content type "{unknown}" has no effect: only protobuf and JSON are supported'


_NEEDED_GATES = {
    "GangScheduling": ("GenericWorkload",),
    "TopologyAwareWorkloadScheduling": ("GenericWorkload", "GangScheduling"),
    "WorkloadAwarePreemption": ("GenericWorkload", "GangScheduling"),
}
"""What a gate has no effect without."""


def _gates_alone(features: Collection[str]) -> Iterator[str]:
    if "DRAWorkloadResourceClaims" in features and "GenericWorkload" not in features:
        # The text with which kube-scheduler refuses to start.
        yield "DRAWorkloadResourceClaims is enabled, but depends on features that are disabled: [GenericWorkload]"
    for gate, needed in _NEEDED_GATES.items():
        missing = [name for name in needed if name not in features]
        if gate in features and missing:
            yield f"feature gate {gate}=true has no effect without {' and '.join(f'{name}=true' for name in missing)}"


def unimplemented(resolved: Resolved, built: Collection[str]) -> dict[str, list[str]]:
    """Plugins that are enabled and have no code behind them, with the profiles that enable them."""
    missing = {name for profile in resolved.profiles for name in profile.plugins.names()} - set(built)
    return {
        name: [profile.scheduler_name for profile in resolved.profiles if name in profile.plugins.names()]
        for name in sorted(missing)
    }


def _outvoted(resolved: Resolved) -> Iterator[str]:
    """Arguments about what all profiles have in common that differ from those of the first profile with the plugin."""
    first: dict[str, tuple[str, PluginArgs]] = {}
    for i, profile in enumerate(resolved.profiles):
        for name in sorted(profile.plugins.names()):
            args = profile.args.get(name)
            if not isinstance(args, PluginArgs) or not args.of_cluster:
                continue
            leader, counts = first.setdefault(name, (profile.scheduler_name, args))
            for info in msgspec.structs.fields(args):
                if info.name in args.of_cluster and getattr(args, info.name) != getattr(counts, info.name):
                    yield (
                        f"profiles[{i}]: {info.encode_name} of {name} has no effect: "
                        f"that of profile {leader} counts for all profiles"
                    )


def _unused_args(
    profile: KubeSchedulerProfile, path: str, enabled: Collection[str], catalog: PluginCatalog
) -> Iterator[str]:
    for i, config in enumerate(profile.plugin_config):
        if config.name not in enabled:
            guess = catalog.guess(config.name)
            yield f'{path}.pluginConfig[{i}] has no effect: plugin "{config.name}" is not enabled{guess}'
        elif (kind := catalog[config.name].args) is not None:
            yield from (f"{path}.pluginConfig[{i}].args.{text}" for text in kind.advise(config.args))
        elif not catalog[config.name].any_args and config.args is not None:
            yield f'{path}.pluginConfig[{i}] has no effect: plugin "{config.name}" takes no arguments'


def _unknown_disabled(profile: KubeSchedulerProfile, path: str, catalog: PluginCatalog) -> Iterator[str]:
    for info in msgspec.structs.fields(Plugins):
        for i, plugin in enumerate(getattr(profile.plugins, info.name).disabled):
            if plugin.name != ALL and plugin.name not in catalog:
                place = f"{path}.plugins.{info.encode_name}.disabled[{i}]"
                yield f'{place} has no effect: there is no plugin "{plugin.name}"{catalog.guess(plugin.name)}'


def _unprepared(profile: Profile, path: str, catalog: PluginCatalog) -> Iterator[str]:
    for name, _ in profile.plugins.score:
        if catalog[name].needs_pre_score and name not in profile.plugins.pre_score:
            yield f'{path}: plugin "{name}" is enabled at score but not at preScore: pods that fit several nodes fail'


_DYNAMIC_RESOURCES = "DynamicResources"


def _claims_left(profile: Profile, path: str) -> Iterator[str]:
    """DynamicResources decides about claims, and part of what it has to do with them is left out."""
    plugins = profile.plugins
    parts = {
        "preFilter": (plugins.pre_filter, "pods are placed whatever they claim"),
        "filter": (plugins.filter, "devices are chosen for no claim"),
        "postFilter": (plugins.post_filter, "claims that keep pods from nodes are never freed"),
        "reserve": (plugins.reserve, "several pods may get the same devices"),
        "preBind": (plugins.pre_bind, "claims are not written, and pods start without their devices"),
    }
    here = [point for point, (names, _) in parts.items() if _DYNAMIC_RESOURCES in names]
    if here:
        for point, (names, outcome) in parts.items():
            if _DYNAMIC_RESOURCES not in names:
                yield f'{path}: plugin "{_DYNAMIC_RESOURCES}" is enabled at {here[0]} but not at {point}: {outcome}'

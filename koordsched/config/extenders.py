"""What the extenders of a configuration change in its profiles.

Source: `pkg/scheduler/scheduler.go`, buildExtenders; core spec 3.9.
"""

import msgspec

from koordsched.config.errors import ConfigError
from koordsched.config.plugin_args import NodeResourcesFitArgs
from koordsched.config.wire import KubeSchedulerConfiguration, KubeSchedulerProfile


def leave_to_extenders(configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """Resources that extenders want ignored *replace* `ignoredResources` of NodeResourcesFit in every profile.

    Raises ConfigError if a profile has no such arguments, because it does not enable the plugin.
    """
    ignored = tuple(
        resource.name
        for extender in configuration.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    if not ignored:
        return configuration
    profiles = tuple(_ignoring(profile, ignored) for profile in configuration.profiles)
    return msgspec.structs.replace(configuration, profiles=profiles)


def _ignoring(profile: KubeSchedulerProfile, ignored: tuple[str, ...]) -> KubeSchedulerProfile:
    if not any(isinstance(config.args, NodeResourcesFitArgs) for config in profile.plugin_config):
        raise ConfigError("couldn't build extenders: can't find NodeResourcesFitArgs in plugin config")
    changed = tuple(
        msgspec.structs.replace(config, args=msgspec.structs.replace(config.args, ignored_resources=ignored))
        if isinstance(config.args, NodeResourcesFitArgs)
        else config
        for config in profile.plugin_config
    )
    return msgspec.structs.replace(profile, plugin_config=changed)

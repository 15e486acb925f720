"""Showing a configuration: as `--write-config-to` writes it, and as `/configz` answers."""

from typing import Any

import yaml

from koordsched.config.decoding import encode
from koordsched.config.defaults import DEFAULT_BURST, DEFAULT_QPS, enabled_names
from koordsched.config.document import reads_as_text
from koordsched.config.plugin_args import PluginArgs
from koordsched.config.secrets import CLASSIFIED, without_secrets
from koordsched.config.wire import API_VERSION, KIND, KubeSchedulerConfiguration, KubeSchedulerProfile, PluginConfig


def configz(configuration: KubeSchedulerConfiguration) -> dict[str, Any]:
    """The defaulted configuration as JSON values, multiPoint not spelled out; keys and passwords are not shown.

    Rate limits that are not set show as upstream's defaults.
    """
    profiles = [_profile(profile, profile.plugin_config) for profile in configuration.profiles]
    document = _document(configuration, profiles)
    for extender in document.get("extenders") or ():
        extender["urlPrefix"] = without_secrets(extender["urlPrefix"])
        if (extender.get("tlsConfig") or {}).get("keyData"):
            extender["tlsConfig"]["keyData"] = CLASSIFIED
    return document


def dump(configuration: KubeSchedulerConfiguration) -> str:
    """The YAML upstream writes: as `configz`, but with keys and passwords, to be read again.

    It has arguments of enabled plugins only, in order of their names.
    """
    profiles = []
    for profile in configuration.profiles:
        enabled = set(enabled_names(profile.plugins))
        used = (config for config in profile.plugin_config if config.name in enabled and config.args is not None)
        profiles.append(_profile(profile, tuple(sorted(used, key=lambda config: config.name))))
    text: str = yaml.dump(_document(configuration, profiles), Dumper=_Dumper, sort_keys=True, allow_unicode=True)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes equal lists out each time: YAML anchors make a configuration harder to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Strings that would read as something else in double quotes, as goyaml writes them."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if reads_as_text(text) else '"')


_Dumper.add_representer(str, _text)


def _document(configuration: KubeSchedulerConfiguration, profiles: list[dict[str, Any]]) -> dict[str, Any]:
    document = {"apiVersion": API_VERSION, "kind": KIND, **encode(configuration)}
    document["profiles"] = profiles
    connection = document["clientConnection"]
    connection["qps"] = connection["qps"] or int(DEFAULT_QPS)
    connection["burst"] = connection["burst"] or DEFAULT_BURST
    return document


def _profile(profile: KubeSchedulerProfile, configs: tuple[PluginConfig, ...]) -> dict[str, Any]:
    shown = encode(profile)
    shown["plugins"] = {point: _weighted(plugin_set) for point, plugin_set in shown["plugins"].items()}
    shown.pop("pluginConfig", None)
    if configs:
        shown["pluginConfig"] = [{"name": config.name, **_args(config.args)} for config in configs]
    return shown


def _weighted(plugin_set: dict[str, Any]) -> dict[str, Any]:
    return {which: [{"weight": 0, **plugin} for plugin in plugins] for which, plugins in plugin_set.items()}


def _args(args: Any) -> dict[str, Any]:
    if isinstance(args, PluginArgs):
        return {"args": {"apiVersion": API_VERSION, "kind": type(args).__name__, **encode(args)}}
    return {} if args is None else {"args": args}

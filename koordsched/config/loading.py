"""From the text of a file to a defaulted, validated configuration."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from koordsched.config.catalog import IN_TREE, PluginCatalog
from koordsched.config.decoding import DecodingErrors, decode, plain
from koordsched.config.defaults import set_defaults
from koordsched.config.document import Document, Value, parse
from koordsched.config.errors import ConfigError
from koordsched.config.extenders import leave_to_extenders
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs
from koordsched.config.validation import validate
from koordsched.config.wire import API_VERSION, GROUP, KIND, KubeSchedulerConfiguration, PluginConfig

# Where upstream's message says the kinds are registered; part of a text people search for.
_SCHEME = '"pkg/scheduler/apis/config/scheme/scheme.go:29"'
Adjustment: TypeAlias = Callable[[KubeSchedulerConfiguration], KubeSchedulerConfiguration]

_STRICT = "strict decoding error: "


def load(
    source: str | bytes | os.PathLike[str],
    *,
    catalog: PluginCatalog = IN_TREE,
    gates: FeatureGates | None = None,
    adjust: Adjustment | None = None,
) -> KubeSchedulerConfiguration:
    """Read a configuration: text is YAML or JSON, a path names a file of it.

    Decodes strictly, fills defaults, lets `adjust` override (command line flags), validates. Raises ConfigError, with
    upstream's text, and nothing else.
    """
    document = parse(source if isinstance(source, (str, bytes)) else read_file(source))
    return _complete(_decode(document, catalog), catalog, gates, adjust)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file. Raises ConfigError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"open {os.fspath(path)}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:  # a path with a NUL character
        raise ConfigError(f"open {os.fspath(path)!r}: {error}") from error


def default_configuration(
    *,
    catalog: PluginCatalog = IN_TREE,
    gates: FeatureGates | None = None,
    adjust: Adjustment | None = None,
) -> KubeSchedulerConfiguration:
    """The configuration of a scheduler started without a file. Raises ConfigError if `adjust` makes it invalid."""
    return _complete(KubeSchedulerConfiguration(), catalog, gates, adjust)


def _complete(
    given: KubeSchedulerConfiguration,
    catalog: PluginCatalog,
    gates: FeatureGates | None,
    adjust: Adjustment | None,
) -> KubeSchedulerConfiguration:
    gates = gates or FeatureGates.defaults()
    configuration = set_defaults(given, catalog, gates)
    if adjust is not None:
        configuration = adjust(configuration)
    validate(configuration, catalog, gates)
    return leave_to_extenders(configuration)


def _decode(document: Document, catalog: PluginCatalog) -> KubeSchedulerConfiguration:
    version, kind = _type_meta(document.value)
    if not kind:
        raise ConfigError(f"Object 'Kind' is missing in '{document.text}'")
    if not version:
        raise ConfigError(f"Object 'apiVersion' is missing in '{document.text}'")
    if kind != KIND or version != API_VERSION:
        _check_registered(version, kind, catalog)
        raise ConfigError(f"couldn't decode as {KIND}, got {version}, Kind={kind}: ")
    complaints = DecodingErrors()
    configuration = decode(KubeSchedulerConfiguration, document.value, complaints)
    if complaints.fatal:
        raise ConfigError(complaints.fatal[0], complaints.fatal)
    strict = ([document.repeated_keys] if document.repeated_keys else []) + complaints.strict
    profiles = []
    for i, profile in enumerate(configuration.profiles):
        decoded = tuple(
            _decode_args(config, f"decoding .profiles[{i}].pluginConfig[{j}]: ", catalog, strict)
            for j, config in enumerate(profile.plugin_config)
        )
        profiles.append(msgspec.structs.replace(profile, plugin_config=decoded))
    if strict:
        raise ConfigError(_STRICT + ", ".join(strict), strict)
    return msgspec.structs.replace(configuration, profiles=tuple(profiles))


def _decode_args(config: PluginConfig, where: str, catalog: PluginCatalog, strict: list[str]) -> PluginConfig:
    """Decode the arguments of a plugin in the catalog; those of others stay as they are."""
    entry = catalog.get(config.name)
    if entry is None or entry.args is None:
        return PluginConfig(config.name, plain(config.args))
    what = f"decoding args for plugin {config.name}: "
    expected = entry.args.name
    try:
        version, kind = _type_meta(config.args)
        version, kind = version or API_VERSION, kind or expected
        if kind != expected or version != API_VERSION:
            _check_registered(version, kind, catalog)
    except ConfigError as error:
        raise ConfigError(f"{where}{what}{error}") from error
    if kind != expected:
        mismatch = f"were not of type {expected}.{GROUP}, got {kind}.{GROUP}"
        raise ConfigError(f"{where}args for plugin {config.name} {mismatch}")
    complaints = DecodingErrors()
    decoded: PluginArgs = decode(entry.args.struct, config.args, complaints)
    if complaints.fatal:
        texts = [f"{where}{what}{complaint}" for complaint in complaints.fatal]
        raise ConfigError(texts[0], texts)
    if complaints.strict:
        strict.append(f"{where}{_STRICT}{what}{_STRICT}{', '.join(complaints.strict)}")
    return PluginConfig(config.name, decoded)


def _type_meta(value: Value) -> tuple[str, str]:
    """apiVersion and kind, empty if absent. Raises ConfigError for what is no object with such fields."""
    if value is None:
        return "", ""
    complaint = "couldn't get version/kind; json parse error: json: cannot unmarshal"
    if not isinstance(value, dict):
        raise ConfigError(f"{complaint} {_json_kind(value)} into Go value of type struct with apiVersion and kind")
    found = []
    for name in ("apiVersion", "kind"):
        text = value.get(name)
        if not isinstance(text, str | None):
            raise ConfigError(f"{complaint} {_json_kind(text)} into Go struct field .{name} of type string")
        found.append(text or "")
    if found[0].count("/") > 1:
        raise ConfigError(f"couldn't get version/kind; unexpected GroupVersion string: {found[0]}")
    return found[0], found[1]


def _json_kind(value: Any) -> str:
    kinds = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}
    return kinds.get(type(value), "object")


def _check_registered(version: str, kind: str, catalog: PluginCatalog) -> None:
    """Raises ConfigError for a kind of object that no configuration file can hold."""
    if version != API_VERSION or (kind != KIND and kind not in catalog.args_kinds()):
        raise ConfigError(f'no kind "{kind}" is registered for version "{version}" in scheme {_SCHEME}')

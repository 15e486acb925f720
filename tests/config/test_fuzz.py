"""Any text gives a configuration or one ConfigError, nothing else; what is accepted survives being written out."""

from collections.abc import Mapping
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from koordsched.api.core import NodeAffinity, NodeSelectorRequirement
from koordsched.config import ConfigError, Duration, configz, dump, load, resolve, warnings, wire
from koordsched.config.decoding import Quantities
from koordsched.config.plugin_args import ScoringStrategy
from koordsched.config.wire import KubeSchedulerConfiguration
from koordsched.plugins import CATALOG
from tests.config.documents import HEAD
from tests.depth import examples

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 200),
    st.integers(),
    st.floats(allow_nan=False),
    st.sampled_from(["", "*", "10s", "-1s", "a", "a.com/x", "List", "In", "MostAllocated", "\0", "é", "1e9999"]),
)
NAMES = st.sampled_from([*CATALOG, "*", "Nope", "EBSLimits"])


def field_names(kind: type[msgspec.Struct]) -> list[str]:
    return list(kind.__struct_encode_fields__)


NESTED = (
    wire.LeaderElectionConfiguration,
    wire.ClientConnectionConfiguration,
    wire.KubeSchedulerProfile,
    wire.Plugins,
    wire.PluginSet,
    wire.PluginConfig,
    wire.Extender,
    wire.ExtenderTLSConfig,
    wire.ExtenderManagedResource,
    ScoringStrategy,
    NodeAffinity,
    NodeSelectorRequirement,
)
KNOWN_FIELDS = sorted(
    {
        *field_names(KubeSchedulerConfiguration),
        *(name for entry in CATALOG.values() if entry.args for name in field_names(entry.args.struct)),
        *(name for kind in NESTED for name in field_names(kind)),
    }
)
VALUES = st.recursive(
    SCALARS | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KNOWN_FIELDS), inner, max_size=4),
    max_leaves=15,
)
PLUGINS = st.fixed_dictionaries({"name": NAMES}, optional={"weight": st.integers(-1, 9)})
PLUGIN_SETS = st.fixed_dictionaries(
    {}, optional={"enabled": st.lists(PLUGINS, max_size=3), "disabled": st.lists(PLUGINS, max_size=2)}
)
PROFILES = st.fixed_dictionaries(
    {},
    optional={
        "schedulerName": st.sampled_from(["a", "b", ""]),
        "plugins": st.fixed_dictionaries({}, optional=dict.fromkeys(("score", "filter", "multiPoint"), PLUGIN_SETS)),
        "pluginConfig": st.lists(st.fixed_dictionaries({"name": NAMES}, optional={"args": VALUES}), max_size=2),
    },
)


def typed(annotation: Any) -> st.SearchStrategy[Any]:
    """JSON values of a field's type: what passes decoding and meets the rules."""
    if get_origin(annotation) is Annotated:
        return typed(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return st.none() | typed(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        return st.lists(typed(get_args(annotation)[0]), max_size=3)
    if get_origin(annotation) is dict:
        return st.dictionaries(TEXTS, TEXTS, max_size=2)
    if get_origin(annotation) is Mapping:
        return st.dictionaries(TEXTS, typed(get_args(annotation)[1]), max_size=2)
    if issubclass(annotation, msgspec.Struct):
        fields = {info.encode_name: typed(info.type) for info in msgspec.structs.fields(annotation)}
        return st.fixed_dictionaries({}, optional=fields)
    return TYPED[annotation]


TEXTS = st.sampled_from(
    ["", "a", "A b", "a.com/x", "a/b/c", "List", "In", "Gt", "MostAllocated", "leases", "\x7f", "é"]
)
TYPED: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS | NAMES,
    int: st.integers(-2, 102),
    bool: st.booleans(),
    float: st.floats(-1, 100),
    bytes: st.sampled_from(["", "Y2E="]),
    Duration: st.sampled_from(["0", "1s", "-1s", "10m"]),
    Quantities: st.dictionaries(
        st.sampled_from(["cpu", "memory", "a.com/x"]), st.sampled_from(["1", "-1", "5Gi", "100m"])
    ),
}
ARGS = {name: entry.args.struct for name, entry in CATALOG.items() if entry.args}
PLUGIN_CONFIG = st.sampled_from(sorted(ARGS)).flatmap(
    lambda name: st.fixed_dictionaries({"name": st.just(name)}, optional={"args": typed(ARGS[name])})
)


def accepted(source: str | bytes) -> KubeSchedulerConfiguration | None:
    """The configuration, if there is one; every way of showing it must work."""
    with suppress(ConfigError):
        configuration = load(source, catalog=CATALOG)
        configz(configuration)
        dump(configuration)
        warnings(resolve(configuration, catalog=CATALOG), CATALOG, ())
        return configuration
    return None


@settings(max_examples=examples(300), deadline=None)
@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "replace")))
@example(b'"\\U00110000"')
@example(b'"\\ud800"')
@example(b"\x00")
@example(b"%YAML 9")
@example(b"!!binary x")
@example(b"!!float x")
@example(b"!!int '_'")
@example(b"- !!map [a]")
@example(b"? \n: &a\n<<: *a")
@example(b"{" * 5000)
@example(b"[" * 5000)
@example(b"9" * 5000)
@example(b'{"a":' + b"9" * 5000 + b"}")
@example(b'{"a":1e999}')
def test_any_bytes(data: bytes) -> None:
    accepted(data)
    accepted(HEAD.encode() + data)
    accepted(HEAD.encode() + b"profiles: " + data)


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(st.sampled_from(KNOWN_FIELDS), VALUES, max_size=5))
def test_any_values_of_known_fields(fields: dict[str, Any]) -> None:
    accepted(HEAD + (yaml.safe_dump(fields) if fields else ""))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(PLUGIN_CONFIG, max_size=3))
def test_arguments_of_the_right_types(configs: list[dict[str, Any]]) -> None:
    accepted(HEAD + yaml.safe_dump({"profiles": [{"pluginConfig": configs}]}))


@settings(max_examples=examples(300), deadline=None)
@given(*(typed(kind) for kind in (wire.LeaderElectionConfiguration, wire.ClientConnectionConfiguration, wire.Extender)))
def test_settings_of_the_right_types(election: object, connection: object, extender: object) -> None:
    fields = {"leaderElection": election, "clientConnection": connection, "extenders": [extender, extender]}
    accepted(HEAD + yaml.safe_dump(fields))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(PROFILES, min_size=1, max_size=2))
def test_what_is_accepted_reads_back(profiles: list[dict[str, Any]]) -> None:
    configuration = accepted(HEAD + yaml.safe_dump({"profiles": profiles}))
    if configuration is not None:
        again = load(dump(configuration), catalog=CATALOG)
        before, after = resolve(configuration, catalog=CATALOG), resolve(again, catalog=CATALOG)
        assert [profile.plugins for profile in after.profiles] == [profile.plugins for profile in before.profiles]
        assert dump(again) == dump(configuration)


@given(st.integers(-(1 << 63) + 1, (1 << 63) - 1))
def test_durations_read_back(nanoseconds: int) -> None:
    assert Duration.parse(str(Duration(nanoseconds))) == nanoseconds


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        Duration.parse(text)

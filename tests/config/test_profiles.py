"""From profiles to plugins at every point, and to typed arguments."""

from typing import Any

import msgspec
import pytest

from koordsched.api.protobuf.fields import MEDIA_TYPE as PROTOBUF
from koordsched.config import (
    IN_TREE,
    ArgsKind,
    ConfigError,
    Duration,
    FeatureGates,
    RateLimit,
    configz,
    dump,
    entry,
    load,
    resolve,
    warnings,
)
from koordsched.config.contenttypes import JSON
from koordsched.config.decoding import Int32
from koordsched.config.errors import invalid
from koordsched.config.options import Deprecated, Options
from koordsched.config.plugin_args import PluginArgs
from tests.config.documents import document, profile
from tests.config.test_core_cases import FILTER, SCORE


def names(*listed: str | tuple[str, int]) -> list[dict[str, Any]]:
    return [{"name": item} if isinstance(item, str) else {"name": item[0], "weight": item[1]} for item in listed]


CREATING = "initializing profiles: creating profile for scheduler name default-scheduler: "

ERRORS = {
    "unknown at a point": (
        {"score": {"enabled": names("Nope")}},
        CREATING + 'ScorePlugin "Nope" does not exist',
    ),
    "unknown in multiPoint": (
        {"multiPoint": {"enabled": names("Nope")}},
        CREATING + 'PreFilterPlugin "Nope" does not exist',
    ),
    "mistyped at a point": (
        {"score": {"enabled": names("NodeAfinity")}},
        CREATING + 'ScorePlugin "NodeAfinity" does not exist; did you mean "NodeAffinity"?',
    ),
    "mistyped in multiPoint": (
        {"multiPoint": {"enabled": names("podTopologySpread")}},
        CREATING + 'PreFilterPlugin "podTopologySpread" does not exist; did you mean "PodTopologySpread"?',
    ),
    "of another type": (
        {"filter": {"enabled": names("ImageLocality")}},
        CREATING + 'plugin "ImageLocality" does not extend FilterPlugin plugin',
    ),
    "twice at a point": (
        {"score": {"enabled": names("NodeAffinity", ("NodeAffinity", 3))}},
        CREATING + 'plugin "NodeAffinity" already registered as "ScorePlugin"',
    ),
    "twice in multiPoint": (
        {"multiPoint": {"enabled": names("PrioritySort", "GangScheduling", "GangScheduling")}},
        CREATING + 'plugin "GangScheduling" already registered as "PermitPlugin"',
    ),
    "no order": (
        {"queueSort": {"disabled": names("*")}},
        CREATING + 'only one queue sort plugin required for profile with scheduler name "default-scheduler", but got 0',
    ),
    "no binder": (
        {"multiPoint": {"disabled": names("DefaultBinder")}},
        CREATING + 'at least one bind plugin is needed for profile with scheduler name "default-scheduler"',
    ),
}


@pytest.mark.parametrize("plugins, message", ERRORS.values(), ids=ERRORS)
def test_profiles_that_cannot_work(plugins: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(load(profile(plugins=plugins)))
    assert str(caught.value) == message


def test_first_plugin_to_fail_names_the_profile() -> None:
    text = document(profiles=[{"schedulerName": "a"}, {"schedulerName": "b", "plugins": ERRORS["no binder"][0]}])
    with pytest.raises(ConfigError, match=r"creating profile for scheduler name b: .* scheduler name \"b\"$"):
        resolve(load(text))


CATALOG = IN_TREE.extended({"Other": entry("queueSort filter score"), "Last": entry("score")})


def test_one_order_for_all_profiles() -> None:
    other = {"multiPoint": {"enabled": names("Other"), "disabled": names("PrioritySort")}}
    text = document(profiles=[{"schedulerName": "a"}, {"schedulerName": "b", "plugins": other}])
    with pytest.raises(ConfigError) as caught:
        resolve(load(text, catalog=CATALOG), catalog=CATALOG)
    expected = 'initializing profiles: different queue sort plugins for profile "b": "Other", first: "PrioritySort"'
    assert str(caught.value) == expected


# Profiles taken from recorded runs of kube-scheduler 1.36.
LISTS = {
    "score only": (
        {"score": {"disabled": names("*"), "enabled": names(("TaintToleration", 3), ("NodeResourcesFit", 1))}},
        {"score": (("TaintToleration", 3), ("NodeResourcesFit", 1)), "filter": FILTER},
    ),
    "weights everywhere": (
        {
            "multiPoint": {"enabled": names(("ImageLocality", 3), ("PodTopologySpread", 5))},
            "score": {
                "disabled": names("NodeResourcesBalancedAllocation"),
                "enabled": names(("InterPodAffinity", 4)),
            },
        },
        {
            "score": (
                ("InterPodAffinity", 4),
                ("TaintToleration", 3),
                ("NodeAffinity", 2),
                ("NodeResourcesFit", 1),
                ("VolumeBinding", 1),
                ("PodTopologySpread", 5),
                ("DynamicResources", 2),
                ("ImageLocality", 3),
            )
        },
    ),
    "two filters less": (
        {"filter": {"disabled": names("NodeResourcesFit", "TaintToleration")}},
        {
            "filter": tuple(name for name in FILTER if name not in ("NodeResourcesFit", "TaintToleration")),
            "score": SCORE,
        },
    ),
    "a handful of plugins": (
        {
            "multiPoint": {
                "disabled": names("*"),
                "enabled": names(
                    "PrioritySort",
                    "DefaultBinder",
                    ("NodeResourcesFit", 2),
                    ("NodeAffinity", 1),
                    "NodeUnschedulable",
                    "SchedulingGates",
                ),
            }
        },
        {
            "pre_enqueue": ("SchedulingGates",),
            "pre_filter": ("NodeResourcesFit", "NodeAffinity"),
            "filter": ("NodeResourcesFit", "NodeAffinity", "NodeUnschedulable"),
            "post_filter": (),
            "score": (("NodeResourcesFit", 2), ("NodeAffinity", 1)),
            "bind": ("DefaultBinder",),
        },
    ),
    "no PostFilter": ({"postFilter": {"disabled": names("*")}}, {"post_filter": (), "filter": FILTER}),
    "no DynamicResources": (
        {"multiPoint": {"disabled": names("DynamicResources")}},
        {
            "post_filter": ("DefaultPreemption",),
            "pre_enqueue": ("SchedulingGates", "DefaultPreemption"),
            "score": tuple(pair for pair in SCORE if pair[0] != "DynamicResources"),
        },
    ),
    "plugins outside multiPoint come last, overriding ones first": (
        {"score": {"enabled": names(("Last", 9), ("ImageLocality", 5))}},
        {"score": (("ImageLocality", 5), *SCORE[:-1], ("Last", 9))},
    ),
    "disabled and enabled at once": (
        {"score": {"enabled": names("Last"), "disabled": names("*", "Last")}},
        {"score": (("Last", 1),)},
    ),
}


@pytest.mark.parametrize("plugins, expected", LISTS.values(), ids=LISTS)
def test_lists(plugins: dict[str, Any], expected: dict[str, Any]) -> None:
    lists = resolve(load(profile(plugins=plugins), catalog=CATALOG), catalog=CATALOG).profiles[0].plugins
    assert {point: getattr(lists, point) for point in expected} == expected


def test_gates_add_plugins() -> None:
    gates = FeatureGates.parse(["GangScheduling=true,TopologyAwareWorkloadScheduling=true,NodeDeclaredFeatures=false"])
    plugins = resolve(load(document(), gates=gates), gates=gates).profiles[0].plugins
    assert plugins.permit == ("GangScheduling",)
    assert plugins.placement_generate == ("TopologyPlacementGenerator",)
    assert plugins.placement_score == (("NodeResourcesFit", 1), ("PodGroupPodsCount", 1))
    assert plugins.filter == FILTER[:-1]


def test_several_profiles() -> None:
    loose = {"multiPoint": {"disabled": names("TaintToleration"), "enabled": names(("NodeAffinity", 9))}}
    packer = {
        "score": {"disabled": names("*"), "enabled": names(("NodeResourcesFit", 7), "NodeResourcesBalancedAllocation")}
    }
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    text = document(
        profiles=[
            {"schedulerName": "default-scheduler"},
            {"schedulerName": "loose", "plugins": loose},
            {
                "schedulerName": "packer",
                "plugins": packer,
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}],
            },
        ]
    )
    profiles = {profile.scheduler_name: profile for profile in resolve(load(text)).profiles}
    assert list(profiles) == ["default-scheduler", "loose", "packer"]
    assert profiles["loose"].plugins.score[0] == ("NodeAffinity", 9)
    assert profiles["packer"].plugins.score == (("NodeResourcesFit", 7), ("NodeResourcesBalancedAllocation", 1))
    fit = profiles["packer"].args["NodeResourcesFit"]
    assert fit.scoring_strategy.type == "MostAllocated"
    assert [(spec.name, spec.weight) for spec in fit.scoring_strategy.resources] == [("cpu", 1)]
    assert profiles["loose"].args["NodeResourcesFit"].scoring_strategy.type == "LeastAllocated"
    assert profiles["loose"].args["PodTopologySpread"].defaulting_type == "System"


def test_typed_arguments() -> None:
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 33, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme"]}]}}
        ],
    }
    constraint = {"maxSkew": 9, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}
    text = profile(
        pluginConfig=[
            {"name": "NodeAffinity", "args": {"addedAffinity": affinity}},
            {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": [constraint]}},
            {"name": "DynamicResources", "args": {"filterTimeout": "1m30s"}},
        ]
    )
    configuration = load(text)
    args = resolve(configuration).profiles[0].args
    added = args["NodeAffinity"].added_affinity
    assert added.required.node_selector_terms[0].match_expressions[0].key == "rack"
    assert added.preferred[0].weight == 33
    assert added.preferred[0].preference.match_expressions[0].values == ("nvme",)
    (spread,) = args["PodTopologySpread"].default_constraints
    assert (spread.max_skew, spread.topology_key, spread.min_domains) == (9, "rack", 2)
    assert args["DynamicResources"].filter_timeout == Duration.of(90)
    assert args["DynamicResources"].binding_timeout.seconds == 600.0
    shown = {config["name"]: config["args"] for config in configz(configuration)["profiles"][0]["pluginConfig"]}
    assert shown["NodeAffinity"]["addedAffinity"] == affinity
    assert shown["PodTopologySpread"]["defaultConstraints"] == [constraint]
    assert shown["DynamicResources"]["filterTimeout"] == "1m30s"


def test_extenders() -> None:
    extender = {
        "urlPrefix": "http://127.0.0.1:8888/",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 2,
        "enableHTTPS": True,
        "tlsConfig": {"insecure": True, "caData": "Y2E="},
        "httpTimeout": "1.5s",
        "nodeCacheCapable": True,
        "managedResources": [{"name": "a.com/x", "ignoredByScheduler": True}, {"name": "a.com/y"}],
        "ignorable": True,
    }
    ignored = {"name": "NodeResourcesFit", "args": {"ignoredResources": ["b.com/z"]}}
    configuration = load(document(profiles=[{"pluginConfig": [ignored]}], extenders=[extender]))
    resolved = resolve(configuration)
    (parsed,) = resolved.extenders
    assert (parsed.filter_verb, parsed.bind_verb, parsed.weight) == ("filter", "", 2)
    assert parsed.http_timeout == Duration.of(1.5)
    assert parsed.tls_config is not None
    assert parsed.tls_config.ca_data == b"ca"
    assert resolved.profiles[0].args["NodeResourcesFit"].ignored_resources == ("a.com/x",)
    assert configz(configuration)["extenders"] == [extender]
    assert load(dump(configuration)).extenders == configuration.extenders


@pytest.mark.parametrize(
    "connection, limit",
    [
        ({}, None),
        ({"qps": 0, "burst": 0}, None),
        ({"qps": -1}, None),
        ({"qps": 7.5}, RateLimit(7.5, 100)),
        ({"burst": 5}, RateLimit(50.0, 5)),
        ({"qps": 50, "burst": 100}, RateLimit(50.0, 100)),
    ],
)
def test_unset_rate_limit_is_no_limit(connection: dict[str, Any], limit: RateLimit | None) -> None:
    assert resolve(load(document(clientConnection=connection))).rate_limit == limit


class WidgetArgs(PluginArgs, frozen=True, kw_only=True):
    """Arguments of a plugin of another family."""

    size: Int32 = 0
    period: Duration = Duration.of(60)


def _double(given: WidgetArgs, gates: FeatureGates) -> WidgetArgs:
    return msgspec.structs.replace(given, size=given.size or 3)


def _positive(given: WidgetArgs, path: str, gates: FeatureGates) -> list[str]:
    return [] if given.size > 0 else [invalid(f"{path}.size", given.size, "must be positive")]


def test_a_table_entry_is_all_a_plugin_needs() -> None:
    catalog = IN_TREE.extended({"Widget": entry("filter reserve", ArgsKind(WidgetArgs, _double, _positive))})
    plugins = {"filter": {"enabled": names("Widget")}, "reserve": {"enabled": names("Widget")}}
    configuration = load(profile(plugins=plugins), catalog=catalog)
    resolved = resolve(configuration, catalog=catalog).profiles[0]
    assert resolved.plugins.filter[-1] == resolved.plugins.reserve[-1] == "Widget"
    assert resolved.args["Widget"] == WidgetArgs(size=3)
    assert "kind: WidgetArgs" in dump(configuration)
    given = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "WidgetArgs", "size": -1, "period": "1h"}
    with pytest.raises(ConfigError) as caught:
        load(profile(plugins=plugins, pluginConfig=[{"name": "Widget", "args": given}]), catalog=catalog)
    assert str(caught.value) == "profiles[0].pluginConfig[0].args.size: Invalid value: -1: must be positive"


def test_dump_shows_enabled_plugins_only_configz_the_file() -> None:
    plugins = {"multiPoint": {"disabled": names("VolumeBinding", "InterPodAffinity")}}
    configs = [{"name": "VolumeBinding", "args": {}}, {"name": "Mine", "args": {"a": [{"b": True}]}}]
    configuration = load(profile(plugins=plugins, pluginConfig=configs))
    dumped = [config.name for config in load(dump(configuration)).profiles[0].plugin_config]
    assert dumped == [
        "DefaultPreemption",
        "DynamicResources",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "PodTopologySpread",
    ]
    shown = configz(configuration)
    assert (shown["apiVersion"], shown["kind"]) == ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration")
    assert [config["name"] for config in shown["profiles"][0]["pluginConfig"]] == ["VolumeBinding", "Mine", *dumped]
    assert shown["profiles"][0]["pluginConfig"][1] == configs[1]
    assert shown["profiles"][0]["plugins"]["filter"] == {}


def test_warnings() -> None:
    text = document(
        parallelism=4,
        percentageOfNodesToScore=30,
        clientConnection={"acceptContentTypes": "application/cbor,application/json;q=1"},
        profiles=[
            {
                "schedulerName": "a",
                "percentageOfNodesToScore": 70,
                "plugins": {
                    "multiPoint": {"disabled": names("VolumeZone")},
                    "score": {"disabled": names("ImageLocalty")},
                },
                "pluginConfig": [
                    {"name": "Mine", "args": {}},
                    {"name": "NodeName", "args": {"x": 1}},
                    {"name": "NodeResourceFit", "args": {}},
                ],
            },
            {"schedulerName": "b"},
        ],
    )
    built = set(IN_TREE) - {"VolumeZone", "ImageLocality"}
    assert warnings(resolve(load(text)), IN_TREE, built) == [
        "parallelism: 4 has no effect: nodes are evaluated together, as columns",
        "percentageOfNodesToScore: 30 has no effect: every node is considered for every pod",
        "profiles[0].percentageOfNodesToScore: 70 has no effect: every node is considered for every pod",
        'clientConnection: content type "application/cbor" has no effect: only protobuf and JSON are supported',
        'plugin "ImageLocality" is not implemented and will be ignored (profiles: a, b)',
        'plugin "VolumeZone" is not implemented and will be ignored (profiles: b)',
        'profiles[0].pluginConfig[0] has no effect: plugin "Mine" is not enabled',
        'profiles[0].pluginConfig[1] has no effect: plugin "NodeName" takes no arguments',
        'profiles[0].pluginConfig[2] has no effect: plugin "NodeResourceFit" is not enabled; '
        'did you mean "NodeResourcesFit"?',
        'profiles[0].plugins.score.disabled[0] has no effect: there is no plugin "ImageLocalty"; '
        'did you mean "ImageLocality"?',
    ]
    assert warnings(resolve(load(document())), IN_TREE) == []


@pytest.mark.parametrize(
    "connection, expected",
    [
        ({}, f"{PROTOBUF},{JSON}"),
        ({"contentType": PROTOBUF}, f"{PROTOBUF},{JSON}"),
        ({"contentType": f"{PROTOBUF};x=y"}, f"{PROTOBUF},{JSON}"),
        ({"contentType": JSON}, JSON),
        ({"contentType": "application/cbor"}, JSON),
        ({"acceptContentTypes": PROTOBUF}, PROTOBUF),
        ({"acceptContentTypes": f"{PROTOBUF}, {JSON}"}, f"{PROTOBUF},{JSON}"),
        ({"acceptContentTypes": f"{JSON},{PROTOBUF}"}, f"{JSON},{PROTOBUF}"),
        ({"acceptContentTypes": f"{PROTOBUF};q=1,*/*", "contentType": JSON}, PROTOBUF),
        ({"acceptContentTypes": JSON, "contentType": PROTOBUF}, JSON),
        ({"acceptContentTypes": "application/yaml"}, JSON),
    ],
)
def test_which_encodings_are_asked_for(connection: dict[str, str], expected: str) -> None:
    assert resolve(load(document(clientConnection=connection))).accept == expected


def test_the_flag_for_the_content_type() -> None:
    flags = Options(feature_gates=FeatureGates.parse([]), deprecated=Deprecated(kube_api_content_type=JSON))
    assert resolve(flags.configuration()).accept == JSON


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        ("GenericWorkload=true", []),
        ("GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true", []),
        ("GangScheduling=true", ["feature gate GangScheduling=true has no effect without GenericWorkload=true"]),
        (
            "TopologyAwareWorkloadScheduling=true",
            [
                "feature gate TopologyAwareWorkloadScheduling=true has no effect without GenericWorkload=true and "
                "GangScheduling=true"
            ],
        ),
        (
            "WorkloadAwarePreemption=true,GenericWorkload=true",
            ["feature gate WorkloadAwarePreemption=true has no effect without GangScheduling=true"],
        ),
        ("GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true", []),
        ("GenericWorkload=true,DRAWorkloadResourceClaims=true", []),
        (
            "DRAWorkloadResourceClaims=true",
            ["DRAWorkloadResourceClaims is enabled, but depends on features that are disabled: [GenericWorkload]"],
        ),
    ],
)
def test_gates_without_effect_are_named(gates, expected) -> None:
    resolved = resolve(load(document()), gates=FeatureGates.parse([gates]))
    assert warnings(resolved, IN_TREE) == expected

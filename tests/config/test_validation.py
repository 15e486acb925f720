"""Rules of the configuration and of plugin arguments: exact paths and texts."""

from typing import Any

import pytest

from koordsched.config import ConfigError, FeatureGates, load, resolve
from tests.config.documents import args, document, profile

ARGS = "profiles[0].pluginConfig[0].args"
FIT = "initializing profiles: creating profile for scheduler name default-scheduler: "
FIT += 'initializing plugin "NodeResourcesFit": '
LABEL_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
REMOVED = 'was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'


def extender(**fields: Any) -> dict[str, Any]:
    return {"urlPrefix": "http://localhost", **fields}


def managed(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def affinity(**expression: Any) -> dict[str, Any]:
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    }


def fit(**strategy: Any) -> str:
    return args("NodeResourcesFit", scoringStrategy=strategy)


def constraints(*given: dict[str, Any], kind: str | None = "List") -> str:
    return args("PodTopologySpread", defaultConstraints=list(given), **({"defaultingType": kind} if kind else {}))


EXPRESSION = (
    f"{ARGS}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
)

CASES = {
    "burst": (
        document(clientConnection={"burst": -1}),
        "clientConnection.burst: Invalid value: -1: must be non-negative",
    ),
    "election times": (
        document(leaderElection={"leaseDuration": "-1s", "renewDeadline": "-2s", "retryPeriod": "-100ms"}),
        '[leaderElection.leaseDuration: Invalid value: "-1s": must be greater than zero, '
        'leaderElection.renewDeadline: Invalid value: "-2s": must be greater than zero, '
        'leaderElection.retryPeriod: Invalid value: "-100ms": must be greater than zero]',
    ),
    "profile percentage": (
        profile(percentageOfNodesToScore=-1),
        "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
    ),
    "empty scheduler name": (profile(schedulerName=""), "profiles[0].schedulerName: Required value"),
    "removed plugin": (
        profile(plugins={"filter": {"enabled": [{"name": "EBSLimits"}]}}, pluginConfig=[{"name": "GCEPDLimits"}]),
        f'[profiles[0].plugins.filter.enabled[0]: Invalid value: "EBSLimits": {REMOVED}, '
        f'profiles[0].pluginConfig[0]: Invalid value: "GCEPDLimits": {REMOVED}]',
    ),
    "arguments twice": (
        profile(pluginConfig=[{"name": "Mine"}, {"name": "Mine"}]),
        'profiles[0].pluginConfig[1]: Duplicate value: "Mine"',
    ),
    "two queue sort plugins": (
        profile(plugins={"queueSort": {"enabled": [{"name": "A"}, {"name": "B"}]}}),
        "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled",
    ),
    "queue sort differs": (
        document(
            profiles=[
                {"schedulerName": "a"},
                {"schedulerName": "b", "plugins": {"queueSort": {"enabled": [{"name": "Mine"}]}}},
            ]
        ),
        'profiles[1].plugins.queueSort: Invalid value: {"Enabled":[{"Name":"Mine","Weight":0}],"Disabled":null}: '
        "must be the same for all profiles",
    ),
    "extender weight": (
        document(extenders=[extender(prioritizeVerb="p")]),
        "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
    ),
    "two binders": (
        document(extenders=[extender(bindVerb="b"), extender(bindVerb="b")]),
        'extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind',
    ),
    "managed resources": (
        document(
            extenders=[
                extender(managedResources=managed("a.com/x", "cpu", "kubernetes.io/x", "-/y")),
                extender(managedResources=managed("a.com/x")),
            ]
        ),
        '[extenders[0].managedResources[1].name: Invalid value: "cpu": is an invalid extended resource name, '
        'extenders[0].managedResources[2].name: Invalid value: "kubernetes.io/x": '
        "is an invalid extended resource name, "
        'extenders[0].managedResources[3].name: Invalid value: "-/y": prefix part a lowercase RFC 1123 subdomain '
        "must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
        "character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), "
        'extenders[1].managedResources[0].name: Invalid value: "a.com/x": duplicate extender managed resource name]',
    ),
    "preemption": (
        args("DefaultPreemption", minCandidateNodesPercentage=101, minCandidateNodesAbsolute=-1),
        f"[{ARGS}.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100], "
        f"{ARGS}.minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)]",
    ),
    "preemption of nothing": (
        args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
        f"[{ARGS}.minCandidateNodesPercentage: Invalid value: 0: "
        "cannot be zero at the same time as minCandidateNodesAbsolute, "
        f"{ARGS}.minCandidateNodesAbsolute: Invalid value: 0: "
        "cannot be zero at the same time as minCandidateNodesPercentage]",
    ),
    "dynamic resources": (
        args("DynamicResources", filterTimeout="-1s", bindingTimeout="999ms"),
        f'[{ARGS}.filterTimeout: Invalid value: "-1s": must be zero or positive, '
        f'{ARGS}.bindingTimeout: Invalid value: "999ms": must be at least 1 second]',
    ),
    "inter-pod affinity": (
        args("InterPodAffinity", hardPodAffinityWeight=101),
        f"{ARGS}.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
    ),
    "balanced allocation": (
        args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}, {"name": "cpu"}]),
        f'[{ARGS}.resources[0].weight: Invalid value: 2: must be 1, {ARGS}.resources[1].name: Duplicate value: "cpu"]',
    ),
    "added affinity, operator": (
        args("NodeAffinity", addedAffinity=affinity(key="a", operator="Is")),
        f'{EXPRESSION}.operator: Unsupported value: "Is": '
        'supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
    ),
    "added affinity, key and values": (
        args("NodeAffinity", addedAffinity=affinity(key="a b", operator="In")),
        f'[{EXPRESSION}.key: Invalid value: "a b": name part {LABEL_RULE}, '
        f"{EXPRESSION}.values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty]",
    ),
    "added affinity, numbers": (
        args("NodeAffinity", addedAffinity=affinity(key="a", operator="Gt", values=["x"])),
        f"{EXPRESSION}.values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
    ),
    "added affinity, values with Exists": (
        args("NodeAffinity", addedAffinity=affinity(key="a", operator="Exists", values=["x"])),
        f'{EXPRESSION}.values: Invalid value: ["x"]: values set must be empty for exists and does not exist',
    ),
    "added affinity, preferred fields": (
        args(
            "NodeAffinity",
            addedAffinity={
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 0, "preference": {"matchExpressions": [{"key": "a", "operator": "ignored"}]}},
                    {"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}},
                ]
            },
        ),
        f"{ARGS}.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].matchFields[0].operator: "
        'Unsupported value: "Exists": supported values: "In", "NotIn"',
    ),
    "spread, list without its type": (
        constraints({"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}, kind=None),
        f'{ARGS}.defaultingType: Invalid value: "System": when .defaultConstraints are not empty',
    ),
    "spread, type": (
        constraints(kind="Some"),
        f'{ARGS}.defaultingType: Unsupported value: "Some": supported values: "System", "List"',
    ),
    "spread, constraint": (
        constraints({"maxSkew": 0, "labelSelector": {}}, {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "No"}),
        f"[{ARGS}.defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf), "
        f"{ARGS}.defaultConstraints[0].topologyKey: Required value: can not be empty, "
        f"{ARGS}.defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty, "
        f"{ARGS}.defaultConstraints[0].labelSelector: Forbidden: "
        "constraint must not define a selector, as they deduced for each pod, "
        f'{ARGS}.defaultConstraints[1].whenUnsatisfiable: Unsupported value: "No": '
        'supported values: "DoNotSchedule", "ScheduleAnyway"]',
    ),
    "spread, repeated": (
        constraints(*[{"maxSkew": skew, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"} for skew in (1, 2)]),
        f'{ARGS}.defaultConstraints[1]: Duplicate value: "{{a, DoNotSchedule}}"',
    ),
    "volume binding": (
        args("VolumeBinding", bindTimeoutSeconds=-1, shape=[{"utilization": 0, "score": 1}]),
        f"[{ARGS}.bindTimeoutSeconds: Invalid value: -1: "
        "invalid BindTimeoutSeconds, should not be a negative value, "
        f'{ARGS}.shape: Invalid value: [{{"Utilization":0,"Score":1}}]: '
        "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring]",
    ),
    "fit, weight": (
        fit(type="LeastAllocated", resources=[{"name": "cpu", "weight": 101}]),
        f"{FIT}scoringStrategy.resources[0].weight: Invalid value: 101: "
        "resource weight of cpu not in valid range (0, 100]",
    ),
    "fit, type": (
        fit(type="Least"),
        f'{FIT}scoringStrategy.type: Unsupported value: "Least": supported values: '
        '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"',
    ),
    "fit, ratio missing": (
        fit(type="RequestedToCapacityRatio"),
        f"{FIT}scoringStrategy.requestedToCapacityRatio: Required value: "
        "must be specified when type is RequestedToCapacityRatio",
    ),
    "fit, ratio not wanted": (
        fit(type="MostAllocated", requestedToCapacityRatio={}),
        f"{FIT}scoringStrategy.requestedToCapacityRatio: Forbidden: "
        "must be nil when type is not RequestedToCapacityRatio",
    ),
    "fit, empty shape": (
        fit(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": []}),
        f"{FIT}scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified",
    ),
    "fit, shape": (
        fit(
            type="RequestedToCapacityRatio",
            requestedToCapacityRatio={
                "shape": [{"utilization": u, "score": s} for u, s in ((0, 0), (0, 11), (0, 1), (101, -1))]
            },
        ),
        f"{FIT}[scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 0: "
        "values must be sorted in increasing order, "
        "scoringStrategy.requestedToCapacityRatio.shape[1].score: Invalid value: 11: not in valid range [0, 10], "
        "scoringStrategy.requestedToCapacityRatio.shape[3].utilization: Invalid value: 101: "
        "not in valid range [0, 100], "
        "scoringStrategy.requestedToCapacityRatio.shape[3].score: Invalid value: -1: not in valid range [0, 10]]",
    ),
    "fit, ignored": (
        args("NodeResourcesFit", ignoredResources=["a/b/c", "/x"], ignoredResourceGroups=["a.com/b", ""]),
        f'{FIT}[ignoredResources[0]: Invalid value: "a/b/c": a qualified name {LABEL_RULE} '
        "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName'), "
        'ignoredResources[1]: Invalid value: "/x": prefix part must be non-empty, '
        "ignoredResourceGroups[0]: Invalid value: \"a.com/b\": resource group name can't contain '/', "
        'ignoredResourceGroups[1]: Invalid value: "": name part must be non-empty]',
    ),
    "elector": (
        document(leaderElection={"retryPeriod": "9s"}),
        "couldn't create leader elector: renewDeadline must be greater than retryPeriod*JitterFactor",
    ),
    "extender without NodeResourcesFit": (
        document(
            profiles=[{"plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}}],
            extenders=[extender(managedResources=[{"name": "a.com/x", "ignoredByScheduler": True}])],
        ),
        "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config",
    ),
}


@pytest.mark.parametrize("text, message", CASES.values(), ids=CASES)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(load(text))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        document(leaderElection={"leaderElect": False, "leaseDuration": "-1s", "resourceLock": "endpoints"}),
        document(podInitialBackoffSeconds=7, podMaxBackoffSeconds=7, parallelism=1, percentageOfNodesToScore=100),
        args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=1),
        args("DynamicResources", filterTimeout="0s", bindingTimeout="1s"),
        args("NodeAffinity", addedAffinity={}),
        args(
            "NodeAffinity", addedAffinity={"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
        ),
        args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 0}]),
        fit(type="LeastAllocated", resources=[{"name": "cpu", "weight": 100}, {"name": "memory"}]),
        args("VolumeBinding", bindTimeoutSeconds=0),
    ],
)
def test_limits_are_accepted(text: str) -> None:
    resolve(load(text))


def test_gates_decide_which_arguments_exist() -> None:
    scoring = FeatureGates.parse(["StorageCapacityScoring=true"])
    shaped = load(args("VolumeBinding"), gates=scoring).profiles[0].plugin_config[0].args.shape
    assert [(point.utilization, point.score) for point in shaped] == [(0, 10), (100, 0)]
    off = FeatureGates.parse(["DRASchedulerFilterTimeout=false,DRADeviceBindingConditions=false"])
    assert load(args("DynamicResources"), gates=off).profiles[0].plugin_config[0].args.filter_timeout is None
    with pytest.raises(ConfigError) as caught:
        load(args("DynamicResources", filterTimeout="1s", bindingTimeout="1s"), gates=off)
    assert caught.value.errors == (
        f"{ARGS}.filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled",
        f"{ARGS}.bindingTimeout: Forbidden: "
        "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled",
    )

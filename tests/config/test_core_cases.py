"""Acceptance cases 1 to 5 of the core contract: configuration."""

import msgspec
import pytest
import yaml

from koordsched.config import ConfigError, PluginSets, default_configuration, dump, load, resolve
from tests.config.documents import document, profile

DEFAULT_DUMP = """\
apiVersion: kubescheduler.config.k8s.io/v1
clientConnection:
  acceptContentTypes: ""
  burst: 100
  contentType: application/vnd.kubernetes.protobuf
  kubeconfig: ""
  qps: 50
enableContentionProfiling: true
enableProfiling: true
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: 15s
  renewDeadline: 10s
  resourceLock: leases
  resourceName: kube-scheduler
  resourceNamespace: kube-system
  retryPeriod: 2s
parallelism: 16
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
- pluginConfig:
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: DefaultPreemptionArgs
      minCandidateNodesAbsolute: 100
      minCandidateNodesPercentage: 10
    name: DefaultPreemption
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      bindingTimeout: 10m0s
      filterTimeout: 10s
      kind: DynamicResourcesArgs
    name: DynamicResources
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      hardPodAffinityWeight: 1
      ignorePreferredTermsOfExistingPods: false
      kind: InterPodAffinityArgs
    name: InterPodAffinity
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeAffinityArgs
    name: NodeAffinity
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesBalancedAllocationArgs
      resources:
      - name: cpu
        weight: 1
      - name: memory
        weight: 1
    name: NodeResourcesBalancedAllocation
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy:
        resources:
        - name: cpu
          weight: 1
        - name: memory
          weight: 1
        type: LeastAllocated
    name: NodeResourcesFit
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      defaultingType: System
      kind: PodTopologySpreadArgs
    name: PodTopologySpread
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      bindTimeoutSeconds: 600
      kind: VolumeBindingArgs
    name: VolumeBinding
  plugins:
    bind: {}
    filter: {}
    multiPoint:
      enabled:
"""

DEFAULT_ORDER = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
)

PRE_FILTER = (
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeDeclaredFeatures",
)
FILTER = ("NodeUnschedulable", "NodeName", "TaintToleration", *PRE_FILTER)
SCORE = (
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodeResourcesFit", 1),
    ("VolumeBinding", 1),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
)


def plugins_of(text: str) -> PluginSets:
    return resolve(load(text)).profiles[0].plugins


def test_core_case_01_default_dump() -> None:
    text = dump(default_configuration())
    assert text.startswith(DEFAULT_DUMP)
    # Written out, the limits are set; everything else reads back as it was.
    limited = msgspec.structs.replace(default_configuration().client_connection, qps=50.0, burst=100)
    assert load(text) == msgspec.structs.replace(default_configuration(), client_connection=limited)
    dumped = yaml.safe_load(text)["profiles"][0]["plugins"]
    assert [(plugin["name"], plugin["weight"]) for plugin in dumped.pop("multiPoint")["enabled"]] == list(DEFAULT_ORDER)
    assert len(dumped) == 14
    assert not any(dumped.values())


def test_core_case_01_default_lists() -> None:
    plugins = resolve(default_configuration()).profiles[0].plugins
    assert plugins.pre_enqueue == ("SchedulingGates", "DynamicResources", "DefaultPreemption")
    assert plugins.queue_sort == ("PrioritySort",)
    assert plugins.pre_filter == PRE_FILTER
    assert plugins.filter == FILTER
    assert plugins.post_filter == ("DynamicResources", "DefaultPreemption")
    assert plugins.pre_score == (
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
        "NodeResourcesBalancedAllocation",
    )
    assert plugins.score == SCORE
    assert plugins.reserve == plugins.pre_bind == ("VolumeBinding", "DynamicResources")
    assert plugins.bind == ("DefaultBinder",)
    assert plugins.permit == plugins.post_bind == plugins.placement_generate == ()
    assert plugins.placement_score == (("NodeResourcesFit", 1),)
    assert plugins.score_weights() == dict(SCORE)
    points = plugins.points()
    assert (points["preFilter"], points["score"]) == (PRE_FILTER, tuple(name for name, _ in SCORE))
    assert len(points) == 14


def test_core_case_02_multipoint_and_score() -> None:
    plugins = plugins_of(
        profile(
            plugins={
                "multiPoint": {
                    "enabled": [{"name": "NodeAffinity", "weight": 7}],
                    "disabled": [{"name": "TaintToleration"}],
                },
                "score": {
                    "enabled": [{"name": "ImageLocality", "weight": 5}, {"name": "NodeResourcesFit"}],
                    "disabled": [{"name": "InterPodAffinity"}],
                },
            }
        )
    )
    assert plugins.score == (
        ("ImageLocality", 5),
        ("NodeResourcesFit", 1),
        ("NodeAffinity", 7),
        ("VolumeBinding", 1),
        ("PodTopologySpread", 2),
        ("DynamicResources", 2),
        ("NodeResourcesBalancedAllocation", 1),
    )
    assert plugins.filter == tuple(name for name in FILTER if name != "TaintToleration")


def test_core_case_03_score_all_disabled() -> None:
    plugins = plugins_of(
        profile(
            plugins={
                "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 4}]},
            }
        )
    )
    assert plugins.score == (("NodeResourcesFit", 4),)
    assert plugins.filter == FILTER


def test_core_case_04_scheduler_names() -> None:
    with pytest.raises(ConfigError) as caught:
        load(document(profiles=[{"schedulerName": "a"}, {"schedulerName": "a"}, {}]))
    expected = "[profiles[1].schedulerName: Duplicate value: {}, profiles[2].schedulerName: Required value]"
    assert str(caught.value) == expected


def test_core_case_05_six_paths_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        load(
            document(
                parallelism=0,
                percentageOfNodesToScore=101,
                podInitialBackoffSeconds=0,
                podMaxBackoffSeconds=-1,
                leaderElection={"resourceLock": "endpoints", "leaseDuration": "5s"},
            )
        )
    assert caught.value.errors == (
        'leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`',
        'leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"',
        "parallelism: Invalid value: 0: should be an integer value greater than zero",
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        "podMaxBackoffSeconds: Invalid value: -1: must be greater than or equal to PodInitialBackoffSeconds",
    )
    assert str(caught.value) == "[" + ", ".join(caught.value.errors) + "]"

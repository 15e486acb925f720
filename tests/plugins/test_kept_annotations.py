"""Journals keep the annotations that plugins read: without them a replay would decide otherwise."""

from random import Random

import pytest

from koordsched.config.feature_gates import FeatureGates
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.harness import StoppedClock, resolved

KOORDINATOR, NODES = "scheduling.koordinator.sh/", "node.koordinator.sh/"
KEPT = {
    "DeviceShare": [f"{KOORDINATOR}gpu-partitions", "cambricon.com/dsmlu.lock", "hami.io/mutex.lock"],
    "LoadAwareScheduling": [f"{KOORDINATOR}usage-thresholds", f"{NODES}raw-allocatable"],
    "NodeCircuitBreaker": ["koordsched.io/circuit-breaker"],
    "NodeNUMAResource": [
        f"{NODES}resource-amplification-ratio",
        f"{NODES}cpu-topology",
        f"{NODES}pod-cpu-allocs",
        f"{NODES}reservation",
        f"{NODES}system-qos-resource",
        "kubelet.koordinator.sh/cpu-manager-policy",
    ],
    "Reservation": [
        f"{KOORDINATOR}reservation-owners",
        f"{KOORDINATOR}reservation-current-owner",
        f"{KOORDINATOR}reservation-restricted-options",
        f"{KOORDINATOR}reservation-resize-allocatable",
        f"{NODES}reservation",
    ],
    "SchedulingHint": [f"internal.{KOORDINATOR}scheduling-hint", f"{KOORDINATOR}scheduling-hint"],
}


@pytest.mark.parametrize("name", KEPT)
def test_journals_keep_what_is_read(name):
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": name}]}}}
    config = resolved({"profiles": [profile]}, FeatureGates.parse(["DevicePluginAdaption=true"]))
    offline = OfflineScheduler(config, IN_TREE, [], clock=StoppedClock(), rng=Random(7))
    assert set(KEPT[name]) <= offline.cluster.read_annotations

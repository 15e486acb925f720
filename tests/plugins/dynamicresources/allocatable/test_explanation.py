"""What explanations say of nodes without room for what devices take there."""

from random import Random

import numpy as np

from koordsched.config.feature_gates import FeatureGates
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.dynamicresources.allocatable.test_over_the_api import GATES, STATUS, taking, using
from tests.plugins.dynamicresources.deviceworld import N1, allocated, claim, device_class, slice_of
from tests.plugins.harness import StoppedClock, resolved

ROW = np.array([0], dtype=np.intp)


def explained(*objects, claims=("c",)):
    """(what is said of node n1, the remedy)."""
    pod = using("p", *claims)
    gates = FeatureGates.parse(list(GATES))
    objects = (N1, device_class(), pod, *objects)
    scheduler = OfflineScheduler(resolved({}, gates=gates), IN_TREE, objects, clock=StoppedClock(), rng=Random(1))
    attempt = scheduler.attempt("default/p")
    attempt.filter()
    plugin = attempt.profile.plugins["DynamicResources"]
    (found,) = plugin.explain_verdicts(attempt.cycle, ROW)
    return found, plugin.remedy_of(attempt.cycle, 0)


def test_what_the_devices_would_take_is_named():
    found, remedy = explained(slice_of("n1", taking(cpu="64", memory="1Gi")), claim())
    assert found == [
        "claim default/c, request r: needs 1, 1 available",
        "its devices take of the node cpu 64, memory 1Gi",
    ]
    assert remedy == "room for the pod and what its devices take of the node: cpu 64, memory 1Gi"


def test_claims_are_told_apart():
    held = claim("held", status=allocated("d1"))
    devices = slice_of("n1", taking("d0", cpu="64"), taking("d1", cpu="2"))
    found, _ = explained(devices, claim(), held, claims=("c", "held"))
    assert found[-1] == "its devices take of the node c: cpu 64; held: cpu 2"


def test_a_claim_that_another_pod_has():
    other = using("q", "c", nodeName="n1")
    other["status"] = {STATUS: [{"resourceClaimName": "c", "containers": ["m"], "resources": {"cpu": "2"}}]}
    _, remedy = explained(slice_of("n1", taking(cpu="2")), claim(status=allocated("d0", users=["q"])), other)
    assert remedy == "claim default/c given up by its other pods, since it takes something of the node"


def test_what_cannot_be_worked_out_is_left_out():
    name, more = taking(key="cores", cpu="2")
    found, remedy = explained(slice_of("n1", (name, {**more, "capacity": {"cores": {"value": "8"}}})), claim())
    assert found == ["claim default/c, request r: needs 1, 1 available"]
    assert "take" not in remedy

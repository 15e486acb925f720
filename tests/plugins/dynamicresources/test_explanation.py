"""What explanations say of claims that cannot be allocated: claim, request and reasons (dra spec, L4 and L5)."""

from random import Random

import numpy as np

from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.dynamicresources.deviceworld import N1, allocated, claim, claiming, device_class, slice_of
from tests.plugins.harness import StoppedClock, resolved


def lines(*objects):
    objects = (N1, device_class(), claim(count=2), claiming("p", "c"), *objects)
    scheduler = OfflineScheduler(resolved({}), IN_TREE, objects, clock=StoppedClock(), rng=Random(1))
    attempt = scheduler.attempt("default/p")
    attempt.filter()
    plugin = attempt.profile.plugins["DynamicResources"]
    (found,) = plugin.explain_verdicts(attempt.cycle, np.array([0], dtype=np.intp))
    return found


def test_what_is_against_each_device():
    tainted = ("d1", {"taints": [{"key": "sick", "effect": "NoSchedule"}]})
    held = claim("held", status=allocated("d0", users=["old"]))
    (line,) = lines(slice_of("n1", "d0", tainted, "d2"), held)
    assert line.startswith("claim default/c, request r: needs 2, 1 available, ")
    assert "1 in use" in line
    assert "taint" in line


def test_pools_that_are_invalid_are_named():
    found = lines(slice_of("n1", "d0", "d0", pool="twice"))
    assert any("drv/twice" in line and "duplicate device name d0" in line for line in found)


def test_nothing_speaks_against_a_node_where_the_claims_fit():
    assert lines(slice_of("n1", "d0", "d1")) == ["claim default/c, request r: needs 2, 2 available"]

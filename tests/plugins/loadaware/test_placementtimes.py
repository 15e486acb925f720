"""When pods were placed and initialized."""

import pytest

from koordsched.plugins.loadaware.placementtimes import placement_times
from tests.plugins.harness import Bench
from tests.plugins.objects import container, pod


def condition(kind, time="2030-01-01T00:00:10Z", status="True"):
    return {"type": kind, "status": status, "lastTransitionTime": time}


NEW_YEAR = 1893456000
CASES = {
    "neither": ([], None),
    "placed": ([condition("PodScheduled")], (NEW_YEAR + 10, 0)),
    "both": (
        [condition("Initialized", "2030-01-01T00:00:12Z"), condition("PodScheduled")],
        (NEW_YEAR + 10, NEW_YEAR + 12),
    ),
    "not placed": ([condition("PodScheduled", status="False")], None),
    "without a time": ([condition("PodScheduled", None)], None),
    "no time": ([condition("PodScheduled", "soon"), condition("Initialized")], (0, NEW_YEAR + 10)),
}


@pytest.mark.parametrize(("conditions", "expected"), CASES.values(), ids=CASES)
def test_times_are_those_of_the_conditions(conditions, expected):
    bench = Bench()
    times = placement_times(bench.cluster)
    assert times.of(bench.pod(pod("p", container(), on="n") | {"status": {"conditions": conditions}})) == expected

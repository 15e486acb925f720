"""What a PodGroup of Kubernetes' own API asks for."""

import pytest

from koordsched.api.decoding import convert
from koordsched.plugins.shared.podgroups import PodGroup


@pytest.mark.parametrize(
    ("policy", "least"),
    [
        ({"gang": {"minCount": 3}}, 3),
        ({"gang": {"minCount": -1}}, 0),
        ({"gang": {}}, 0),
        ({"basic": {}}, 0),
        ({}, 0),
    ],
)
def test_only_a_gang_has_a_least_number_of_pods(policy, least):
    assert convert({"spec": {"schedulingPolicy": policy}}, PodGroup).min_count == least


@pytest.mark.parametrize(("priority", "expected"), [(None, 0), (0, 0), (7, 7), (-7, -7)])
def test_its_priority(priority, expected):
    assert convert({"spec": {"priority": priority}}, PodGroup).priority == expected

"""Pods that need a plugin which is not implemented wait, and say for which; all others are placed."""

import pytest

from tests.plugins.harness import scheduler
from tests.plugins.objects import node, pod

PROFILE = {
    "schedulerName": "default-scheduler",
    "plugins": {
        "permit": {"enabled": [{"name": "Coscheduling"}]},
    },
}
NEEDY = [
    ("Coscheduling", {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}, "it belongs to gang g"),
    ("Coscheduling", {"annotations": {"gang.scheduling.koordinator.sh/name": "h"}}, "it belongs to gang h"),
]


def explained(metadata, profile=PROFILE):
    wanted = pod("p")
    wanted["metadata"].update(metadata)
    return scheduler([node("n"), wanted], profile).explain(f"{wanted['metadata']['namespace']}/p")


@pytest.mark.parametrize("plugin, metadata, why", NEEDY)
def test_a_pod_that_needs_it_waits(plugin, metadata, why):
    said = explained(metadata)
    assert not any(each.feasible for each in said.nodes)
    assert f"pod needs plugin {plugin}, which this scheduler does not implement: {why}" in said.message


def test_a_pod_that_does_not_is_placed():
    assert [each.feasible for each in explained({"labels": {"app": "a"}}).nodes] == [True]


def test_without_such_plugins_in_the_profile_nothing_waits():
    assert [each.feasible for each in explained({"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}, {}).nodes] == [
        True
    ]

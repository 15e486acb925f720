"""What trying all nodes at once saves."""

import pytest

from koordsched.framework.interface import CycleState
from koordsched.plugins.shared.preemption import search
from koordsched.plugins.shared.preemption.lockstep import Lockstep
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod
from tests.reference.randompreemption import HOSTNAME, ZONE
from tests.steps import counted

NODES = 300
WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}
SPREAD = {
    "topologySpreadConstraints": [
        {"topologyKey": key, "maxSkew": 3, "whenUnsatisfiable": "DoNotSchedule", **WEB} for key in (ZONE, HOSTNAME)
    ]
}


def required(kind, key, app):
    """A required term about the pods of an app."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


GUARD = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "guard", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"app": "db"}}},
    "status": {"disruptionsAllowed": 0},
}


class OneByOne(Lockstep):
    """Never applies."""

    def __init__(self, *given):
        super().__init__(*given)
        self.applies = False


def decided(offline, name):
    """(the steps that a decision for a pod takes, the outcome)."""
    profile = offline.profiles["default-scheduler"]
    cycle = CycleState(offline.pending[f"default/{name}"])
    codes = profile.filtering.filter(cycle).codes
    with counted() as steps:
        outcome = profile.run_post_filter(cycle, codes)
    return steps.count, outcome


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(
    "spec",
    [SPREAD, required("podAntiAffinity", HOSTNAME, "db"), required("podAffinity", ZONE, "db")],
    ids=["spread", "anti-affinity", "affinity"],
)
def test_pods_for_which_other_nodes_matter(spec, guarded, monkeypatch):
    state = [node(f"n{i}", labels={ZONE: f"z{i % 3}"}) for i in range(NODES)]
    state += [
        pod(f"v{i}", container(cpu="900m"), on=f"n{i // 4}", labels={"app": "db" if i % 2 else "web"})
        for i in range(4 * NODES)
    ]
    state.append(pod("new", container(cpu="3"), priority=10, labels={"app": "web"}, **spec))
    if guarded:
        state.append(GUARD)
    together, outcome = decided(scheduler(state), "new")
    monkeypatch.setattr(search, "Lockstep", OneByOne)
    one_by_one, plain = decided(scheduler(state), "new")
    assert (outcome.nominated_node, [v.key for v in outcome.victims]) == (
        plain.nominated_node,
        [v.key for v in plain.victims],
    )
    assert len(outcome.victims) >= 3
    assert together * 20 < one_by_one

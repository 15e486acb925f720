"""When what budgets say has to be looked at anew."""

import pytest

from koordsched.plugins.shared.preemption.budgets import Budgets
from tests.plugins.harness import Bench
from tests.plugins.objects import pod

APP, OTHER = {"matchLabels": {"app": "x"}}, {"matchLabels": {"app": "y"}}


def budget(allowed=0, selector=APP, disrupted=(), **status):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": selector},
        "status": {
            "disruptionsAllowed": allowed,
            "disruptedPods": dict.fromkeys(disrupted, "2030-01-01T00:00:00Z"),
            **status,
        },
    }


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (None, budget(), True),
        (budget(), None, True),
        (budget(), budget(selector=OTHER), True),
        (budget(), budget(allowed=1), True),
        (budget(), budget(disrupted=["p"]), True),
        (budget(), budget(currentHealthy=3, expectedPods=4), False),
        (None, budget(selector={}), False),
        (None, budget(selector=None), False),
    ],
    ids=["new", "gone", "other pods", "more", "charged", "only counted", "of no pods", "without a selector"],
)
def test_the_version_tells_what_matters(before, after, changes):
    bench = Bench(*([before] if before else []))
    budgets = bench.cluster.shared(Budgets)
    version = budgets.version
    if after is None:
        bench.remove(before)
    else:
        bench.add(after)
    assert (budgets.version != version) is changes


def test_a_namespace_without_budgets_protects_no_pod():
    bench = Bench(budget())
    budgets, known = bench.cluster.shared(Budgets), bench.pod(pod("p", labels={"app": "x"}))
    assert budgets
    assert budgets.protects(known)
    bench.remove(budget())
    assert not budgets
    assert not budgets.protects(known)


def test_a_selector_that_cannot_be_read_protects_no_pod():
    bench = Bench(budget(selector={"matchExpressions": [{"key": "app", "operator": "Sometimes"}]}))
    budgets = bench.cluster.shared(Budgets)
    assert not budgets
    assert budgets.version == 0
    bench.add(budget())
    assert budgets.protects(bench.pod(pod("p", labels={"app": "x"})))

"""Selectors as large as an API server takes them, and thousands of them: a verdict costs what the labels take."""

from itertools import product
from random import Random

import numpy as np
import pytest

from koordsched.api.decoding import convert
from koordsched.api.meta import LabelSelector
from koordsched.api.selectors import compile_selector
from koordsched.api.storage import PersistentVolume, PersistentVolumeClaim
from koordsched.plugins.shared.matching.nodeselector import NodeSelectors
from koordsched.plugins.shared.podcounts.labelselectors import LabelSelectors
from koordsched.plugins.shared.preemption.budgets import Budgets
from koordsched.plugins.shared.preemption.victims import VictimTable
from koordsched.plugins.volumebinding.claims import Demand
from koordsched.plugins.volumebinding.freevolumes import FreeVolumes
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod
from tests.plugins.volumes.objects import claim, volume
from tests.reference.preemption import breaking_budgets
from tests.reference.selectors import label_selector_matches
from tests.reference.world import World
from tests.steps import counted


def expression(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


LARGE = {
    "absent": lambda n: [expression(f"a{i}", "DoesNotExist") for i in range(n)],
    "not these": lambda n: [expression(f"a{i}", "NotIn", "x", "y") for i in range(n)],
    "not one of them": lambda n: [expression("app", "NotIn", f"v{i}") for i in range(n)],
    "none of them": lambda n: [expression("app", "NotIn", *(f"v{i}" for i in range(n)))],
    "one of them": lambda n: [expression("app", "In", "web", *(f"v{i}" for i in range(n)))],
    "one of each": lambda n: [expression("app", "In", "web", f"v{i}") for i in range(n)],
    "there": lambda n: [expression("app", "Exists") for _ in range(n)],
    "of others": lambda n: [expression(f"a{i}", "Exists") for i in range(n)],
}


def compiled(expressions):
    return compile_selector(convert({"matchExpressions": expressions}, LabelSelector))


@pytest.mark.parametrize("expressions", LARGE.values(), ids=LARGE)
def test_a_large_selector_costs_no_more_than_a_small_one(expressions):
    few, many, labels = compiled(expressions(10)), compiled(expressions(1000)), {"app": "web", "u": "1"}
    with counted() as steps:
        said = few.matches(labels)
    cost = steps.count
    with counted() as steps:
        assert many.matches(labels) == said
    assert steps.count <= cost


def budget(name, expressions, allowed=1, disrupted=(), namespace="default"):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchExpressions": expressions}},
        "status": {
            "disruptionsAllowed": allowed,
            "disruptedPods": dict.fromkeys(disrupted, "2030-01-01T00:00:00Z"),
        },
    }


def crowded(*objects):
    pods = [pod(f"p{i}", container(cpu="1"), labels={"app": "web", "u": f"{i}"}, on=f"n{i % 5}") for i in range(20)]
    return Bench(*(node(f"n{i}") for i in range(5)), *pods, *objects)


def judge(bench):
    """All pods on all nodes, once. Returns what was said, and what it cost."""
    table, budgets = VictimTable(bench.cluster), bench.cluster.shared(Budgets)
    potential = table.potential(bench.rows, 1000, 0.0)
    lists = table.pods_of(bench.rows, 1000, 0.0)
    with counted() as steps:
        broken = budgets.broken_in(potential, table.kinds, lists.__getitem__)
        one_by_one = [budgets.broken_by(pods) for pods in lists]
    if broken is not None:
        assert [column[: len(pods)].tolist() for column, pods in zip(broken.T, lists, strict=True)] == one_by_one
    return one_by_one, steps.count


@pytest.mark.parametrize("expressions", LARGE.values(), ids=LARGE)
def test_what_a_large_budget_says_costs_no_more_than_what_a_small_one_says(expressions):
    said, few = judge(crowded(budget("b", expressions(10))))
    same, many = judge(crowded(budget("b", expressions(1000))))
    assert same == said
    assert many < 1.5 * few


def test_thousands_of_budgets_are_asked_at_once():
    few = [budget(f"b{i}", [expression(f"a{i}", "DoesNotExist")], allowed=2) for i in range(5)]
    many = [budget(f"b{i}", [expression(f"a{i}", "DoesNotExist")], allowed=2) for i in range(1000)]
    said, cost = judge(crowded(*few))
    assert said == [[False, False, True, True]] * 5
    same, more = judge(crowded(*many))
    assert same == said
    assert more < 1.5 * cost


def test_a_budget_that_changes_concerns_the_pods_of_its_namespace(monkeypatch):
    bench = crowded(budget("b", LARGE["there"](1)), budget("b", LARGE["there"](1), namespace="other"))
    bench.add(pod("p", container(cpu="1"), labels={"app": "web"}, on="n1", namespace="other"))
    table, budgets = VictimTable(bench.cluster), bench.cluster.shared(Budgets)
    table.potential(bench.rows, 1000, 0.0)
    asked, matching = [], LabelSelectors.matching
    monkeypatch.setattr(LabelSelectors, "matching", lambda self, labels: asked.append(1) or matching(self, labels))
    assert np.count_nonzero(budgets.states(table.kinds)) == len(asked) == 21
    for expressions, protected in ((LARGE["of others"](1), 20), (LARGE["absent"](1), 21)):
        bench.add(budget("b", expressions, namespace="other"))
        asked.clear()
        assert np.count_nonzero(budgets.states(table.kinds)) == protected
        assert len(asked) == 1
    bench.add(budget("b", LARGE["absent"](1), namespace="other", allowed=0))
    assert np.count_nonzero(budgets.states(table.kinds)) == 21
    assert len(asked) == 1


def random_selector(rng):
    values = "xyz"
    return [
        expression(rng.choice("abc"), operator, *(rng.sample(values, rng.randint(1, 2)) if "In" in operator else ()))
        for operator in rng.choices(("In", "NotIn", "Exists", "DoesNotExist"), k=rng.choice((0, 1, 1, 2, 3)))
    ]


@pytest.mark.parametrize("seed", range(10))
def test_budgets_that_come_and_go_break_as_they_do_one_by_one(seed):
    rng = Random(seed)
    pods = [
        pod(
            f"p{i}",
            container(cpu="1"),
            labels={key: rng.choice("xyz") for key in rng.sample("abcd", rng.randint(0, 4))},
            namespace=rng.choice(("default", "other")),
            on=f"n{i % 4}",
        )
        for i in range(24)
    ]
    bench = Bench(*(node(f"n{i}") for i in range(4)), *pods)
    budgets, table, known = bench.cluster.shared(Budgets), VictimTable(bench.cluster), {}
    for _ in range(15):
        for name in rng.sample(range(8), rng.randint(1, 3)):
            if name in known and rng.random() < 0.4:
                bench.remove(known.pop(name))
                continue
            wanted = budget(
                f"b{name}",
                known[name]["spec"]["selector"]["matchExpressions"]
                if name in known and rng.random() < 0.5
                else random_selector(rng),
                rng.choice((-1, 0, 1, 2, 3, 7)),
                [f"p{rng.randrange(24)}"] if rng.random() < 0.3 else (),
                "default" if name % 2 else "other",
            )
            known[name] = wanted
            bench.add(wanted)
        potential = table.potential(bench.rows, 1000, 0.0)
        lists = table.pods_of(bench.rows, 1000, 0.0)
        wire = {thing["metadata"]["name"]: thing for thing in pods}
        world = World([*known.values()])
        expected = []
        for listed in lists:
            breaking = breaking_budgets([wire[each.name] for each in listed], world)
            expected.append([wire[each.name] in breaking for each in listed])
        assert [budgets.broken_by(listed) for listed in lists] == expected
        broken = budgets.broken_in(potential, table.kinds, lists.__getitem__)
        if broken is None:
            assert not any(map(any, expected))
        else:
            assert [column[: len(row)].tolist() for column, row in zip(broken.T, expected, strict=True)] == expected


def free_volumes(labels):
    free = FreeVolumes(Bench(node("n")).cluster.table, NodeSelectors())
    for number, each in enumerate(labels):
        free.put(convert(volume(f"v{number}", "1Gi", labels=each), PersistentVolume), number + 1)
    return free


def demanding(expressions):
    return Demand(convert(claim("c", "1"), PersistentVolumeClaim), "late", 1, compiled(expressions))


def got(free, demands):
    found = (assignment.on(0) for assignment in free.assign(demands))
    return [each and each.metadata.name for each in found]


@pytest.mark.parametrize("expressions", LARGE.values(), ids=LARGE)
def test_which_volumes_a_claim_selects_costs_as_little_for_many_requirements_as_for_few(expressions):
    few, many = demanding(expressions(10)), demanding(expressions(1000))
    free = free_volumes([{"app": "web", "u": f"{i}"} for i in range(20)])
    expected = got(free, [few])
    with counted() as steps:
        assert got(free, [few]) == expected
    cost = steps.count
    with counted() as steps:
        assert got(free, [many]) == expected
    assert steps.count < 1.5 * cost


def test_claims_do_not_ask_one_volume_after_the_other():
    def cost(number):
        free = free_volumes([{"app": "web", "u": f"{i}"} for i in range(number)])
        wanted = [demanding([expression("app", "In", "web"), expression("u", "NotIn", f"{i}")]) for i in range(10)]
        found = got(free, wanted)
        with counted() as steps:
            assert got(free, wanted) == found
        return steps.count

    assert cost(1000) <= cost(10)


@pytest.mark.parametrize("seed", range(10))
def test_claims_get_volumes_that_their_selectors_match(seed):
    rng = Random(seed)
    labels = {
        f"v{i}": {key: rng.choice("xyz") for key in rng.sample("abc", rng.randint(0, 3))}
        for i in range(rng.choice((3, 100)))
    }
    free = free_volumes(labels.values())
    for _ in range(20):
        expressions = random_selector(rng)
        matching = (n for n, each in labels.items() if label_selector_matches({"matchExpressions": expressions}, each))
        assert got(free, [demanding(expressions)]) == [next(matching, None)]


def test_a_free_volume_with_other_labels_is_selected_by_them():
    free = free_volumes([{"app": "web"}])
    web, mail = (demanding([expression("app", "In", app)]) for app in ("web", "mail"))
    free.put(convert(volume("v0", "1Gi", labels={"app": "mail"}), PersistentVolume), 1)
    assert (got(free, [web]), got(free, [mail])) == ([None], ["v0"])


@pytest.mark.parametrize(("one", "other"), [*product(LARGE, repeat=2)])
def test_requirements_on_the_same_key_hold_together(one, other):
    expressions = [*LARGE[one](3), *LARGE[other](12)]
    selector = compiled(expressions)
    for labels in ({}, {"app": "web"}, {"app": "v1"}, {"app": "v11"}, {"app": "web", "a1": "x"}, {"a1": "z"}):
        assert selector.matches(labels) == label_selector_matches({"matchExpressions": expressions}, labels)

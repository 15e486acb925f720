"""What NodeResourcesFit makes of resources that DRA serves (dra spec 3.10): verdicts, hints, changes of classes."""

from random import Random

import numpy as np
import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.api.resource import DeviceClass
from koordsched.cluster.changelog import Facet
from koordsched.cluster.events import DEVICE_CLASS, NODE, ActionType
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import NodeResourcesFitArgs
from koordsched.framework.evaluation import Evaluations
from koordsched.framework.plan import Chains
from koordsched.plugins.shared.extendedresources import ExtendedResources
from koordsched.queue.hints import QueueingHint
from koordsched.scheduling.advice import relative_shortage
from koordsched.scheduling.remedies import shortages
from tests.plugins.dynamicresources.extended.objects import GATES, device_class
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod

UU, U = "UnschedulableAndUnresolvable", "Unschedulable"
GPU = "x.io/gpu"
WANTED = pod("p", container(cpu=1, **{GPU: 2}))


def bench_of(*objects, gates=GATES):
    bench = Bench()
    bench.handle.features = gates
    for item in objects:
        bench.add(item)
    return bench


def fit(bench, **args):
    return bench.plugin("NodeResourcesFit", NodeResourcesFitArgs(**args) if args else None)


def test_a_resource_with_a_class_is_left_to_dra_where_the_node_has_nothing_of_it():
    nodes = [node("none"), node("zero", **{GPU: 0}), node("one", **{GPU: 1}), node("two", **{GPU: 2})]
    used = pod("w", container(**{GPU: 1}), on="two")
    bench = bench_of(*nodes, used, device_class("a", GPU))
    assert bench.filter(fit(bench), WANTED) == {
        "none": None,
        "zero": None,
        "one": (UU, f"Insufficient {GPU}"),
        "two": (U, f"Insufficient {GPU}"),
    }


def test_other_shortages_of_such_nodes_are_reported():
    bench = bench_of(node("n", cpu="500m"), node("m"), device_class("a", GPU))
    wanted = pod("p", container(cpu=1, **{GPU: 2, "x.io/nope": 1}))
    assert bench.filter(fit(bench), wanted) == {
        "n": (UU, "Insufficient cpu", "Insufficient x.io/nope"),
        "m": (UU, "Insufficient x.io/nope"),
    }


def test_the_implicit_name_of_a_class_counts():
    bench = bench_of(node("n"), device_class("a"))
    name = "deviceclass.resource.kubernetes.io/a"
    assert bench.filter(fit(bench), pod("p", container(**{name: 1}))) == {"n": None}
    assert bench.filter(fit(bench), pod("p", container(**{name + "b": 1}))) == {"n": (UU, f"Insufficient {name}b")}


def test_with_the_gate_off_classes_do_not_matter():
    bench = bench_of(node("n"), device_class("a", GPU), gates=frozenset())
    assert bench.filter(fit(bench), WANTED) == {"n": (UU, f"Insufficient {GPU}")}
    assert not any(hint.event.resource == DEVICE_CLASS for hint in fit(bench).events_to_register())


def test_it_holds_for_pods_with_very_many_resources():
    names = [f"x.io/r{i:02}" for i in range(70)]
    bench = bench_of(
        node("n"), node("m", **{names[0]: 1}), *(device_class(f"c{i}", n) for i, n in enumerate(names[:69]))
    )
    assert bench.filter(fit(bench), pod("p", container(**dict.fromkeys(names, 2)))) == {
        "n": (UU, f"Insufficient {names[69]}"),
        "m": (UU, f"Insufficient {names[0]}", f"Insufficient {names[69]}"),
    }


def test_pods_on_nodes_do_not_use_up_what_nodes_do_not_have():
    holder = pod("w", container(**{GPU: 5}), on="n")
    bench = bench_of(node("n"), holder, device_class("a", GPU))
    assert bench.filter(fit(bench), WANTED) == {"n": None}


def evaluation_of(bench, plugin, item):
    table = bench.cluster.table
    evaluations = Evaluations(Chains((plugin,), (plugin,), ()), table, bench.handle.reasons)
    return evaluations.of(bench.pod(item).shape)


def test_cached_verdicts_follow_the_classes():
    """A class that comes, is renamed or goes changes the verdict about nodes that did not change."""
    bench = bench_of(*(node(f"n{i}") for i in range(200)), node("has", **{GPU: 4}))
    plugin = fit(bench)
    waiting = bench.pod(WANTED)
    found = evaluation_of(bench, plugin, WANTED)
    classes = [
        (None, 1),
        (device_class("a", GPU), 201),
        (device_class("a", "x.io/other"), 1),
        (device_class("b", GPU), 201),
        (device_class("a", GPU), 201),
    ]
    for item, feasible in classes:
        if item is not None:
            bench.add(item)
        found.refresh()
        assert found.feasible == feasible
    bench.remove(device_class("b"))
    found.refresh()
    assert found.feasible == 201
    bench.remove(device_class("a"))
    found.refresh()
    assert found.feasible == 1
    assert waiting.shape.requests.amounts


def test_a_class_of_a_resource_that_is_not_requested_touches_no_row():
    bench = bench_of(node("n"))
    fit(bench)
    serial = bench.cluster.table.log.serial
    for day in range(1, 20):
        bench.add(device_class("a", f"x.io/r{day}", day))
    assert bench.cluster.table.log.serial == serial


def test_many_rows_are_touched_at_once():
    """Readers that look often and readers that do not see the same."""
    bench = bench_of(*(node(f"n{i}") for i in range(100)))
    table = bench.cluster.table
    early, late = table.log.serial - 5, table.log.serial
    rows = np.array([3, 7, 90, *range(20, 30)])
    table.touch_rows(rows, Facet.RESOURCES)
    assert table.log.serial == late + 1
    assert table.log.since(late, Facet.RESOURCES, table.size).tolist() == sorted(rows.tolist())
    assert set(rows.tolist()) <= set(table.log.since(early, Facet.RESOURCES, table.size).tolist())
    assert len(table.log.since(late, Facet.TAINTS, table.size)) == 0
    after = table.log.serial
    assert table.log.since(after, Facet.RESOURCES, table.size) == []
    table.touch(5, Facet.RESOURCES)
    assert table.log.since(after, Facet.RESOURCES, table.size) == [(5, Facet.RESOURCES)]
    table.touch_rows(np.array([8, 9]), Facet.RESOURCES)
    assert table.log.since(after, Facet.RESOURCES, table.size) == [(row, Facet.RESOURCES) for row in (5, 8, 9)]
    serial = table.log.serial
    table.touch_rows(np.zeros(0, dtype=np.intp), Facet.RESOURCES)
    assert table.log.serial == serial


def test_touching_rows_in_a_what_if_is_an_error():
    bench = bench_of(node("n"))
    bench.cluster.table.hypothetical = 1
    with pytest.raises(RuntimeError):
        bench.cluster.table.touch_rows(np.array([0]), Facet.RESOURCES)


# --- hints -------------------------------------------------------------------------------------------------------


def hint(bench, item, resource, action, old, new):
    """What NodeResourcesFit says to an event; None if it does not wait for any such."""
    plugin, waiting = fit(bench), bench.pod(item)
    kind = DeviceClass if resource == DEVICE_CLASS else core.Node
    old, new = (thing and convert(thing, kind) for thing in (old, new))
    for registration in plugin.events_to_register():
        if registration.event.resource == resource and registration.event.action & action:
            return registration.fn(waiting, old, new) is QueueingHint.QUEUE
    return None


IMPLICIT = pod("p", container(**{"deviceclass.resource.kubernetes.io/a": 1}))


@pytest.mark.parametrize(
    "item, old, new, queues",
    [
        (WANTED, None, device_class("a", GPU), True),
        (WANTED, None, device_class("a", "x.io/other"), False),
        (WANTED, None, device_class("a"), False),
        (WANTED, device_class("a"), device_class("a", GPU), True),
        (WANTED, device_class("a", "x.io/other"), device_class("a", GPU), True),
        (WANTED, device_class("a", GPU), device_class("a", GPU, 3), False),
        (WANTED, device_class("a", GPU), device_class("a"), False),
        (IMPLICIT, None, device_class("a"), True),
        (IMPLICIT, None, device_class("b"), False),
        (IMPLICIT, device_class("a"), device_class("a", GPU), False),
        (pod("p", container(cpu=1)), None, device_class("a", GPU), False),
    ],
)
def test_classes_wake_pods_that_request_their_resource(item, old, new, queues):
    action = ActionType.UPDATE if old else ActionType.ADD
    assert hint(bench_of(), item, DEVICE_CLASS, action, old, new) is queues


@pytest.mark.parametrize(
    "old, new, queues",
    [
        (None, node("n"), True),
        (node("n", cpu="2"), node("n", cpu="3"), True),
        (node("n", cpu="2"), node("n", cpu="2", labels={"a": "b"}), True),  # as upstream: DRA may serve it there
        (None, node("n", cpu="500m"), False),
        (None, node("n", **{GPU: 1}), False),
        (None, node("n", **{GPU: 2}), True),
        (node("n", **{GPU: 2}), node("n", **{GPU: 2}), False),
        (node("n", **{GPU: 1}), node("n", **{GPU: 0}), True),
    ],
)
def test_nodes_without_the_resource_may_serve_it_by_dra(old, new, queues):
    bench = bench_of(device_class("a", GPU))
    action = ActionType.UPDATE_NODE_ALLOCATABLE if old else ActionType.ADD
    assert hint(bench, WANTED, NODE, action, old, new) is queues


# --- accounting --------------------------------------------------------------------------------------------------


def test_a_node_is_not_over_committed_by_what_dra_serves():
    holder = pod("w", container(**{GPU: 2}), on="n")
    bench = bench_of(node("n"), device_class("a", GPU))
    fit(bench)
    overcommitments = bench.cluster.overcommitments
    bench.add(holder)
    assert len(overcommitments) == 0
    bench.remove(device_class("a"))
    assert [str(excess) for excess in overcommitments.on("n")] == [f"{GPU} 2 of 0"]
    bench.add(device_class("b", GPU))
    assert len(overcommitments) == 0
    bench.add(node("n", **{GPU: 1}))
    assert [str(excess) for excess in overcommitments.on("n")] == [f"{GPU} 2 of 1"]


def test_pods_that_came_before_the_class_are_looked_at_again():
    bench = bench_of(node("n"), pod("w", container(**{GPU: 2}), on="n"))
    fit(bench)
    assert len(bench.cluster.overcommitments) == 1
    bench.add(device_class("a", GPU))
    assert len(bench.cluster.overcommitments) == 0


def test_advice_does_not_ask_for_what_dra_serves():
    """The closest node is the one that lacks the least; what DRA may serve there is not lacking."""
    full = [pod(f"w{name}", container(cpu=used), on=name) for name, used in (("n", "3500m"), ("m", "3900m"))]
    bench = bench_of(node("n"), node("m", **{GPU: 4}), *full, device_class("a", GPU))
    fit(bench)
    waiting, table = bench.pod(WANTED), bench.cluster.table
    n, m = table.row_of["n"], table.row_of["m"]
    assert shortages(waiting, table, n) == {0: 500}
    assert relative_shortage(bench.cluster, waiting, np.array([n, m])).tolist() == [0.5, 0.9]
    bench.remove(device_class("a"))
    assert shortages(waiting, table, n) == {0: 500, table.resource_names.index[GPU]: 2}
    assert relative_shortage(bench.cluster, waiting, np.array([n, m])).tolist() == [1.5, 0.9]


def test_classes_are_the_same_for_all_plugins_of_a_cluster():
    bench = bench_of(device_class("a", GPU))
    assert ExtendedResources.shared(bench.handle) is ExtendedResources.shared(bench.handle)
    assert GPU in ExtendedResources.shared(bench.handle).classes
    assert FeatureGates.defaults().enabled("DRAExtendedResource")


def test_random_states_agree_with_a_reading_of_the_rule():
    rng = Random(11)
    names = [f"x.io/r{i}" for i in range(4)]
    for _ in range(60):
        bench = bench_of()
        offers = {}
        for i in range(rng.randint(1, 9)):
            offers[f"n{i}"] = {name: rng.randint(0, 3) for name in names if rng.random() < 0.5}
            bench.add(node(f"n{i}", **offers[f"n{i}"]))
        backed = {name for name in names if rng.random() < 0.5}
        for name in sorted(backed):
            bench.add(device_class("c-" + name.removeprefix("x.io/"), name))
        amounts = {name: rng.randint(0, 3) for name in names}
        expected = {}
        for name, offered in offers.items():
            short = [
                resource
                for resource in names
                if amounts[resource] > offered.get(resource, 0)
                and not (resource in backed and not offered.get(resource, 0))
            ]
            expected[name] = (UU, *(f"Insufficient {resource}" for resource in short)) if short else None
        assert bench.filter(fit(bench), pod("p", container(**amounts))) == expected

"""Groups that wait are found by what they lack: whatever a hint would wake, its index finds (core spec 3.4)."""

import itertools
from random import Random

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.events import NODE, ActionType
from koordsched.queue.groupindex import MOST_KEYS, KeyedGroups
from koordsched.queue.hints import QueueingHint
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, node_affinity, pod, pod_affinity, pod_term, spread, term
from tests.reference.randomstate import RandomState

PLUGINS = ("NodeResourcesFit", "NodeAffinity", "TaintToleration", "InterPodAffinity", "PodTopologySpread")
PODS = 40
EVENTS = 60


def indexed(plugin):
    return [registration for registration in plugin.events_to_register() if registration.index is not None]


def node_changes(states, rng):
    """(old, new), as the registration may meet them."""
    old, new = (convert(states.node(f"n{rng.randrange(8)}"), core.Node) for _ in range(2))
    return (None, new) if rng.random() < 0.3 else (old, new)


def pod_changes(bench, states, rng):
    same = RandomState(rng, (rng.choice(states.namespaces),))
    old, new = (bench.pod(same.pod("changed", on="n1")) for _ in range(2))
    return rng.choice([(None, new), (old, None), (old, new)])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", PLUGINS)
def test_an_index_finds_all_that_its_hint_would_wake(name, seed):
    rng = Random(f"{name} {seed}")
    states = RandomState(rng)
    existing = [states.pod(f"e{i}", on=f"n{i % 8}") for i in range(16)]
    bench = Bench(*states.others(), *(states.node(f"n{i}") for i in range(8)), *existing)
    plugin = bench.plugin(name)
    waiting = [bench.pod(states.pod(f"p{i}")) for i in range(PODS)]
    helped = passed_over = 0
    for registration in indexed(plugin):
        index, filed, event = registration.index, {}, registration.event
        for number, each in enumerate(waiting):
            index.add(number, each)
            filed[number] = each
        for _ in range(EVENTS):
            number = rng.randrange(PODS)
            if number in filed:
                index.remove(number)
                del filed[number]
            else:
                index.add(number, waiting[number])
                filed[number] = waiting[number]
            old, new = node_changes(states, rng) if event.resource == NODE else pod_changes(bench, states, rng)
            if old is None and not event.action & ActionType.ADD:
                continue
            found = index.concerned(old, new)
            asked = filed.keys() if found is None else set(found)
            assert asked <= filed.keys()
            for number, each in filed.items():
                if registration.fn(each, old, new) is QueueingHint.QUEUE:
                    helped += 1
                    assert number in asked, f"{each.title} is helped by {old} -> {new}"
            passed_over += len(filed) - len(asked)
        for number in filed:
            index.remove(number)
        assert not index.concerned(old, new)
    assert helped
    assert passed_over


def ssd(i):
    return pod(f"p{i}", affinity=node_affinity([term(("disk", "In", f"ssd{i}"), ("os", "In", "linux"))]))


HOST = "kubernetes.io/hostname"
OTHER = node("n9", cpu="4", labels={"os": "linux", "disk": "ssd7"}, **{"ex.com/r7": "1"})


@pytest.mark.parametrize(
    ("name", "make", "old", "new"),
    [
        ("NodeResourcesFit", lambda i: pod(f"p{i}", container(cpu=str(i - 3))), None, OTHER),
        ("NodeResourcesFit", lambda i: pod(f"p{i}", container(memory=f"{i + 1}Gi")), None, OTHER),
        ("NodeResourcesFit", lambda i: pod(f"p{i}", container(cpu="1", **{f"ex.com/r{i}": 1})), None, OTHER),
        ("NodeAffinity", ssd, None, OTHER),
        ("NodeAffinity", lambda i: pod(f"p{i}", nodeSelector={"os": "linux", f"x{i}": ""}), None, OTHER),
        ("NodeAffinity", lambda i: pod(f"p{i}", nodeSelector={"disk": f"ssd{i}"}), node("n9"), OTHER),
        (
            "TaintToleration",
            lambda i: pod(f"p{i}", tolerations=[{"key": f"k{i}", "operator": "Exists"}]),
            None,
            node("n9", taints=[("node.kubernetes.io/not-ready", "NoSchedule"), ("k7", "NoSchedule")]),
        ),
        (
            "InterPodAffinity",
            lambda i: pod(f"p{i}", affinity=pod_affinity(required=[pod_term(HOST, {"app": f"a{i}"})])),
            None,
            pod("new", labels={"app": "a7"}, on="n1"),
        ),
        (
            "InterPodAffinity",
            lambda i: pod(f"p{i}", affinity=pod_affinity(required_anti=[pod_term(HOST, {"app": f"a{i}"})])),
            pod("gone", labels={"app": "a7"}, on="n1"),
            None,
        ),
        (
            "PodTopologySpread",
            lambda i: pod(f"p{i}", topologySpreadConstraints=[spread(HOST, 1, {"app": f"a{i}"})]),
            pod("gone", labels={"app": "a7"}, on="n1"),
            None,
        ),
    ],
    ids=itertools.count(),
)
def test_of_many_that_lack_something_else_few_are_asked(name, make, old, new):
    bench = Bench(node("n1"))
    plugin = bench.plugin(name)
    of_nodes = "Node" in ((old or new)["kind"],)
    registration = next(r for r in indexed(plugin) if (r.event.resource == NODE) == of_nodes)
    for i in range(500):
        registration.index.add(i, bench.pod(make(i)))
    made = (each and (convert(each, core.Node) if of_nodes else bench.pod(each)) for each in (old, new))
    assert len(list(registration.index.concerned(*made))) <= 8


def test_a_group_that_needs_many_keys_is_asked_always():
    index = KeyedGroups(lambda keys: [[keys]], lambda old, new: [[new]])
    index.add("few", [*range(MOST_KEYS)])
    index.add("many", [*range(MOST_KEYS + 1)])
    assert set(index.concerned(None, 0)) == {"few", "many"}
    assert set(index.concerned(None, -1)) == {"many"}
    index.remove("many")
    assert set(index.concerned(None, -1)) == set()


def test_a_group_is_filed_under_the_condition_that_fewest_have():
    index = KeyedGroups(lambda keys: [[[key] for key in keys]], lambda old, new: [new])
    for group, keys in (("a", "xy"), ("b", "xz"), ("c", "x")):
        index.add(group, keys)
    assert set(index.concerned(None, "x")) == {"a", "c"}
    assert set(index.concerned(None, "xz")) == {"a", "b", "c"}
    assert set(index.concerned(None, "y")) == set()


def test_keys_go_with_the_last_group_under_them():
    index = KeyedGroups(lambda keys: [[keys]], lambda old, new: [[new]])
    for group in ("a", "b"):
        index.add(group, ["x"])
    index.remove("a")
    assert list(index.concerned(None, "x")) == ["b"]
    index.remove("b")
    assert index._by_key == {}

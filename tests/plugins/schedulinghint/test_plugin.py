"""SchedulingHint: the cases of the specification, hints that make no sense, and what hints have to do with filters."""

import json
from random import Random

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.events import NODE, POD, ActionType
from koordsched.config import ConfigError
from koordsched.framework.interface import CycleState, PodFilter
from koordsched.plugins.schedulinghint.plugin import SchedulingHint
from koordsched.queue.hints import QueueingHint
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG
from tests.extraplugins import registry_with, resolved_with
from tests.plugins.harness import Bench, StoppedClock, resolved, scheduler
from tests.plugins.objects import container, node, node_affinity, pod, term
from tests.plugins.schedulinghint.pods import DEPRECATED, INTERNAL, PROFILE, hinted, preferring, profile

NODES = [node(name) for name in ("a", "b", "c", "d")]


def explained(wanted, *objects, config=PROFILE):
    """The explanation for a pod on four nodes and more objects."""
    offline = scheduler([*NODES, *objects, wanted], config)
    return offline.explain(f"default/{wanted['metadata']['name']}")


def feasible(explanation):
    return [node.name for node in explanation.nodes if node.feasible]


def filling(name):
    """A pod that takes all of a node."""
    return pod(f"in-{name}", container(cpu="4"), on=name)


def only(*names):
    """An affinity that NodeAffinity restricts to some nodes in PreFilter; only one name can be given per term."""
    return node_affinity([term(fields=[("metadata.name", "In", name)]) for name in names])


def test_loadaware_case_d1_truncated_then_reduced_to_what_pre_filter_left():
    wanted = hinted("p", preferring("a", "b", "c"), affinity=only("b", "c"))
    assert feasible(explained(wanted, config=profile(2))) == ["b"]
    found = explained(wanted, filling("b"), config=profile(2))
    assert feasible(found) == ["c"]
    assert {n.name: n.reasons for n in found.nodes}["a"] == ("node(s) didn't satisfy plugin(s) [NodeAffinity]",)
    # With three candidates c would have been tried alone, without a look at d.
    assert feasible(explained(hinted("p", preferring("a", "b", "c")), filling("a"), filling("b"))) == ["c"]
    looked_at = explained(hinted("p", preferring("a", "b", "c")), filling("a"), filling("b"), config=profile(2))
    assert feasible(looked_at) == ["c", "d"]


def test_loadaware_case_d2_only_the_named_nodes():
    found = explained(hinted("p", {"nodeNames": ["a", "b"]}))
    assert feasible(found) == ["a", "b"]
    others = {n.reasons for n in found.nodes if not n.feasible}
    assert others == {("node(s) didn't satisfy plugin(s) [SchedulingHint]",)}


def test_loadaware_case_d3_a_preferred_node_that_does_not_fit():
    found = explained(hinted("p", preferring("a")), filling("a"))
    assert feasible(found) == ["b", "c", "d"]
    assert {n.name: n.reasons for n in found.nodes}["a"] == ("Insufficient cpu",)
    plain = explained(pod("p", container(cpu="1")), filling("a"))
    assert [(n.name, n.total) for n in found.nodes] == [(n.name, n.total) for n in plain.nodes]


def test_the_first_that_fits_is_taken_whatever_its_score():
    busy = pod("busy", container(cpu="2"), on="c")
    wanted = hinted("p", preferring("ghost", "b", "c", "a"))
    assert feasible(explained(wanted, busy, filling("b"))) == ["c"]
    assert feasible(explained(wanted, busy)) == ["b"]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_named_and_preferred_together(count):
    wanted = hinted("p", {"nodeNames": ["c", "d"], **preferring("a", "c", "d")})
    found = explained(wanted, *(filling(name) for name in "acd"[:count]))
    assert feasible(found) == [["c"], ["c"], ["d"], []][count]


def test_named_nodes_and_those_of_other_plugins():
    assert feasible(explained(hinted("p", {"nodeNames": ["a", "b"]}, affinity=only("b", "c")))) == ["b"]
    apart = explained(hinted("p", {"nodeNames": ["a"]}, affinity=only("b")))
    assert apart.message.startswith(
        "0/4 nodes are available: node(s) didn't satisfy plugin(s) [NodeAffinity SchedulingHint] simultaneously."
    )
    offline = scheduler([*NODES, hinted("p", {"nodeNames": ["a"]}, affinity=only("b"))], PROFILE)
    verdicts = offline.profiles["default-scheduler"].filtering.filter(CycleState(offline.pending["default/p"]))
    assert verdicts.pre_filtered.status.plugin == "SchedulingHint", "the last one leaves no node"
    nowhere = explained(hinted("p", {"nodeNames": ["ghost"]}))
    assert nowhere.message.startswith("0/4 nodes are available: 4 node(s) didn't satisfy plugin(s) [SchedulingHint].")


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({INTERNAL: '{"nodeNames":["a"]}', DEPRECATED: '{"nodeNames":["b"]}'}, ["a"]),
        ({INTERNAL: "", DEPRECATED: '{"nodeNames":["b"]}'}, ["b"]),
        ({DEPRECATED: '{"nodeNames":["b"]}'}, ["b"]),
        ({INTERNAL: "{}", DEPRECATED: '{"nodeNames":["b"]}'}, ["a", "b", "c", "d"]),
        ({INTERNAL: "", DEPRECATED: ""}, ["a", "b", "c", "d"]),
        ({"example.com/scheduling-hint": '{"nodeNames":["b"]}'}, ["a", "b", "c", "d"]),
        ({INTERNAL: '{"nodeNames":["b"]}', DEPRECATED: "{"}, ["b"]),
    ],
)
def test_which_annotation_counts(annotations, expected):
    wanted = pod("p", container(cpu="1"))
    wanted["metadata"]["annotations"] = annotations
    assert feasible(explained(wanted)) == expected


ALL = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("null", ALL),
        ("{}", ALL),
        (" { } ", ALL),
        ('{"nodeNames":null,"preferredNodeNames":null,"extensions":null}', ALL),
        ('{"nodeNames":[],"preferredNodeNames":[],"extensions":{}}', ALL),
        ('{"unknown":{"a":[1]},"nodeNames":["a"]}', ["a"]),
        ('{"nodeNames":[null]}', []),
        ('{"NodeNames":["a"]}', ALL),
        ('{"nodeNames":["a",null,"","a"]}', ["a"]),
        ('{"preferredNodeNames":[null,"","b","b"]}', ["b"]),
        ('{"preferredNodeNames":["\\u0000","\\ud83d\\ude00"]}', ALL),
        (json.dumps(preferring(*(f"x{i}" for i in range(20_000)), "b")), ALL),
        (json.dumps({"nodeNames": [f"x{i}" for i in range(20_000)] + ["b"]}), ["b"]),
        (json.dumps({"extensions": {"NodeNUMAResource": {"a": [1, 1e300, -5, "x" * 10_000]}}}), ALL),
        ('{"extensions":{"x":' + "9" * 300 + "}}", ALL),
    ],
)
def test_odd_hints(text, expected):
    assert feasible(explained(hinted("p", text))) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "x",
        "[]",
        '"nodeNames"',
        "7",
        '{"nodeNames":"a"}',
        '{"nodeNames":[1]}',
        '{"nodeNames":[["a"]]}',
        '{"preferredNodeNames":{"a":1}}',
        '{"extensions":[]}',
        '{"nodeNames":["a"]} {}',
        " ",
        "\N{SNOWMAN}",
        '{"extensions":{"x":1e400}}',
        '{"extensions":{"x":' + "9" * 5000 + "}}",
        '{"nodeNames":["\\ud800"]}',
        '{"extensions":{"x":' + "[" * 100_000 + "]" * 100_000 + "}}",
    ],
)
@pytest.mark.parametrize("annotation", [INTERNAL, DEPRECATED])
def test_a_hint_that_cannot_be_read_is_an_error_of_that_pod(text, annotation):
    found = explained(hinted("p", text, annotation=annotation))
    assert feasible(found) == []
    begin = f'running BeforePreFilter of plugin "SchedulingHint": annotation {annotation}: '
    assert (found.reason, found.message[: len(begin)]) == ("SchedulerError", begin)
    assert len(found.message) < 500
    assert feasible(explained(pod("other"))) == ALL


@pytest.mark.parametrize("most", [0, -1])
def test_arguments(most):
    with pytest.raises(ConfigError) as refused:
        resolved({"profiles": [profile(most)]})
    assert str(refused.value).endswith(
        f'initializing plugin "SchedulingHint": maxHintNodes: Invalid value: {most}: must be a positive value'
    )
    for given, expected in ((PROFILE, 100), (profile(1), 1)):
        (found,) = resolved({"profiles": [given]}).profiles
        assert found.args["SchedulingHint"].max_hint_nodes == expected


class Asked(PodFilter):
    """Remembers which nodes it was asked about, and what plugins are told."""

    name = "Asked"

    def __init__(self, args, handle):
        self.rows = []
        self.hints = []

    def filter(self, cycle, pod, table, rows):
        self.rows.append([table.names[row] for row in rows])
        self.hints.append(dict(cycle.hints))


def asking(*objects):
    """An offline scheduler with that filter, and the filter."""
    plugins = [SchedulingHint, Asked]
    offline = OfflineScheduler(
        resolved_with(DEFAULT_CONFIG, plugins), registry_with(plugins), objects, clock=StoppedClock(), rng=Random(7)
    )
    return offline, offline.profiles["default-scheduler"].plugins["Asked"]


def test_filters_are_asked_about_preferred_nodes_only():
    offline, asked = asking(*NODES, filling("b"))
    offline.add(hinted("p", {**preferring("b", "d", "c"), "extensions": {"Asked": {"reuse": True}, "Other": 1}}))
    assert offline.schedule("default/p").node == "d"
    assert [sorted(rows) for rows in asked.rows] == [["c", "d"], ["d"]]
    assert asked.hints == [{"Asked": {"reuse": True}, "Other": 1}] * 2
    offline.add(hinted("q", preferring("d")))
    assert offline.schedule("default/q").node == "d"
    assert asked.rows[2:] == [["d"]]
    offline.add(pod("r", container(cpu="1")))
    assert offline.schedule("default/r").node in ALL
    assert [len(rows) for rows in asked.rows[3:]] == [3]
    assert asked.hints[2:] == [{}, {}]


def test_nominated_pods_count_on_preferred_nodes():
    offline = scheduler([*NODES], PROFILE)
    coming = offline.add(pod("coming", container(cpu="4"), priority=10))
    offline.nominator.add(coming, "b")
    offline.add(hinted("p", preferring("b", "c"), priority=5))
    offline.add(hinted("important", preferring("b", "c"), priority=20))
    assert feasible(offline.explain("default/p")) == ["c"]
    assert feasible(offline.explain("default/important")) == ["b"]


def test_a_preferred_node_comes_before_the_nominated_one():
    wanted = hinted("p", preferring("b", "c"))
    wanted["status"]["nominatedNodeName"] = "d"
    assert feasible(explained(wanted)) == ["b"]
    assert feasible(explained(wanted, filling("b"), filling("c"))) == ["d"]
    assert feasible(explained(wanted, filling("b"), filling("c"), filling("d"))) == ["a"]


def test_pods_of_one_shape_may_have_different_hints():
    offline = scheduler([*NODES], PROFILE)
    pods = [offline.add(hinted(f"p{name}", {"nodeNames": [name]})) for name in ALL]
    assert len({pod.shape for pod in pods}) == 1
    assert [offline.schedule(pod.key).node for pod in pods] == ALL


UPDATE, ADD = ActionType.UPDATE, ActionType.ADD


@pytest.mark.parametrize(
    ("resource", "action", "waiting", "old", "new", "expected"),
    [
        (NODE, ADD, {"nodeNames": ["a", "b"]}, None, node("b"), True),
        (NODE, ADD, {"nodeNames": ["a", "b"]}, None, node("c"), False),
        (NODE, ADD, preferring("a"), None, node("c"), True),
        (NODE, ActionType.UPDATE_NODE_LABEL, {"nodeNames": ["a"]}, node("a"), node("a"), None),
        (POD, UPDATE, {"nodeNames": ["a"]}, hinted("p", {"nodeNames": ["a"]}), hinted("p", preferring("a")), True),
        (POD, UPDATE, {"nodeNames": ["a"]}, hinted("p", {"nodeNames": ["a"]}), pod("p"), True),
        (POD, UPDATE, {"nodeNames": ["a"]}, pod("p"), pod("p", labels={"a": "b"}), False),
        (POD, ActionType.DELETE, {"nodeNames": ["a"]}, pod("q", on="a"), None, None),
    ],
)
def test_what_wakes_a_pod_that_its_hint_kept_out(resource, action, waiting, old, new, expected):
    bench = Bench()
    plugin = bench.plugin("SchedulingHint")
    if resource == NODE:
        old, new = (thing and convert(thing, core.Node) for thing in (old, new))
    else:
        old, new = (thing and bench.pod(thing) for thing in (old, new))
    answers = [
        registration.fn(bench.pod(hinted("p", waiting)), old, new) is QueueingHint.QUEUE
        for registration in plugin.events_to_register()
        if registration.event.resource == resource and registration.event.action & action
    ]
    assert answers == ([] if expected is None else [expected])

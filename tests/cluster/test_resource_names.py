"""Names of resources that users make up: their indices are given back, and never mean two things at once."""

import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.resources import FIRST_SCALAR, ResourceNames
from koordsched.cluster.state import ClusterState
from tests.cluster.objects import wire_node, wire_pod
from tests.depth import examples
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod

NAMES = [f"example.com/r{i}" for i in range(6)]


def test_an_index_is_its_names_while_anybody_holds_it():
    names = ResourceNames()
    first = names.hold("a")
    assert (first.index, names.names[first.index], names.index["a"]) == (FIRST_SCALAR, "a", FIRST_SCALAR)
    assert names.hold("a") is first
    second = names.hold("b")
    assert second.index == FIRST_SCALAR + 1
    del first
    third = names.hold("c")
    assert third.index == FIRST_SCALAR, "the index of a name that nobody holds is given to another"
    assert "a" not in names.index
    assert names.names[FIRST_SCALAR:] == ["c", "b"]
    assert names.hold("a").index == FIRST_SCALAR + 2
    assert len(names) == FIRST_SCALAR + 3


def test_names_of_the_configuration_keep_their_index():
    names = ResourceNames()
    assert names.intern("cpu") == 0
    index = names.intern("example.com/scored")
    gc.collect()
    assert [names.hold(f"n{i}").index for i in range(3)] == [index + 1] * 3
    assert names.intern("example.com/scored") == index


def test_a_pod_holds_the_name_of_what_it_requests():
    state = ClusterState()
    built = state.pods.build(wire_pod("p", **{"example.com/a": "1"}))
    gc.collect()
    names = state.table.resource_names
    assert names.index["example.com/a"] == FIRST_SCALAR
    assert names.hold("example.com/b").index == FIRST_SCALAR + 1
    assert dict(built.requests.amounts)[FIRST_SCALAR] == 1


def test_old_names_are_replaced_wherever_a_pod_has_them():
    old, new = "example.com/old", "example.com/new"
    thing = pod("p", container(cpu="1", **{old: "2"}), container(name="d", cpu="1"))
    thing["spec"]["overhead"] = {old: "1"}
    spec = convert(thing, core.Pod).spec
    names = ResourceNames()
    assert names.read_spec(spec) is spec
    names.rename({old: new})
    renamed = names.read_spec(spec)
    first, second = renamed.containers
    assert (first.resources.requests, second.resources.requests) == ({"cpu": "1", new: "2"}, {"cpu": "1"})
    assert renamed.overhead == {new: "1"}
    assert names.read_spec(renamed) is renamed


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"old": "1"}, {"new": "1"}),
        ({"old": "1", "new": "2"}, {"old": "1", "new": "2"}),
        ({"old": "1", "new": "2", "older": "3"}, {"old": "1", "new": "2", "newer": "3"}),
    ],
)
def test_an_old_name_stays_where_the_new_one_is_there_too(written, read):
    names = ResourceNames()
    names.rename({"old": "new", "older": "newer"})
    assert names.read(written) == read


class Histories(RuleBasedStateMachine):
    """Nodes offer, and pods request, resources of ever other names; of each node the table says what there is."""

    def __init__(self):
        super().__init__()
        self.state = ClusterState()
        self.nodes, self.pods, self.serial = {}, {}, 0

    @rule(name=st.sampled_from("abc"), offers=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9), max_size=3))
    def put_node(self, name, offers):
        self.state.upsert_node(wire_node(name, **{resource: str(n) for resource, n in offers.items()}))
        self.nodes[name] = offers

    @rule(name=st.sampled_from("abc"))
    def drop_node(self, name):
        self.state.remove_node(name)
        self.nodes.pop(name, None)

    @rule(on=st.sampled_from(["a", "b", "c", None]), asks=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 9)))
    def add_pod(self, on, asks):
        self.serial += 1
        amounts = {resource: str(n) for resource, n in asks.items()}
        built = self.state.pods.build(wire_pod(f"p{self.serial}", on=on, **amounts))
        if on is not None:
            self.state.set_pod(built)
        self.pods[built.uid] = (on, asks, built)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def remove_pod(self, data):
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        on, _, _ = self.pods.pop(uid)
        if on is not None:
            self.state.remove_pod(uid)

    @invariant()
    def nodes_have_what_they_offer_less_what_is_requested(self):
        table = self.state.table
        named = table.resource_names.names
        for name, row in table.row_of.items():
            requested = {}
            for on, asks, _ in self.pods.values():
                if on == name:
                    for resource, amount in asks.items():
                        requested[resource] = requested.get(resource, 0) + amount
            for columns, expected in ((table.allocatable, self.nodes[name]), (table.requested, requested)):
                found = {named[i]: int(c.data[row]) for i, c in enumerate(columns) if i >= FIRST_SCALAR and c.data[row]}
                assert found == {resource: amount for resource, amount in expected.items() if amount}

    @invariant()
    def pods_request_what_they_say(self):
        named = self.state.table.resource_names.names
        for _, asks, built in self.pods.values():
            assert {named[i]: amount for i, amount in built.requests.amounts if i >= FIRST_SCALAR} == asks


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_a_flood_of_made_up_resources_leaves_nothing_in_the_table():
    offline = scheduler([node("n", **{"example.com/real": "4"})])
    table = offline.cluster.table
    sizes = []
    for i in range(300):
        asks = {"example.com/real": "1", f"example.com/unreal-{i}": "1"}
        offline.add(pod("p", container(cpu="1", **asks)))
        explanation = offline.explain("default/p")
        assert f"1 Insufficient example.com/unreal-{i}." in explanation.message
        # Another pod got past us, by spec.nodeName, and is gone again.
        bound = offline.cluster.pods.build(wire_pod(f"b{i}", on="n", **{f"example.com/unbound-{i}": "1"}))
        offline.cluster.set_pod(bound)
        offline.cluster.remove_pod(bound.uid)
        del bound, offline.pending["default/p"]
        offline.profiles["default-scheduler"].evaluations._kept.clear()
        if i % 20 == 0:
            gc.collect()  # a shape and the plans made for it hold each other
        offline.cluster.upsert_node(node_with_version(i))
        sizes.append((len(table.resource_names), len(table.allocatable), len(table._columns)))
    assert max(names for names, _, _ in sizes) <= sizes[0][0] + 2 * 20
    assert max(listed for _, listed, _ in sizes) <= sizes[0][1] + 2 * 20
    assert max(columns for _, _, columns in sizes) <= sizes[0][2] + 64


def node_with_version(i):
    """The same node with another annotation: something changed, nothing that matters."""
    wire = wire_node("n", **{"example.com/real": "4"})
    wire.metadata.annotations["version"] = str(i)
    return wire

"""The cluster state equals a rebuild from scratch, whatever order things happened in."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.events import ActionType
from koordsched.cluster.state import ClusterState
from tests.depth import examples
from tests.plugins.objects import container, node, pod

NODES = ("alder", "birch", "cedar")
SIZES = ("100m", "1", "2500m")
MILLI = {"100m": 100, "1": 1000, "2500m": 2500, "2": 2000, "4": 4000}


def wire_node(name, cpu="4", gpu=None, port_owner=False):
    extra = {"example.com/gpu": gpu} if gpu else {}
    return convert(node(name, cpu, **extra), core.Node)


def changed_node(ready=True, features=(), annotations=None, **given):
    thing = node("n", features=features, **given)
    thing["metadata"]["annotations"] = annotations or {}
    thing["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
    return convert(thing, core.Node)


def wire_pod(name, uid, cpu, on=None, port=0, version="1"):
    ports = (port,) if port else ()
    thing = pod(name, container(cpu=cpu, ports=ports), on=on)
    thing["metadata"] |= {"uid": uid, "resourceVersion": version}
    return convert(thing, core.Pod)


def facts(state):
    """Everything that plugins read of the nodes, by node name; rows are nobody's business."""
    table = state.table
    found = {}
    for name, row in table.row_of.items():
        found[name] = (
            {table.resource_names.names[i]: int(c.data[row]) for i, c in enumerate(table.requested) if c.data[row]},
            {table.resource_names.names[i]: int(c.data[row]) for i, c in enumerate(table.allocatable) if c.data[row]},
            [int(c.data[row]) for c in table.requested_nonzero],
            int(table.pods_count.data[row]),
            {
                port: sorted(r for rows in table.ports.conflicts([("0.0.0.0", "TCP", port)]) for r in rows if r == row)
                != []
                for port in (80, 81)
            },
            sorted(state.pods_on(row)),
        )
    return found


class Histories(RuleBasedStateMachine):
    """Random histories of nodes and pods, against a model that remembers only what is true now."""

    def __init__(self):
        super().__init__()
        self.state = ClusterState()
        self.nodes = {}
        self.assigned = {}  # uid -> (cpu, node, port), what the API server says
        self.assumed = {}  # uid -> (pod, cpu, node, port)
        self.counter = 0

    @rule(name=st.sampled_from(NODES), cpu=st.sampled_from(("2", "4")), gpu=st.sampled_from((None, "3")))
    def put_node(self, name, cpu, gpu):
        self.state.upsert_node(wire_node(name, cpu, gpu))
        self.nodes[name] = (cpu, gpu)

    @rule(name=st.sampled_from(NODES))
    def drop_node(self, name):
        assert self.state.remove_node(name) == (name in self.nodes)
        self.nodes.pop(name, None)

    @rule(cpu=st.sampled_from(SIZES), on=st.sampled_from(NODES), port=st.sampled_from((0, 80, 81)))
    def bound_pod_appears(self, cpu, on, port):
        self.counter += 1
        uid = f"u{self.counter}"
        self.state.set_pod(self.state.pods.build(wire_pod(f"p{self.counter}", uid, cpu, on, port)))
        self.assigned[uid] = (cpu, on, port)

    @precondition(lambda self: self.assigned)
    @rule(data=st.data(), cpu=st.sampled_from(SIZES))
    def bound_pod_is_resized(self, data, cpu):
        uid = data.draw(st.sampled_from(sorted(self.assigned)))
        _, on, port = self.assigned[uid]
        self.state.set_pod(self.state.pods.build(wire_pod(f"p{uid[1:]}", uid, cpu, on, port, version="2")))
        self.assigned[uid] = (cpu, on, port)

    @precondition(lambda self: self.assigned)
    @rule(data=st.data())
    def bound_pod_goes(self, data):
        uid = data.draw(st.sampled_from(sorted(self.assigned)))
        self.state.remove_pod(uid)
        del self.assigned[uid]

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), cpu=st.sampled_from(SIZES), port=st.sampled_from((0, 80)))
    def assume(self, data, cpu, port):
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        self.counter += 1
        uid = f"u{self.counter}"
        waiting = self.state.pods.build(wire_pod(f"p{self.counter}", uid, cpu, None, port))
        self.state.assume(waiting, self.state.table.row_of[name])
        self.assumed[uid] = (waiting, cpu, name, port)

    @precondition(lambda self: self.assumed)
    @rule(data=st.data())
    def binding_fails(self, data):
        uid = data.draw(st.sampled_from(sorted(self.assumed)))
        waiting, *_ = self.assumed.pop(uid)
        assert self.state.forget(waiting)
        assert not self.state.forget(waiting)

    @precondition(lambda self: self.assumed)
    @rule(data=st.data(), elsewhere=st.sampled_from((None, *NODES)))
    def binding_is_confirmed(self, data, elsewhere):
        uid = data.draw(st.sampled_from(sorted(self.assumed)))
        waiting, cpu, name, port = self.assumed.pop(uid)
        on = elsewhere or name
        self.state.set_pod(self.state.pods.build(wire_pod(f"p{uid[1:]}", uid, cpu, on, port)))
        assert not self.state.forget(waiting)
        self.assigned[uid] = (cpu, on, port)

    @precondition(lambda self: self.assumed)
    @rule(data=st.data())
    def assumed_pod_is_deleted(self, data):
        uid = data.draw(st.sampled_from(sorted(self.assumed)))
        waiting, *_ = self.assumed.pop(uid)
        self.state.remove_pod(uid)
        assert not self.state.forget(waiting)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), cpu=st.sampled_from(SIZES))
    def what_if_leaves_no_trace(self, data, cpu):
        before = facts(self.state)
        serial = self.state.table.log.serial
        row = self.state.table.row_of[data.draw(st.sampled_from(sorted(self.nodes)))]
        other = self.state.pods.build(wire_pod("other", "other", cpu, None, 80))
        with self.state.what_if(add=[(row, other)]) as world:
            for there in list(self.state.pods_on(row).values()):
                world.remove(there, row)
            assert int(self.state.table.pods_count.data[row]) == 1
            assert int(self.state.table.requested[0].data[row]) == other.requests.get(0)
        assert facts(self.state) == before
        assert self.state.table.log.serial == serial

    @invariant()
    def equals_a_rebuild(self):
        rebuilt = ClusterState()
        for uid, (cpu, on, port) in self.assigned.items():  # pods before nodes: the order must not matter
            rebuilt.set_pod(rebuilt.pods.build(wire_pod(f"p{uid[1:]}", uid, cpu, on, port)))
        for name, (cpu, gpu) in self.nodes.items():
            rebuilt.upsert_node(wire_node(name, cpu, gpu))
        for uid, (_, cpu, name, port) in self.assumed.items():
            rebuilt.set_pod(rebuilt.pods.build(wire_pod(f"p{uid[1:]}", uid, cpu, name, port)))
        assert facts(self.state) == facts(rebuilt)
        assert set(self.state.assumed) == set(self.assumed)
        assert self.state.table.count == len(self.nodes)
        assert int(np.count_nonzero(self.state.table.alive.data)) == len(self.nodes)

    @invariant()
    def over_committed_nodes_are_those_that_a_search_finds(self):
        expected = {}
        placed = [*self.assigned.values(), *(made[1:] for made in self.assumed.values())]
        for name, (cpu, _) in self.nodes.items():
            here = [(size, port) for size, on, port in placed if on == name]
            exceeded = {}
            used = sum(MILLI[size] for size, _ in here)
            if used > MILLI[cpu]:
                exceeded["cpu"] = (used, MILLI[cpu])
            for port in (80, 81):
                users = sum(taken == port for _, taken in here)
                if users > 1:
                    exceeded[f"hostPort TCP/{port}"] = (users, 1)
            if exceeded:
                expected[name] = exceeded
        found = self.state.overcommitments
        assert {name: {e.resource: (e.used, e.available) for e in found.on(name)} for name in found.nodes()} == expected
        assert len(found) == len(expected)


Histories.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestHistories = Histories.TestCase


CHANGES = [
    ({"cpu": "5"}, ActionType.UPDATE_NODE_ALLOCATABLE),
    ({"gpu": "1"}, ActionType.UPDATE_NODE_ALLOCATABLE),
    ({"labels": {"a": "b"}}, ActionType.UPDATE_NODE_LABEL),
    ({"taints": [("a", "NoSchedule")]}, ActionType.UPDATE_NODE_TAINT),
    ({"ready": False}, ActionType.UPDATE_NODE_CONDITION),
    ({"features": ["F"]}, ActionType.UPDATE_NODE_DECLARED_FEATURE),
    ({"annotations": {"a": "b"}}, ActionType.UPDATE_NODE_ANNOTATION),
    ({"images": {"a": 1}}, ActionType(0)),
    ({}, ActionType(0)),
]


@pytest.mark.parametrize(("first", "second"), list(combinations(CHANGES, 2)))
def test_what_changes_of_a_node(first, second):
    state = ClusterState()
    state.upsert_node(changed_node())
    assert state.upsert_node(changed_node(**first[0], **second[0])) == (first[1] | second[1], False)
    assert state.upsert_node(changed_node(**second[0])) == (first[1], False)


def test_a_node_that_never_came_leaves_nothing_behind():
    state = ClusterState()
    for name in "ab":
        state.set_pod(state.pods.build(wire_pod(name, name, "1", on="elsewhere")))
    assert state.orphans["elsewhere"].keys() == {"a", "b"}
    for uid in "ab":
        assert state.orphans
        state.remove_pod(uid)
    assert not state.orphans


def test_assuming_a_pod_twice_is_an_error():
    state = ClusterState()
    state.upsert_node(wire_node("alder"))
    waiting = state.pods.build(wire_pod("p", "u", "1"))
    state.assume(waiting, 0)
    with pytest.raises(ValueError, match="is on node alder already"):
        state.assume(waiting, 0)


def test_inside_a_what_if_no_pod_is_placed_or_evicted():
    """Neither in part: what is refused has changed nothing."""
    state = ClusterState()
    state.upsert_node(wire_node("alder"))
    running = state.pods.build(wire_pod("r", "running", "1", on="alder"))
    state.set_pod(running)
    waiting = state.pods.build(wire_pod("w", "waiting", "1"))
    before = facts(state)
    state.begin()
    for change in (lambda: state.assume(waiting, 0), lambda: state.evict(running)):
        with state.what_if(), pytest.raises(RuntimeError, match="a what-if changes nothing"):
            change()
        assert facts(state) == before
        assert not state.is_assumed("waiting")
        assert (waiting.node, running.row) == ("", 0)
    state.end()


def test_what_changes_when_a_node_comes():
    state = ClusterState()
    assert state.upsert_node(wire_node("alder")) == (ActionType.ADD, True)
    assert state.upsert_node(wire_node("alder", cpu="8")) == (ActionType.UPDATE_NODE_ALLOCATABLE, False)


def test_a_pod_that_stands_for_another_object_has_its_title():
    state = ClusterState()
    assert state.pods.build(wire_pod("p", "u", "1")).title == "default/p"
    assert state.pods.build(wire_pod("p", "u", "1"), virtual="reservation r").title == "reservation r"


def test_inside_a_transaction_no_node_comes_or_goes():
    state = ClusterState()
    state.upsert_node(wire_node("alder"))
    state.begin()
    for change in (lambda: state.remove_node("alder"), lambda: state.upsert_node(wire_node("beech"))):
        with pytest.raises(RuntimeError, match="by the transaction alone"):
            change()
    state.end()
    assert state.table.row_of.keys() == {"alder"}
    assert state.remove_node("alder")


def test_a_confirmed_assumption_dirties_no_row():
    state = ClusterState()
    state.upsert_node(wire_node("alder"))
    state.assume(state.pods.build(wire_pod("p", "u", "1")), 0)
    serial = state.table.log.serial
    state.set_pod(state.pods.build(wire_pod("p", "u", "1", on="alder", version="7")))
    assert state.table.log.serial == serial
    assert not state.is_assumed("u")
    assert state.pods_on(0)["u"].resource_version == "7"


@pytest.mark.parametrize("garbage", ["lots", "1e", "0x10", "", "١", "1 Gi", "--1"])
def test_garbage_allocatable_counts_as_zero_and_is_reported(garbage):
    state = ClusterState()
    thing = node("alder")
    thing["status"]["allocatable"]["memory"] = garbage
    state.upsert_node(convert(thing, core.Node))
    assert int(state.table.allocatable[1].data[0]) == 0
    assert int(state.table.allocatable[0].data[0]) == 4000
    assert "allocatable memory" in state.table.problems[0][0]


def test_absurd_requests_neither_overflow_nor_fit():
    state = ClusterState()
    state.upsert_node(wire_node("alder"))
    for i in range(100):
        state.set_pod(state.pods.build(wire_pod(f"p{i}", f"u{i}", "9e30", on="alder")))
    assert int(state.table.requested[0].data[0]) > 4000

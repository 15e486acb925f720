"""When a workload is suspected, what is rebuilt in which order, and what nonsense does: nothing."""

import itertools
import json
from math import comb
from random import Random

import pytest
from click.testing import CliRunner

from koordsched.cli.check_config import check_config
from koordsched.config.duration import Duration
from koordsched.framework.interface import CycleState
from koordsched.framework.status import SKIP, Code
from koordsched.plugins.shared.workloads import Workload
from koordsched.plugins.workloadquarantine.args import WorkloadQuarantineArgs
from koordsched.plugins.workloadquarantine.chance import base_rate, tail
from koordsched.plugins.workloadquarantine.placements import Placements
from koordsched.plugins.workloadquarantine.plugin import WorkloadQuarantine
from koordsched.plugins.workloadquarantine.record import PREFIX, Record, key_of
from koordsched.plugins.workloadquarantine.reports import refusal_table, report, tables
from koordsched.queue.hints import QueueingHint
from tests.config.documents import document
from tests.plugins.workloadquarantine.machine import Machine

BOMB = Workload("default", "StatefulSet", "bomb")


@pytest.mark.parametrize(
    "n, k, q", [(2, 2, 0.1), (10, 1, 0.05), (50, 3, 0.02), (500, 10, 0.001), (30, 30, 0.5), (5, 0, 0.3), (3, 4, 0.9)]
)
def test_the_tail_of_the_binomial_distribution(n, k, q):
    exact = sum(comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(k, n + 1))
    assert tail(n, k, q) == pytest.approx(exact, rel=1e-9)


def test_the_tail_is_what_chance_does():
    rng = Random(3)
    hits = sum(sum(rng.random() < 0.05 for _ in range(40)) >= 5 for _ in range(20_000))
    assert tail(40, 5, 0.05) == pytest.approx(hits / 20_000, rel=0.1)
    assert base_rate(0, 98) == 0.01
    assert 0.0 < base_rate(0, 0) < 1.0


def felled(machine, count, of="bomb", first=0):
    """Nodes that go down soon after a pod of a workload came."""
    for number in range(first, first + count):
        machine.pod(f"{of}-{number}", f"n{number}", of)
        machine.clock.now += 30
        machine.node(f"n{number}", "False")
        machine.wait()


def test_more_nodes_than_chance_allows():
    machine = Machine()
    machine.nodes(100)
    machine.namespace()
    felled(machine, 1)
    assert machine.held() == []
    felled(machine, 1, first=1)
    assert machine.held() == ["bomb"]
    record = machine.quarantines.held[BOMB]
    assert (record.nodes, record.placed, record.chance) == (("n0", "n1"), 2, "0.0001")
    assert list(machine.quarantines.unwritten) == [BOMB]
    assert [reason for _, reason, _ in machine.reporter.events] == ["WorkloadQuarantined"] * 2


CASES = {
    "too few nodes in the cluster": {"nodes": 20, "fell": 2, "held": []},
    "more of them": {"nodes": 20, "fell": 3, "held": ["bomb"]},
    "others go down as well": {"nodes": 100, "fell": 2, "others": 10, "held": []},
    "most of its nodes are well": {"nodes": 100, "fell": 2, "well": 40, "held": []},
    "a stricter test": {"nodes": 100, "fell": 2, "args": {"significance": 1e-5}, "held": []},
    "three at least": {"nodes": 100, "fell": 2, "args": {"min_nodes": 3}, "held": []},
    "long ago": {"nodes": 100, "fell": 2, "started": -601.0, "held": []},
    "just not too long ago": {"nodes": 100, "fell": 2, "started": -570.0, "held": ["bomb"]},
    "started after the fall": {"nodes": 100, "fell": 2, "started": 120.0, "held": []},
    "clocks that differ a little": {"nodes": 100, "fell": 2, "started": 50.0, "held": ["bomb"]},
    "daemons": {"nodes": 100, "fell": 2, "kind": "DaemonSet", "held": []},
    "static pods": {"nodes": 100, "fell": 2, "kind": "Node", "held": []},
    "maintenance": {"nodes": 100, "fell": 2, "node": {"unschedulable": True}, "held": []},
    "unknown": {"nodes": 100, "fell": 2, "ready": "Unknown", "held": ["bomb"]},
    "a fall that is yet to come": {
        "nodes": 100,
        "fell": 2,
        "node": {"since": "2999-01-01T00:00:00Z"},
        "held": ["bomb"],
    },
    "a fall in the past": {"nodes": 100, "fell": 2, "node": {"since": "2029-01-01T00:00:00Z"}, "held": []},
    "a fall at no time": {"nodes": 100, "fell": 2, "node": {"since": "soon"}, "held": ["bomb"]},
    "a start at no time": {"nodes": 100, "fell": 2, "text": "soon", "held": []},
    "pods that never started": {"nodes": 100, "fell": 2, "text": "", "held": []},
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    case = {
        "others": 0,
        "well": 0,
        "args": {},
        "kind": "StatefulSet",
        "node": {},
        "ready": "False",
        "started": 0.0,
    } | CASES[name]
    machine = Machine(WorkloadQuarantineArgs(**case["args"]))
    machine.nodes(case["nodes"])
    for number in range(case["others"]):
        machine.node(f"n{90 - number}", "False")
    for number in range(case["well"]):
        machine.pod(f"well-{number}", f"n{30 + number}", "bomb")
    for number in range(case["fell"]):
        started = case.get("text", machine.moment(-case["started"]))
        machine.pod(f"p{number}", f"n{number}", "bomb", started, case["kind"])
        machine.node(f"n{number}", case["ready"], **case["node"])
    machine.wait()
    assert machine.held() == case["held"]


def test_a_boot_that_is_another_one():
    machine = Machine()
    machine.nodes(100)
    for number in range(3):
        machine.pod(f"p{number}", f"n{number}", "bomb")
        machine.node(f"n{number}", boot="")
        machine.node(f"n{number}", boot="a")
        machine.node(f"n{number}", boot="a")
    machine.wait()
    assert machine.held() == []
    for number in range(3):
        machine.node(f"n{number}", boot="")
        machine.node(f"n{number}", boot="b")
    machine.wait()
    assert machine.held() == ["bomb"]


def test_nodes_that_were_just_made_are_not_ready_yet():
    machine = Machine()
    machine.nodes(90)
    for number in range(10):
        machine.node(f"new-{number}", "False", made=machine.moment(5))
        machine.node(f"old-{number}", "False", made=machine.moment(90 - number))
    machine.wait()
    assert machine.quarantines._fallen.keys() == {f"old-{number}" for number in range(10)}
    machine.node("new-0")
    machine.node("new-0", "False", made=machine.moment(5))
    machine.wait()
    assert "new-0" in machine.quarantines._fallen


def test_what_is_older_than_the_window_does_not_count():
    machine = Machine(WorkloadQuarantineArgs(window=Duration.of(900)))
    machine.nodes(100)
    felled(machine, 1)
    machine.wait(900)
    felled(machine, 1, first=1)
    assert machine.held() == []
    assert machine.quarantines.suspicions[BOMB].nodes.keys() == {"n1"}
    felled(machine, 1, first=2)
    assert machine.held() == ["bomb"]


def test_in_whatever_order_lists_arrive():
    outcomes = set()
    written = Record("StatefulSet", "old", "2030-01-01T00:00:00Z", "2030-01-01T02:00:00Z", ("n9",), 1, "0.0001").text()
    for order in itertools.islice(itertools.permutations(range(6)), 0, None, 17):
        machine = Machine()
        steps = [
            lambda m=machine: m.nodes(100),
            lambda m=machine: m.node("down-0", "False"),
            lambda m=machine: m.node("down-1", "Unknown"),
            lambda m=machine: m.pod("a", "down-0", "bomb", m.moment(60)),
            lambda m=machine: m.pod("b", "down-1", "bomb", m.moment(60)),
            lambda m=machine: m.namespace(**{"quarantine.koordsched.io__statefulset.old": written}),
        ]
        for number in order:
            steps[number]()
        assert machine.held() == (["old"])
        machine.wait()
        before = machine.held()
        machine.wait(2 * 3600)
        outcomes.add((tuple(before), tuple(machine.held())))
    assert outcomes == {(("bomb", "old"), ("bomb",))}


def test_a_person_lifts_it():
    machine = Machine()
    machine.nodes(100)
    machine.namespace()
    felled(machine, 2)
    # Other changes of the namespace, before ours is written, lift nothing.
    machine.namespace(**{"example.com__a": "b"})
    assert machine.held() == ["bomb"]
    machine.write()
    machine.write()
    assert machine.held() == ["bomb"]
    machine.namespace()
    assert machine.held() == []
    assert machine.announced == [BOMB]
    # What happened before does not count any more; what happens from now on does.
    felled(machine, 1, first=2)
    assert machine.held() == []
    felled(machine, 1, first=3)
    assert machine.held() == ["bomb"]


def test_a_namespace_that_goes_takes_its_quarantines_with_it():
    machine = Machine()
    machine.nodes(100)
    machine.namespace()
    felled(machine, 2)
    machine.write()
    machine.quarantines.namespaces.delete("", "default")
    assert machine.held() == []
    machine.wait(100_000)
    assert machine.quarantines.ends == {"quarantined": 1, "acknowledged": 0, "expired": 0}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "acknowledged", '{"kind":1,"name":"x"}', '{"kind":"StatefulSet"}', "[" * 10_000]
)
def test_what_is_no_record_is_reported_and_ignored(text):
    machine = Machine()
    machine.namespace(**{f"{PREFIX}statefulset.x".replace("/", "__"): text})
    assert machine.held() == []
    assert [reason for _, reason, _ in machine.reporter.events] == ["InvalidAnnotation"]


def test_an_annotation_under_the_name_of_another_workload():
    machine = Machine()
    text = Record("StatefulSet", "victim").text()
    machine.namespace(**{f"{PREFIX}statefulset.x".replace("/", "__"): text})
    assert machine.held() == []
    [(_, _, note)] = machine.reporter.events
    assert note == (
        "ignored: annotation quarantine.koordsched.io/statefulset.x: that of StatefulSet victim is "
        "quarantine.koordsched.io/statefulset.victim"
    )


@pytest.mark.parametrize(
    "until, seconds", [("9999-12-31T23:59:59Z", 86400), ("nonsense", 86400), ("", 86400), ("2000-01-01T00:00:00Z", 0)]
)
def test_a_written_end_that_makes_no_sense(until, seconds):
    machine = Machine()
    text = Record("StatefulSet", "x", until=until).text()
    machine.namespace(**{f"{PREFIX}statefulset.x".replace("/", "__"): text})
    if seconds:
        machine.wait(seconds - 1)
        assert machine.held() == ["x"]
    machine.wait(1)
    assert machine.held() == []


@pytest.mark.parametrize("name", ["web", "a" * 50, "a" * 253, "a.b-c." * 20 + "d", "x" * 51 + "-" * 20 + "y"])
def test_keys_are_names_that_kubernetes_takes(name):
    key = key_of(Workload("ns", "Deployment", name))
    prefix, _, rest = key.partition("/")
    assert prefix == "quarantine.koordsched.io"
    assert len(rest) <= 63
    assert rest[0].isalnum()
    assert rest[-1].isalnum()
    assert key != key_of(Workload("ns", "Deployment", name + "z"))


def test_placements_are_counted_by_the_window():
    machine = Machine()
    counts = Placements(600.0, machine.clock, machine.timers)
    rng, placed = Random(5), []
    for _ in range(3000):
        workload = Workload("d", "Job", f"j{rng.randint(0, 3)}")
        if rng.random() < 0.6 and machine.clock.now % 3000 < 1500:
            counts.add(workload)
            placed.append((machine.clock.now, workload))
        machine.wait(rng.choice((0.0, 1.0, 5.0)))
        exact = sum(machine.clock.now - at < 595.0 for at, each in placed if each == workload)
        most = sum(machine.clock.now - at <= 710.0 for at, each in placed if each == workload)
        assert exact <= counts.of(workload) <= most
    machine.wait(10_000)
    machine.wait(10_000)
    assert len(counts) == 0


def test_pods_that_are_seen_after_the_fall_of_their_nodes():
    """Nodes and pods are watched apart from each other."""
    machine = Machine()
    machine.nodes(100)
    machine.namespace()
    started = machine.moment(10)
    for name in ("n0", "n1"):
        machine.node(name, "False")
    machine.wait(1)
    for number in (0, 1):
        machine.pod(f"bomb-{number}", f"n{number}", "bomb", started)
    assert machine.held() == []
    machine.wait()
    assert machine.held() == ["bomb"]
    # Those that start when the nodes are up again have nothing to do with it.
    for name in ("n0", "n1"):
        machine.node(name)
    machine.wait(30)
    for number in (0, 1):
        machine.pod(f"web-{number}", f"n{number}", "web")
    machine.wait()
    assert machine.held() == ["bomb"]
    assert {workload.name for workload in machine.quarantines.suspicions} == {"bomb"}


@pytest.mark.parametrize("behind", [-50, -20, 0, 20, 50])
@pytest.mark.parametrize("late", [False, True], ids=["known before", "seen after"])
def test_clocks_of_scheduler_and_cluster_differ(behind, late):
    """Pods start and nodes go down by the clocks of the cluster, whatever that of the scheduler says."""
    machine = Machine()
    machine.nodes(100)
    machine.namespace()
    started, fell = machine.moment(5 - behind), machine.moment(-behind)
    for number in (0, 1):
        if not late:
            machine.pod(f"bomb-{number}", f"n{number}", "bomb", started)
        machine.node(f"n{number}", "False", since=fell)
    machine.wait(1)
    for number in (0, 1):
        machine.pod(f"bomb-{number}", f"n{number}", "bomb", started)
    machine.wait()
    assert machine.held() == ["bomb"]
    assert machine.quarantines.held[BOMB].nodes == ("n0", "n1")


def test_what_is_tried_in_vain_is_no_placement():
    """Retries, and victims that are away for the length of a question, must not make a workload look harmless."""
    machine = Machine()
    machine.nodes(100)
    machine.namespace()
    again = machine.built("bomb-again", owner="bomb")
    for _ in range(50):
        machine.cluster.assume(again, 90)
        machine.cluster.forget(again)
    machine.pod("bomb-there", "n80", "bomb")
    waiting = machine.built("bomb-waiting", owner="bomb")
    machine.cluster.assume(waiting, 81)
    for placed in (machine.cluster.assigned["uid-default-bomb-there"], waiting):
        for _ in range(50):
            machine.cluster.begin()
            order = machine.cluster.evict(placed)
            machine.cluster.restore(placed, machine.cluster.table.row_of[placed.node], order)
            machine.cluster.end()
    assert machine.quarantines._placements.of(BOMB) == 1
    felled(machine, 2)
    assert machine.held() == ["bomb"]
    assert machine.quarantines.held[BOMB].placed == 4


def test_the_verdict_and_what_is_shown():
    machine = Machine()
    plugin = WorkloadQuarantine(machine.quarantines.args, machine.handle)
    assert plugin.quarantines is machine.quarantines
    machine.nodes(100)
    machine.namespace()
    other = machine.built("other-1", owner="other")
    bomb = machine.built("bomb-9", owner="bomb")
    assert plugin.pre_filter(CycleState(bomb), bomb) == SKIP
    felled(machine, 2)
    felled(machine, 1, "suspect", first=5)
    cycle = CycleState(bomb)
    status = plugin.pre_filter(cycle, bomb)
    assert (status.code, cycle.beyond_nodes) == (Code.UNRESOLVABLE, True)
    assert status.reasons == (
        "StatefulSet bomb is quarantined: 2 of 2 nodes with new pods of it went down (chance 0.0001) "
        "(kubectl annotate namespace default quarantine.koordsched.io/statefulset.bomb- lifts this)",
    )
    assert plugin.pre_filter(CycleState(other), other) == SKIP
    [hint] = plugin.events_to_register()
    assert hint.fn(bomb, None, BOMB) is QueueingHint.QUEUE
    assert hint.fn(other, None, BOMB) is QueueingHint.SKIP
    shown = report(plugin)
    assert [each.name for each in shown.quarantined] == ["bomb"]
    assert [(each.name, each.nodes) for each in shown.suspects] == [("suspect", ("n5",))]
    assert len(list(tables(shown))) == 2
    assert plugin.explain_refusal(other) is None
    details = plugin.explain_refusal(bomb)
    lines = refusal_table(
        {
            "namespace": "default",
            "kind": "StatefulSet",
            "name": "bomb",
            "since": details.since,
            "until": details.until,
            "nodes": ["n0", "n1"],
            "placed": 2,
            "chance": "0.0001",
            "annotation": details.annotation,
        }
    )
    assert [line.text for line in lines][1] == "2 of 2 nodes with new pods of it went down: n0, n1 (chance 0.0001)"


ARGS = [
    ("window", "0s", 'window: Invalid value: "0s": must be at least 1 second'),
    ("window", "5m", 'window: Invalid value: "5m0s": must not be less than soonAfter'),
    ("soonAfter", "-1s", 'soonAfter: Invalid value: "-1s": must be at least 1 second'),
    ("minNodes", 1, "minNodes: Invalid value: 1: must be at least 2: one node may always fail"),
    ("significance", 0, "significance: Invalid value: 0.0: not in valid range (0, 1)"),
    ("significance", 1.5, "significance: Invalid value: 1.5: not in valid range (0, 1)"),
    ("coolDown", "0s", 'coolDown: Invalid value: "0s": must be at least 1 second'),
]


def profiles(args):
    return [
        {
            "plugins": {"multiPoint": {"enabled": [{"name": "WorkloadQuarantine"}]}},
            "pluginConfig": [{"name": "WorkloadQuarantine", "args": args}],
        }
    ]


@pytest.mark.parametrize("name, value, complaint", ARGS)
def test_arguments(name, value, complaint):
    result = CliRunner().invoke(check_config, ["-"], input=document(profiles=profiles({name: value})))
    assert result.exit_code == 1
    assert complaint in result.stderr
    assert set(WorkloadQuarantineArgs.__struct_encode_fields__) == {each for each, _, _ in ARGS}


def test_arguments_with_their_kind():
    args = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "WorkloadQuarantineArgs", "significance": 0.01}
    result = CliRunner().invoke(check_config, ["-", "-o", "json"], input=document(profiles=profiles(args)))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["profiles"][0]["args"]["WorkloadQuarantine"]["significance"] == 0.01


@pytest.mark.parametrize("nonsense", ["{", '{"kind":"Pod","name":"other"}'])
def test_a_quarantine_that_was_made_unreadable_is_written_again(nonsense):
    machine = Machine()
    machine.nodes(100)
    machine.namespace()
    felled(machine, 2)
    machine.write()
    machine.quarantines.unwritten.clear()
    text = machine.quarantines.annotation(BOMB)
    machine.namespace(**{key_of(BOMB).replace("/", "__"): nonsense})
    assert machine.held() == ["bomb"]
    assert list(machine.quarantines.unwritten) == [BOMB]
    assert machine.quarantines.annotation(BOMB) == text != machine.quarantines.shown(BOMB)


def test_an_annotation_that_says_nothing_and_goes_by_itself_is_forgotten():
    machine = Machine()
    machine.namespace(**{key_of(BOMB).replace("/", "__"): "{"})
    assert list(machine.quarantines.senseless) == [(BOMB.namespace, key_of(BOMB))]
    machine.namespace()
    assert not machine.quarantines.senseless

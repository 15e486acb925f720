"""What statuses say, what is rebuilt in which order, and what nonsense does: nothing."""

import itertools
import json

import pytest
import yaml
from click.testing import CliRunner

from koordsched.api import core, podstates
from koordsched.api.decoding import convert
from koordsched.cli.check_config import check_config
from koordsched.cluster.events import ActionType
from koordsched.cluster.pod import Pod
from koordsched.config.duration import Duration
from koordsched.framework.interface import CycleState
from koordsched.framework.status import Code
from koordsched.plugins.nodecircuitbreaker import evidence as evidence_module
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs
from koordsched.plugins.nodecircuitbreaker.evidence import Evidence
from koordsched.plugins.nodecircuitbreaker.plugin import IS_OPEN, IS_PROBED, NodeCircuitBreaker
from koordsched.plugins.nodecircuitbreaker.record import Record
from koordsched.plugins.nodecircuitbreaker.reports import report, report_on, tables
from koordsched.plugins.nodecircuitbreaker.signs import reader
from koordsched.plugins.shared.workloads import Workload, workload_of
from koordsched.queue.hints import QueueingHint
from tests.cli.clusters import run
from tests.config.documents import document
from tests.plugins.harness import scheduler
from tests.plugins.nodecircuitbreaker.machine import Machine, waiting
from tests.plugins.nodecircuitbreaker.running import configuration
from tests.plugins.objects import container, pod

STARTED, SOON, LATER = "2030-01-01T00:00:00Z", "2030-01-01T00:00:04Z", "2030-01-01T00:01:00Z"


def ended(code=1, reason="Error", start=STARTED, finish=SOON):
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": start, "finishedAt": finish}}


def waits(reason):
    return {"waiting": {"reason": reason}}


RUNS = {"running": {"startedAt": STARTED}}

SIGNS = {
    "runs": ({"state": RUNS}, None),
    "ended well": ({"state": ended(0)}, None),
    "is being created": ({"state": waits("ContainerCreating")}, ()),
    "cannot be created": ({"state": waits("CreateContainerError")}, ("CreateContainerError",)),
    "cannot be run": ({"state": waits("RunContainerError")}, ("RunContainerError",)),
    "lacks a ConfigMap": ({"state": waits("CreateContainerConfigError")}, ()),
    "has no such image name": ({"state": waits("InvalidImageName")}, ()),
    "cannot be pulled": ({"state": waits("ErrImagePull")}, ("ErrImagePull",)),
    "crashed, waits": ({"state": waits("CrashLoopBackOff"), "lastState": ended()}, ("Error",)),
    "crashed, runs again": ({"state": RUNS, "lastState": ended()}, ("Error",)),
    "crashed late": ({"state": waits("CrashLoopBackOff"), "lastState": ended(finish=LATER)}, ()),
    "ended by itself, waits": ({"state": waits("CrashLoopBackOff"), "lastState": ended(0)}, ()),
    "out of its own memory": ({"state": ended(137, "OOMKilled")}, ()),
    "could not be started": ({"state": ended(128, "StartError", "1970-01-01T00:00:00Z")}, ("StartError",)),
    "times that are none": ({"state": ended(start="yesterday")}, ()),
    "an end that is none": ({"state": ended(finish="999999-99-99")}, ()),
    "an end before its start": ({"state": ended(start=LATER)}, ()),
    "no times": ({"state": {"terminated": {"exitCode": 1}}}, ()),
    "no time zone": ({"state": ended(start="2030-01-01T00:00:00", finish="2030-01-01T00:00:01")}, ("Error",)),
    "nothing said": ({}, None),
    "nulls": ({"state": None, "lastState": {"terminated": None}}, None),
    "empty state": ({"state": {}}, None),
}


@pytest.mark.parametrize("case", SIGNS)
def test_what_a_container_says(case):
    status, expected = SIGNS[case]
    body = pod("p", on="n")
    for field in ("containerStatuses", "initContainerStatuses"):
        body["status"] = {"startTime": STARTED, field: [{"name": "c", "image": "i", "restartCount": 1, **status}]}
        found = reader(10.0)(convert(body, podstates.Pod))
        assert (tuple(sign.reason for sign in found.signs) if found is not None else None) == expected


@pytest.mark.parametrize(
    "kind, owner, labels, expected",
    [
        ("ReplicaSet", "web-5d9c7", {"pod-template-hash": "5d9c7"}, ("Deployment", "web")),
        ("ReplicaSet", "web-5d9c7", {"pod-template-hash": "other"}, ("ReplicaSet", "web-5d9c7")),
        ("ReplicaSet", "web-5d9c7", {}, ("ReplicaSet", "web-5d9c7")),
        ("ReplicaSet", "-5d9c7", {"pod-template-hash": "5d9c7"}, ("ReplicaSet", "-5d9c7")),
        ("Job", "backup-29001234", {}, ("CronJob", "backup")),
        ("Job", "backup-1", {}, ("Job", "backup-1")),
        ("StatefulSet", "db", {}, ("StatefulSet", "db")),
        ("", "", {}, ("Pod", "p")),
    ],
)
def test_workloads(kind, owner, labels, expected):
    machine = Machine()
    body = pod("p", labels=labels)
    if owner:
        body["metadata"]["ownerReferences"] = [{"kind": kind, "name": owner, "uid": "u", "controller": True}]
    assert workload_of(machine.cluster.pods.build(convert(body, podstates.Pod))) == Workload("default", *expected)


def test_healthy_pods_cost_nothing_more():
    machine = Machine()
    runs = machine.built(
        "p", on="n", phase="Running", startTime=STARTED, containerStatuses=[{"name": "c", "state": RUNS}]
    )
    assert (type(runs), runs.facts) == (Pod, ())
    machine.cluster.set_pod(runs)
    assert not machine.breakers._failing


def test_an_image_that_no_other_node_has_tells_nothing():
    machine = Machine()
    for name in ("a", "b", "c"):
        machine.node(name)
    for number in range(4):
        status = waiting(machine.clock, "ImagePullBackOff", image="rare:1" if number < 3 else "common:1")
        machine.pod(f"p{number}", "a", f"o{number}", **status)
    machine.wait()
    assert machine.breakers.evidence.case("a").failures == 0
    image = core.ContainerImage(names=("rare:1",), size_bytes=1)
    machine.cluster.table.images.replace(machine.cluster.table.row_of["b"], (image,))
    for number in range(3):
        machine.pod(f"q{number}", "a", f"o{number}", **waiting(machine.clock, "ErrImagePull", image="rare:1"))
    machine.wait()
    assert machine.state("a") == "open"


def restarted():
    """What there is when a scheduler starts: nodes with annotations, pods that fail, a probe."""
    half_open = Record("half-open", "2030-01-01T00:10:00Z", "", 3, "uid-default-probe").text()
    opened = Record("open", "2030-01-01T00:10:00Z", "2030-01-01T00:17:00Z", 2).text()
    machine = Machine(NodeCircuitBreakerArgs(max_open_percentage=100))
    yield machine
    yield [
        lambda: machine.node("tried", written=half_open),
        lambda: machine.node("open", written=opened),
        lambda: machine.node("failing"),
        lambda: machine.runs("probe", "tried", "web"),
        *(lambda n=n: machine.fails(f"p{n}", "failing", f"o{n}") for n in range(3)),
    ]


@pytest.mark.parametrize(("later", "outcome"), [(False, "closed"), (True, "open")])
def test_what_fails_beside_a_probe_that_runs_counts_when_the_breaker_closes(later, outcome):
    """Pods that another client placed. What failed before the probe ran is forgiven."""
    half_open = Record("half-open", "2030-01-01T00:10:00Z", "", 3).text()
    machine = Machine(NodeCircuitBreakerArgs(max_open_percentage=100))
    machine.node("n", written=half_open)
    if not later:
        for n in range(3):
            machine.fails(f"p{n}", "n", f"o{n}")
    machine.wait()
    assert machine.place("probe", "n")
    machine.wait(1)
    machine.runs("probe", "n", "web")
    machine.wait()
    machine.wait(30)
    if later:
        for n in range(3):
            machine.fails(f"p{n}", "n", f"o{n}")
    machine.wait(20)
    assert machine.state("n") == "half-open"
    machine.wait(11)
    machine.wait()
    assert machine.state("n") == outcome


def test_in_whatever_order_lists_arrive():
    outcomes = set()
    for order in itertools.islice(itertools.permutations(range(7)), 0, None, 83):
        machine, steps = restarted()
        for number in order:
            steps[number]()
        # Nothing is decided before all has arrived.
        assert machine.reporter.events == []
        machine.wait()
        machine.wait()
        assert not machine.place("other", "tried")
        states = tuple(machine.state(name) for name in ("tried", "open", "failing"))
        machine.wait(19)
        before = machine.state("open")
        machine.wait(10)
        machine.wait(60)
        outcomes.add((states, before, machine.state("open"), machine.state("tried")))
    # 00:16:40 now: the cool-down of the one ends in 20 s; the probation of the other takes 60.
    assert outcomes == {(("half-open", "open", "open"), "open", "half-open", "closed")}


def test_a_standby_follows_and_decides_nothing():
    machine = Machine()
    machine.node("a")
    machine.node("b")
    opened = Record("open", "2030-01-01T00:10:00Z", "2030-01-01T00:17:40Z", 1, reason="why").text()
    machine.node("a", written=opened)
    assert machine.state("a") == "open"
    machine.node("a", written=Record("half-open", "2030-01-01T00:17:40Z", probe="u").text())
    assert machine.state("a") == "half-open"
    machine.node("a")
    assert machine.state("a") == "closed"
    for n in range(50):
        machine.fails(f"p{n}", "b", f"o{n}")
        machine.gone(f"p{n}")
    assert machine.state("b") == "closed"
    assert not machine.breakers.unwritten
    # Long after, it leads: what failed then is no evidence now.
    machine.wait(3600)
    assert machine.state("b") == "closed"


@pytest.mark.parametrize(
    "until, seconds",
    [("9999-12-31T23:59:59Z", 3600), ("nonsense", 120), ("", 120), ("2000-01-01T00:00:00Z", 0), ("0001-01-01", 0)],
)
def test_a_written_end_that_makes_no_sense(until, seconds):
    machine = Machine()
    machine.node("b")
    machine.node("a", written=json.dumps({"state": "open", "until": until, "openings": 2}))
    machine.wait(max(seconds - 1, 0))
    assert machine.state("a") == ("open" if seconds else "half-open")
    machine.wait(1)
    assert machine.state("a") == "half-open"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"open"',
        '{"state":"ajar"}',
        '{"state":"open","openings":"many"}',
        "[" * 10000,
        '{"state":1}',
    ],
)
def test_what_is_no_record_is_reported_and_ignored(text):
    machine = Machine()
    machine.node("a", written=text)
    assert machine.state("a") == "closed"
    assert [reason for _, reason, _ in machine.reporter.events] == (["InvalidAnnotation"] if text else [])
    machine.node("b", written='{"state":"half-open","openings":-5,"probe":"\\u0000","extra":{}}')
    machine.node("c", written='{"state":"open","openings":99999999}')
    assert (machine.state("b"), machine.state("c")) == ("half-open", "open")
    machine.wait()
    assert machine.place("p", "b")


def test_echoes_of_our_own_writes_change_nothing():
    machine = Machine(NodeCircuitBreakerArgs(max_open_percentage=100, cool_down=Duration.of(10)))
    machine.node("a")
    machine.node("b")
    for n in range(3):
        machine.fails(f"p{n}", "a", f"o{n}")
    machine.wait()
    row = machine.cluster.table.row_of["a"]
    opened = machine.breakers.text_on(row)
    machine.wait(10)
    half_open = machine.breakers.text_on(row)
    assert machine.place("probe", "a")
    # Late, and one after the other.
    for text in (opened, half_open):
        machine.node("a", written=text)
        assert machine.breakers.records[row].probe == "uid-default-probe"
    machine.echo("a")
    machine.node("a")
    assert machine.state("a") == "closed"


def test_a_write_of_ours_that_lands_after_a_persons_is_what_counts():
    machine = Machine(NodeCircuitBreakerArgs(cool_down=Duration.of(10)))
    machine.node("a", written='{"state":"open"}')
    machine.node("b")
    row = machine.cluster.table.row_of["a"]
    machine.wait(10)
    assert machine.state("a") == "half-open"
    late = machine.breakers.text_on(row)
    # A person closes it before our write arrives.
    machine.node("a")
    assert machine.state("a") == "closed"
    machine.node("a", written=late)
    assert machine.state("a") == "half-open"


def test_what_was_never_written_is_not_taken_for_an_echo():
    machine = Machine(NodeCircuitBreakerArgs(owner_nodes=1))
    machine.node("a")
    machine.node("b")
    for n in range(2):
        machine.fails(f"p{n}", "a", f"o{n}")
    machine.fails("p2", "a", "o1")
    machine.wait()
    assert machine.state("a") == "open"
    # It closes before that is written, so there is nothing to write.
    machine.fails("p3", "b", "o1")
    machine.wait()
    assert machine.state("a") == "closed"
    machine.node("a", written='{"state":"open"}')
    assert machine.state("a") == "open"
    machine.node("a")
    assert machine.state("a") == "closed"


def test_clocks_of_nodes_that_are_wrong():
    machine = Machine()
    machine.node("a")
    for n, finish in enumerate(("2031-01-01T00:00:01Z", "2029-01-01T00:00:01Z", "2030-01-01T00:06:00Z")):
        start = finish.replace("01Z", "00Z").replace("06:00Z", "05:59Z")
        status = {
            "name": "c",
            "restartCount": 1,
            "state": waits("CrashLoopBackOff"),
            "lastState": ended(start=start, finish=finish),
        }
        machine.pod(f"p{n}", "a", f"o{n}", startTime=STARTED, containerStatuses=[status])
    machine.wait()
    # 00:16:40: a year ahead, a year ago, and eleven minutes ago.
    assert len(machine.breakers.evidence) == 0


def test_a_node_that_goes_makes_room_for_one_that_is_held():
    machine = Machine()
    for name in ("a", "b", "c"):
        machine.node(name)
    for name in ("a", "b"):
        for n in range(3):
            machine.fails(f"{name}{n}", name, f"{name}{n}")
    machine.wait()
    assert (machine.state("a"), machine.state("b")) == ("open", "held")
    machine.cluster.remove_node("a")
    machine.wait()
    assert machine.state("b") == "open"


def test_a_node_that_is_cordoned_makes_room_for_one_that_is_held():
    machine = Machine()
    for name in ("a", "b", "c"):
        machine.node(name)
    for name in ("a", "b"):
        for n in range(3):
            machine.fails(f"{name}{n}", name, f"{name}{n}")
    machine.wait()
    machine.echo("a")
    assert (machine.state("a"), machine.state("b")) == ("open", "held")
    written = machine.breakers.text_on(machine.cluster.table.row_of["a"])
    # It gets no pods, so no probe will ever close its breaker.
    machine.node("a", written=written, unschedulable=True)
    machine.wait()
    assert (machine.state("a"), machine.state("b")) == ("open", "open")


def test_a_node_that_goes_takes_its_breaker_with_it():
    machine = Machine()
    machine.node("a", written='{"state":"half-open"}')
    assert machine.place("probe", "a")
    machine.cluster.remove_node("a")
    machine.wait(10_000)
    machine.node("a")
    assert machine.state("a") == "closed"
    assert machine.breakers.count() == {"open": 0, "half-open": 0, "held": 0}


def test_a_node_that_is_held_and_goes_is_held_no_more():
    machine = Machine(NodeCircuitBreakerArgs(max_open_percentage=0))
    machine.node("a")
    for n in range(3):
        machine.fails(f"p{n}", "a", f"o{n}")
    machine.wait()
    assert machine.breakers.count()["held"] == 1
    machine.cluster.remove_node("a")
    assert machine.breakers.count()["held"] == 0


def test_a_node_that_is_seen_later_than_its_failing_pods():
    machine = Machine(NodeCircuitBreakerArgs(max_open_percentage=100))
    for n in range(3):
        machine.fails(f"p{n}", "a", f"o{n}")
    machine.wait()
    machine.node("a")
    machine.wait()
    assert machine.state("a") == "open"


def test_evidence_is_bounded(monkeypatch):
    monkeypatch.setattr(evidence_module, "MOST", 1000)
    evidence = Evidence(60.0, 3)
    for number in range(1010):
        evidence.add(number, f"n{number}", Workload("d", "Pod", f"p{number}"), "r", 0.0)
    assert len(evidence) == 1000
    evidence.prune(61.0)
    assert (len(evidence), evidence.nodes, evidence._nodes) == (0, [], {})


def plugin_on(machine):
    machine.handle.filtering = None
    return NodeCircuitBreaker(machine.breakers.args, machine.handle)


def test_verdicts_and_reports():
    machine = Machine()
    plugin = plugin_on(machine)
    assert plugin.breakers is machine.breakers
    for name in ("a", "b", "c", "d"):
        machine.node(name)
    machine.node("a", written='{"state":"open","since":"2030-01-01T00:00:00Z","until":"2030-01-01T01:00:00Z"}')
    machine.node("b", written='{"state":"half-open"}')
    machine.node("c", written='{"state":"half-open"}')
    machine.fails("x", "d", "o")
    machine.wait()
    cycle = CycleState(machine.built("p1"))
    assert plugin.reserve(cycle, machine.built("p1"), machine.cluster.table.row_of["b"]).ok
    machine.cluster.assume(machine.built("p1"), machine.cluster.table.row_of["b"])
    refused = plugin.reserve(cycle, machine.built("p2"), machine.cluster.table.row_of["b"])
    assert (refused.code, refused.reasons) == (Code.UNSCHEDULABLE, (IS_PROBED,))
    # It was let pass a moment ago, so other nodes were not looked at to the end.
    assert [pod.name for pod in machine.activated] == ["p2"]
    table, reasons = machine.cluster.table, machine.handle.reasons
    for rows in (table.all_rows, slice(0, 1), slice(1, 2), slice(2, 3)):
        codes = plugin.filter_rows(machine.built("p3").shape, table, rows)
        found = [0] * (rows.stop - rows.start) if codes is None else codes.tolist()
        texts = [reasons[code].texts for code in found]
        assert texts == [(IS_OPEN,), (IS_PROBED,), (), ()][rows]
        assert {reasons[code].code for code in found if code} <= {Code.UNRESOLVABLE}
    daemon = machine.built("daemon", owner="d", kind="DaemonSet")
    assert plugin.filter_rows(daemon.shape, table, table.all_rows) is None
    shown = {each.node: (each.state, each.failures, each.probe) for each in report(plugin).nodes}
    assert shown == {
        "a": ("open", 0, ""),
        "b": ("half-open", 0, "default/p1"),
        "c": ("half-open", 0, ""),
        "d": ("closed", 1, ""),
    }
    assert report_on(plugin, "d").workloads == ("StatefulSet default/o",)
    [shown_table] = tables(report(plugin))
    assert [row[0] for row in shown_table.rows] == ["a", "b", "c", "d"]
    plugin.unreserve(cycle, machine.built("p1"), table.row_of["b"])
    assert machine.place("p4", "b")


def test_what_never_starts_is_refused_too_but_tries_nothing():
    machine = Machine()
    plugin = plugin_on(machine)
    machine.node("open", written='{"state":"open","since":"2030-01-01T00:00:00Z","until":"2030-01-01T01:00:00Z"}')
    machine.node("half-open", written='{"state":"half-open"}')
    machine.node("closed")
    row_of = machine.cluster.table.row_of
    virtual = machine.cluster.pods.build(convert(pod("kept"), core.Pod), virtual="reservation kept")
    cycle = CycleState(virtual)
    # It was let pass a moment ago, before an extender was asked.
    refused = plugin.reserve(cycle, virtual, row_of["open"])
    assert (refused.code, refused.reasons) == (Code.UNSCHEDULABLE, (IS_OPEN,))
    assert machine.activated == [virtual]
    for name in ("half-open", "closed"):
        assert plugin.reserve(cycle, virtual, row_of[name]).ok
    plugin.unreserve(cycle, virtual, row_of["half-open"])
    assert machine.place("probe", "half-open")
    refused = plugin.reserve(cycle, virtual, row_of["half-open"])
    assert (refused.code, refused.reasons) == (Code.UNSCHEDULABLE, (IS_PROBED,))
    plugin.unreserve(cycle, virtual, row_of["half-open"])
    assert machine.breakers.records[row_of["half-open"]].probe == "uid-default-probe"


ARGS = [
    ("window", "0s", 'window: Invalid value: "0s": must be at least 1 second'),
    ("failures", 0, "failures: Invalid value: 0: must be greater than zero"),
    ("failures", 1, "failures: Invalid value: 1: must not be less than distinctOwners, each of which has one at least"),
    ("distinctOwners", -1, "distinctOwners: Invalid value: -1: must be greater than zero"),
    ("distinctNamespaces", 0, "distinctNamespaces: Invalid value: 0: must be greater than zero"),
    (
        "distinctNamespaces",
        3,
        "distinctOwners: Invalid value: 2: must not be less than distinctNamespaces, each of which has one at least",
    ),
    ("ownerNodes", 0, "ownerNodes: Invalid value: 0: must be greater than zero"),
    ("quickCrash", "-1s", 'quickCrash: Invalid value: "-1s": must be at least 1 second'),
    ("sandboxTimeout", "1ms", 'sandboxTimeout: Invalid value: "1ms": must be at least 1 second'),
    ("coolDown", "0s", 'coolDown: Invalid value: "0s": must be at least 1 second'),
    ("maxCoolDown", "59s", 'maxCoolDown: Invalid value: "59s": must not be less than coolDown'),
    ("probation", "0s", 'probation: Invalid value: "0s": must be at least 1 second'),
    ("probeTimeout", "0s", 'probeTimeout: Invalid value: "0s": must be at least 1 second'),
    ("maxOpenPercentage", 0, "maxOpenPercentage: Invalid value: 0: not in valid range [1, 100]"),
    ("maxOpenPercentage", 101, "maxOpenPercentage: Invalid value: 101: not in valid range [1, 100]"),
]


@pytest.mark.parametrize("name, value, complaint", ARGS)
def test_arguments(name, value, complaint):
    profiles = configuration(**{name: value})["profiles"]
    result = CliRunner().invoke(check_config, ["-"], input=document(profiles=profiles))
    assert result.exit_code == 1
    assert complaint in result.stderr
    assert set(NodeCircuitBreakerArgs.__struct_encode_fields__) == {each for each, _, _ in ARGS}


def test_arguments_of_any_version_of_theirs():
    args = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeCircuitBreakerArgs", "coolDown": "5s"}
    result = CliRunner().invoke(
        check_config, ["-", "-o", "json"], input=document(profiles=configuration(**args)["profiles"])
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["profiles"][0]["args"]["NodeCircuitBreaker"]["coolDown"] == "5s"


def test_hint():
    """What has no room on the node is tried, too: only then events that make room concern it."""
    full = pod("full", container(cpu="4"), on="n")
    objects = [
        {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "9"}},
        },
        full,
    ]
    offline = scheduler(objects, configuration()["profiles"][0])
    plugin = offline.profiles["default-scheduler"].plugins["NodeCircuitBreaker"]
    passable, node_change = plugin.events_to_register()

    def worth(item, node="n"):
        return passable.fn(offline.cluster.pods.build(convert(item, podstates.Pod)), None, node)

    assert worth(pod("p")) is QueueingHint.QUEUE
    assert worth(pod("p", container(cpu="1"))) is QueueingHint.QUEUE
    assert worth(pod("p", nodeSelector={"no": "node"})) is QueueingHint.QUEUE
    assert worth(pod("p"), "other") is QueueingHint.SKIP
    assert node_change.fn is None
    assert all(node_change.event.action & each for each in (ActionType.ADD, ActionType.UPDATE_NODE_TAINT))


def test_a_probe_that_ran_and_is_not_well_any_more_makes_room_in_time():
    machine = Machine()
    machine.node("a", written='{"state":"half-open"}')
    assert machine.place("probe", "a")
    machine.runs("probe", "a")
    machine.wait(50)
    late = {"name": "c", "restartCount": 1, "state": waits("CrashLoopBackOff"), "lastState": ended(finish=LATER)}
    machine.pod("probe", "a", startTime=STARTED, containerStatuses=[late])
    machine.wait()
    machine.wait(599)
    assert machine.state("a") == "half-open"
    assert not machine.place("other", "a")
    machine.wait(1)
    assert machine.place("other", "a")


def test_failures_of_one_namespace_alone():
    machine = Machine(NodeCircuitBreakerArgs(distinct_namespaces=2))
    for name in ("a", "b"):
        machine.node(name)
    for n in range(9):
        machine.fails(f"p{n}", "a", f"o{n}")
    machine.wait()
    assert machine.state("a") == "closed"
    machine.fails("q", "a", "o", namespace="other")
    machine.wait()
    assert machine.state("a") == "open"


def test_many_looks_leave_one_timer():
    machine = Machine()
    for name in ("a", "b", "c"):
        machine.node(name)
    for name in ("a", "b"):
        for n in range(3):
            machine.fails(f"{name}{n}", name, f"o{n}")
    for n in range(100):
        machine.fails(f"more{n}", "c", "o9")
        machine.wait(1.0)
    assert machine.breakers.count() == {"open": 0, "half-open": 1, "held": 1}
    assert len(machine.timers._agenda) <= 2
    machine.wait(600)
    assert machine.state("b") == "closed"


def commands(tmp_path, *arguments, objects):
    """Runs a command on these objects, with the plugins."""
    state, config = tmp_path / "state.yaml", tmp_path / "config.yaml"
    state.write_text(yaml.safe_dump_all(objects))
    enabled = [{"name": "NodeCircuitBreaker"}, {"name": "WorkloadQuarantine"}]
    profiles = [{"plugins": {"multiPoint": {"enabled": enabled}}}]
    config.write_text(document(profiles=profiles))
    return run(*arguments, "-f", str(state), "--config", str(config))


def test_commands(tmp_path):
    def node(name, written=None):
        annotations = {"koordsched.io/circuit-breaker": written} if written else {}
        resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": resources}}

    opened = '{"state":"open","until":"2999-01-01T00:00:00Z","openings":2,"reason":"so"}'
    key, record = "quarantine.koordsched.io/statefulset.bomb", '{"kind":"StatefulSet","name":"bomb","nodes":["n"]}'
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "uid": "n", "annotations": {key: record}},
    }
    bomb = pod("bomb-0")
    bomb["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "name": "bomb", "uid": "u", "controller": True}]
    objects = [namespace, node("a", opened), node("b", '{"state":"half-open","probe":"gone"}'), pod("p"), bomb]
    shown = commands(tmp_path, "breaker", "nodes", objects=objects)
    assert shown.exit_code == 0, shown.output
    assert [line.split()[:3] for line in shown.stdout.splitlines()] == [
        ["NODE", "STATE", "UNTIL"],
        ["a", "open", "2999-01-01T00:00:00Z"],
        ["b", "half-open", "-"],
    ]
    shown = commands(tmp_path, "breaker", "nodes", "-o", "json", objects=[node("c")])
    assert json.loads(shown.stdout) == {"nodes": []}
    shown = commands(tmp_path, "quarantine", "workloads", objects=objects)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[1].split()[:2] == ["default", "StatefulSet/bomb"]
    shown = commands(tmp_path, "explain", "default/p", objects=[node("a", opened), pod("p")])
    assert "node(s) had an open circuit breaker" in shown.stdout
    assert "(open until 2999-01-01T00:00:00Z)" in shown.stdout
    shown = commands(tmp_path, "explain", "default/bomb-0", objects=objects)
    assert "StatefulSet bomb is quarantined until" in shown.stdout

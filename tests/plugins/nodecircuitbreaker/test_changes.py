"""What changes while a breaker waits: probes that move, pods that go, nodes that come again, writes of others."""

import msgspec

from koordsched.config.duration import Duration
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs
from koordsched.plugins.nodecircuitbreaker.evidence import Evidence
from koordsched.plugins.nodecircuitbreaker.record import Record
from koordsched.plugins.shared.workloads import Workload
from tests.plugins.nodecircuitbreaker.machine import Machine

HALF_OPEN = '{"state":"half-open"}'
TRIED = Record("half-open", probe="uid-default-probe").text()


def test_failures_of_pods_that_go_before_the_scheduler_looks_count():
    machine = Machine()
    machine.node("a")
    machine.node("b")
    for n in range(3):
        machine.fails(f"p{n}", "a", f"o{n}")
        machine.gone(f"p{n}")
    machine.wait()
    assert machine.state("a") == "open"


def test_a_breaker_stays_open_when_its_evidence_is_too_old():
    """A workload that fails on as many nodes as it may tells nothing new about the first of them."""
    args = NodeCircuitBreakerArgs(window=Duration.of(60), cool_down=Duration.of(300), owner_nodes=2)
    machine = Machine(args)
    for name in ("a", "b", "c"):
        machine.node(name, zone=name)
    for n in range(3):
        machine.fails(f"p{n}", "a", f"o{n}")
    machine.node("a", zone="b")
    machine.wait()
    assert machine.state("a") == "open"
    machine.wait(50)
    machine.fails("q", "a", "o0")
    machine.wait(20)
    machine.fails("r", "b", "o0")
    machine.wait()
    assert machine.state("a") == "open"


def test_a_probe_that_runs_late_is_given_its_time():
    machine = Machine()
    machine.node("a", written=HALF_OPEN)
    assert machine.place("probe", "a")
    machine.wait(590)
    machine.runs("probe", "a")
    machine.wait()
    machine.wait(59)
    assert not machine.place("other", "a")
    machine.wait(1)
    assert machine.state("a") == "closed"


def test_a_standby_that_sees_a_pod_on_trial_on_a_second_node_before_it_has_left_the_first():
    """The leader wrote the second node first."""
    machine = Machine()
    machine.node("a", written=TRIED)
    machine.node("b", written=TRIED)
    machine.node("a", written=HALF_OPEN)
    machine.runs("probe", "b")
    machine.wait()
    assert machine.place("other", "a")
    assert not machine.place("another", "b")
    machine.wait(60)
    assert machine.state("b") == "closed"


def test_a_standby_that_never_sees_that_a_pod_on_trial_has_left_the_first_node():
    machine = Machine()
    machine.node("a", written=TRIED)
    machine.node("b", written=TRIED)
    machine.runs("probe", "b")
    machine.wait()
    assert machine.place("other", "a")
    machine.wait(60)
    assert (machine.state("a"), machine.state("b")) == ("half-open", "closed")


def test_a_person_who_opens_a_breaker_need_not_erase_the_pod_on_trial():
    machine = Machine()
    machine.node("a", written=HALF_OPEN)
    assert machine.place("probe", "a")
    machine.runs("probe", "a")
    machine.wait()
    machine.node("a", written=TRIED.replace("half-open", "open").replace("}", ',"until":"9999-12-31T00:00:00Z"}'))
    machine.wait(60)
    assert machine.state("a") == "open"


def test_a_breaker_that_another_replica_leaves_half_open_wakes_pods():
    machine = Machine()
    machine.node("a", written='{"state":"open"}')
    machine.announced.clear()
    machine.node("a", written=HALF_OPEN)
    assert "a" in machine.announced


def test_a_node_that_comes_again_with_the_same_annotation():
    machine = Machine()
    machine.node("a", written='{"state":"open"}')
    machine.cluster.remove_node("a")
    machine.node("a", written='{"state":"open"}')
    assert machine.state("a") == "open"


def test_when_the_next_failure_leaves_the_window():
    evidence = Evidence(60.0, 3)
    assert evidence.next_end is None
    for number, at in enumerate((1000.0, 970.0, 980.0)):
        evidence.add((f"p{number}",), "n", Workload("d", "Pod", f"p{number}"), "r", at)
    assert evidence.next_end == 1030.0


def test_evidence_goes_on_as_it_was_recorded():
    evidence, restored = Evidence(60.0, 3), Evidence(60.0, 3)
    evidence.add(("p",), "n", Workload("d", "Pod", "p"), "r", 1000.0)
    restored.restore_state(evidence.recorded_state())
    for each in (evidence, restored):
        each.add(("o",), "n", Workload("d", "Pod", "o"), "r", 1000.0)
    assert msgspec.json.encode(restored.recorded_state()) == msgspec.json.encode(evidence.recorded_state())

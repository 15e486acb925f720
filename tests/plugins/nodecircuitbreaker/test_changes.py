"""What changes while a breaker waits: probes that move, pods that go, nodes that come again, writes of others."""

import asyncio

import msgspec
import pytest

from koordsched.api import core
from koordsched.config.duration import Duration
from koordsched.framework.declaration import NotFound
from koordsched.plugins.nodecircuitbreaker import evidence as evidence_module
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs, validate
from koordsched.plugins.nodecircuitbreaker.controller import CircuitBreakerController
from koordsched.plugins.nodecircuitbreaker.evidence import Case, Evidence
from koordsched.plugins.nodecircuitbreaker.plugin import NodeCircuitBreaker
from koordsched.plugins.nodecircuitbreaker.record import Record
from koordsched.plugins.nodecircuitbreaker.reports import PAGES
from koordsched.plugins.shared.moments import moment_text
from koordsched.plugins.shared.workloads import Workload
from tests.plugins.nodecircuitbreaker.machine import Machine, waiting
from tests.plugins.nodecircuitbreaker.test_controllers import Writes, handle
from tests.plugins.states import carry_over

OPEN = '{"state":"open"}'
HALF_OPEN = '{"state":"half-open"}'
TRIED = Record("half-open", probe="uid-default-probe").text()


def broken(machine, *nodes):
    """Nodes, on the first of which pods fail."""
    for name in nodes:
        machine.node(name)
    for n in range(3):
        machine.fails(f"p{n}", nodes[0], f"o{n}")
    machine.wait()


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
    machine.node("a", written=OPEN)
    machine.announced.clear()
    machine.node("a", written=HALF_OPEN)
    assert "a" in machine.announced


def test_a_node_that_comes_again_with_the_same_annotation():
    machine = Machine()
    machine.node("a", written=OPEN)
    machine.cluster.remove_node("a")
    machine.node("a", written=OPEN)
    assert machine.state("a") == "open"


def test_a_node_that_comes_again_with_what_was_to_be_written_on_it():
    machine = Machine()
    broken(machine, "a", "b")
    written = machine.breakers.text_on(machine.cluster.table.row_of["a"])
    machine.cluster.remove_node("a")
    machine.node("a", written=written)
    assert machine.state("a") == "open"


def test_a_node_that_comes_after_its_failing_pods_went():
    machine = Machine()
    machine.node("b")
    for n in range(3):
        machine.fails(f"p{n}", "a", f"o{n}")
        machine.gone(f"p{n}")
    machine.wait()
    machine.node("a")
    machine.wait()
    assert machine.state("a") == "open"


def test_the_probe_of_a_node_that_goes_is_none_of_the_next_node():
    machine = Machine()
    machine.node("a", written=HALF_OPEN)
    assert machine.place("probe", "a")
    row = machine.cluster.table.row_of["a"]
    machine.cluster.remove_node("a")
    machine.node("b", written=HALF_OPEN)
    assert machine.cluster.table.row_of["b"] == row
    machine.wait(300)
    assert machine.place("other", "b")
    machine.wait(301)
    assert not machine.place("third", "b")


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


def test_what_is_known_is_no_new_failure_and_the_oldest_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(evidence_module, "MOST", 2)
    evidence = Evidence(60.0, 3)
    for name in "zam":
        assert evidence.add((name,), f"n-{name}", Workload("d", "Pod", name), "r", 1000.0)
        assert not evidence.add((name,), f"n-{name}", Workload("d", "Pod", name), "r", 1000.0)
    assert evidence.nodes == ["n-a", "n-m"]


@pytest.mark.parametrize(
    ("count", "named"), [(3, "o0, o1, o2"), (4, "o0, o1, o2 and 1 more"), (5, "o0, o1, o2 and 2 more")]
)
def test_what_users_read_of_the_evidence(count, named):
    workloads = tuple(Workload("d", "Pod", f"o{n}") for n in range(count))
    text = Case(7, workloads, ("a", "b", "c", "d")).summary("10m")
    assert text.replace("Pod d/", "") == f"7 failures of {count} workloads within 10m (a, b, c): {named}"


# --- what people write ------------------------------------------------------------------------------


def test_a_person_who_closes_a_breaker_wakes_pods_and_clears_the_node():
    machine = Machine()
    broken(machine, "a", "b")
    machine.echo("a")
    machine.announced.clear()
    machine.node("a")
    assert machine.announced.count("a") == 1
    machine.fails("another", "a", "o0")
    machine.wait()
    assert machine.state("a") == "closed"


def test_a_person_who_opens_a_breaker_twice_with_the_same_words():
    machine = Machine()
    for written, state in ((OPEN, "open"), (None, "closed"), (OPEN, "open")):
        machine.node("a", written=written)
        assert machine.state("a") == state


def test_a_person_who_opens_the_breaker_of_a_node_that_is_held():
    machine = Machine()
    broken(machine, "a", "b")
    for n in range(3):
        machine.fails(f"q{n}", "b", f"other-{n}")
    machine.wait()
    assert machine.state("b") == "held"
    machine.node("b", written=OPEN)
    assert machine.breakers.count() == {"open": 2, "half-open": 0, "held": 0}


# --- probes -----------------------------------------------------------------------------------------


def test_a_pod_on_trial_that_is_not_placed_after_all_wakes_others():
    machine = Machine()
    machine.node("a", written=HALF_OPEN)
    assert machine.place("probe", "a")
    machine.announced.clear()
    machine.take_back("probe")
    assert "a" in machine.announced


@pytest.mark.parametrize("resumed", [False, True])
def test_a_pod_that_is_on_trial_again_has_its_whole_time(resumed):
    machine = Machine()
    machine.node("a", written=HALF_OPEN)
    assert machine.place("probe", "a")
    machine.echo("a")
    machine.wait(100)
    if resumed:
        machine = machine.resumed()
    machine.wait(100)
    machine.take_back("probe")
    machine.wait(100)
    assert machine.place("probe", "a")
    machine.wait(599)
    assert not machine.place("other", "a")
    machine.wait(1)
    assert machine.place("other", "a")


def test_a_pod_that_runs_already_when_its_node_says_that_it_is_on_trial():
    machine = Machine()
    machine.node("a")
    machine.runs("probe", "a")
    machine.wait()
    machine.node("a", written=TRIED)
    machine.wait()
    machine.wait(60)
    assert machine.state("a") == "closed"


def test_a_pod_on_trial_that_is_gone_already_when_its_node_says_so():
    machine = Machine()
    machine.node("a")
    machine.wait()
    machine.node("a", written=TRIED)
    machine.wait()
    assert machine.place("other", "a")


# --- sandboxes and images ---------------------------------------------------------------------------


def no_sandbox(machine, name, on, owner="", ago=0, **container):
    """A pod waits for its sandbox."""
    state = {"waiting": {"reason": "ContainerCreating"}}
    machine.pod(
        name,
        on,
        owner,
        startTime=moment_text(machine.clock.wall() - ago),
        conditions=[{"type": "PodReadyToStartContainers", "status": "False"}],
        containerStatuses=[{"name": "c", "restartCount": 0, "state": state, **container}],
    )


def test_pods_without_a_sandbox_count_from_their_start():
    machine = Machine()
    machine.node("a")
    machine.node("b")
    for n in range(3):
        no_sandbox(machine, f"p{n}", "a", f"o{n}", ago=100)
    machine.wait(100)
    for n in range(3):
        no_sandbox(machine, f"p{n}", "a", f"o{n}", ago=200)
    machine.wait()
    machine.wait(99)
    assert machine.state("a") == "closed"
    machine.wait(1)
    assert machine.state("a") == "open"


def test_a_pod_without_a_sandbox_counts_again_when_the_window_is_over():
    machine = Machine()
    machine.node("a")
    no_sandbox(machine, "p", "a")
    machine.wait()
    machine.wait(300)
    assert machine.breakers.evidence.case("a").failures == 1
    machine.wait(601)
    no_sandbox(machine, "p", "a", ago=901)
    machine.wait()
    machine.wait()
    assert machine.breakers.evidence.case("a").failures == 1


def test_a_pod_on_trial_that_gets_no_sandbox():
    machine = Machine()
    machine.node("a", written=HALF_OPEN)
    assert machine.place("probe", "a")
    no_sandbox(machine, "probe", "a")
    machine.wait()
    machine.wait(300)
    assert machine.state("a") == "open"
    assert machine.breakers.records[machine.cluster.table.row_of["a"]].openings == 2


@pytest.mark.parametrize(
    ("container", "waits"),
    [({}, True), ({"restartCount": 1}, False), ({"state": {"running": {}}}, False), ({"state": None}, False)],
)
def test_a_pod_with_a_container_that_has_started_had_a_sandbox(container, waits):
    machine = Machine()
    machine.node("a")
    no_sandbox(machine, "p", "a", **container)
    machine.wait()
    machine.wait(300)
    assert machine.breakers.evidence.case("a").failures == waits


def test_an_image_that_another_node_gets_later_tells_nothing_of_pods_that_are_gone():
    machine = Machine()
    machine.node("a")
    machine.node("b")
    images, row_of = machine.cluster.table.images, machine.cluster.table.row_of
    rare = (core.ContainerImage(names=("rare:1",), size_bytes=1),)
    images.replace(row_of["a"], rare)
    for n in range(3):
        machine.pod(f"p{n}", "a", f"o{n}", **waiting(machine.clock, "ImagePullBackOff", image="rare:1"))
        machine.gone(f"p{n}")
    machine.wait()
    assert len(machine.breakers.evidence) == 0
    images.replace(row_of["b"], rare)
    machine.fails("q", "b")
    machine.wait()
    assert machine.breakers.evidence.nodes == ["b"]


# --- checkpoints ------------------------------------------------------------------------------------


def test_pods_that_went_before_a_checkpoint_count_after_it():
    machine = Machine()
    machine.node("a")
    machine.node("b")
    for n in range(3):
        machine.fails(f"p{n}", "a", f"o{n}")
        machine.gone(f"p{n}")
    machine = machine.resumed()
    machine.wait()
    assert machine.state("a") == "open"


def test_pods_without_a_sandbox_go_on_waiting_after_a_checkpoint():
    machine = Machine()
    machine.node("a")
    machine.node("b")
    for n in range(3):
        no_sandbox(machine, f"p{n}", "a", f"o{n}")
    machine.wait()
    machine = machine.resumed()
    machine.wait(299)
    assert machine.state("a") == "closed"
    machine.wait(1)
    assert machine.state("a") == "open"


def test_a_breaker_that_may_open_since_another_node_is_cordoned_opens_after_a_checkpoint():
    machine = Machine()
    broken(machine, "a", "b", "c")
    for n in range(3):
        machine.fails(f"q{n}", "b", f"other-{n}")
    machine.wait()
    assert machine.state("b") == "held"
    machine.node("a", written=machine.breakers.text_on(machine.cluster.table.row_of["a"]), unschedulable=True)
    machine = machine.resumed()
    machine.wait()
    assert machine.state("b") == "open"


def test_a_checkpoint_changes_the_rows_of_its_breakers():
    machine, other = Machine(), Machine()
    for each in (machine, other):
        each.node("a")
        each.node("b")
    broken(machine, "a", "b")
    log = other.cluster.table.log
    serial = log.serial
    carry_over(machine.handle, other.handle)
    assert other.state("a") == "open"
    assert log.stamp(other.cluster.table.row_of["a"], other.breakers.facet) > serial


# --- what is written, and shown ---------------------------------------------------------------------


def test_a_write_that_was_broken_off_is_made_when_the_scheduler_leads_again():
    machine, writes = Machine(), Writes()
    plugin = NodeCircuitBreaker(machine.breakers.args, machine.handle)
    controller = CircuitBreakerController(plugin, machine.breakers.args, handle(machine, writes))
    broken(machine, "a", "b")
    machine.breakers.unwritten.clear()

    async def lead():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(controller.run(), 0.01)

    asyncio.run(lead())
    assert [name for _, name, _ in writes.written] == ["a"]


def test_the_pages():
    machine = Machine()
    plugin = NodeCircuitBreaker(machine.breakers.args, machine.handle)
    broken(machine, "a", "b")
    for n in range(3):
        machine.fails(f"q{n}", "b", f"other-{n}")
    machine.wait()
    of_all, of_one = PAGES
    assert [(each.node, each.state) for each in of_all.answer(plugin, {}).nodes] == [("a", "open"), ("b", "held")]
    assert of_one.answer(plugin, {"name": "b"}).reason.startswith("3 failures of 3 workloads within 10m0s")
    with pytest.raises(NotFound, match="there is no node c"):
        of_one.answer(plugin, {"name": "c"})


@pytest.mark.parametrize("percentage", [1, 100])
def test_arguments_at_their_limits(percentage):
    second = Duration.of(1)
    durations = dict.fromkeys(
        ("window", "quick_crash", "sandbox_timeout", "cool_down", "max_cool_down", "probation", "probe_timeout"), second
    )
    numbers = dict.fromkeys(("failures", "distinct_owners", "distinct_namespaces", "owner_nodes"), 1)
    args = NodeCircuitBreakerArgs(**durations, **numbers, max_open_percentage=percentage)
    assert validate(args, "args", None) == []

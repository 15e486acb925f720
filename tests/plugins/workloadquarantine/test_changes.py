"""Falls that are seen late, quarantines that are written anew, placements that are taken back, what journals keep."""

import pytest

from koordsched.config.duration import Duration
from koordsched.framework.declaration import NotFound
from koordsched.plugins.shared.workloads import Workload
from koordsched.plugins.workloadquarantine.args import WorkloadQuarantineArgs, validate
from koordsched.plugins.workloadquarantine.placements import Placements
from koordsched.plugins.workloadquarantine.plugin import WorkloadQuarantine
from koordsched.plugins.workloadquarantine.record import Record, key_of
from koordsched.plugins.workloadquarantine.reports import PAGES, report, tables
from tests.plugins.workloadquarantine.machine import Machine
from tests.plugins.workloadquarantine.test_cases import BOMB, felled

OTHER = Workload("default", "StatefulSet", "other")


def written(machine, workload, text):
    """The namespace with one annotation about a quarantine."""
    machine.namespace(workload.namespace, **{key_of(workload).replace("/", "__"): text})


def test_a_fall_that_is_seen_late_leaves_the_window_in_time():
    machine = Machine(WorkloadQuarantineArgs(window=Duration.of(900)))
    machine.nodes(100)
    machine.pod("bomb-0", "n0", "bomb", machine.moment(610))
    machine.node("n0", "False", since=machine.moment(600))
    machine.wait()
    machine.wait(301)
    felled(machine, 1, first=1)
    assert machine.held() == []


def test_a_later_end_takes_the_place_of_an_earlier_one():
    machine = Machine()
    written(machine, BOMB, Record(BOMB.kind, BOMB.name, until=machine.moment(-3600)).text())
    written(machine, BOMB, Record(BOMB.kind, BOMB.name, until=machine.moment(-7200)).text())
    machine.wait(3600)
    assert machine.held() == ["bomb"]
    machine.wait(3600)
    assert machine.held() == []


def test_what_says_nothing_of_one_workload_beside_the_quarantine_of_another():
    machine = Machine()
    machine.nodes(100)
    machine.namespace()
    felled(machine, 2)
    machine.quarantines.unwritten.clear()
    written(machine, OTHER, "{")
    assert list(machine.quarantines.senseless) == [("default", key_of(OTHER))]
    assert machine.quarantines.says_nothing("default", key_of(OTHER))
    assert not machine.quarantines.unwritten


def test_what_says_nothing_of_workloads_of_one_name():
    machine = Machine()
    elsewhere = BOMB._replace(namespace="elsewhere")
    written(machine, BOMB, Record(BOMB.kind, BOMB.name).text())
    written(machine, elsewhere, "{")
    assert list(machine.quarantines.senseless) == [("elsewhere", key_of(BOMB))]
    assert machine.quarantines.says_nothing("elsewhere", key_of(BOMB))


def test_an_annotation_of_a_workload_that_is_quarantined_since_is_not_taken_away():
    machine = Machine()
    machine.nodes(100)
    machine.namespace()
    written(machine, BOMB, "{")
    assert machine.quarantines.says_nothing("default", key_of(BOMB))
    felled(machine, 2)
    assert not machine.quarantines.says_nothing("default", key_of(BOMB))


def test_a_quarantine_ends_once_after_a_checkpoint():
    """Without a time in the annotation the end is known from the checkpoint alone."""
    machine = Machine()
    written(machine, BOMB, Record(BOMB.kind, BOMB.name).text())
    machine.wait(3600)
    again = machine.resumed()
    again.wait(again.quarantines.args.cool_down.seconds - 3600)
    assert again.held() == []
    again.wait(3600)
    assert again.quarantines.ends["expired"] == 1


def test_a_placement_that_is_taken_back_is_one_less():
    machine = Machine()
    placements = Placements(600.0, machine.clock, machine.timers)
    for _ in range(3):
        placements.add(BOMB)
    placements.take_back(BOMB)
    assert placements.of(BOMB) == 2
    placements.take_back(OTHER)
    assert placements.of(OTHER) == 0


def test_a_placement_counts_once_though_its_node_goes_and_comes_back():
    machine = Machine()
    machine.node("n0")
    waiting = machine.built("p", owner="bomb")
    machine.cluster.assume(waiting, 0)
    machine.cluster.remove_node("n0")
    machine.node("n0")
    assert machine.quarantines._placements.of(BOMB) == 1
    machine.cluster.forget(waiting)
    assert machine.quarantines._placements.of(BOMB) == 0


@pytest.mark.parametrize("after", [0, 1, 150], ids=["not begun", "begun", "turned"])
def test_placements_go_on_as_they_were_recorded(after):
    machine = Machine()
    placements, restored = (Placements(600.0, machine.clock, machine.timers) for _ in range(2))
    placements.add(BOMB)
    if after:
        machine.wait()
        machine.wait(after)
    restored.restore_state(placements.recorded_state())
    while len(placements):
        machine.wait(1.0)
        assert restored.of(BOMB) == placements.of(BOMB)
    assert len(restored) == 0


def test_placements_of_pods_that_another_scheduler_placed_are_not_taken_back():
    machine = Machine()
    machine.nodes(3)
    machine.pod("theirs", "n0", "bomb")
    ours = machine.built("ours", owner="bomb")
    machine.cluster.assume(ours, 1)
    machine.gone("theirs")
    assert machine.quarantines._placements.of(BOMB) == 1


def test_arguments_at_their_limits():
    second = Duration.of(1)
    args = WorkloadQuarantineArgs(window=second, soon_after=second, cool_down=second, min_nodes=2)
    assert validate(args, "args", None) == []


def test_what_is_shown_of_no_quarantine_and_of_one_without_an_end():
    machine = Machine()
    plugin = WorkloadQuarantine(machine.quarantines.args, machine.handle)
    [line] = tables(report(plugin))
    assert line.text == "No workload is quarantined."
    written(machine, BOMB, Record(BOMB.kind, BOMB.name).text())
    [table] = tables(report(plugin))
    assert list(table.rows) == [("default", "StatefulSet/bomb", "-", "", "")]
    written(machine, BOMB, Record(BOMB.kind, BOMB.name, until="2030-01-02T00:00:00Z").text())
    [table] = tables(report(plugin))
    assert table.rows[0][2] == "2030-01-02T00:00:00Z"


def test_the_page_of_one_quarantine():
    machine = Machine()
    plugin = WorkloadQuarantine(machine.quarantines.args, machine.handle)
    page = PAGES[1]
    with pytest.raises(NotFound, match="StatefulSet default/bomb is not quarantined"):
        page.answer(plugin, BOMB._asdict())
    written(machine, BOMB, Record(BOMB.kind, BOMB.name).text())
    details = page.answer(plugin, BOMB._asdict())
    assert (details.name, details.annotation) == ("bomb", key_of(BOMB))

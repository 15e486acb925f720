"""What would be if pods were evicted and others placed: what is answered, and that nothing stays."""

import pytest

from koordsched.framework.interface import PreFilter, PreFilterResult, Reserve
from koordsched.framework.status import PASS, SKIP, SUCCESS, Code, Status
from tests.engine.objects import offline
from tests.plugins.objects import container, node, pod


class Choosy(PreFilter, Reserve):
    """Refuses pods by their names, at one point or the other; some may go to the node `other` only."""

    name = "Choosy"

    def __init__(self, args, handle):
        self.members = {}

    def events_to_register(self):
        return []

    def pre_filter(self, cycle, pod):
        self.members[pod.name] = set(cycle.job_members)
        if pod.name == "tied":
            return PreFilterResult(frozenset({"other"}))
        return Status(Code.UNRESOLVABLE, ("no",)) if pod.name == "refused" else SKIP

    def reserve(self, cycle, pod, row):
        return Status(Code.UNSCHEDULABLE, ("no",)) if pod.name == "unreserved" else SUCCESS

    def unreserve(self, cycle, pod, row):
        pass


def asked(name, cpu="1"):
    """What placing such a pod on the first row answers, with the reasons; and what there is of the row afterwards."""
    there = pod("there", container(cpu="3"), on="first")
    scheduler = offline(node("first"), node("other"), there, pod(name, container(cpu=cpu)), plugins=(Choosy,))
    handle, wanted = scheduler.profiles["default-scheduler"].handle, scheduler.pending[f"default/{name}"]
    with handle.hypothesis() as trial:
        code = trial.place(wanted, 0)
        with_room = code
        if code not in (PASS, -1):
            trial.evict(scheduler.cluster.assigned["uid-default-there"])
            with_room = trial.place(wanted, 0)
    assert scheduler.cluster.table.requested[0].data[:2].tolist() == [3000, 0]
    assert list(scheduler.cluster.pods_on(0)) == ["uid-default-there"]
    return code, with_room, handle.reasons[code].texts if code > 0 else ()


def test_a_pod_that_fits():
    assert asked("p") == (PASS, PASS, ())


def test_one_that_fits_once_another_is_gone():
    _, with_room, reasons = asked("p", "4")
    assert (with_room, reasons) == (PASS, ("Insufficient cpu",))


@pytest.mark.parametrize("name", ["refused", "tied", "unreserved"])
def test_one_that_is_refused_for_another_reason_than_a_node(name):
    assert asked(name) == (-1, -1, ())


def test_pods_are_members_of_one_job():
    scheduler = offline(node("first"), pod("p"), pod("q"), plugins=(Choosy,))
    profile = scheduler.profiles["default-scheduler"]
    with profile.handle.hypothesis({"before"}) as trial:
        for name in "pq":
            assert trial.place(scheduler.pending[f"default/{name}"], 0) == PASS
    members = profile.plugins["Choosy"].members
    assert members == {"p": {"before", "uid-default-p"}, "q": {"before", "uid-default-p", "uid-default-q"}}


def test_steps_are_taken_back_to_where_a_checkpoint_was():
    there = pod("there", container(cpu="3"), on="first")
    scheduler = offline(node("first"), there, pod("p", container(cpu="3")), pod("q", container(cpu="2")))
    handle, pending = scheduler.profiles["default-scheduler"].handle, scheduler.pending
    with handle.hypothesis() as trial:
        trial.evict(scheduler.cluster.assigned["uid-default-there"])
        before = trial.checkpoint()
        assert trial.place(pending["default/p"], 0) == PASS
        assert trial.place(pending["default/q"], 0) != PASS
        trial.rollback(before)
        assert trial.place(pending["default/q"], 0) == PASS
    assert list(scheduler.cluster.pods_on(0)) == ["uid-default-there"]


def test_nominations_count_again_in_their_order():
    promised = [pod(name, container(cpu="2"), priority=1) for name in "abc"]
    for thing in promised:
        thing["status"]["nominatedNodeName"] = "first"
    scheduler = offline(node("first"), *promised, pod("p", container(cpu="1")))
    handle, pending, nominator = scheduler.profiles["default-scheduler"].handle, scheduler.pending, scheduler.nominator
    before = nominator.nominated_on("first")
    assert [each.name for each in before] == ["a", "b", "c"]
    with handle.hypothesis() as trial:
        trial.withdraw([pending["default/b"], pending["default/p"], pending["default/a"]])
        assert [each.name for each in nominator.nominated_on("first")] == ["c"]
        assert trial.place(pending["default/p"], 0) == PASS
    assert nominator.nominated_on("first") == before

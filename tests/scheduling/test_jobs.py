"""Pods that are placed together, by a plugin other than Coscheduling: all or none, and nothing is left behind."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from koordsched.engine.transaction import Transaction
from koordsched.framework.interface import Permit, TellsPodsApart
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.scheduling.jobcycle import JobAttempt
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.engine.gpushare import GpuShare
from tests.engine.objects import gpu_node, gpu_pod
from tests.engine.state import _amounts
from tests.pauses import pause_always
from tests.plugins.objects import container, node, pod
from tests.scheduling.together import JOB, NEED, Together
from tests.virtualtime import run


class Waits(Permit):
    """A Permit plugin that has every pod wait, until it is told to let it go."""

    name = "Waits"

    def __init__(self, args, handle):
        self.handle = handle

    def events_to_register(self):
        return []

    def permit(self, cycle, pod, row):
        return Status(Code.WAIT), 30.0


LABELS_MATTER = [{"name": "PodTopologySpread"}, {"name": "InterPodAffinity"}]
POINTS = {point: {"disabled": LABELS_MATTER} for point in ("preFilter", "filter", "preScore", "score")}
BLIND_TO_LABELS = {**DEFAULT_CONFIG, "profiles": [{"schedulerName": "default-scheduler", "plugins": POINTS}]}


class Alike(Together, TellsPodsApart):
    """Refuses no pod by itself, so that all are alike to it."""

    def identity(self, pod):
        return "any"


def plugin_of(running, name="Together"):
    return running.scheduler.profiles["default-scheduler"].plugins[name]


def member(name, need=1, cpu="1", job="j", **more):
    made = pod(name, container(cpu=cpu), labels={JOB: job, NEED: str(need)}, **more)
    made["spec"]["schedulerName"] = "default-scheduler"
    return made


@asynccontextmanager
async def playing(*objects, plugins=(Together,), raises=(), refuses=None, **more):
    """The embedded server and the scheduler; afterwards everything must be in order."""
    embedded = Embedded()
    for thing in objects:
        embedded.insert(thing)

    class Under(Together):
        pass

    Under.raises, Under.refuses = set(raises), dict(refuses or {})
    classes = [Under if each is Together else each for each in plugins]
    async with scheduler_on(embedded, plugins=classes, **more) as running:
        yield embedded, running
        check(running)


def check(running):
    scheduler, plugin = running.scheduler, plugin_of(running)
    assert not running.work.done()
    assert scheduler.queue.in_flight_pods() == []
    assert not scheduler.cluster.in_transaction
    assert not scheduler.cluster.assumed
    assert {each.pod.uid for each in scheduler.queue} == {each.uid for each in scheduler.pending_pods()}
    assert plugin.faults == []
    assert plugin.held.keys() <= scheduler.cluster.assigned.keys()
    assert plugin.job is None


def bound(embedded):
    found = [embedded.get("Pod", name) for _, name in embedded.registry.collection(embedded.resource("Pod")).items]
    return sorted(each["metadata"]["name"] for each in found if each["spec"].get("nodeName"))


def message(embedded, name):
    conditions = embedded.get("Pod", name).get("status", {}).get("conditions", ())
    return next((each["message"] for each in conditions if each["type"] == "PodScheduled" and "message" in each), "")


def believed(scheduler):
    """All that is counted, and who waits where."""
    cluster, table, nominator = scheduler.cluster, scheduler.cluster.table, scheduler.queue.nominator
    return {
        "columns": [_amounts(column.data, table.size) for column in table._columns],
        "ports": {key: {ip: dict(rows) for ip, rows in by_ip.items()} for key, by_ip in table.ports._used.items()},
        "rows": [list(cluster.pods_on(row)) for row in range(table.size)],
        "assigned": [(uid, each.node, each.row, each.facts) for uid, each in cluster.assigned.items()],
        "pending": sorted((each.key, each.node, each.row) for each in scheduler.pending_pods()),
        "nominations": {
            name: [each.uid for each in nominator.nominated_on(name)] for name in nominator.nodes_with_nominated()
        },
    }


def test_all_are_placed_in_one_attempt_in_their_order():
    async def work():
        async with playing(node("n1", cpu="8")) as (embedded, running):
            for name in ("c", "a", "b"):
                embedded.insert(member(name, need=3))
            await asyncio.sleep(2)
            assert bound(embedded) == ["a", "b", "c"]
            assert sum(running.attempts.values()) == 1
            assert plugin_of(running).order == ["a", "b", "c"]
            assert plugin_of(running).ended == [("j", ["a", "b", "c"], [])]

    run(work())


def test_no_more_are_placed_than_are_needed():
    async def work():
        async with playing(node("n1", cpu="8")) as (embedded, running):
            for name in ("a", "b", "c"):
                embedded.insert(member(name, need=2))
            await asyncio.sleep(2)
            assert plugin_of(running).ended[0] == ("j", ["a", "b"], [])
            assert bound(embedded) == ["a", "b", "c"], "the third had an attempt of its own"

    run(work())


def test_the_first_goes_on_if_there_are_enough_without_it():
    """The order is by name, and the one that was taken from the queue comes last."""

    async def work():
        async with playing(node("n1", cpu="8")) as (embedded, running):
            for name in ("z", "a", "b"):
                embedded.insert(member(name, need=2, priority=1 if name == "z" else 0))
            await asyncio.sleep(2)
            assert plugin_of(running).ended[0] == ("j", ["a", "b"], [])
            assert bound(embedded) == ["a", "b", "z"]

    run(work())


def test_if_one_has_no_place_none_is_placed_and_each_shows_why():
    async def work():
        async with playing(node("n1", cpu="2")) as (embedded, running):
            for name in ("a", "b", "c", "d"):
                embedded.insert(member(name, need=4))
            await asyncio.sleep(2)
            assert bound(embedded) == []
            assert message(embedded, "c").startswith("0/1 nodes are available: 1 Insufficient cpu.")
            for name in ("a", "b"):
                assert message(embedded, name).startswith(
                    "0/1 nodes are available: 1 c: 0/1 nodes are available: 1 Ins"
                )
            assert message(embedded, "d").startswith("0/1 nodes are available:")
            assert plugin_of(running).ended[0] == ("j", [], ["c", "a"])

    run(work())


def test_the_first_shows_what_keeps_itself_out_if_its_turn_did_not_come():
    """The one that was taken from the queue comes last in the order."""

    async def work():
        async with playing(node("n1", cpu="2")) as (embedded, running):
            for name in ("a", "b", "c"):
                embedded.insert(member(name, need=4))
            embedded.insert(member("z", need=4, cpu="4", priority=1))
            await asyncio.sleep(0.5)
            assert plugin_of(running).order[:2] == ["a", "b"]
            assert message(embedded, "a").startswith("0/1 nodes are available: 1 c: ")
            shown = [event["note"] for event in embedded.events() if event["regarding"]["name"] == "z"]
            assert shown
            assert all(note.startswith("0/1 nodes are available: 1 Insufficient cpu.") for note in shown)

    run(work())


def test_what_a_member_is_refused_with_beside_the_others_refuses_no_pod_by_itself():
    async def work():
        async with playing(node("n1", cpu="2"), plugins=(Alike,), configuration=BLIND_TO_LABELS) as (embedded, _):
            for name in ("m0", "m1", "m2"):
                embedded.insert(member(name, need=3))
            embedded.insert(pod("alone", container(cpu="1")))
            await asyncio.sleep(0.5)
            assert message(embedded, "m2").startswith("0/1 nodes are available: 1 Insufficient cpu.")
            assert bound(embedded) == ["alone"]

    run(work())


def test_too_few_members_show_that():
    async def work():
        async with playing(node("n1", cpu="8")) as (embedded, _):
            for name in ("a", "b"):
                embedded.insert(member(name, need=3))
            await asyncio.sleep(2)
            assert bound(embedded) == []
            assert {message(embedded, name) for name in ("a", "b")} == {"0/1 nodes are available: 1 too few."}

    run(work())


def test_room_that_comes_has_the_job_tried_and_other_events_do_not():
    async def work():
        async with playing(node("n1", cpu="2")) as (embedded, running):
            for name in ("a", "b", "c"):
                embedded.insert(member(name, need=3))
            await asyncio.sleep(15)
            before = sum(running.attempts.values())
            embedded.insert(node("tiny", cpu="500m"))
            await asyncio.sleep(15)
            assert sum(running.attempts.values()) == before
            embedded.insert(node("n2", cpu="1"))
            await asyncio.sleep(15)
            assert bound(embedded) == ["a", "b", "c"]
            assert sum(running.attempts.values()) == before + 1

    run(work())


def test_a_job_that_fails_leaves_no_trace():
    """Tables, nominations, GPUs, and who waits where."""

    async def work():
        nodes = [gpu_node(f"n{number}", gpus=2, cpu="4") for number in range(3)]
        other = gpu_pod("nominated", 100, priority=5, cpu="100m")
        other["spec"]["schedulerName"] = "default-scheduler"
        async with playing(*nodes, plugins=(Together, GpuShare)) as (embedded, running):
            embedded.insert(node("full", cpu="1"))
            for name in ("r-1", "r-2"):
                embedded.insert(gpu_pod(name, on="n0", allocated=((0 if name == "r-1" else 1, 50),), cpu="500m"))
            await asyncio.sleep(2)
            before = believed(running.scheduler)
            assert before["assigned"]
            pods = []
            for name in ("a", "b", "c", "d", "e", "f", "g", "h"):
                made = gpu_pod(name, 100, cpu="1", labels={JOB: "j", NEED: "8"})
                made["spec"]["schedulerName"] = "default-scheduler"
                made["status"] = {"nominatedNodeName": "n1"} if name == "b" else {}
                pods.append(made)
            states = []
            original = Transaction.__exit__
            scheduler = running.scheduler

            def exiting(transaction, *args):
                original(transaction, *args)
                states.append(believed(scheduler))

            with pytest.MonkeyPatch.context() as patched:
                taken = []
                enter = Transaction.__enter__
                patched.setattr(Transaction, "__exit__", exiting)
                patched.setattr(
                    Transaction, "__enter__", lambda self: (taken.append(believed(scheduler)), enter(self))[1]
                )
                for made in pods:
                    embedded.insert(made)
                await asyncio.sleep(0.5)
                assert bound(embedded) == ["r-1", "r-2"]
                assert plugin_of(running).order, "members were placed"
                assert any(each["nominations"] for each in taken), "one was nominated"
                assert taken == states
            after = believed(scheduler)
            assert {key: after[key] for key in ("columns", "ports", "rows", "assigned")} == {
                key: before[key] for key in ("columns", "ports", "rows", "assigned")
            }

    run(work())


@pytest.mark.parametrize("room", [True, False])
def test_during_a_long_job_others_have_their_turn_and_changes_wait(room, monkeypatch):
    pause_always(monkeypatch)

    async def work():
        async with playing(node("n1", cpu="4" if room else "3")) as (embedded, running):
            scheduler = running.scheduler
            turns = 0

            async def others():
                nonlocal turns
                while True:
                    if scheduler.cluster.in_transaction:
                        turns += 1
                        if turns == 2:
                            # All of this is let in when the job is decided.
                            embedded.insert(node("n2", cpu="1"))
                            embedded.insert(member("e", need=4))
                            status, _ = await embedded.call(
                                "DELETE", "/api/v1/namespaces/default/pods/b", {"gracePeriodSeconds": 0}
                            )
                            assert status == 200
                    await asyncio.sleep(0)

            task = asyncio.create_task(others())
            for name in ("a", "b", "c", "d"):
                embedded.insert(member(name, need=4))
            for _ in range(400):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(20)
            assert turns > 2
            assert embedded.get("Pod", "b") is None
            assert bound(embedded) == ["a", "c", "d", "e"]

    run(work())


@pytest.mark.parametrize(
    "hook",
    ["taken_up", "begin_job", "next", "fail", "fall_short", "rejection", "untried", "end_job", "admitted"],
)
@pytest.mark.parametrize("cpu", ["8", "2"])
def test_a_bug_of_the_plugin_ends_one_attempt(hook, cpu):
    async def work():
        async with playing(node("n1", cpu=cpu), raises=[hook]) as (embedded, running):
            for name in ("a", "b", "c"):
                embedded.insert(member(name, need=4 if hook == "fall_short" and cpu == "8" else 3))
            other = pod("other", container(cpu="100m"))
            other["spec"]["schedulerName"] = "default-scheduler"
            embedded.insert(other)
            await asyncio.sleep(59.5)  # no back-off ends at that time
            if hook not in ("taken_up", "begin_job"):
                assert "other" in bound(embedded)
            check(running)
            # Without the bug all goes on.
            type(plugin_of(running)).raises.clear()
            embedded.insert(node("n2", cpu="8"))
            embedded.insert(member("d", need=1))
            await asyncio.sleep(60)
            assert bound(embedded) == ["a", "b", "c", "d", "other"]

    run(work())


@pytest.mark.parametrize("hook", ["before_pre_filter", "pre_filter", "reserve", "permit", "unreserve"])
@pytest.mark.parametrize("who", ["a", "b", "c"])
def test_a_bug_in_a_step_of_one_member_fails_the_job_only(hook, who):
    async def work():
        cpu = "2" if hook == "unreserve" else "8"
        async with playing(node("n1", cpu=cpu), raises=[f"{hook} {who}"]) as (embedded, running):
            for name in ("a", "b", "c"):
                embedded.insert(member(name, need=3))
            await asyncio.sleep(5)
            check(running)
            assert bound(embedded) == []
            if hook != "unreserve":
                assert "internal error: RuntimeError: a bug in" in message(embedded, who)
            type(plugin_of(running)).raises.clear()
            embedded.insert(node("n2", cpu="8"))
            await asyncio.sleep(60)
            assert bound(embedded) == ["a", "b", "c"]

    run(work())


@pytest.mark.parametrize("hook", ["before_pre_filter", "pre_filter", "reserve", "permit"])
@pytest.mark.parametrize("code", [Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.ERROR])
@pytest.mark.parametrize("who", ["a", "c"])
def test_a_refusal_at_any_step_of_one_member_fails_the_job(hook, code, who):
    async def work():
        refused = {f"{hook} {who}": Status(code, ("not this one",))}
        async with playing(node("n1", cpu="8"), refuses=refused) as (embedded, running):
            for name in ("a", "b", "c"):
                embedded.insert(member(name, need=3))
            await asyncio.sleep(5)
            check(running)
            assert bound(embedded) == []
            assert plugin_of(running).held == {}
            for name in ("a", "b", "c"):
                assert "not this one" in message(embedded, name) or name > who
            type(plugin_of(running)).refuses.clear()
            embedded.insert(member("d", need=1))
            await asyncio.sleep(60)
            assert bound(embedded) == ["a", "b", "c", "d"]

    run(work())


def test_a_member_that_another_plugin_keeps_out_of_the_queue_is_not_tried():
    async def work():
        refused = {}

        class Keeps(Together):
            name = "Keeps"

            def begin_job(self, pod):
                return None

            def permit(self, cycle, pod, row):
                return SUCCESS, 0.0

            def pre_enqueue(self, pod):
                return refused.get(pod.name, SUCCESS)

        refused["b"] = Status(Code.UNSCHEDULABLE, ("not yet",))
        async with playing(node("n1", cpu="8"), plugins=(Together, Keeps)) as (embedded, running):
            for name in ("a", "b", "c"):
                embedded.insert(member(name, need=1 if name == "b" else 2))
            await asyncio.sleep(5)
            assert bound(embedded) == ["a", "c"]
            refused.clear()
            running.scheduler.queue.activate(running.scheduler.pending_pods())
            await asyncio.sleep(5)
            assert bound(embedded) == ["a", "b", "c"]

    run(work())


def test_a_member_that_rests_after_an_error_is_not_tried_with_the_others():
    async def work():
        refused = {"reserve b": Status(Code.ERROR, ("no idea",))}
        async with playing(node("n1", cpu="8"), refuses=refused) as (embedded, _):
            for name in ("a", "b"):
                embedded.insert(member(name, need=2))
            await asyncio.sleep(0.1)
            assert "no idea" in message(embedded, "b")
            embedded.insert(member("c", need=2))
            await asyncio.sleep(0.1)
            assert bound(embedded) == ["a", "c"]

    run(work())


def test_the_end_of_a_failed_binding_waits_for_a_long_job(monkeypatch):
    """What is taken back there would be in the way of what the job takes back."""
    pause_always(monkeypatch)

    async def work():
        failed = []

        async def fault(call, proceed):
            if call.path.endswith("/early/binding") and not failed:
                for _ in range(500):
                    await asyncio.sleep(0)
                    if running.scheduler.cluster.in_transaction:
                        break
                failed.append(running.scheduler.cluster.in_transaction)
                return 403, {}, b"{}"
            return await proceed()

        async with playing(node("n1", cpu="100"), fault=fault) as (embedded, running):
            undone, undo = [], running.scheduler.binding.undo
            inside = lambda: running.scheduler.cluster.in_transaction  # noqa: E731
            binding = running.scheduler.binding
            monkeypatch.setattr(
                binding, "undo", lambda *given: (undone.append(inside()), undo(*given))[1], raising=False
            )
            early = pod("early", container(cpu="1"))
            early["spec"]["schedulerName"] = "default-scheduler"
            embedded.insert(early)
            for number in range(40):
                embedded.insert(member(f"m{number:02}", need=40))
            await asyncio.sleep(60)
            assert failed == [True]
            assert undone == [False]
            assert len(bound(embedded)) == 41

    run(work())


async def pieces_of_a_job(room, monkeypatch):
    """How many of its 50 members are taken up, or told, between two turns of the loop."""
    async with playing(node("n1", cpu="100")) as (embedded, _):
        turns, pieces = 0, Counter()

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        name = "_take_up" if room else "_tell"
        step = getattr(JobAttempt, name)
        monkeypatch.setattr(JobAttempt, name, lambda *given: (pieces.update([turns]), step(*given))[1])
        task = asyncio.create_task(others())
        for number in range(50):
            embedded.insert(member(f"m{number:02}", need=50, cpu="1" if room or number < 40 else "20"))
        for _ in range(2000):
            await asyncio.sleep(0)
        task.cancel()
        sizes = list(pieces.values())
        assert sum(sizes) >= 40
        await asyncio.sleep(20)
        assert len(bound(embedded)) == (50 if room else 0)
        return sizes


@pytest.mark.parametrize("room", [True, False])
def test_members_are_taken_up_and_given_back_in_small_pieces(room, monkeypatch):
    """However many there are."""
    pause_always(monkeypatch)
    assert max(run(pieces_of_a_job(room, monkeypatch))) <= 16


@pytest.mark.parametrize("room", [True, False])
def test_a_job_that_takes_no_time_keeps_the_loop(room, monkeypatch):
    assert len(run(pieces_of_a_job(room, monkeypatch))) == 1


def test_other_permit_plugins_are_waited_for_by_each_member():
    async def work():
        async with playing(node("n1", cpu="8"), plugins=(Together, Waits)) as (embedded, running):
            for name in ("a", "b", "c"):
                embedded.insert(member(name, need=3))
            await asyncio.sleep(2)
            assert bound(embedded) == []
            waiting = list(running.scheduler.waiting)
            assert [each.pending_plugins for each in waiting] == [("Waits",)] * 3
            for each in waiting:
                each.allow("Waits")
            await asyncio.sleep(2)
            assert bound(embedded) == ["a", "b", "c"]

    run(work())


def test_a_job_that_is_cancelled_leaves_no_trace(monkeypatch):
    """The scheduler stops in the middle of it, as at a hand-over."""
    pause_always(monkeypatch)

    async def work():
        embedded = Embedded()
        embedded.insert(node("n1", cpu="8"))

        class Under(Together):
            raises = set()

        async with scheduler_on(embedded, plugins=(Under,)) as running:
            scheduler, plugin = running.scheduler, plugin_of(running)
            before = believed(scheduler)
            for number in range(6):
                embedded.insert(member(f"m{number}", need=6))
            for _ in range(200):
                await asyncio.sleep(0)
                if len(scheduler.cluster.assumed) == 3:
                    break
            assert scheduler.cluster.in_transaction
            embedded.insert(node("n2", cpu="1"))
            running.work.cancel()
            await asyncio.gather(running.work, return_exceptions=True)
            assert not scheduler.cluster.in_transaction
            assert not scheduler.cluster.assumed
            assert plugin.held == {}
            assert plugin.faults == []
            assert plugin.job is None
            assert believed(scheduler)["assigned"] == before["assigned"]
            await asyncio.sleep(1)
            assert "n2" in scheduler.cluster.table.row_of, "changes are taken in again"

        async with scheduler_on(embedded, plugins=(Under,)):
            await asyncio.sleep(5)
            assert len(bound(embedded)) == 6, "the next one places them"

    run(work())

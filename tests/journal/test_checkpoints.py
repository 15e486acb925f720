"""A replay from a checkpoint on knows what the recorded scheduler knew, and hears what it heard."""

import asyncio
from functools import partial

import msgspec
import pytest

from koordsched.framework.agenda import Due
from koordsched.framework.interface import Permit, PreFilter, Reserve
from koordsched.framework.pluginstates import PluginStates
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.journal.reading import Stream
from koordsched.journal.records import Answer, BadRecord, Checkpoint, Drawn, Read
from koordsched.journal.repeating import Repeater
from koordsched.scheduling.recording import QUEUE, TIME, WALL
from tests.depth import quick_first
from tests.embedded import Embedded
from tests.extraplugins import catalog_with, registry_with
from tests.journal.recording import Recorded, repeat
from tests.journal.test_simulation import journals_of, repetitions
from tests.plugins.objects import container, node, pod
from tests.plugins.volumes import objects as volumes
from tests.virtualtime import VirtualClock, run


class MoodyState(msgspec.Struct, frozen=True):
    attempts: int
    mood: int
    leaving: dict[str, Due]
    next: Due | None


class Moody(Permit, PreFilter):
    """Refuses by how often it was asked, by how many pods wait, and by a mood that it is in since a clock was read.

    It lets pods that wait on Permit go by timers.
    """

    name = "Moody"
    state_type = MoodyState

    def __init__(self, args, handle):
        self._handle = handle
        self._attempts, self._mood, self._leaving = 0, 0, {}
        self._timer = handle.timers.at(0.0, self._look)
        self.keep(handle)

    def keep(self, handle):
        handle.states.keep(self.name, self)

    def pre_filter(self, cycle, pod):
        self._attempts += 1
        if self._attempts % 3 == 0 or len(self._handle.waiting) > 2 or self._mood == 3:
            return Status(Code.UNSCHEDULABLE, ("not now",))
        return SUCCESS

    def permit(self, cycle, pod, row):
        self._leaving[pod.uid] = self._handle.timers.at(
            self._handle.clock.monotonic() + 2.5, partial(self._go, pod.uid)
        )
        return Status(Code.WAIT), 60.0

    def events_to_register(self):
        return []

    def _go(self, uid):
        del self._leaving[uid]
        self._mood = int(self._handle.clock.wall() + self._handle.clock.monotonic()) % 5
        waiting = self._handle.waiting.get(uid)
        if waiting is not None:
            waiting.allow(self.name)

    def _look(self):
        now = self._handle.clock.monotonic()
        self._mood = int(now + self._handle.clock.wall()) % 5
        self._timer = self._handle.timers.at(now + 3.0, self._look)
        # What it refused is tried again, and again.
        self._handle.activate([pod for pod in self._handle.cluster.assigned.values() if not pod.node])

    def recorded_state(self):
        leaving = {uid: timer.due for uid, timer in self._leaving.items()}
        return MoodyState(self._attempts, self._mood, leaving, self._timer.due)

    def restore_state(self, state):
        again = self._handle.timers.restore
        self._timer.cancel()
        self._attempts, self._mood = state.attempts, state.mood
        self._leaving = {uid: again(due, partial(self._go, uid)) for uid, due in state.leaving.items()}
        self._timer = again(state.next, self._look)


class Forgetful(Moody):
    """Does not say what it knows."""

    def keep(self, handle):
        pass


async def moody_life(plugin):
    embedded = Embedded()
    for i in range(4):
        embedded.insert(node(f"n{i}", cpu="8"))
    recorded = Recorded(embedded, plugins=[plugin], seconds_per_segment=4)
    async with recorded.running():
        for i in range(24):
            embedded.insert(pod(f"p{i}", container(cpu="1")))
            await asyncio.sleep(1.7)
    return recorded.journal


def divergences(journal, plugin):
    registry, catalog = registry_with([plugin]), catalog_with([plugin])
    assert len(journal.segments) > 5
    found = []
    for segment in range(len(journal.segments)):
        repetition, _ = repeat(journal.records(segment), None, registry, catalog)
        found.append(repetition.divergence)
    return found


def test_plugins_go_on_where_they_were():
    assert not any(divergences(run(moody_life(Moody)), Moody))


def test_without_that_they_decide_otherwise():
    first, *others = divergences(run(moody_life(Forgetful)), Forgetful)
    assert first is None, "from the beginning nothing is missing"
    assert any(others)


def test_a_state_of_another_version_is_refused_in_words():
    journal = run(moody_life(Moody))
    records = journal.records(2)
    at = next(index for index, record in enumerate(records) if isinstance(record, Checkpoint))
    broken = msgspec.structs.replace(records[at], states={"Moody": msgspec.Raw(msgspec.msgpack.encode([1]))})
    with pytest.raises(BadRecord, match="a state of Moody that cannot be understood"):
        repeat([*records[:at], broken, *records[at + 1 :]], None, registry_with([Moody]), catalog_with([Moody]))


# --- what Reserve plugins hold ------------------------------------------------------------------------


class Closing(Reserve):
    """Refuses nodes that are closed, also one that was closed after a pod had been placed there."""

    name = "Closing"

    def __init__(self, args, handle):
        self._table = handle.cluster.table

    def reserve(self, cycle, pod, row):
        closed = self._table.nodes[row].metadata.labels.get("closed")
        return Status(Code.UNSCHEDULABLE, ("closed",)) if closed else SUCCESS

    def unreserve(self, cycle, pod, row):
        pass


class Holding(Reserve):
    """Holds something for each pod on its way."""

    name = "Holding"

    def __init__(self, args, handle):
        self.held = set()

    def reserve(self, cycle, pod, row):
        self.held.add(pod.name)
        return SUCCESS

    def unreserve(self, cycle, pod, row):
        self.held.discard(pod.name)


class HoldsBindings:
    """Bindings get no answer."""

    async def __call__(self, call, proceed):
        if call.path.endswith("/binding"):
            await asyncio.sleep(1000)
        return await proceed()


def test_a_plugin_that_would_refuse_now_keeps_none_from_what_it_holds():
    plugins = [Closing, Holding]

    async def main():
        embedded = Embedded()
        embedded.insert(node("n0"))
        recorded = Recorded(embedded, plugins=plugins, seconds_per_segment=4, fault=HoldsBindings())
        async with recorded.running():
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(3)
            shown = embedded.get("Node", "n0", "")
            shown["metadata"]["labels"] = {**shown["metadata"].get("labels", {}), "closed": "yes"}
            embedded.registry.update(embedded.resource("Node"), shown)
            await asyncio.sleep(4)
            # The journal up to here, while the binding is under way.
            return recorded.journal.records(len(recorded.journal.segments) - 1)

    _, replay = repeat(run(main()), None, registry_with(plugins), catalog_with(plugins))
    scheduler = replay.replayed.scheduler
    assert [pod.name for pod in scheduler.cluster.assumed.values()] == ["p"]
    assert scheduler.profiles["default-scheduler"].plugins["Holding"].held == {"p"}


def test_what_is_held_for_a_pod_that_is_gone_is_held_until_its_binding_has_failed():
    plugins = [Holding]

    async def main():
        embedded = Embedded()
        embedded.insert(node("n0"))
        recorded = Recorded(embedded, plugins=plugins, seconds_per_segment=4, fault=HoldsBindings())
        async with recorded.running():
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(3)
            embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)
            await asyncio.sleep(1)
            embedded.registry.delete(embedded.resource("Node"), "", "n0")
            embedded.insert(node("n1"))
            await asyncio.sleep(4)
            embedded.insert(node("n2"))
            await asyncio.sleep(1)
            # The journal up to here, while the binding is under way.
            journal = recorded.journal
            assert len(journal.segments) > 2
            return journal.records(), journal.records(len(journal.segments) - 1)

    for records in run(main()):
        repetition, replay = repeat(records, None, registry_with(plugins), catalog_with(plugins))
        assert repetition.divergence is None
        scheduler = replay.replayed.scheduler
        assert scheduler.profiles["default-scheduler"].plugins["Holding"].held == {"p"}
        assert not scheduler.cluster.assigned
        assert not scheduler.pending_pods()
        assert list(scheduler.cluster.table.row_of) == ["n1", "n2"]


class HoldsEvictions:
    """Deletions get no answer."""

    async def __call__(self, call, proceed):
        if call.method == "DELETE":
            await asyncio.sleep(1000)
        return await proceed()


def test_preemptors_whose_victims_are_being_evicted_still_wait_for_that():
    async def main():
        embedded = Embedded()
        embedded.insert(node("n0", cpu="2"))
        for name in ("v0", "v1"):
            embedded.insert(pod(name, container(cpu="1"), on="n0"))
        recorded = Recorded(embedded, seconds_per_segment=4, fault=HoldsEvictions())
        async with recorded.running() as scheduler:
            embedded.insert(pod("p", container(cpu="2"), priority=100))
            await asyncio.sleep(3)
            assert scheduler.evictions.running == ("uid-default-p",)
            embedded.insert(node("n1"))
            await asyncio.sleep(4)
            # The journal up to here, while the evictions are under way.
            return recorded.journal.records(len(recorded.journal.segments) - 1)

    _, replay = repeat(run(main()))
    assert replay.replayed.scheduler.evictions.running == ("uid-default-p",)


class HoldsClaims:
    """Patches of claims get no answer."""

    async def __call__(self, call, proceed):
        if call.method == "PATCH" and "/persistentvolumeclaims/" in call.path:
            await asyncio.sleep(1000)
        return await proceed()


def test_what_is_assumed_of_claims_stays_assumed():
    """Also where it would not be assumed again, as there is a volume for the claim by now."""

    async def main():
        embedded = Embedded()
        for thing in (
            node("n0", cpu="1", labels={"zone": "a"}),
            node("n1", labels={"zone": "a"}),
            volumes.storage_class(),
            volumes.claim("data"),
        ):
            embedded.insert(thing)
        recorded = Recorded(embedded, seconds_per_segment=4, fault=HoldsClaims())
        async with recorded.running():
            embedded.insert(
                volumes.pod("p", "data", nodeSelector={"kubernetes.io/hostname": "n0"}, containers=[container(cpu="1")])
            )
            await asyncio.sleep(1)
            embedded.insert(volumes.volume("v", at={"zone": ["a"]}, claim="data"))
            await asyncio.sleep(5)
            first = len(recorded.journal.segments) - 1
            embedded.insert(volumes.pod("q", "data", containers=[container(cpu="1")]))
            await asyncio.sleep(1)
            assert [pod.name for pod in recorded.scheduler.cluster.assumed.values()] == ["p"]
            return recorded.journal.records(first)

    repetition, replay = repeat(run(main()))
    assert repetition.divergence is None
    assert [pod.name for pod in replay.replayed.scheduler.cluster.assumed.values()] == ["p"]


# --- what is asked ------------------------------------------------------------------------------------


async def test_what_the_queue_asked_answers_nothing_else():
    """From a checkpoint on it asks other questions than it did: one more, or fewer."""
    records = [
        Answer(1.0, QUEUE),
        Answer(2.0, QUEUE),
        Answer(3.0, TIME),
        Drawn(0.5),
        Answer(1e9, WALL),
        Answer(4.0, TIME),
    ]
    for lenient_reads in range(4):
        repeater = Repeater(Stream(records), lambda: False)
        repeater.lenient = True
        clock = VirtualClock(asyncio.get_running_loop())
        queue, plugins = repeater.clock(clock, of_queue=True), repeater.clock(clock)
        for _ in range(lenient_reads):
            queue.monotonic()
        assert plugins.monotonic() == 3.0
        assert repeater.chance(None).random() == 0.5
        assert queue.monotonic() == repeater.latest, "what is another's is left to it"
        assert (plugins.wall(), plugins.monotonic()) == (1e9, 4.0)


def test_what_the_queue_asks_is_noted_as_such():
    async def main():
        recorded = Recorded(Embedded())
        async with recorded.running():
            await asyncio.sleep(2)
            return recorded.journal.records()

    answers = [record.about for record in run(main()) if isinstance(record, Answer)]
    assert QUEUE in answers


def test_a_read_from_outside_is_noted_once_per_change():
    noted, updates, version = [], [], [1]
    states = PluginStates(noted.append)
    states.updated_by("Books", lambda: version[0], lambda: updates.append(version[0]))
    states.read_from_outside()
    states.read_from_outside()
    version[0] = 2
    states.read_from_outside()
    assert (noted, updates) == (["Books", "Books"], [1, 2])
    states.repeat("Books")
    states.repeat("of another configuration")
    assert (noted, updates) == (["Books", "Books"], [1, 2, 2])


def test_names_of_states_are_taken_once():
    states, keeper = PluginStates(), object()
    states.keep("Books", keeper)
    states.keep("Books", keeper)
    with pytest.raises(ValueError, match="two keepers of state are called Books"):
        states.keep("Books", object())


WORLDS = {
    "quotas that controllers read between two steps": 82,
    "breakers, quarantines, probes": 60,
    "what the queue asks is not what it asked": 147,
    "pods that were given nothing": 131,
    "more of each": 117,
}


@pytest.mark.slow
@pytest.mark.parametrize("world", quick_first(WORLDS, 1))
def test_worlds_that_came_out_otherwise(world, monkeypatch):
    """Each found something that checkpoints did not keep, or that journals did not know."""
    seed, reads = WORLDS[world], 0
    for journal in journals_of(seed, monkeypatch)[1]:
        reads += sum(isinstance(record, Read) for record in journal.records())
        assert all(repetition.divergence is None for repetition in repetitions(journal, seed))
    assert reads > 0 or seed != 82

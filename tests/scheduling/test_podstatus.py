"""What is written to a pod's status, how often, and what is kept of it (core spec 2.6, 5.1)."""

import asyncio

import orjson
import pytest

from koordsched.scheduling.podstatus import WAITING, PatchFailed, PatchRejected, PodStatusWriter
from tests.plugins.harness import Bench
from tests.plugins.objects import pod
from tests.virtualtime import run


class Server:
    """Takes 0.1 s for a patch, and answers the first with these errors, one after the other."""

    def __init__(self, *errors):
        self._errors = list(errors)
        self.patches = []

    async def __call__(self, namespace, name, body):
        self.patches.append((name, orjson.loads(body)["status"]))
        await asyncio.sleep(0.1)
        if self._errors and (error := self._errors.pop(0)) is not None:
            raise error

    def messages(self):
        return [status["conditions"][0]["message"] for _, status in self.patches if status.get("conditions")]

    def names(self):
        return [name for name, _ in self.patches]


P = Bench().pod(pod("p")).uid


def writer_to(server, pending=(P,)):
    return PodStatusWriter(server, lambda: 1_900_000_000.0, pending)


def test_while_one_is_written_newer_wishes_replace_older_ones():
    async def main():
        server, waiting = Server(), Bench().pod(pod("p"))
        writer = writer_to(server)
        for i in range(5):
            writer.condition(waiting, "Unschedulable", f"message {i}", None)
            await asyncio.sleep(0.01)
        assert writer.unwritten == 1
        await writer.drain()
        assert server.messages() == ["message 0", "message 4"]

    run(main())


def test_what_the_pod_shows_is_not_written_again():
    async def main():
        shown = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        thing = pod("p")
        thing["status"] = {"conditions": [shown], "nominatedNodeName": "alder"}
        server = Server()
        writer = writer_to(server)
        waiting = Bench().pod(thing)
        writer.condition(waiting, "Unschedulable", "no room", None)
        writer.condition(waiting, "Unschedulable", "no room", "alder")
        writer.nominate(waiting, "alder")
        await writer.drain()
        assert server.patches == []
        writer.condition(waiting, "Unschedulable", "still no room", "")
        await writer.drain()
        # Written, but the watch has not brought it back yet.
        writer.condition(waiting, "Unschedulable", "still no room", "")
        writer.nominate(waiting, "")
        await writer.drain()
        assert len(server.patches) == 1
        assert server.patches[0][1]["nominatedNodeName"] is None

    run(main())


@pytest.mark.parametrize(
    "errors, sent",
    [
        ([None], 1),
        ([PatchFailed("503")] * 2, 3),
        ([PatchFailed("503")] * 5, 5),  # the fifth is the last
        ([PatchRejected("404")], 1),
    ],
)
def test_failures_are_tried_again_refusals_are_not(errors, sent):
    async def main():
        server = Server(*errors)
        writer = writer_to(server)
        writer.condition(Bench().pod(pod("p")), "Unschedulable", "no room", None)
        now = asyncio.get_running_loop().time
        began = now()
        await writer.drain()
        assert len(server.patches) == sent
        answered = 0.1 * sent
        pauses = sum((0.01, 0.05, 0.25, 1.25)[: sent - 1])
        assert now() - began == pytest.approx(answered + pauses, abs=0.02)
        assert writer.unwritten == 0

    run(main())


@pytest.mark.parametrize(
    "errors", [[], [PatchFailed("503")], [PatchRejected("404")]], ids=["written", "failed", "gone"]
)
@pytest.mark.parametrize("wishes", [1, 2])
def test_nothing_is_kept_of_a_pod_that_vanishes_while_its_status_is_written(wishes, errors):
    async def main():
        server, waiting = Server(*errors), Bench().pod(pod("p"))
        writer = writer_to(server)
        for i in range(wishes):
            writer.condition(waiting, "Unschedulable", f"message {i}", None)
            await asyncio.sleep(0.01)
        writer.forget(waiting.uid)
        await writer.drain()
        assert server.messages() == ["message 0"]
        assert writer.unwritten == writer.remembered == 0

    run(main())


def test_what_was_written_and_may_be_lost_is_written_again():
    async def main():
        server, waiting = Server(), Bench().pod(pod("p"))
        writer = writer_to(server)
        writer.condition(waiting, "Unschedulable", "no room", None)
        await writer.drain()
        writer.lose(waiting.uid)
        assert writer.remembered == 0
        writer.condition(waiting, "Unschedulable", "no room", None)
        await writer.drain()
        assert server.messages() == ["no room", "no room"]

    run(main())


def test_a_pod_that_comes_back_under_way_is_written_after_all():
    """Its binding had begun and failed: the wish of before is moot, the new one is not."""

    async def main():
        server, waiting = Server(), Bench().pod(pod("p"))
        writer = writer_to(server)
        writer.condition(waiting, "Unschedulable", "before", None)
        await asyncio.sleep(0.01)
        writer.forget(waiting.uid)
        writer.condition(waiting, "SchedulerError", "after", None)
        await writer.drain()
        assert server.messages() == ["before", "after"]
        assert writer.remembered == 1

    run(main())


@pytest.mark.parametrize(
    "pause, version, errors",
    [(0.01, "", []), (0.2, "another", []), (60, "", [PatchFailed("no answer")] * 5)],
    ids=["while the write is under way", "before the watch has told of the write", "when nobody knows of the write"],
)
def test_back_to_what_the_pod_shows(pause, version, errors):
    """What was wished meanwhile and taken back must not be what remains."""

    async def main():
        thing = pod("p")
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        thing["status"] = {"conditions": [condition]}
        bench, server = Bench(), Server(*errors)
        writer, waiting = writer_to(server), bench.pod(thing)
        writer.condition(waiting, "Unschedulable", "victims go", "alder")
        await asyncio.sleep(pause)
        if version:
            # Something else of the pod changed before the write arrived: the watch tells of that first.
            thing["metadata"]["resourceVersion"] = version
            waiting = bench.pod(thing)
        writer.condition(waiting, "Unschedulable", "no room", "")
        await writer.drain()
        tries = max(1, len(errors))
        assert server.messages() == ["victims go"] * tries + ["no room"]
        assert [status["nominatedNodeName"] for _, status in server.patches] == ["alder"] * tries + [None]

    run(main())


def test_a_promise_taken_back_while_it_is_written():
    async def main():
        server, waiting = Server(), Bench().pod(pod("p"))
        writer = writer_to(server)
        writer.nominate(waiting, "alder")
        await asyncio.sleep(0.01)
        writer.nominate(waiting, "alder")  # on its way already
        writer.nominate(waiting, "")
        await writer.drain()
        assert [status["nominatedNodeName"] for _, status in server.patches] == ["alder", None]

    run(main())


@pytest.mark.parametrize("errors", [[], [PatchFailed("no answer")] * 5], ids=["written", "in doubt"])
def test_nothing_is_kept_of_a_pod_that_somebody_else_gave_a_node(errors):
    """It waited on Permit and had said so: that this is over is its last word."""

    async def main():
        server, bound = Server(*errors), Bench().pod(pod("p"))
        writer = writer_to(server, pending=())
        writer.forget(bound.uid)
        writer.waiting(bound, "", "")
        await writer.drain()
        assert [status["conditions"][0]["status"] for _, status in server.patches] == ["False"] * max(1, len(errors))
        assert writer.unwritten == writer.remembered == 0

    run(main())


@pytest.mark.parametrize("errors", [[], [PatchFailed("no answer")]], ids=["written", "in doubt"])
def test_before_a_binding_what_is_under_way_arrives_and_nothing_else_is_written(errors):
    async def main():
        server, waiting = Server(*errors), Bench().pod(pod("p"))
        writer, began = writer_to(server), asyncio.get_running_loop().time()
        writer.condition(waiting, "Unschedulable", "before", None)
        await asyncio.sleep(0.01)
        writer.condition(waiting, "Unschedulable", "after", "alder")
        await writer.withdraw(waiting.uid)
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.1)
        assert writer.unwritten == 0
        await asyncio.sleep(10)
        assert server.messages() == ["before"]
        # The binding failed.
        writer.condition(waiting, "Unschedulable", "before", None)
        await writer.drain()
        assert server.messages() == ["before", "before"]
        assert server.patches[-1][1]["nominatedNodeName"] == "alder"

    run(main())


def test_before_a_binding_that_a_wait_is_over_is_still_written():
    async def main():
        server, waiting = Server(), Bench().pod(pod("p"))
        writer = writer_to(server)
        writer.waiting(waiting, "GangNotComplete", "waits")
        await asyncio.sleep(0.01)
        writer.condition(waiting, "Unschedulable", "no room", "alder")
        writer.waiting(waiting, "", "")
        await writer.withdraw(waiting.uid)
        await writer.drain()
        said = [[(each["type"], each["status"]) for each in status["conditions"]] for _, status in server.patches]
        assert said == [[(WAITING, "True")], [(WAITING, "False")]]

    run(main())


def test_a_wait_that_is_over_sets_nothing_aside():
    """Else the next refusal, which the pod shows already, would be written once more."""

    async def main():
        server, waiting = Server(), Bench().pod({**pod("p"), "status": refused("no room")})
        writer = writer_to(server)
        writer.waiting(waiting, "GangNotComplete", "waits")
        await asyncio.sleep(0.01)
        writer.waiting(waiting, "", "")
        await writer.withdraw(waiting.uid)
        await writer.drain()
        writer.condition(waiting, "Unschedulable", "no room", None)
        await writer.drain()
        assert [each["type"] for _, status in server.patches for each in status["conditions"]] == [WAITING] * 2

    run(main())


def test_before_a_binding_that_a_wait_is_over_is_tried_again():
    async def main():
        server, waiting = Server(PatchFailed("no")), Bench().pod(pod("p"))
        writer = writer_to(server)
        writer.waiting(waiting, "", "")
        await asyncio.sleep(0.01)
        await writer.withdraw(waiting.uid)
        await writer.drain()
        assert [each["type"] for _, status in server.patches for each in status["conditions"]] == [WAITING] * 2

    run(main())


def refused(message):
    """What a pod shows that was refused for this."""
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}


def crowd(writer, server, count):
    """So many pods, all refused at once."""
    bench = Bench()
    pods = [bench.pod(pod(f"p{i}")) for i in range(count)]
    for each in pods:
        writer.condition(each, "Unschedulable", "no room", None)
    return pods


def test_of_many_states_32_are_written_at_once_the_oldest_first():
    async def main():
        server = Server()
        writer = writer_to(server)
        crowd(writer, server, 34)
        await asyncio.sleep(0.05)
        assert server.names() == [f"p{i}" for i in range(32)]
        await writer.drain()
        assert server.names()[32:] == ["p32", "p33"]

    run(main())


@pytest.mark.parametrize("bound", [False, True], ids=["gone", "about to be bound"])
def test_a_state_that_waits_for_its_turn_is_not_written_any_more(bound):
    async def main():
        server = Server()
        writer = writer_to(server)
        waiting = crowd(writer, server, 34)[32]
        if bound:
            await writer.withdraw(waiting.uid)
        else:
            writer.forget(waiting.uid)
        await writer.drain()
        assert server.names()[32:] == ["p33"]
        assert writer.remembered == (1 if bound else 0)

    run(main())


def test_the_newest_version_of_the_pod_is_what_a_state_is_about():
    async def main():
        server, bench = Server(), Bench()
        writer = writer_to(server)
        for generation in (1, 2, 3):
            thing = pod("p")
            thing["metadata"]["generation"] = generation
            writer.condition(bench.pod(thing), "Unschedulable", f"message {generation}", None)
            await asyncio.sleep(0.01)
        await writer.drain()
        assert [status["conditions"][0]["observedGeneration"] for _, status in server.patches] == [1, 3]

    run(main())


@pytest.mark.parametrize("bound", [False, True], ids=["forgotten", "withdrawn"])
def test_what_comes_after_a_write_that_was_cut_short_is_tried_again(bound):
    async def main():
        server, waiting = Server(None, PatchFailed("503")), Bench().pod(pod("p"))
        writer = writer_to(server)
        writer.condition(waiting, "Unschedulable", "before", None)
        await asyncio.sleep(0.01)
        if bound:
            await writer.withdraw(waiting.uid)
        else:
            writer.forget(waiting.uid)
        writer.condition(waiting, "Unschedulable", "after", None)
        await writer.drain()
        assert server.messages() == ["before", "after", "after"]

    run(main())


def test_of_a_pod_that_is_gone_newer_states_are_not_written():
    async def main():
        server, waiting = Server(PatchRejected("404")), Bench().pod(pod("p"))
        writer = writer_to(server)
        for message in ("before", "after"):
            writer.condition(waiting, "Unschedulable", message, None)
            await asyncio.sleep(0.01)
        await writer.drain()
        assert server.messages() == ["before"]
        assert writer.remembered == 0

    run(main())


def test_back_to_what_is_just_being_written():
    async def main():
        server, waiting = Server(), Bench().pod(pod("p"))
        writer = writer_to(server)
        for message in ("no room", "victims go", "no room"):
            writer.condition(waiting, "Unschedulable", message, None)
            await asyncio.sleep(0.01)
        await writer.drain()
        assert server.messages() == ["no room"]

    run(main())


def test_a_refusal_leaves_the_nomination_that_the_pod_shows():
    async def main():
        server, waiting = Server(), Bench().pod({**pod("p"), "status": {"nominatedNodeName": "alder"}})
        writer = writer_to(server)
        writer.condition(waiting, "Unschedulable", "no room", None)
        await writer.drain()
        writer.nominate(waiting, "alder")
        await writer.drain()
        assert len(server.patches) == 1

    run(main())


@pytest.mark.parametrize("shown", ["", "no room"], ids=["for the first time", "again"])
def test_the_transition_has_a_time(shown):
    async def main():
        server = Server()
        writer = writer_to(server)
        thing = {**pod("p"), "status": refused(shown)} if shown else pod("p")
        writer.condition(Bench().pod(thing), "Unschedulable", "no volume", None)
        await writer.drain()
        ((_, status),) = server.patches
        assert ("lastTransitionTime" in status["conditions"][0]) is not bool(shown)

    run(main())


@pytest.mark.parametrize(
    ("later", "message"), [((None, "alder"), "before"), (("after", None), "after")], ids=["nomination", "refusal"]
)
def test_what_could_not_be_written_before_a_binding_that_fails_is_written_after_it(later, message):
    async def main():
        server, waiting = Server(PatchFailed("no answer")), Bench().pod(pod("p"))
        writer = writer_to(server)
        writer.condition(waiting, "Unschedulable", "before", None)
        await asyncio.sleep(0.01)
        refusal, node = later
        if refusal is not None:
            writer.condition(waiting, "Unschedulable", refusal, None)
        else:
            writer.nominate(waiting, node)
        await writer.withdraw(waiting.uid)
        assert server.messages() == ["before"]
        writer.nominate(waiting, "birch")
        await writer.drain()
        assert server.messages() == ["before", message]
        assert server.patches[-1][1]["nominatedNodeName"] == "birch"

    run(main())

"""A patch on condition of a version, when it is not known whether an earlier try was carried out."""

import asyncio

import orjson
import pytest

from koordsched.api.core import Node
from koordsched.api.decoding import convert
from koordsched.client.errors import Ambiguous, Conflict
from koordsched.client.transport import Response
from koordsched.cluster.builtinkinds import NODES
from koordsched.framework.handle import WriteConflict, WriteFailed
from koordsched.scheduling.versionedpatch import patch_version
from tests.virtualtime import run

BEFORE = {"metadata": {"name": "alder", "uid": "u", "resourceVersion": "1"}, "spec": {"podCIDR": "10.0.0.0/24"}}
TAINTED = {"spec": {"taints": ({"key": "k", "effect": "NoSchedule"},)}}
"""As plugins say it: with a tuple."""

LOST, CONFLICT = Ambiguous("connection reset"), Conflict(409, "Conflict", "has been modified")


class Server:
    """Gives these outcomes to writes, one after the other, and these answers to reads; notes when it was asked."""

    def __init__(self, *outcomes, stored=(BEFORE,)):
        self._outcomes, self._stored = list(outcomes), list(stored)
        self.times = []

    async def submit(self, lane, request):
        self.times.append(asyncio.get_running_loop().time())
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return Response(200, {}, orjson.dumps(outcome))

    async def request(self, method, target):
        self.times.append(asyncio.get_running_loop().time())
        stored = self._stored.pop(0)
        if isinstance(stored, Exception):
            raise stored
        return Response(200, {}, orjson.dumps(stored)) if stored is not None else Response(404, {}, b"{}")


def patched(server, changes=TAINTED):
    return run(patch_version(server, server, NODES, convert(BEFORE, Node), changes))


def state(**parts):
    return {**BEFORE, "metadata": {**BEFORE["metadata"], "resourceVersion": "2"}, **parts}


def tainted(**more):
    return state(spec={**BEFORE["spec"], "taints": [{"key": "k", "effect": "NoSchedule"}]}, **more)


@pytest.mark.parametrize("outcomes", [(tainted(),), (LOST, tainted())], ids=["at once", "the second time"])
def test_it_is_tried_until_there_is_an_answer(outcomes):
    assert patched(Server(*outcomes)).metadata.resource_version == "2"


def test_an_earlier_try_that_was_carried_out_is_ours():
    """Another client has changed something else since."""
    stored = tainted(status={"phase": "Running"})
    assert patched(Server(LOST, CONFLICT, stored=[stored])).spec.taints[0].key == "k"


@pytest.mark.parametrize(
    "stored",
    [state(), state(spec=None), state(spec={"taints": []}), state(spec={"taints": [{"key": "k"}]}), None],
    ids=["unchanged", "without a spec", "without taints", "another taint", "gone"],
)
def test_what_another_client_made_of_it_is_not_ours(stored):
    with pytest.raises(WriteConflict):
        patched(Server(LOST, CONFLICT, stored=[stored]))


def test_a_conflict_without_an_earlier_try_is_another_clients_write():
    """Even if it made the same of the object: two could have the same device."""
    with pytest.raises(WriteConflict):
        patched(Server(CONFLICT, stored=[tainted()]))


def test_it_pauses_between_tries():
    server = Server(LOST, LOST, CONFLICT, stored=[LOST, LOST, tainted()])
    patched(server)
    pauses = [round(later - earlier, 3) for earlier, later in zip(server.times, server.times[1:], strict=False)]
    assert pauses == [0.1, 0.2, 0.0, 0.4, 0.8]


def test_what_cannot_be_written_fails_before_it_is_sent():
    """Parameters of claims may be nested more deeply than that."""
    nested = {}
    for _ in range(300):
        nested = {"a": nested}
    server = Server()
    with pytest.raises(WriteFailed, match="Node /alder cannot be written: Recursion limit reached"):
        patched(server, {"spec": {"podCIDR": nested}})
    assert server.times == []

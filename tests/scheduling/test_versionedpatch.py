"""A patch on condition of a version, when it is not known whether an earlier try was carried out."""

import pytest

from koordsched.api.core import Node
from koordsched.api.decoding import convert
from koordsched.client.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Fenced,
    Forbidden,
    LanesClosed,
    NotSent,
    TooManyRequests,
)
from koordsched.cluster.builtinkinds import NODES
from koordsched.framework.handle import WriteConflict, WriteFailed
from koordsched.scheduling.versionedpatch import patch_version
from tests.scheduling.scriptedserver import ScriptedServer
from tests.virtualtime import run

BEFORE = {"metadata": {"name": "alder", "uid": "u", "resourceVersion": "1"}, "spec": {"podCIDR": "10.0.0.0/24"}}
TAINTED = {"spec": {"taints": ({"key": "k", "effect": "NoSchedule"},)}}
"""As plugins say it: with a tuple."""

LOST, CONFLICT = Ambiguous("connection reset"), Conflict(409, "Conflict", "has been modified")
REFUSED = {
    "the lease ran out meanwhile": Fenced("withheld: not the leader"),
    "no connection": NotSent("connection refused"),
    "throttled": TooManyRequests(429, "TooManyRequests", "try again"),
    "no rights": Forbidden(403, "Forbidden", "no"),
    "the server fails": ApiError(500, "InternalError", "etcd"),
}


def patched(server, changes=TAINTED):
    return run(patch_version(server, server, NODES, convert(BEFORE, Node), changes))


def state(**parts):
    return {**BEFORE, "metadata": {**BEFORE["metadata"], "resourceVersion": "2"}, **parts}


def tainted(**more):
    return state(spec={**BEFORE["spec"], "taints": [{"key": "k", "effect": "NoSchedule"}]}, **more)


@pytest.mark.parametrize("outcomes", [(tainted(),), (LOST, tainted())], ids=["at once", "the second time"])
def test_it_is_tried_until_there_is_an_answer(outcomes):
    assert patched(ScriptedServer(*outcomes)).metadata.resource_version == "2"


def test_an_earlier_try_that_was_carried_out_is_ours():
    """Another client has changed something else since."""
    stored = tainted(status={"phase": "Running"})
    assert patched(ScriptedServer(LOST, CONFLICT, stored=[stored])).spec.taints[0].key == "k"


@pytest.mark.parametrize(
    "stored",
    [state(), state(spec=None), state(spec={"taints": []}), state(spec={"taints": [{"key": "k"}]}), None],
    ids=["unchanged", "without a spec", "without taints", "another taint", "gone"],
)
def test_what_another_client_made_of_it_is_not_ours(stored):
    with pytest.raises(WriteConflict):
        patched(ScriptedServer(LOST, CONFLICT, stored=[stored]))


def test_a_conflict_without_an_earlier_try_is_another_clients_write():
    """Even if it made the same of the object: two could have the same device."""
    with pytest.raises(WriteConflict):
        patched(ScriptedServer(CONFLICT, stored=[tainted()]))


@pytest.mark.parametrize("refusal", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("carried_out", [True, False])
def test_what_refuses_a_try_says_nothing_about_the_one_before(refusal, carried_out):
    server = ScriptedServer(LOST, refusal, stored=[LOST, tainted() if carried_out else BEFORE])
    if carried_out:
        assert patched(server).metadata.resource_version == "2"
    else:
        with pytest.raises(WriteFailed):
            patched(server)


@pytest.mark.parametrize("refusal", [each for each in REFUSED.values() if getattr(each, "status", 0) < 500])
def test_what_was_never_in_doubt_is_not_read_back(refusal):
    with pytest.raises(WriteFailed):
        patched(ScriptedServer(refusal, stored=[]))


def test_a_failing_server_may_have_carried_it_out():
    assert patched(ScriptedServer(REFUSED["the server fails"], stored=[tainted()])).metadata.resource_version == "2"


def test_a_replica_at_its_end_asks_no_more():
    with pytest.raises(WriteFailed):
        patched(ScriptedServer(LOST, LanesClosed("closed"), stored=[]))


def test_an_answer_that_cannot_be_read_is_a_failure():
    with pytest.raises(WriteFailed):
        patched(ScriptedServer({"metadata": []}))
    with pytest.raises(WriteFailed):
        patched(ScriptedServer(LOST, CONFLICT, stored=[tainted(metadata={"labels": 1})]))


def test_it_pauses_between_tries():
    server = ScriptedServer(LOST, LOST, CONFLICT, stored=[LOST, LOST, tainted()])
    patched(server)
    pauses = [round(later - earlier, 3) for earlier, later in zip(server.times, server.times[1:], strict=False)]
    assert pauses == [0.1, 0.2, 0.0, 0.4, 0.8]


def test_what_cannot_be_written_fails_before_it_is_sent():
    """Parameters of claims may be nested more deeply than that."""
    nested = {}
    for _ in range(300):
        nested = {"a": nested}
    server = ScriptedServer()
    with pytest.raises(WriteFailed, match="Node /alder cannot be written: Recursion limit reached"):
        patched(server, {"spec": {"podCIDR": nested}})
    assert server.times == []

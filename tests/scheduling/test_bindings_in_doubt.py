"""Bindings when it is not known whether an earlier try was carried out: WriteFailed means that the pod has no node."""

from random import Random

import pytest

from koordsched.client.errors import Ambiguous, ApiError, Conflict, Fenced, Forbidden, LanesClosed, NotSent
from koordsched.framework.handle import WriteFailed
from koordsched.scheduling.apiwrites import ApiWrites
from koordsched.scheduling.virtualpods import VirtualPodWriters
from tests.plugins.harness import Bench
from tests.plugins.objects import container, pod
from tests.scheduling.scriptedserver import ScriptedServer
from tests.virtualtime import run

LOST = Ambiguous("connection reset")
FENCED = Fenced("withheld: not the leader")
CONFLICT = Conflict(409, "Conflict", "already assigned")
FORBIDDEN = Forbidden(403, "Forbidden", "no")
FAILED = ApiError(500, "InternalError", "etcd")
UNREACHABLE = NotSent("connection refused")


def bind(*outcomes, stored=()):
    """Binds a pod to alder; these are the outcomes of the writes and of the reads."""
    server = ScriptedServer(*outcomes, stored=stored)
    api = ApiWrites(server, server, Random(1), VirtualPodWriters())
    run(api.bind(Bench().pod(pod("p", container(cpu="1"))), "alder"))


def on(name):
    return pod("p", container(cpu="1"), on=name)


LATER = {
    "the lease ran out meanwhile": FENCED,
    "another one has bound it, or we": CONFLICT,
    "no rights": FORBIDDEN,
    "the server fails": FAILED,
}


@pytest.mark.parametrize("refusal", LATER.values(), ids=LATER)
def test_a_try_that_was_carried_out_counts_whatever_refuses_the_next(refusal):
    bind(LOST, refusal, stored=[LOST, on("alder")])


@pytest.mark.parametrize("refusal", [FENCED, CONFLICT, FORBIDDEN])
@pytest.mark.parametrize("name", [None, "beech"], ids=["no node", "another node"])
def test_it_has_failed_if_the_pod_is_not_on_that_node(refusal, name):
    with pytest.raises(WriteFailed):
        bind(LOST, refusal, stored=[on(name)])


@pytest.mark.parametrize("refusal", [FENCED, FORBIDDEN, UNREACHABLE])
def test_what_was_never_in_doubt_is_not_read_back(refusal):
    with pytest.raises(WriteFailed):
        bind(refusal)


def test_a_replica_at_its_end_asks_no_more():
    with pytest.raises(WriteFailed):
        bind(LOST, LanesClosed("closed"))


def test_one_that_is_in_doubt_is_sent_again_until_there_is_an_answer():
    bind(LOST, UNREACHABLE, LOST, FAILED, {}, stored=[on(None)])

"""What the answers to the writes of controllers mean."""

import asyncio
from random import Random

import pytest

from koordsched.client.lanes import Lanes
from koordsched.client.transport import Response
from koordsched.cluster.builtinkinds import PODS
from koordsched.framework.handle import WriteFailed
from koordsched.scheduling.objectwrites import ObjectWrites
from koordsched.scheduling.virtualpods import VirtualPodWriters
from tests.plugins.harness import Bench
from tests.plugins.objects import pod
from tests.scheduling.test_namesakes import meta
from tests.virtualtime import VirtualClock, run

STATUS = '{"kind":"Status","status":"Failure","code":%d,"reason":"%s","message":"%s"}'
ANOTHER = "Precondition failed: UID in precondition: a, UID in object meta: b"
RECREATED = "the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted"
CHANGED = "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version"


def writes_answered(code, reason, message):
    """Writes to a server that always answers this."""

    class Server:
        def send(self, request, done):
            body = (STATUS % (code, reason, message)).encode()
            asyncio.get_running_loop().call_soon(done, Response(code, {}, body))

    return ObjectWrites(Lanes(Server(), VirtualClock(asyncio.get_running_loop()), Random(1)), VirtualPodWriters())


@pytest.mark.parametrize(
    "write",
    [lambda writes, pod: writes.evict(pod), lambda writes, pod: writes.delete(PODS, meta(pod))],
    ids=["evict", "delete"],
)
@pytest.mark.parametrize(
    ("code", "reason", "message", "failed"),
    [
        (201, "", "", False),
        (404, "NotFound", 'pods "p" not found', False),
        (409, "Conflict", ANOTHER, False),
        (409, "Conflict", RECREATED, False),
        (409, "Conflict", CHANGED, True),
        (409, "Conflict", CHANGED.replace("fulfilled", "fulfilled on pods druid-0"), True),
        (403, "Forbidden", "not allowed", True),
        (500, "InternalError", "This pod has more than one PodDisruptionBudget", True),
    ],
)
def test_a_write_succeeds_when_the_pod_is_no_more(code, reason, message, failed, write):
    async def main():
        try:
            await write(writes_answered(code, reason, message), Bench().pod(pod("p")))
        except WriteFailed:
            return True
        return False

    assert run(main()) is failed


@pytest.mark.parametrize(
    ("code", "reason", "created"), [(201, "", True), (409, "AlreadyExists", False), (403, "Forbidden", WriteFailed)]
)
def test_an_object_is_created_unless_there_is_one_of_that_name(code, reason, created):
    async def main():
        try:
            return await writes_answered(code, reason, "").create(PODS, "default", pod("p"))
        except WriteFailed:
            return WriteFailed

    assert run(main()) is created

"""In which encoding a scheduler writes, and what becomes of pods where the server refuses it."""

import asyncio
import json

import pytest

from koordsched.fakecluster.protobuf import to_json
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
UNSUPPORTED = (
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":415,"reason":"UnsupportedMediaType","message":"the '
    b'body of the request was in an unknown format - accepted media types include: application/json"}'
)


@pytest.mark.parametrize(
    ("connection", "content_type", "accept", "read"),
    [
        ({}, PROTOBUF, f"{PROTOBUF},{JSON}", to_json),
        ({"acceptContentTypes": JSON}, PROTOBUF, f"{PROTOBUF},{JSON}", to_json),
        ({"contentType": JSON}, JSON, JSON, bytes),
        ({"acceptContentTypes": PROTOBUF, "contentType": JSON}, JSON, JSON, bytes),
    ],
)
def test_bindings_and_events(connection, content_type, accept, read):
    written = []

    async def heard(call, proceed):
        if call.method == "POST":
            kinds = (call.headers["content-type"], call.headers["accept"])
            written.append((call.path.rpartition("/")[2], *kinds, json.loads(read(call.body))))
        return await proceed()

    async def main():
        embedded = Embedded()
        embedded.insert(node("n1"))
        async with scheduler_on(embedded, {**DEFAULT_CONFIG, "clientConnection": connection}, fault=heard):
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(1)
        return embedded.get("Pod", "p")

    placed = run(main())
    assert placed["spec"]["nodeName"] == "n1"
    (*binding, bound), (*event, told) = written
    assert binding == ["binding", content_type, accept]
    assert event == ["events", content_type, accept]
    assert bound == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "default", "uid": placed["metadata"]["uid"]},
        "target": {"kind": "Node", "name": "n1"},
    }
    assert (told["apiVersion"], told["kind"], told["reason"]) == ("events.k8s.io/v1", "Event", "Scheduled")


def test_a_server_that_takes_json_alone():
    """Whoever stands before an API server may: pods say so and wait, until it takes what kube-scheduler sends, too."""
    refusing = True

    async def facade(call, proceed):
        if refusing and call.headers["content-type"] == PROTOBUF and call.path.endswith("/binding"):
            return 415, {}, UNSUPPORTED
        return await proceed()

    async def main():
        nonlocal refusing
        embedded = Embedded()
        embedded.insert(node("n1"))
        async with scheduler_on(embedded, fault=facade) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(20)
            assert "nodeName" not in embedded.get("Pod", "p")["spec"]
            (condition,) = embedded.get("Pod", "p")["status"]["conditions"]
            assert "accepted media types include: application/json" in condition["message"]
            assert 3 <= running.attempts["default/p"] <= 6
            refusing = False
            await asyncio.sleep(20)
            assert embedded.get("Pod", "p")["spec"]["nodeName"] == "n1"
            assert running.scheduler.cluster.assumed == {}

    run(main())

"""A scheduler writes JSON, whatever it reads."""

import asyncio
import json

import pytest

from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    "connection",
    [
        {},
        {"contentType": PROTOBUF},
        {"acceptContentTypes": PROTOBUF, "contentType": PROTOBUF},
        {"acceptContentTypes": JSON, "contentType": JSON},
    ],
)
def test_bindings_and_events(connection):
    written = []

    async def heard(call, proceed):
        if call.method == "POST":
            written.append((call.path.rpartition("/")[2], call.headers["content-type"], json.loads(call.body)))
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
    assert binding == ["binding", JSON]
    assert event == ["events", JSON]
    assert bound == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "default", "uid": placed["metadata"]["uid"]},
        "target": {"kind": "Node", "name": "n1"},
    }
    assert (told["apiVersion"], told["kind"], told["reason"]) == ("events.k8s.io/v1", "Event", "Scheduled")

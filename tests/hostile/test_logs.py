"""Nothing that a user can name, write or provoke starts a line of its own in the log."""

import asyncio
import io
import json
import logging
import time

import orjson
import pytest

from koordsched.observability.logging import LogOptions, set_up_logging
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

FORGED = "x\nE0101 00:00:00.000000 1 forged] root is gone\r\x1b[2J\u2028\u202e"
HOSTILE = [
    {"containers": [{"name": "c", "resources": {"requests": {"cpu": FORGED}}}]},
    {"tolerations": FORGED},
    {"nodeSelector": {FORGED: FORGED}},
    {"affinity": {"nodeAffinity": FORGED}},
    {"topologySpreadConstraints": [{"topologyKey": FORGED, "maxSkew": 1, "whenUnsatisfiable": FORGED}]},
    {"volumes": [{"name": FORGED, "persistentVolumeClaim": {"claimName": FORGED}}]},
    {"schedulingGates": [{"name": FORGED}]},
]


async def hostile_cluster():
    embedded = Embedded()
    odd = node("odd", labels={FORGED: FORGED})
    odd["status"]["allocatable"]["cpu"] = FORGED
    embedded.insert(odd)
    async with scheduler_on(embedded):
        for i, spec in enumerate(HOSTILE):
            made = pod(f"p{i}", container(cpu="1"))
            made["metadata"]["name"] = f"p{i}{FORGED}"
            made["spec"] |= spec
            embedded.insert(made)
        await asyncio.sleep(30)
    return embedded


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_is_a_record(form):
    stream, logger = io.StringIO(), logging.getLogger()
    before = (logger.level, logger.handlers[:])
    control = set_up_logging(LogOptions(verbosity=10, format=form), monotonic=time.monotonic, stream=stream)
    try:
        run(hostile_cluster())
    finally:
        control.close()
        logger.setLevel(before[0])
        logger.handlers[:] = before[1]
    lines = stream.getvalue().split("\n")
    assert any("forged] root is gone" in line for line in lines)  # it was logged, and
    for line in lines:
        assert not line.startswith("E0101 00:00:00.000000 1 forged]")
        assert not set(line) & set("\r\x1b"), line
        if form == "text":
            assert not set(line) & set("\u2028\u202e"), line
        elif line:
            assert isinstance(orjson.loads(line), dict)


def test_events_are_single_objects():
    embedded = run(hostile_cluster())
    notes = [event["note"] for event in embedded.events()]
    assert any("forged" in note for note in notes)
    assert all(len(note.encode()) <= 1024 for note in notes)
    json.dumps(notes)

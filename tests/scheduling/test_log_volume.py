"""At default verbosity the log tells of states and troubles, not of pods: it does not grow with their number."""

import asyncio
import io
import json
import logging
from collections import Counter

import pytest

from koordsched.client.errors import Ambiguous, NotSent
from koordsched.observability.logging import LogOptions, set_up_logging
from tests.embedded import Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

STATUS = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":"%s","message":"told to fail"}'


def refuse(status, reason):
    async def answer(proceed):
        return status, {}, STATUS % (status, reason)

    return answer


async def lost(proceed):
    await proceed()
    raise Ambiguous("connection lost after sending")


async def unsent(proceed):
    raise NotSent("connection refused")


async def carry_out(proceed):
    return await proceed()


ROUTES = {
    "binding refused": ("/binding", refuse(500, b"InternalError")),
    "binding in conflict": ("/binding", refuse(409, b"Conflict")),
    "binding lost": ("/binding", lost),
    "status refused": ("/status", refuse(403, b"Forbidden")),
    "status unreachable": ("/status", unsent),
    "events refused": ("/events", refuse(403, b"Forbidden")),
    "events unreachable": ("/events", unsent),
    "nothing fails": ("/none", carry_out),
}


def a_load(number):
    """Pods that fit, that do not, and that cannot be understood."""
    for i in range(number):
        kind = i % 4
        if kind < 2:
            yield pod(f"p{i}", container(cpu="100m"))
        elif kind == 2:
            yield pod(f"p{i}", container(cpu="99"))
        else:
            thing = pod(f"p{i}", container(cpu="1"))
            thing["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "lots"
            yield thing


def lines_of(route, number):
    """The log of half a minute with so many pods."""
    part, fault = ROUTES[route]
    stream = io.StringIO()

    async def on_calls(call, proceed):
        failing = call.method != "GET" and call.path.endswith(part)
        return await (fault(proceed) if failing else proceed())

    async def main():
        loop = asyncio.get_running_loop()
        root = logging.getLogger("koordsched")
        control = set_up_logging(LogOptions(format="json"), monotonic=loop.time, stream=stream, root=root)
        try:
            embedded = Embedded()
            for i in range(20):
                embedded.insert(node(f"n{i}", cpu="16"))
            async with scheduler_on(embedded, fault=on_calls):
                for thing in a_load(number):
                    embedded.insert(thing)
                await asyncio.sleep(30)
        finally:
            control.close(30)
        assert control.dropped == 0

    run(main())
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("route", ROUTES)
def test_the_log_does_not_grow_with_the_pods(route):
    lines = lines_of(route, 600)
    texts = Counter(line["msg"] for line in lines)
    assert len(lines) <= 100, texts.most_common(10)
    if route == "nothing fails":
        assert not [line for line in lines if "pod" in line["msg"]]
        assert not [line for line in lines if line["level"] == "error"]

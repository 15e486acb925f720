"""A binding goes to its extender while its sender leads, and not a moment later."""

import socket
import time

import pytest

from koordsched.config.wire import Extender
from koordsched.extender.client import ExtenderError, HttpExtender
from koordsched.observability.metrics import Metrics
from tests.extender.service import Service, serving
from tests.plugins.harness import Bench
from tests.plugins.objects import pod


class Fence:
    """Answers this, and counts how often it was asked."""

    def __init__(self, leads):
        self.leads = leads
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return self.leads


async def bind(url, fence):
    """What becomes of a binding: None, or the error."""
    durations = Metrics(process_metrics=False).histograms("durations", "", ("url", "verb", "result"), (1.0,))
    made = HttpExtender(Extender(url_prefix=url, bind_verb="bind"), durations, time.monotonic)
    try:
        await made.bind(Bench().pod(pod("p")), "alder", fence)
    except ExtenderError as error:
        return error
    finally:
        await made.close()
    return None


async def test_whoever_leads_sends():
    async with serving(Service(bind={})) as service:
        assert await bind(service.url, Fence(True)) is None
        assert [asked["Node"] for asked in service.requests("bind")] == ["alder"]


async def test_whoever_leads_no_more_sends_nothing():
    async with serving(Service(bind={})) as service:
        error = await bind(service.url, Fence(False))
        assert (str(error), error.asked) == (f'Post "{service.url}/bind": withheld: not the leader', False)
        assert service.asked == []


@pytest.mark.parametrize("leads", [True, False])
async def test_the_fence_is_asked_once_there_is_a_connection(leads):
    """While one is being opened, a lease may run out, and a process be stopped for long."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        fence = Fence(leads)
        error = await bind(f"http://127.0.0.1:{closed.getsockname()[1]}", fence)
        assert (error.asked, fence.asked) == (False, 0)

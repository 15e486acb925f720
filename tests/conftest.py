"""The seed and the depth of the run, settled before any process of it collects tests."""

import gc
import logging

import pytest

from tests import depth
from tests.parity.fresh import SEED, choose_seed


class FailedHints(logging.Handler):
    """Queueing hints that raised, and indexes of waiting groups: all pods are tried then, so no test would see."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.messages = []
        for name in ("queue.hints", "queue.groupindex", "scheduling.equivalencekeys"):
            logging.getLogger(f"koordsched.{name}").addHandler(self)

    def emit(self, record):
        self.messages.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


_failed_hints = FailedHints()


@pytest.fixture(autouse=True)
def hints_must_not_fail(request):
    _failed_hints.messages.clear()
    yield
    if _failed_hints.messages and request.node.get_closest_marker("failing_hints") is None:
        pytest.fail("; ".join(_failed_hints.messages))


def pytest_configure(config):
    depth.quick = "not slow" in config.option.markexpr
    choose_seed()
    gc.disable()  # until everything is collected: what collection makes stays


def pytest_collection_finish():
    # A full collection goes through all that there is, and the tests alone are half a million objects.
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_report_header(config):
    return f"random states: {SEED}={choose_seed()}"

"""The seed and the depth of the run, settled before any process of it collects tests."""

import gc

from tests import depth
from tests.parity.fresh import SEED, choose_seed


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
